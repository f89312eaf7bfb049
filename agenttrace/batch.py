"""Ended spans -> exporter, in a thread, every flush interval.

The SDK's BatchSpanProcessor is not used: a full queue drops its oldest spans without a count that a program can read,
`force_flush` ignores its time limit, the end of the process may wait for 30 s, each forked child gets a thread even if
it traces nothing, and its Event may not be touched by a signal handler. (Checked at 1.45.)
"""

import os
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from agenttrace import self_metrics
from agenttrace.background import Background
from agenttrace.configure import FlushResult
from agenttrace.exporter import DuckDBSpanExporter
from agenttrace.guard import guarded, report, warn_once

_CAPACITY = 32_768
_WAKE_AT = 2_048
_OWN_BATCH = 8_192
# Common limit of receivers, and the SDK's own.
_FOREIGN_BATCH = 512
_SHUTDOWN_S = 2.0
# The write itself takes time, and what a kill may lose is promised to be the interval.
_INTERVAL_SHARE = 0.9


class SpanBatcher(SpanProcessor):
    """Collects ended spans and exports them in batches; bounded, counted, and at home in forked children."""

    def __init__(
        self,
        make_exporter: Callable[[], SpanExporter],
        *,
        flush_interval: float,
        capacity: int = _CAPACITY,
    ) -> None:
        """Prepares the processor; its thread starts with the first span.

        Args:
            make_exporter: Makes the exporter, in each process that exports: a connection does not survive a fork.
            flush_interval: Seconds that an ended span waits at most.
            capacity: Spans that may wait; more are refused and counted.
        """
        self._make_exporter = make_exporter
        self.capacity = capacity
        self.component = self_metrics.component(self)
        self._exporter_component: dict[str, str] = {}
        self._worker: Background[None] = Background(
            "agenttrace-batch", self._drain, idle_s=flush_interval * _INTERVAL_SHARE, idle=self._drain
        )
        # At exit, what is left of the time that all exporters have together.
        self.deadline = float("inf")
        self._is_shutdown = False
        # After a shutdown another one may do the work, and a provider never lets go of a processor.
        self.is_replaced = False
        self.span_exporter: SpanExporter | None = None
        self.forget()
        _all.add(self)
        self_metrics.exports.add(self)
        self_metrics.processors.add(self)

    def on_end(self, span: ReadableSpan) -> None:
        """Queues an ended span; a deque's own steps are atomic, so this path takes no lock that a signal could hold."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._is_shutdown or len(self._spans) >= self.capacity:
            if not self.is_replaced:
                self._drop(1, "already_shutdown" if self._is_shutdown else "queue_full")
            return
        self._spans.append(span)
        if not self._has_thread:
            self._has_thread = self._worker.start()
        if len(self._spans) >= _WAKE_AT and not self._is_woken:
            self._is_woken = True
            self._worker.submit(None)

    def drain(self, timeout_s: float) -> bool:
        """Exports what has ended so far; False where that takes longer. A signal handler may call it."""
        if not self._spans and not self._is_exporting:
            return True
        return self._worker.run(None, min(timeout_s, self.deadline - time.monotonic()))

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Exports what has ended so far, and lets the exporter flush; True where all is where it belongs."""
        until = min(time.monotonic() + timeout_millis / 1000, self.deadline)
        is_drained = self.drain(until - time.monotonic())
        left_millis = int(max(0.0, until - time.monotonic()) * 1000)
        if self.span_exporter is not None and left_millis:
            return self._flush_exporter(self.span_exporter, left_millis) is True and is_drained
        return is_drained

    def shutdown(self) -> None:
        """Takes no more spans and exports the rest, within 2 s."""
        if self._is_shutdown:
            return
        self._is_shutdown = True
        self.drain(_SHUTDOWN_S)
        self._worker.stop()
        if self.span_exporter is not None and time.monotonic() < self.deadline:
            self._shut_down_exporter(self.span_exporter)

    def result(self) -> FlushResult:
        """Counts what became of the spans so far."""
        waiting = len(self._spans) + self._in_flight
        if isinstance(self.span_exporter, DuckDBSpanExporter):
            own = self.span_exporter
            return FlushResult(own.written, own.waiting + waiting, own.dropped + self._dropped)
        return FlushResult(self._written, waiting, self._dropped)

    @property
    def queue_size(self) -> int:
        """Ended spans that wait for the exporter."""
        return len(self._spans)

    def processed(self) -> self_metrics.Values:
        """Counts the spans that the exporter was given, and those that never got there, by cause."""
        return self_metrics.outcomes(self._handed_on, self._refused, self.component)

    def exported(self) -> self_metrics.Values:
        """Counts for an exporter that does not count for itself."""
        if self.span_exporter is None or isinstance(self.span_exporter, DuckDBSpanExporter):
            return ()
        self._exporter_component = self._exporter_component or self_metrics.component(self.span_exporter)
        failed = self._dropped - self._refused.total()
        causes = {"export_failed": failed} if failed else {}
        return self_metrics.outcomes(self._written, causes, self._exporter_component)

    def exporter(self) -> SpanExporter:
        """Returns this process's exporter."""
        if self.span_exporter is None:
            self.span_exporter = self._make_exporter()
        return self.span_exporter

    def forget(self) -> None:
        """Begins anew, as in a forked child: spans that ended before the fork are the parent's to export."""
        self._spans: deque[ReadableSpan] = deque()
        # A signal handler may end a span while this is held.
        self._counting = threading.RLock()
        self._written = 0
        self._dropped = 0
        self._handed_on = 0
        # Those that the exporter never saw, by cause; they are among the dropped.
        self._refused: Counter[str] = Counter()
        self._has_thread = False
        self._is_woken = False
        self._is_exporting = False
        self._in_flight = 0
        if not isinstance(self.span_exporter, DuckDBSpanExporter):
            self.span_exporter = None

    def _drain(self, _job: None = None) -> None:
        self._is_woken = False
        self._is_exporting = True
        try:
            with suppress_instrumentation():
                # What has ended by now, and no more: other threads may trace faster than this one exports.
                left = len(self._spans)
                while left > 0 and (spans := self._take(left)):
                    left -= len(spans)
                    self._in_flight = len(spans)
                    self._export(spans)
                    self._in_flight = 0
        finally:
            self._is_exporting = False
            self._in_flight = 0

    def _take(self, most: int) -> list[ReadableSpan]:
        size = min(most, _OWN_BATCH if isinstance(self.span_exporter, DuckDBSpanExporter) else _FOREIGN_BATCH)
        taken: list[ReadableSpan] = []
        try:
            while len(taken) < size:
                taken.append(self._spans.popleft())
        except IndexError:
            pass
        return taken

    def _export(self, spans: list[ReadableSpan]) -> None:
        self._handed_on += len(spans)
        try:
            result = self.exporter().export(spans)
        except BaseException as err:
            self._drop(len(spans))
            report("export spans", err)
            return
        if isinstance(self.span_exporter, DuckDBSpanExporter):
            return  # It counts for itself.
        if result is SpanExportResult.SUCCESS:
            with self._counting:
                self._written += len(spans)
        else:
            self._drop(len(spans))

    def _drop(self, count: int, refused: str | None = None) -> None:
        with self._counting:
            self._dropped += count
            if refused is not None:
                self._refused[refused] += count
                if isinstance(self.span_exporter, DuckDBSpanExporter):
                    self.span_exporter.lose(count, refused)
        warn_once(
            f"drop {id(self)}", "Spans are dropped: they end faster than they can be exported, or after shutdown."
        )

    @guarded("flush an exporter")
    def _flush_exporter(self, exporter: SpanExporter, timeout_millis: int) -> bool:
        return exporter.force_flush(timeout_millis)

    @guarded("shut an exporter down")
    def _shut_down_exporter(self, exporter: SpanExporter) -> None:
        exporter.shutdown()


_all: "weakref.WeakSet[SpanBatcher]" = weakref.WeakSet()


def _forget_all() -> None:
    for batcher in list(_all):
        batcher.forget()


os.register_at_fork(after_in_child=_forget_all)
