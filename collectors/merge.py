"""Other stores -> spool: what several machines have recorded comes into one store; a second time nothing comes."""

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from agenttrace.collectors.batches import Batches
from agenttrace.connect import Connection
from agenttrace.spans import LogRow, OutcomeRow, SpanRow
from agenttrace.spool import EvaluationRow
from agenttrace.store import open_store

_ROWS = 1_024

_SPANS = f"SELECT {', '.join(SpanRow._fields)} FROM spans WHERE trace_id"  # noqa: S608 - names of ours
_LOGS = f"SELECT {', '.join(LogRow._fields)} FROM log_records WHERE trace_id"  # noqa: S608 - names of ours
_SETTLED = "IN (SELECT trace_id FROM settled_traces)"
_OUTCOMES = (
    "SELECT task_id, trial, trajectory_id, source, passed, score, detail, epoch_ns(recorded_at)"
    " FROM outcomes ORDER BY ALL"
)
# A night is one machine's: its ledger says nothing of runs that have come from others.
_EVALUATIONS = """
SELECT
    to_json(r)::VARCHAR,
    (SELECT coalesce(to_json(list(f)), '[]') FROM findings AS f WHERE f.run_id = r.run_id)::VARCHAR,
    (SELECT coalesce(to_json(list(m)), '[]') FROM measurements AS m WHERE m.run_id = r.run_id)::VARCHAR,
    (SELECT coalesce(to_json(list(n)), '[]') FROM not_evaluable AS n WHERE n.run_id = r.run_id)::VARCHAR
FROM evaluation_runs AS r
WHERE night IS NULL
ORDER BY started_at, run_id
"""


class Read(NamedTuple):
    """What was read of a store; what the other one has already is not stored again."""

    spans: int
    logs: int
    outcomes: int
    evaluations: int


def merge(source: Path, db: Path) -> Read:
    """Reads a store into the spool of another one; `store.refresh` then brings it in.

    Spans, log records, outcomes and evaluations come, but no nights: the nightly job of the other store judges the
    runs anew.

    Args:
        source: The store to read, with all that has arrived there.
        db: The store that gets it.

    Raises:
        StoreError: The source cannot be read.
        SpoolError: The spool cannot be written; what was written before stays.
    """
    settled, others = Batches(db), Batches(db, settled=False)
    spans = logs = 0
    with closing(open_store(source)) as con:
        for batches, where in ((settled, _SETTLED), (others, f"NOT {_SETTLED}")):
            spans += _bring(con, batches, "spans", SpanRow, f"{_SPANS} {where}")
            logs += _bring(con, batches, "logs", LogRow, f"{_LOGS} {where}")
        outcomes = _bring(con, others, "outcomes", OutcomeRow, _OUTCOMES)
        evaluations = _bring(con, others, "evaluation", EvaluationRow, _EVALUATIONS)
    settled.flush()
    others.flush()
    return Read(spans, logs, outcomes, evaluations)


def _bring(con: Connection, batches: Batches, kind: str, row: type[Any], query: str) -> int:
    """Hands the rows of a query on, and counts them."""
    cursor, count = con.execute(query), 0
    while found := cursor.fetchmany(_ROWS):
        batches.add(kind, [row(*values) for values in found], sum(map(_length, found)))
        count += len(found)
    return count


def _length(values: tuple[Any, ...]) -> int:
    return sum(len(value) for value in values if isinstance(value, str))
