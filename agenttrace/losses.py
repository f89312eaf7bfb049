"""What programs could not record, told beside the store: whoever looks later cannot ask them any more."""

import json
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agenttrace import private

LOSSES_FILE = "losses.jsonl"

# A program that loses spans may do so for months.
_MAX_BYTES = 64 << 10


class Losses(NamedTuple):
    """Spans that were lost, by cause, and when that was told last, in seconds since 1970-01-01 UTC."""

    spans: Counter[str]
    last_at: float


def write_losses(folder: Path, spans: Mapping[str, int]) -> None:
    """Adds to what was lost; on a disk that takes nothing more, nobody is told.

    Args:
        folder: The spool.
        spans: How many spans, by cause.
    """
    line = json.dumps({"at": time.time(), "spans": spans}) + "\n"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    private.keep_off_streams()
    with suppress(OSError):
        descriptor = os.open(folder / LOSSES_FILE, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size < _MAX_BYTES:
                # One write: lines of several processes do not mix.
                os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def read_losses(folder: Path) -> Losses | None:
    """Reads what was lost so far; None where nothing was."""
    spans: Counter[str] = Counter()
    last_at = 0.0
    try:
        lines = (folder / LOSSES_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        # The last one may be torn, where the disk was full.
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            told = json.loads(line)
            spans.update({str(cause): int(count) for cause, count in told["spans"].items()})
            last_at = max(last_at, float(told["at"]))
    return Losses(spans, last_at) if spans else None
