"""Requests of a receiver -> spool -> store: the part that HTTP and gRPC share.

A request is acknowledged when its rows are on disk. One fsync serves all requests that are under way at that moment
(group commit), so that many clients do not wait for one each. Bringing segments into the store is another thread's
work: it holds the store for a short while, then leaves it to others for longer.
"""

import json
import logging
import threading
import time
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, NamedTuple

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from agenttrace.collectors.counts import Counts, write_counts
from agenttrace.collectors.decode import Decoded, decode_logs_protobuf, decode_traces_protobuf
from agenttrace.collectors.decode_json import decode_json
from agenttrace.collectors.receiver_metrics import receivers
from agenttrace.compact import Totals
from agenttrace.completeness import lasting, old_spool
from agenttrace.config import Settings
from agenttrace.errors import AgentTraceError, SpoolError
from agenttrace.guard import warn_once
from agenttrace.spans import LogRow, SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import Refreshed, refresh

Signal = Literal["traces", "logs"]
Encoding = Literal["protobuf", "json"]
Response = ExportTraceServiceResponse | ExportLogsServiceResponse

COMMIT_TIMEOUT_S = 30.0
RETRY_AFTER_S = 2

_GROUP_S = 0.02
_GROUP_ROWS = 8_192
_GROUP_BYTES = 32 << 20
_REFRESH_S = 3.0
_REFRESH_SHARE = 4
_MAX_PAUSE_S = 5.0
_REFRESH_WAIT_S = 0.5
# Other programs may have left segments that nobody asks for.
_LOOK_S = 60.0
_WAITING_AGE_S = 1.0
_STOP_WAIT_S = 2.0
# What a body holds may take thirty times its room: one that is larger than this is decoded when no other such one is.
_LARGE_BYTES = 4 << 20
_MAX_PARTS = 1 << 18
_SHOWN_PROBLEMS = 3

_logger = logging.getLogger("agenttrace")


class Waiting(NamedTuple):
    """What has been acknowledged, by whomever, and is not in the store; `oldest_s` is 0 where nothing waits."""

    segments: int
    bytes: int
    oldest_s: float
    set_aside: int


class _Commit(NamedTuple):
    spans: list[SpanRow]
    logs: list[LogRow]
    size: int
    done: "Future[None]"


class Intake:
    """Takes requests in; safe for many threads."""

    def __init__(self, db: Path, *, settings: Settings | None, max_waiting_bytes: int) -> None:
        self.counts = Counts()
        # What has come into the store so far; None until it has been looked into.
        self.totals: Totals | None = None
        self._db = db
        self._settings = settings
        self._spool = Spool(spool_folder(db))
        self._max_waiting_bytes = max_waiting_bytes
        self._waiting_bytes = 0
        self._in_flight = 0
        self._lock = threading.Lock()
        self._large = threading.Lock()
        self._commits: SimpleQueue[_Commit | None] = SimpleQueue()
        self._has_new = False
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._problem = ""
        self._is_old = self._has_named = False
        self._waiting = Waiting(0, 0, 0.0, 0)
        self._waiting_at = float("-inf")
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
        self._wake.set()
        receivers.add(self)

    def stop(self) -> None:
        """Writes what has been added, and brings it into the store if that is free."""
        self._commits.put(None)
        self._committer.join()
        self._stopping.set()
        self._wake.set()
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
        self._name_rejected(decoded)

    def _name_rejected(self, decoded: Decoded) -> None:
        """Logs the first record of a receiver's life that was skipped; the sender is told of each."""
        if decoded.problems and not self._has_named:
            self._has_named = True
            _logger.warning("a record was skipped; further ones are only counted: %s", decoded.problems[0])

    def count_refused(self, reason: str) -> None:
        """Counts a request that was not taken."""
        with self._lock:
            self.counts.refused[reason] += 1
        self._wake.set()

    def count_fault(self, err: Exception) -> None:
        """Counts a request that a fault of ours has ended, and logs it."""
        self.count_refused("internal error")
        _logger.error("a request met an internal error; please report it", exc_info=err)

    def waiting(self) -> Waiting:
        """Looks into the spool, at most once a second: it may hold tens of thousands of files."""
        if time.monotonic() - self._waiting_at > _WAITING_AGE_S:
            with suppress(SpoolError):
                pending = self._spool.pending()
                set_aside = len(self._spool.set_aside_paths())
                self._waiting = Waiting(pending.segments, pending.bytes, pending.oldest_s, set_aside)
            self._waiting_at = time.monotonic()
        return self._waiting

    def _commit_loop(self) -> None:
        while (first := self._commits.get()) is not None:
            batch = [first]
            is_last = self._gather(batch)
            self._write(batch)
            self._has_new = True
            self._wake.set()
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
        except Exception as err:
            # Whatever it is, the thread lives on: without it no request would be answered any more.
            known = isinstance(err, SpoolError)
            failure = err if known else SpoolError(f"{self._spool.folder}: cannot be written: {_reason(err)}")
            self._warn(str(failure))
            for commit in batch:
                commit.done.set_exception(failure)
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
            self._wake.wait(_LOOK_S)
            self._stopping.wait(_REFRESH_S)
            if self._stopping.is_set():
                return
            self._wake.clear()
            started = time.monotonic()
            if self._has_new or self.waiting().segments:
                self._has_new = False
                if not self._refresh(_REFRESH_WAIT_S):
                    self._has_new = True
                    self._wake.set()
            with suppress(SpoolError):
                self._write_counts()
            # Others read the store in between: it is theirs for most of the time. Not without a bound, for what arrives
            # meanwhile makes the next turn longer, and the lag would grow although the processor is idle.
            self._stopping.wait(min(_REFRESH_SHARE * (time.monotonic() - started), _MAX_PAUSE_S))

    def _refresh(self, wait_s: float) -> bool:
        """Brings the spool into the store; False where it was busy or cannot be used."""
        try:
            refreshed = refresh(self._db, settings=self._settings, wait_s=wait_s)
        except Exception as err:
            # The same holds here: the spool would grow until it is full.
            known = isinstance(err, AgentTraceError)
            self._warn(str(err) if known else f"{self._db}: not updated: {_reason(err)}")
            return False
        if refreshed.problem:
            self._warn(refreshed.problem)
        self.totals = refreshed.totals or self.totals
        self._tell_age(refreshed)
        for line in lasting(self._db, refreshed):
            warn_once(f"{self._db}: {line.advice}", "%s; %s.", line.fact, line.advice)
        return not refreshed.busy

    def _tell_age(self, refreshed: Refreshed) -> None:
        """Warns of a spool that grows old: once, and again only after it has been young."""
        line = old_spool(self._db, refreshed)
        if line is not None and not self._is_old:
            _logger.warning("%s: %s.", line.fact, line.advice)
        self._is_old = line is not None

    def _warn(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            _logger.warning("%s", problem)

    def _write_counts(self) -> None:
        with self._lock:
            text = json.dumps(vars(self.counts))
        write_counts(self._db, text)


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


def _reason(err: Exception) -> str:
    return (isinstance(err, OSError) and err.strerror) or f"{type(err).__name__} {err}".strip()


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
