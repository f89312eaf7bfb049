"""Rows of any number -> segments of the spool."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agenttrace.errors import SpoolError, SpoolFullError
from agenttrace.spans import LogRow, OutcomeRow, SpanRow
from agenttrace.spool import EvaluationRow, Spool, spool_folder
from agenttrace.store import compact_store

_BATCH_ROWS = 8_192
_BATCH_BYTES = 32 << 20
_FULL_SPOOL_BUDGET_S = 600.0


class Batches:
    """Gathers rows into segments of a good size, and makes room in the spool where it is full."""

    def __init__(self, db: Path, *, settled: bool = True) -> None:
        self._db = db
        self._settled = settled
        self._rows: defaultdict[str, list[Any]] = defaultdict(list)
        self._bytes: Counter[str] = Counter()

    def add(self, kind: str, rows: Sequence[SpanRow | LogRow | OutcomeRow | EvaluationRow], size: int) -> None:
        """Takes rows of a kind that hold about so many bytes; may write.

        Raises:
            SpoolError: The spool cannot be written; what was written before stays.
        """
        waiting = self._rows[kind]
        waiting.extend(rows)
        self._bytes[kind] += size
        if len(waiting) >= _BATCH_ROWS or self._bytes[kind] >= _BATCH_BYTES:
            self._write(kind)

    def flush(self) -> None:
        """Writes what is left.

        Raises:
            SpoolError: As `add`.
        """
        for kind in list(self._rows):
            self._write(kind)

    def _write(self, kind: str) -> None:
        rows, self._rows[kind] = self._rows[kind], []
        self._bytes[kind] = 0
        for start in range(0, len(rows), _BATCH_ROWS):
            self._write_segment(kind, rows[start : start + _BATCH_ROWS])

    def _write_segment(self, kind: str, rows: list[Any]) -> None:
        folder = spool_folder(self._db)
        try:
            try:
                Spool(folder).write(kind, rows, settled=self._settled)
            except SpoolFullError:
                # An import can be larger than the cap; it makes the room that it needs.
                compact_store(self._db, budget_s=_FULL_SPOOL_BUDGET_S, wait_s=_FULL_SPOOL_BUDGET_S)
                Spool(folder).write(kind, rows, settled=self._settled)
        except OSError as err:
            raise SpoolError(
                f"{folder}: cannot be written: {err.strerror or err}. Free some space, then try again."
            ) from err


def size_of(rows: Sequence[SpanRow | LogRow]) -> int:
    """Returns about how many bytes rows hold."""
    return sum(len(row.attributes) + len(row.resource_attributes) + len(row.scope_attributes) for row in rows)
