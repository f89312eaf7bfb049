"""Other stores -> spool: what several machines have recorded comes into one store; a second time nothing comes."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from agenttrace.collectors.batches import Batches, size_of
from agenttrace.connect import Connection
from agenttrace.spans import LogRow, OutcomeRow, SpanRow
from agenttrace.spool import EvaluationRow, Spool, spool_folder
from agenttrace.store import open_store

_ROWS = 4_096
_Row = TypeVar("_Row", SpanRow, LogRow, OutcomeRow, EvaluationRow)

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
    with closing(open_store(source)) as con:
        spans = logs = 0
        for settled in (True, False):
            where = f"trace_id {'' if settled else 'NOT '}{_SETTLED}"
            batches = Batches(db, settled=settled)
            for rows in _rows(con, SpanRow, f"SELECT {_columns(SpanRow)} FROM spans WHERE {where}"):  # noqa: S608 - ours
                spans += len(rows)
                batches.add("spans", rows, size_of(rows))
            for rows in _rows(con, LogRow, f"SELECT {_columns(LogRow)} FROM log_records WHERE {where}"):  # noqa: S608
                logs += len(rows)
                batches.add("logs", rows, size_of(rows))
            batches.flush()
        outcomes = [row for rows in _rows(con, OutcomeRow, _OUTCOMES) for row in rows]
        evaluations = [row for rows in _rows(con, EvaluationRow, _EVALUATIONS) for row in rows]
    spool = Spool(spool_folder(db))
    for kind, rows in (("outcomes", outcomes), ("evaluation", evaluations)):
        if rows:
            spool.write(kind, rows)
    return Read(spans, logs, len(outcomes), len(evaluations))


def _columns(row: type[SpanRow] | type[LogRow]) -> str:
    return ", ".join(row._fields)


def _rows(con: Connection, row: type[_Row], query: str) -> Iterator[list[_Row]]:
    cursor = con.execute(query)
    while found := cursor.fetchmany(_ROWS):
        yield [_made(row, values) for values in found]


def _made(row: type[_Row], values: tuple[Any, ...]) -> _Row:
    return row(*values)
