"""What the agent's process says of itself, through the MeterProvider that it has."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from agenttrace import doctor, self_metrics
from agenttrace.batch import SpanBatcher
from agenttrace.exporter import DuckDBSpanExporter
from agenttrace.losses import LOSSES_FILE, read_losses, write_losses
from agenttrace.self_metrics import Metric, Observed

EXPORTER = "agenttrace.exporter.DuckDBSpanExporter"
BATCHER = "agenttrace.batch.SpanBatcher"

# The provider comes last, as in a program whose set-up is spread over modules.
PROGRAM = """
import json, sys
import agenttrace
from agenttrace.batch import _all

agenttrace.configure(sys.argv[1])
assert "opentelemetry.sdk.metrics" not in sys.modules, "without a provider nothing of it is loaded"

@agenttrace.tool
def look(): pass

for _ in range(3):
    look()
agenttrace.flush()

from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
(batcher,) = _all
batcher.capacity = 0
look()
found = {}
for resource in reader.get_metrics_data().resource_metrics:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            for point in metric.data.data_points:
                names = [scope.scope.name, metric.name, metric.unit, *point.attributes.values()]
                found[" ".join(names)] = point.value
print(json.dumps(found))
"""


def causes(values: self_metrics.Values) -> dict[str, float]:
    return {attributes.get("error.type", ""): value for value, attributes in values}


def ended(count: int) -> list[ReadableSpan]:
    spans: list[ReadableSpan] = []
    for number in range(count):
        span = TracerProvider().get_tracer("lib").start_span(str(number))
        span.end()
        spans.append(span)  # type: ignore[arg-type]
    return spans


def test_provider_of_the_program_sees_what_was_written_and_what_was_dropped(store: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, store], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    span = "{span}"
    assert json.loads(done.stdout) == {
        f"agenttrace otel.sdk.exporter.span.exported {span} {EXPORTER} {EXPORTER}/0": 3,
        f"agenttrace agenttrace.exporter.start.missed {span} {EXPORTER} {EXPORTER}/0": 0,
        f"agenttrace otel.sdk.processor.span.processed {span} {BATCHER} {BATCHER}/0": 3,
        f"agenttrace otel.sdk.processor.span.processed {span} {BATCHER} {BATCHER}/0 queue_full": 1,
        f"agenttrace otel.sdk.processor.span.queue.size {span} {BATCHER} {BATCHER}/0": 0,
        f"agenttrace otel.sdk.processor.span.queue.capacity {span} {BATCHER} {BATCHER}/0": 0,
    }


def test_spans_that_the_exporter_loses_are_counted_by_cause(store: Path) -> None:
    exporter = DuckDBSpanExporter(store, cap_bytes=3_000)
    assert exporter.export(ended(1)) is SpanExportResult.SUCCESS
    assert exporter.export(ended(50)) is SpanExportResult.FAILURE
    spool = exporter._spool.folder
    for path in spool.iterdir():
        path.unlink()
    spool.rmdir()
    spool.write_text("a file")
    assert exporter.export(ended(2)) is SpanExportResult.FAILURE
    exporter.shutdown()
    assert exporter.export(ended(4)) is SpanExportResult.FAILURE
    assert causes(exporter.exported()) == {"": 1, "SpoolFullError": 50, "ENOTDIR": 2, "already_shutdown": 4}
    assert exporter.dropped == 56


def test_losses_are_told_to_whoever_looks_later(store: Path) -> None:
    exporter = DuckDBSpanExporter(store, cap_bytes=3_000)
    batcher = SpanBatcher(lambda: exporter, flush_interval=60, capacity=3)
    batcher.exporter()
    for span in ended(1):
        batcher.on_end(span)
    assert batcher.drain(10)
    folder = exporter._spool.folder
    assert read_losses(folder) is None
    assert exporter.export(ended(20)) is SpanExportResult.FAILURE
    assert (losses := read_losses(folder)) is not None
    assert losses.spans == {"SpoolFullError": 20}
    # The next ones are told by and by, and at the end.
    assert exporter.export(ended(30)) is SpanExportResult.FAILURE
    for span in ended(5):
        batcher.on_end(span)
    assert (losses := read_losses(folder)) is not None
    assert losses.spans.total() == 20
    batcher.shutdown()
    with (folder / LOSSES_FILE).open("a") as file:
        file.write('{"at": 1, "spans": {"Spool')
    assert (losses := read_losses(folder)) is not None
    assert losses.spans == {"SpoolFullError": 50, "queue_full": 2}
    assert time.time() - 60 < losses.last_at <= time.time()
    (line,) = [line for line in doctor.examine(store, None) if "could not record" in line.fact]
    fact = r"programs could not record 52 spans, the last \d+ s ago: SpoolFullError \(50\), queue_full \(2\)"
    assert re.fullmatch(fact, line.fact)
    assert line.advice == (
        "the spool was full: let a scheduler run agenttrace list, or keep agenttrace collect running; "
        f"delete {folder / LOSSES_FILE} once that is settled"
    )


def test_what_is_told_of_losses_is_bounded_and_private(tmp_path: Path) -> None:
    for _ in range(1_500):
        write_losses(tmp_path, {"ENOSPC": 1})
    path = tmp_path / LOSSES_FILE
    assert (64 << 10) <= path.stat().st_size < (65 << 10)
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    write_losses(tmp_path, {"ENOSPC": 1})
    write_losses(tmp_path / "missing", {"ENOSPC": 1})
    assert not (tmp_path / "elsewhere").exists()


class Foreign(SpanExporter):
    """An exporter of somebody else's that fails every second time."""

    calls = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.calls += 1
        return SpanExportResult.FAILURE if self.calls % 2 == 0 else SpanExportResult.SUCCESS


def test_batcher_counts_for_an_exporter_that_does_not(caplog: pytest.LogCaptureFixture) -> None:
    batcher = SpanBatcher(Foreign, flush_interval=60, capacity=3)
    assert causes(batcher.exported()) == {}
    for count in (2, 5):
        for span in ended(count):
            batcher.on_end(span)
        assert batcher.queue_size == min(count, 3)
        assert batcher.drain(10)
    batcher.shutdown()
    batcher.on_end(ended(1)[0])
    assert causes(batcher.exported()) == {"": 2, "export_failed": 3}
    assert causes(batcher.processed()) == {"": 5, "queue_full": 2, "already_shutdown": 1}
    (first, *_), (again, *_) = list(batcher.exported()), list(batcher.exported())
    assert first == again
    assert first[1]["otel.component.name"].endswith("test_self_metrics.Foreign/0")


def test_fault_of_a_meter_stays_away_from_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: str) -> Any:
        raise RuntimeError("a meter of somebody else's")

    monkeypatch.setattr(self_metrics, "get_meter", fail)
    observed: Observed[object] = Observed([Metric("a", "counter", "1", "", lambda _: [])])
    observed.add(object())


def test_what_nobody_else_needs_is_let_go() -> None:
    observed: Observed[Callable[[], None]] = Observed([])

    def subject() -> None: ...

    observed.add(subject)
    assert len(observed._subjects) == 1
    del subject
    assert len(observed._subjects) == 0
