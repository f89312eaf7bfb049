"""Requests of a receiver -> spool -> store: the part that HTTP and gRPC share.

A request is acknowledged when its rows are on disk. One fsync serves all requests that are under way at that moment
(group commit), so that many clients do not wait for one each. Bringing segments into the store is another thread's
work: it holds the store for a short while, then leaves it to others for longer.
"""

import json
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from agenttrace.collectors.decode import Decoded, decode_logs_protobuf, decode_traces_protobuf
from agenttrace.collectors.decode_json import decode_json
from agenttrace.config import Settings
from agenttrace.errors import AgentTraceError, SpoolError
from agenttrace.spans import LogRow, SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import refresh

Signal = Literal["traces", "logs"]
Encoding = Literal["protobuf", "json"]
Response = ExportTraceServiceResponse | ExportLogsServiceResponse

COUNTS_FILE = "receiver.json"
COMMIT_TIMEOUT_S = 30.0
RETRY_AFTER_S = 2

_GROUP_S = 0.02
_GROUP_ROWS = 8_192
_GROUP_BYTES = 32 << 20
_REFRESH_S = 3.0
_REFRESH_SHARE = 4
_REFRESH_WAIT_S = 0.5
_STOP_WAIT_S = 2.0
# What a body holds may take thirty times its room: one that is larger than this is decoded when no other such one is.
_LARGE_BYTES = 4 << 20
_MAX_PARTS = 1 << 18
_SHOWN_PROBLEMS = 3

_logger = logging.getLogger("agenttrace")


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
    except (FileNotFoundError, NotADirectoryError, ValueError, TypeError):
        # A file of another release says nothing that is worth an error.
        return None


class _Commit(NamedTuple):
    spans: list[SpanRow]
    logs: list[LogRow]
    size: int
    done: "Future[None]"


class Intake:
    """Takes requests in; safe for many threads."""

    def __init__(self, db: Path, *, settings: Settings | None, max_waiting_bytes: int) -> None:
        self.counts = Counts()
        self._db = db
        self._settings = settings
        self._spool = Spool(spool_folder(db))
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._large = threading.Lock()
        self._commits: SimpleQueue[_Commit | None] = SimpleQueue()
        self._has_new = threading.Event()
        self._stopping = threading.Event()
        self._problem = ""
        self._committer = threading.Thread(target=self._commit_loop, name="agenttrace-commit", daemon=True)
        self._refresher = threading.Thread(target=self._refresh_loop, name="agenttrace-refresh", daemon=True)

    def start(self) -> None:
        """Starts the threads.

        Raises:
            SpoolError: The spool cannot be written.
        """
        self._write_counts()
        self._committer.start()
        self._refresher.start()

    def stop(self) -> None:
        """Writes what has been added, and brings it into the store if that is free."""
        self._commits.put(None)
        self._committer.join()
        self._stopping.set()
        self._has_new.set()
        self._refresher.join()
        self._refresh(_STOP_WAIT_S)
        self.counts.stopped = True
        with suppress(SpoolError):
            self._write_counts()

    @contextmanager
    def holding(self) -> Generator["Held"]:
        """Accounts for the memory of one request."""
        held = Held(self)
        try:
            yield held
        finally:
            self.reserve(-held.size)

    def reserve(self, size: int) -> bool:
        """Accounts for bytes in memory; False, and nothing reserved, where too many wait already."""
        with self._lock:
            if size > 0 and self._waiting_bytes + size > self._max_waiting_bytes:
                return False
            self._waiting_bytes += size
            return True

    def take(self, signal: Signal, encoding: Encoding, body: bytes) -> "tuple[Decoded, Future[None]]":
        """Decodes a request and queues its rows.

        Returns:
            What was decoded, and a future that is done when that is on disk; it fails with SpoolError or OSError.

        Raises:
            DecodeError: The body is not what it should be; nothing of it is taken.
        """
        with self._lock:
            self._in_flight += 1
        try:
            with self._large if len(body) > _LARGE_BYTES else nullcontext():
                decoded = _decode(signal, encoding, body)
            done: Future[None] = Future()
            # From here on nobody can cancel it: the rows will be written.
            done.set_running_or_notify_cancel()
            if decoded.spans or decoded.logs:
                self._commits.put(_Commit(decoded.spans, decoded.logs, len(body) + decoded.shared_bytes, done))
            else:
                done.set_result(None)
            return decoded, done
        finally:
            with self._lock:
                self._in_flight -= 1

    def count(self, decoded: Decoded) -> None:
        """Counts an acknowledged request."""
        with self._lock:
            self.counts.spans += len(decoded.spans)
            self.counts.logs += len(decoded.logs)
            self.counts.rejected_spans += decoded.rejected_spans
            self.counts.rejected_logs += decoded.rejected_logs
            self.counts.logs_without_span += decoded.logs_without_span
            self.counts.leniencies.update(decoded.leniencies)

    def count_refused(self, reason: str) -> None:
        """Counts a request that was not taken."""
        with self._lock:
            self.counts.refused[reason] += 1

    def count_fault(self, err: Exception) -> None:
        """Counts a request that a fault of ours has ended, and logs it."""
        self.count_refused("internal error")
        _logger.error("a request met an internal error; please report it", exc_info=err)

    def _commit_loop(self) -> None:
        while (first := self._commits.get()) is not None:
            batch = [first]
            is_last = self._gather(batch)
            self._write(batch)
            self._has_new.set()
            if is_last:
                return

    def _gather(self, batch: list[_Commit]) -> bool:
        """Adds what is queued, and what is being decoded, to a batch; True where the end was among it."""
        deadline = time.monotonic() + _GROUP_S
        while (
            sum(len(commit.spans) + len(commit.logs) for commit in batch) < _GROUP_ROWS
            and sum(commit.size for commit in batch) < _GROUP_BYTES
        ):
            # A lone client must not wait for others that do not come.
            wait_s = deadline - time.monotonic() if self._in_flight else 0.0
            try:
                commit = self._commits.get(timeout=max(wait_s, 0.0)) if wait_s > 0 else self._commits.get_nowait()
            except Empty:
                return False
            if commit is None:
                return True
            batch.append(commit)
        return False

    def _write(self, batch: list[_Commit]) -> None:
        try:
            self._write_rows(batch)
        except (SpoolError, OSError) as err:
            self._warn(str(err))
            for commit in batch:
                commit.done.set_exception(err)
        else:
            for commit in batch:
                commit.done.set_result(None)

    def _write_rows(self, batch: Iterable[_Commit]) -> None:
        # Log records after spans: should these fail, the client sends both again, and the spans are recognised.
        if spans := [row for commit in batch for row in commit.spans]:
            self._spool.write("spans", spans)
        if logs := [row for commit in batch for row in commit.logs]:
            self._spool.write("logs", logs)

    def _refresh_loop(self) -> None:
        while not self._stopping.is_set():
            self._has_new.wait()
            self._stopping.wait(_REFRESH_S)
            if self._stopping.is_set():
                return
            self._has_new.clear()
            started = time.monotonic()
            if not self._refresh(_REFRESH_WAIT_S):
                self._has_new.set()
            with suppress(SpoolError):
                self._write_counts()
            # Others read the store in between: it is theirs for most of the time.
            self._stopping.wait(_REFRESH_SHARE * (time.monotonic() - started))

    def _refresh(self, wait_s: float) -> bool:
        """Brings the spool into the store; False where it was busy or cannot be used."""
        try:
            refreshed = refresh(self._db, settings=self._settings, wait_s=wait_s)
        except AgentTraceError as err:
            self._warn(str(err))
            return False
        if refreshed.problem:
            self._warn(refreshed.problem)
        return not refreshed.busy

    def _warn(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _logger.warning("%s", problem)

    def _write_counts(self) -> None:
        folder = spool_folder(self._db)
        part = folder / f"{COUNTS_FILE}.{os.getpid()}"
        with self._lock:
            text = json.dumps(vars(self.counts))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            part.write_text(text, encoding="utf-8")
            part.replace(folder / COUNTS_FILE)
        except OSError as err:
            raise SpoolError(
                f"{folder}: cannot be written: {err.strerror or err}. Name another store with --db."
            ) from err


class Held:
    """Bytes that one request holds in memory."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self.size = 0

    def grow(self, size: int) -> bool:
        """Accounts for more bytes; False where too many wait already."""
        if not self._intake.reserve(size):
            return False
        self.size += size
        return True


def _decode(signal: Signal, encoding: Encoding, body: bytes) -> Decoded:
    if encoding == "json":
        return decode_json(body, max_parts=_MAX_PARTS)
    decode = decode_traces_protobuf if signal == "traces" else decode_logs_protobuf
    return decode(body, _MAX_PARTS)


def response_for(signal: Signal, decoded: Decoded) -> Response:
    """Builds the answer to an accepted request: empty, or what was skipped and why."""
    message = "; ".join(decoded.problems[:_SHOWN_PROBLEMS])
    if (more := decoded.rejected_spans + decoded.rejected_logs - _SHOWN_PROBLEMS) > 0:
        message += f"; and {more} more"
    if signal == "traces":
        traces = ExportTraceServiceResponse()
        if decoded.problems:
            traces.partial_success.rejected_spans = decoded.rejected_spans
            traces.partial_success.error_message = message
        return traces
    logs = ExportLogsServiceResponse()
    if decoded.problems:
        logs.partial_success.rejected_log_records = decoded.rejected_logs
        logs.partial_success.error_message = message
    return logs
