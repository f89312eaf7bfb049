"""SIGKILL at random moments: exporter, compactor, creation, migration, rebuild, evaluation, night, receiver, rewriting.

Half of the kills come after a random time, half at a random call that changes a file.
"""

import random
from collections.abc import Callable, Collection, Iterator
from itertools import count
from pathlib import Path
from unittest import mock

import duckdb
from chaos_clients import Clients, free_ports
from chaos_faults import have_slow_disk
from chaos_ledger import Child, Ledger, Tally, account, acknowledged, kill_at_random, query, settle, until, waiting
from conftest import _span

from agenttrace import store
from agenttrace.spool import Spool, spool_folder

_MIGRATIONS = (
    *store.MIGRATIONS,
    "ALTER TABLE spans ADD COLUMN chaos BIGINT; UPDATE spans SET chaos = 7",
    "CREATE TABLE chaos AS SELECT trace_id, span_id FROM spans; ALTER TABLE steps ADD COLUMN chaos BIGINT",
)


def run(folder: Path, seed: int, *, kills: int = 300, kinds: Collection[str] = (), shared: bool = False) -> Tally:
    """Kills so many processes.

    Args:
        folder: Where the stores go.
        seed: Of all that is random.
        kills: At least one for each kind.
        kinds: Only these; none: all.
        shared: One store for most kinds, which takes less time than one for each.
    """
    tally, rng = Tally(), random.Random(seed)
    # What forks the others loads everything first, and a kill during that would show little.
    Child("idle").ending(tally)
    for kind, (share, work) in KINDS.items():
        if kinds and kind not in kinds:
            continue
        number = max(1, round(kills * share))
        place = folder / ("shared" if shared and work not in (_creation, _migration) else kind)
        place.mkdir(exist_ok=True)
        before = tally.events["kills"]
        work(tally, rng, place, before + number)
        tally.events[kind] = tally.events["kills"] - before
        tally.check(tally.events[kind] >= number, f"{kind}: only {tally.events[kind]} of {number} kills")
    for db in folder.glob("*/agenttrace.duckdb"):
        release = _LATER_RELEASE if db.parent.name == "migration" else {"MIGRATIONS": store.MIGRATIONS}
        with mock.patch.multiple(store, **release):
            account(tally, db, db.parent)
    return tally


def _exporters(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    db = folder / "agenttrace.duckdb"
    for number in _until_killed(tally, kills):
        pair = [
            Child("agent", db=str(db), ledger=str(folder / f"{number}-{n}.ledger"), orders=500, step=_step(rng, 300))
            for n in range(2)
        ]
        for child in pair:
            wanted = len(acknowledged(folder)) + rng.randint(0, 30)
            until(lambda child=child, wanted=wanted: not child.is_running() or len(acknowledged(folder)) >= wanted)
            kill_at_random(rng, child, 0.1, tally)


def _compactors(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    db = folder / "agenttrace.duckdb"
    numbers = count(0, 5)
    for _ in _until_killed(tally, kills):
        if waiting(db) < 20:
            _write(db, folder, numbers, 30)
        kill_at_random(rng, Child("compactor", db=str(db), step=_step(rng, 200)), 0.3, tally)


def _creation(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    places = count()
    db = folder / "none"
    for _ in _until_killed(tally, kills):
        if db.exists() or not waiting(db):
            place = folder / str(next(places))
            place.mkdir()
            db = place / "agenttrace.duckdb"
            _write(db, place, count(0, 5), 2)
        kill_at_random(rng, Child("compactor", db=str(db), step=_step(rng, 30)), 0.6, tally)
    for ledger in folder.glob("*/*.ledger"):
        account(tally, ledger.with_name("agenttrace.duckdb"), ledger.parent)


def _migration(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    db = folder / "agenttrace.duckdb"
    for _ in _until_killed(tally, kills):
        if not db.exists() or _version(db) > store.SCHEMA_VERSION:
            db.unlink(missing_ok=True)
            for ledger in folder.glob("*.ledger"):
                ledger.unlink()
            _write(db, folder, count(0, 5), 40)
            settle(db)
        options = {"db": str(db), "scripts": _MIGRATIONS}
        kill_at_random(rng, Child("migrator", **options, step=_step(rng, 6)), 0.15, tally)
        with duckdb.connect(db) as con:
            columns = con.execute("SELECT count(*) FROM duckdb_columns() WHERE column_name = 'chaos'").fetchone()
            tables = con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'chaos'").fetchone()
        expected = ((0,), (0,)) if _version(db) == store.SCHEMA_VERSION else ((2,), (1,))
        tally.check((columns, tables) == expected, f"{db}: half a migration: {columns}, {tables}")
    Child("migrator", **options).ending(tally)


def _rebuild(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    db = folder / "agenttrace.duckdb"
    for number in _until_killed(tally, kills):
        if not db.exists() or not query(db, "SELECT count(*) FROM dirty_traces")[0][0]:
            ledger = str(folder / f"{number}.ledger")
            Child("agent", db=str(db), ledger=ledger, orders=20, first=100 * number, flush_every=0).ending(tally)
        kill_at_random(rng, Child("compactor", db=str(db), rebuilds=True, step=_step(rng, 60)), 0.8, tally)


def _evaluations(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    db = folder / "agenttrace.duckdb"
    Child("agent", db=str(db), ledger=str(folder / "a.ledger"), orders=30).ending(tally)
    finished = 0
    for number in _until_killed(tally, kills):
        finished += number % 20 == 0 and Child("evaluation", db=str(db)).ending(tally) == 0
        if not kill_at_random(rng, Child("evaluation", db=str(db), step=_step(rng, 40)), 0.9, tally):
            finished += 1
    settle(db)
    runs = query(db, "SELECT run_id FROM evaluation_runs")
    tally.events["evaluations"] += len(runs)
    tally.check(len(runs) >= finished, f"{db}: {finished} evaluations ended well, {len(runs)} are in the store")
    tally.check(len(set(runs)) == len(runs), f"{db}: an evaluation is in the store twice")
    for table in ("findings", "measurements", "not_evaluable"):
        sizes = query(
            db,
            f"SELECT DISTINCT (SELECT count(*) FROM {table} WHERE {table}.run_id = evaluation_runs.run_id)"
            " FROM evaluation_runs",
        )
        tally.check(len(sizes) == 1, f"{db}: half an evaluation: {table} has {sizes} rows a run")
        orphans = query(db, f"SELECT count(*) FROM {table} ANTI JOIN evaluation_runs USING (run_id)")
        tally.check(orphans == [(0,)], f"{db}: {table} without a run: {orphans}")
    tally.check(query(db, "SELECT count(*) > 0 FROM findings") == [(True,)], f"{db}: nothing was found")


def _nights(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    db = folder / "agenttrace.duckdb"
    for night in _until_killed(tally, kills):
        ledger = str(folder / f"night-{night}.ledger")
        Child("agent", db=str(db), ledger=ledger, orders=10, first=1_000_000 + 100 * night).ending(tally)
        kill_at_random(rng, Child("nightly", db=str(db), night=night, step=_step(rng, 40)), 0.9, tally)
        if rng.random() < 0.7:
            # The scheduler starts it again; on the other nights the next one does all of it.
            tally.check(Child("nightly", db=str(db), night=night).ending(tally) == 0, f"{db}: night {night} failed")
    tally.check(Child("nightly", db=str(db), night=night + 1).ending(tally) == 0, f"{db}: the last night failed")
    settle(db)
    tally.events["nights"] += query(db, "SELECT count(DISTINCT night) FROM evaluation_runs WHERE trajectories > 0")[0][
        0
    ]
    twice = query(db, "SELECT trajectory_id FROM judgements GROUP BY trajectory_id, revision HAVING count(*) > 1")
    tally.check(twice == [], f"{db}: judged twice: {twice[:3]}")
    never = query(
        db, "SELECT trajectory_id FROM trajectories ANTI JOIN judgements USING (trajectory_id, revision) WHERE complete"
    )
    tally.check(never == [], f"{db}: never judged: {never[:3]}")
    orphans = query(db, "SELECT count(*) FROM judgements ANTI JOIN evaluation_runs USING (run_id)")
    tally.check(orphans == [(0,)], f"{db}: judgements without a run: {orphans}")


def _rewrites(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    db = folder / "agenttrace.duckdb"
    Child("agent", db=str(db), ledger=str(folder / "rewritten.ledger"), orders=10, first=2_000_000).ending(tally)
    for number in _until_killed(tally, kills):
        ledger = str(folder / f"rewritten-{number}.ledger")
        agent = Child("agent", db=str(db), ledger=ledger, orders=20, first=2_001_000 + 100 * number)
        kill_at_random(rng, Child("rewriter", db=str(db), step=_step(rng, 30)), 1.0, tally)
        agent.ending(tally)
    tally.check(Child("rewriter", db=str(db)).ending(tally) == 0, f"{db}: the last rewriting failed")
    left = [path.name for path in spool_folder(db).glob("rewrite-*")]
    tally.check(not left, f"{db}: rewriting has left {left}")


def _receivers(tally: Tally, rng: random.Random, folder: Path, kills: int) -> None:
    db = folder / "agenttrace.duckdb"
    http_port, grpc_port = free_ports(2)
    with Clients(tally, folder, http_port, grpc_port, rng.random()) as clients:
        for _ in _until_killed(tally, kills):
            # On a slow disk an answer that comes too early comes long before the kill.
            before = rng.choice((None, have_slow_disk))
            options = {"http_port": http_port, "grpc_port": grpc_port, "before": before, "step": _step(rng, 150)}
            child = Child("receiver", db=str(db), **options)
            # A receiver that is killed before it has acknowledged anything shows little.
            clients.wait_for_more(child, rng.randint(1, 8))
            kill_at_random(rng, child, 0.3, tally)
        tally.check(clients.count, f"{db}: no request was acknowledged")


# The share of each in all kills.
KINDS: dict[str, tuple[float, Callable[[Tally, random.Random, Path, int], None]]] = {
    "exporters": (0.2, _exporters),
    "receivers": (0.2, _receivers),
    "compactors": (0.2, _compactors),
    "creation": (0.05, _creation),
    "migration": (0.05, _migration),
    "rebuild": (0.1, _rebuild),
    "evaluations": (0.1, _evaluations),
    "nights": (0.05, _nights),
    "rewrites": (0.05, _rewrites),
}
_LATER_RELEASE = {"MIGRATIONS": _MIGRATIONS, "SCHEMA_VERSION": 1 + len(_MIGRATIONS)}


def _until_killed(tally: Tally, kills: int) -> Iterator[int]:
    """Counts attempts until there are so many kills, or far too many attempts."""
    for number in range(3 * (kills - tally.events["kills"]) + 3):
        if tally.events["kills"] >= kills:
            return
        yield number


def _step(rng: random.Random, most: int) -> int:
    return rng.choice((0, rng.randint(1, most)))


def _version(db: Path) -> int:
    with duckdb.connect(db) as con:
        found = con.execute("SELECT value::INTEGER FROM agenttrace_meta WHERE key = 'schema_version'").fetchone()
    return int(found[0]) if found else 0


def _write(db: Path, ledgers: Path, numbers: "count[int]", segments: int) -> None:
    """Writes segments of which each repeats half of the one before."""
    ledger = Ledger(ledgers / "spool.ledger")
    spool = Spool(spool_folder(db))
    for _ in range(segments):
        first = next(numbers)
        rows = [_span(first + more) for more in range(10)]
        spool.write("spans", rows)
        ledger.add(row.span_id for row in rows)
