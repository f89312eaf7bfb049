"""DuckDBSpanExporter: finished SDK spans -> one segment of the spool per call; and records that cannot wait for an end.

It works in anybody's TracerProvider, behind the SDK's processors or the one of `configure`. No method raises: faults
become a log line per cause and a count.
"""

import atexit
import errno
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, cast

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Span

from agenttrace import self_metrics
from agenttrace.background import Background
from agenttrace.errors import AgentTraceError, SpoolError, SpoolFullError
from agenttrace.guard import guarded, is_programs_own, report, warn_once
from agenttrace.losses import write_losses
from agenttrace.redact import set_key_folder
from agenttrace.sdk_spans import sdk_span_row, sdk_span_values
from agenttrace.semconv import SCOPE_NAME
from agenttrace.spans import OutcomeRow, SpanRow
from agenttrace.spool import CAP_BYTES, Spool, default_db, spool_folder

__all__ = ["DuckDBSpanExporter", "record_outcome", "record_start", "sdk_span_row"]

# What a mutating tool waits for its start record at most.
_START_WAIT_S = 0.05
# What a program waits for a verdict to be on disk; a bad disk may take far longer.
_OUTCOME_WAIT_S = 0.5
_COMPACT_BUDGET_S = 1.0
# Whoever ends while DuckDB still writes may crash, so an end waits longer than a flush.
_END_WAIT_S = 10.0
_FULL_PAUSE_S = 10.0
_TELL_S = 10.0

# Attributes by which some convention of agent tracing is known.
_MARKERS = ("gen_ai.", "openinference.", "agenttrace.", "llm.", "traceloop.", "ai.", "mcp.", "langfuse.", "langsmith.")
_MAX_AWAITED_PARENTS = 65_536

_dropped_attributes = itemgetter(SpanRow._fields.index("dropped_attributes_count"))

# Where processors and exporters keep the ones that they wrap: the SDK's, ours, Logfire's.
_INNER = ("_span_processors", "span_exporter", "processor", "exporter", "wrapped_exporter")
_MAX_WRAPPERS = 8


class _Diversion:
    """Where the exporters of this process write instead of their own stores; None: to these."""

    db: Path | None = None


_diversion = _Diversion()


@contextmanager
def diverted(db: Path) -> Generator[None]:
    """Has every exporter of this process write to another store, whatever the program has configured.

    What ended before is for whoever calls this to flush first, and what ended within it before it is left.
    """
    before, _diversion.db = _diversion.db, db
    try:
        yield
    finally:
        _diversion.db = before


class DuckDBSpanExporter(SpanExporter):
    """Writes spans into the spool of a store.

    `agenttrace` commands take them in, and so does a flush where the file is free.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        spans: Literal["all", "agent"] = "all",
        cap_bytes: int = CAP_BYTES,
    ) -> None:
        """Prepares the exporter; nothing is opened.

        Args:
            path: The store; None: AGENTTRACE_DB, else agenttrace.duckdb in the current folder.
            spans: "all" keeps every span; "agent" those of a known convention and their ancestors.
            cap_bytes: Size of the spool at which new spans are refused and counted.
        """
        # The program may change its folder later.
        self.db = default_db(path)
        # Without a current folder there is no full path, and every write will fail and be counted.
        with suppress(FileNotFoundError):
            self.db = self.db.absolute()
        self.agent_spans = AgentSpans() if spans == "agent" else None
        self.is_shutdown = False
        self._cap_bytes = cap_bytes
        self._spool = Spool(spool_folder(self.db), cap_bytes=cap_bytes)
        self._writes: Background[_Write] = Background("agenttrace-write", _do)
        self._full_until = 0.0
        self._told_at = float("-inf")
        self.component = self_metrics.component(self)
        self.reset()
        with suppress(OSError):
            self.db.parent.mkdir(parents=True, exist_ok=True)
        set_key_folder(self.db.parent)
        _load_store()
        _registered.add(self)
        self_metrics.exports.add(self)
        self_metrics.exporters.add(self)

    def reset(self) -> None:
        """Begins to count anew, as in a forked child: what the parent wrote is the parent's to report."""
        self._counting = threading.RLock()
        self.written = 0
        self.dropped = 0
        self.causes: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()
        self.starts_missed = 0

    def exported(self) -> self_metrics.Values:
        """Counts the spans that are on disk, and those that are lost, by cause."""
        return self_metrics.outcomes(self.written, self.causes, self.component)

    @property
    def waiting(self) -> int:
        """Rows in the spool, of this process and others, that are not in the store yet."""
        try:
            return self._current_spool().pending().rows
        except OSError:
            return 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Writes ended spans as one segment; SUCCESS means that they are on disk."""
        if self.is_shutdown:
            self._count(dropped=len(spans), cause="already_shutdown")
            return SpanExportResult.FAILURE
        kept = list(spans) if self.agent_spans is None else self.agent_spans.select(spans)
        rows = self._rows(kept)
        if not rows:
            return SpanExportResult.SUCCESS if not kept else SpanExportResult.FAILURE
        lost = self._write("spans", rows)
        self._count(written=len(rows) - lost.total())
        for cause, count in lost.items():
            self._count(dropped=count, cause=cause)
        self._tell()
        return SpanExportResult.FAILURE if lost else SpanExportResult.SUCCESS

    def lose(self, spans: int, cause: str) -> None:
        """Notes spans that will never be on disk, to tell of them beside the store later; touches no file."""
        with self._counting:
            self._untold[cause] += spans

    def _tell(self, *, at_once: bool = False) -> None:
        if self._untold and (at_once or time.monotonic() - self._told_at > _TELL_S):
            with self._counting:
                untold, self._untold = self._untold, Counter()
            self._told_at = time.monotonic()
            write_losses(self._current_spool().folder, untold)

    def write_started(self, span: Span) -> bool:
        """Writes a span that has only begun, before what it stands for happens; False after 50 ms without success."""
        if self.is_shutdown or not isinstance(span, ReadableSpan):
            return False
        start = _Write(self.store_rows, "spans", self._rows([span]))
        if self._writes.run(start, _START_WAIT_S) and start.is_stored:
            return True
        self._count(starts_missed=1)
        warn_once(f"start {self.db}", "%s: a tool ran before its start record was on disk", self.db)
        return False

    def write_outcome(self, row: OutcomeRow) -> bool:
        """Writes a verdict on a run; False where that failed, True where it still waits for a slow disk."""
        if self.is_shutdown:
            return False
        verdict = _Write(self.store_rows, "outcomes", [row])
        if self._writes.run(verdict, _OUTCOME_WAIT_S):
            return verdict.is_stored
        warn_once(f"outcome {self.db}", "%s: a verdict is on its way to a slow disk", self.db)
        return True

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Moves segments into the store where nobody else holds it; spans are on disk since `export`.

        Returns:
            False where verdicts or start records still wait for the disk.
        """
        until = time.monotonic() + timeout_millis / 1000
        self._tell(at_once=True)
        is_written = self._settle(timeout_millis / 1000)
        left_s = until - time.monotonic()
        if left_s > 0:
            self._compact(min(_COMPACT_BUDGET_S, left_s), left_s)
        return is_written

    def shutdown(self) -> None:
        """Takes no more spans, and moves what waits into the store where nobody else holds it."""
        if self.is_shutdown:
            return
        self.is_shutdown = True
        _registered.discard(self)
        self._tell(at_once=True)
        self._settle(_COMPACT_BUDGET_S)
        self._writes.stop()
        self._compact(_COMPACT_BUDGET_S, _END_WAIT_S)

    @property
    def _store(self) -> Path:
        return self.db if _diversion.db is None else _diversion.db

    def _current_spool(self) -> Spool:
        """Returns the spool of the store that the path names by now: it may lead through a link that was changed."""
        spool = self._spool
        if spool.folder != (folder := spool_folder(self._store)):
            self._spool = spool = Spool(folder, cap_bytes=self._cap_bytes)
        return spool

    def _rows(self, spans: Sequence[ReadableSpan]) -> list[tuple[Any, ...]]:
        try:
            rows = [sdk_span_values(span) for span in spans]
        except BaseException as err:
            if is_programs_own(err):
                raise
            # One span that cannot be converted must not take the others with it.
            rows = [row for row in map(_guarded_row, spans) if row is not None]
            self._count(dropped=len(spans) - len(rows), cause="not_convertible")
        if any(map(_dropped_attributes, rows)):
            warn_once("span limits", "Span limits cut attributes; verdicts need them whole. Raise the SpanLimits.")
        return rows

    def _write(self, kind: str, rows: Sequence[tuple[Any, ...]]) -> Counter[str]:
        """Writes rows and counts those that cannot be stored, by cause; they are looked for, and the others kept."""
        try:
            try:
                self._current_spool().write(kind, rows)
            except SpoolFullError:
                if time.monotonic() < self._full_until:
                    raise
                self._full_until = time.monotonic() + _FULL_PAUSE_S
                self._compact(_COMPACT_BUDGET_S, _END_WAIT_S)
                self._current_spool().write(kind, rows)
        except Exception as err:
            if is_programs_own(err):
                raise
            middle = len(rows) // 2
            if middle and isinstance(err, SpoolError) and not isinstance(err, SpoolFullError):
                return self._write(kind, rows[:middle]) + self._write(kind, rows[middle:])
            cause = _cause(err)
            warn_once(f"{self.db} {cause}", "%s: %s were not recorded: %s", self.db, kind, _reason(err))
            return Counter({cause: len(rows)})
        return Counter()

    def store_rows(self, kind: str, rows: Sequence[tuple[Any, ...]]) -> bool:
        """Writes rows of a kind and tells whether all are on disk."""
        return bool(rows) and not self._write(kind, rows)

    def _settle(self, timeout_s: float) -> bool:
        """Waits for the writes that are on their way."""
        return not self._writes.is_running or self._writes.run(_Write(self.store_rows, "spans", []), timeout_s)

    def _compact(self, budget_s: float, wait_s: float) -> None:
        """Moves segments into the store, in a thread: a signal handler's exception ends the wait and not the work."""
        if not _exit.is_near:
            _compactions.run((self._store, budget_s), wait_s)
        elif threading.current_thread() is threading.main_thread():
            _move((self._store, budget_s))

    def _count(self, *, written: int = 0, dropped: int = 0, cause: str = "", starts_missed: int = 0) -> None:
        with self._counting:
            self.written += written
            self.dropped += dropped
            if dropped:
                self.causes[cause] += dropped
                self.lose(dropped, cause)
            self.starts_missed += starts_missed


class _Write:
    """Rows on their way to the disk; none of them to wait for those before."""

    def __init__(
        self, store: Callable[[str, Sequence[tuple[Any, ...]]], bool], kind: str, rows: Sequence[tuple[Any, ...]]
    ) -> None:
        self.store = store
        self.kind = kind
        self.rows = rows
        self.is_stored = False


def _do(write: _Write) -> None:
    # The thread knows no exporter between two jobs, so that one that nobody needs may go.
    write.is_stored = write.store(write.kind, write.rows)


def _move(job: tuple[Path, float] | None) -> None:
    if job is None:
        return
    from agenttrace.store import compact_store

    db, budget_s = job
    try:
        compact_store(db, budget_s=budget_s)
    except Exception as err:
        # The thread may be the program's own, late at exit.
        if is_programs_own(err):
            raise
        # Nothing is lost: the segments stay where they are.
        warn_once(f"compact {db} {type(err).__name__}", "%s: not updated: %s", db, _reason(err))


_compactions: "Background[tuple[Path, float] | None]" = Background("agenttrace-compact", _move)


class _Exit:
    """Whether DuckDB will soon refuse to work in any thread but the main one."""

    is_watched = False
    is_near = False


_exit = _Exit()


@guarded("load the store")
def _load_store() -> None:
    """Loads what a flush needs: an import in a thread, at exit or after a fork may fail, or lock others up."""
    for module in ("pyarrow.compute", "agenttrace.store"):
        import_module(module)
    if not _exit.is_watched:
        _exit.is_watched = True
        # After DuckDB's own handler, thus called before it.
        atexit.register(_approach_exit)


def _approach_exit() -> None:
    _exit.is_near = True
    _compactions.run(None, _END_WAIT_S)


class AgentSpans:
    """Selects the spans of a known convention and their ancestors, which end later, often in another batch."""

    def __init__(self) -> None:
        self._awaited: dict[tuple[int, int], None] = {}

    def select(self, spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
        """Returns the spans to keep, in their order."""
        by_id = {_key(span.context): span for span in spans}
        kept: set[tuple[int, int]] = set()
        for key, span in by_id.items():
            if key in self._awaited or _is_marked(span):
                self._keep(key, by_id, kept)
        for old in list(islice(self._awaited, max(0, len(self._awaited) - _MAX_AWAITED_PARENTS))):
            del self._awaited[old]
        return [span for span in spans if _key(span.context) in kept]

    def _keep(
        self, key: tuple[int, int], by_id: dict[tuple[int, int], ReadableSpan], kept: set[tuple[int, int]]
    ) -> None:
        while key not in kept and key in by_id:
            kept.add(key)
            self._awaited.pop(key, None)
            parent = by_id[key].parent
            if parent is None:
                return
            key = _key(parent)
        if key not in kept:
            self._awaited[key] = None


def _key(context: Any) -> tuple[int, int]:
    return (context.trace_id, context.span_id)


def _is_marked(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return (scope is not None and scope.name == SCOPE_NAME) or any(
        name.startswith(_MARKERS) for name in span.attributes or ()
    )


@guarded("record the start of a span")
def record_start(span: Span) -> None:
    """Puts a started span on disk, in the stores that its provider exports to; for mutating tools and runs.

    It waits 50 ms at most. Without an exporter of ours it does nothing; a foreign backend never sees a span twice.
    """
    if span.is_recording() and span.get_span_context().trace_flags.sampled:
        for exporter in _exporters_of(span):
            exporter.write_started(span)


@guarded("record an outcome")
def record_outcome(row: OutcomeRow) -> bool:
    """Writes a verdict into the store that this process records to; False where there is none, or it failed.

    That is the one behind the global TracerProvider, else any that an exporter in this process writes to.
    """
    exporters: list[DuckDBSpanExporter] = []
    _look_behind(getattr(trace.get_tracer_provider(), "_active_span_processor", None), exporters, _MAX_WRAPPERS)
    exporters = exporters or list(_registered)
    written = [exporter.write_outcome(row) for exporter in exporters]
    return bool(written) and all(written)


_registered: "weakref.WeakSet[DuckDBSpanExporter]" = weakref.WeakSet()


def _reset_all() -> None:
    for exporter in list(_registered):
        exporter.reset()


os.register_at_fork(after_in_child=_reset_all)


def _exporters_of(span: Span) -> list[DuckDBSpanExporter]:
    """Finds the exporters behind the span's own provider; with two, a record must not reach the other's store.

    Where someone else's processor hides what is behind it, any exporter of this process may be meant.
    """
    found: list[DuckDBSpanExporter] = []
    is_hidden = _look_behind(getattr(span, "_span_processor", None), found, _MAX_WRAPPERS)
    return found or (list(_registered) if is_hidden else [])


def _look_behind(holder: object, found: list[DuckDBSpanExporter], depth: int) -> bool:
    """Collects exporters of ours behind a processor; True where something of unknown make may hide one."""
    if isinstance(holder, DuckDBSpanExporter):
        if not holder.is_shutdown:
            found.append(holder)
        return False
    inner: list[object] = [getattr(holder, name) for name in _INNER if hasattr(holder, name)]
    if not inner or depth == 0:
        return isinstance(holder, SpanProcessor)
    parts: list[object] = []
    for value in inner:
        parts.extend(cast(Iterable[object], value) if isinstance(value, (list, tuple)) else [value])
    are_hidden = [_look_behind(part, found, depth - 1) for part in parts]
    return any(are_hidden)


def _guarded_row(span: ReadableSpan) -> tuple[Any, ...] | None:
    try:
        return sdk_span_values(span)
    except BaseException as err:
        report("convert a span", err)
        return None


def _cause(err: Exception) -> str:
    """Returns one of few words for a fault: ENOSPC, EACCES, SpoolFullError."""
    return errno.errorcode.get(err.errno or 0, "OSError") if isinstance(err, OSError) else type(err).__name__


def _reason(err: Exception) -> str:
    if isinstance(err, (AgentTraceError, OSError)):
        return str(err)
    return type(err).__name__
