"""`agenttrace prune`: old runs go, with every byte of them; what was found in them stays."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from agenttrace.connect import Connection
from agenttrace.rewrite import Rewritten, Selects, rewrite
from agenttrace.store import open_store

_OF_TRACES = ("spans", "log_records", "steps", "trajectories", "dirty_traces", "settled_traces")
# What a trace takes is an estimate, and findings stay, so one step may not reach a size.
_MAX_STEPS = 8
_BLOCK_BYTES = 256 << 10
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class Pruned(NamedTuple):
    """What a prune deletes and leaves.

    Attributes:
        before: Runs that ended before this go.
        traces: Traces that go.
        runs: Runs that go.
        spans: Spans that go.
        runs_left: Runs that stay.
        labelled: Those of them that stay for an evaluation's label, by label.
        bytes: What the store takes, or will take, about.
    """

    before: datetime
    traces: int
    runs: int
    spans: int
    runs_left: int
    labelled: Mapping[str, int]
    bytes: int


def plan(db: Path, older_than: datetime | None, max_bytes: int | None) -> Pruned:
    """Says what `prune` would do; nothing is changed.

    Args:
        db: The store, with all that has arrived.
        older_than: Runs that ended before this go, with all of their sessions; None: no run for its age.
        max_bytes: The oldest runs go until the rest takes about so much; None: no run for its size.

    Raises:
        StoreError: The store cannot be read.
    """
    with open_store(db) as con:
        labelled = _age(con)
        total, used = _bytes(con, "aged"), _used_bytes(con)
        before = older_than or _NEVER
        if max_bytes is not None and used > max_bytes:
            before = max(before, _before_for(con, total * (used - max_bytes) / used))
        _choose(con, before)
        left = used - int(used * _bytes(con, "gone") / total) if total else used
        traces = _count(con, "gone")
        runs, spans = (_count(con, f"{table} SEMI JOIN gone USING (trace_id)") for table in ("trajectories", "spans"))
        return Pruned(before, traces, runs, spans, _count(con, "trajectories") - runs, labelled, left)


def prune(db: Path, older_than: datetime | None, max_bytes: int | None) -> tuple[Pruned, Rewritten]:
    """Deletes runs, as `plan` says, and writes the store anew without them.

    Raises:
        StoreError: Somebody has the store, the disk is full, or the store cannot be written; it is as it was.
    """
    planned = plan(db, older_than, max_bytes)
    done = rewrite(db, lambda con: _without(con, planned.before))
    for step in range(_MAX_STEPS):
        if max_bytes is None or done.after <= max_bytes:
            break
        more = plan(db, older_than, max_bytes - (_BLOCK_BYTES << step))
        if not more.traces:
            break
        gone = {name: getattr(planned, name) + getattr(more, name) for name in ("traces", "runs", "spans")}
        planned = more._replace(**gone)
        done = rewrite(db, lambda con, before=more.before: _without(con, before))._replace(before=done.before)
    return planned, done


def _without(con: Connection, before: datetime) -> Selects:
    _age(con)
    _choose(con, before)
    selects = {table: f"FROM store.{table} ANTI JOIN gone USING (trace_id)" for table in _OF_TRACES}
    facts = "FROM store.agenttrace_meta WHERE split_part(key, ' ', 2) NOT IN (SELECT trace_id FROM gone)"
    return selects | {"agenttrace_meta": facts}


def _age(con: Connection) -> dict[str, int]:
    """Makes the table `aged`, and counts the runs of each label."""
    from agenttrace.evaluators import prepare

    labels = con.execute("SELECT DISTINCT label FROM evaluation_runs WHERE label IS NOT NULL ORDER BY ALL").fetchall()
    covered = {label: [run for (run,) in prepare.rows(con, "label_runs", label=label)] for (label,) in labels}
    con.execute(_query("prune"), {"labelled": [run for runs in covered.values() for run in runs]})
    return {label: len(runs) for label, runs in covered.items() if runs}


def _choose(con: Connection, before: datetime) -> None:
    con.execute(_query("prune_gone"), {"before": before})


def _before_for(con: Connection, excess: float) -> datetime:
    """Returns the earliest time such that what ended before it takes so many bytes, by bisection."""
    rows = con.execute("SELECT DISTINCT newest + INTERVAL 1 microsecond FROM aged ORDER BY ALL").fetchall()
    times = [time for (time,) in rows]
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        _choose(con, times[middle])
        if _bytes(con, "gone") >= excess:
            high = middle
        else:
            low = middle + 1
    return times[low] if times else _NEVER


def _bytes(con: Connection, table: str) -> int:
    return int(con.execute(f"SELECT coalesce(sum(bytes), 0) FROM {table}").fetchall()[0][0])  # noqa: S608 - ours


def _used_bytes(con: Connection) -> int:
    used = "SELECT used_blocks * block_size FROM pragma_database_size() WHERE database_name = current_database()"
    return int(con.execute(used).fetchall()[0][0])


def _count(con: Connection, relation: str) -> int:
    return int(con.execute(f"SELECT count(*) FROM {relation}").fetchall()[0][0])  # noqa: S608 - ours


@cache
def _query(name: str) -> str:
    return (resources.files("agenttrace") / f"{name}.sql").read_text(encoding="utf-8")
