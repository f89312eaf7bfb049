"""What a receiver has counted, in a file of the spool: other processes read it there, also after it has ended."""

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agenttrace import private
from agenttrace.errors import SpoolError
from agenttrace.spool import spool_folder

COUNTS_FILE = "receiver.json"


@dataclass
class Counts:
    """What a receiver has done since it started; `agenttrace doctor` shows it.

    Attributes:
        urls: Where it listens.
        pid: Its process.
        started_at: Seconds since 1970-01-01 UTC.
        spans: Spans accepted.
        logs: Log records of spans accepted.
        rejected_spans: Spans skipped in accepted requests.
        rejected_logs: Log records skipped in accepted requests.
        logs_without_span: Log records that belong to no span.
        refused: Refused requests by reason, which is an HTTP status or a gRPC code.
        leniencies: What was taken although OTLP forbids it, and how often.
        stopped: Whether it has ended in good order.
    """

    urls: list[str] = field(default_factory=list[str])
    pid: int = field(default_factory=os.getpid)
    started_at: float = field(default_factory=time.time)
    spans: int = 0
    logs: int = 0
    rejected_spans: int = 0
    rejected_logs: int = 0
    logs_without_span: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    leniencies: Counter[str] = field(default_factory=Counter[str])
    stopped: bool = False


def read_counts(db: Path) -> Counts | None:
    """Reads what the last receiver of a store has counted; None where there was none."""
    try:
        values: dict[str, Any] = json.loads((spool_folder(db) / COUNTS_FILE).read_text(encoding="utf-8"))
        counts = Counts(**values)
        counts.refused, counts.leniencies = Counter(counts.refused), Counter(counts.leniencies)
        return counts
    except (OSError, ValueError, TypeError):
        # A file of another release, or of another user, says nothing that is worth an error.
        return None


def write_counts(db: Path, text: str) -> None:
    """Writes what the receiver of a store has counted, as JSON.

    Raises:
        SpoolError: The spool cannot be written.
    """
    folder = spool_folder(db)
    # The spool deletes what ends like this when its writer has died; two containers may have equal process ids.
    part = folder / f"{COUNTS_FILE}.{os.urandom(8).hex()}.tmp"
    try:
        private.make_folder(folder)
        part.write_text(text, encoding="utf-8")
        part.replace(folder / COUNTS_FILE)
    except OSError as err:
        raise SpoolError(f"{folder}: cannot be written: {err.strerror or err}. Name another store with --db.") from err
