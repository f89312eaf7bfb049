"""The exporter alone, in a TracerProvider of somebody else: all that OTLP carries arrives, and no fault leaves it."""

import base64
import json
import logging
import math
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.trace.span import TraceState
from segment_rows import read_segment

from agenttrace.exporter import DuckDBSpanExporter, _registered, record_outcome, record_start, sdk_span_row
from agenttrace.guard import guard
from agenttrace.spans import OutcomeRow, SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import compact_store, open_store

REMOTE = SpanContext(0xABC, 0xDEF, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("vendor", "7")]))


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    """Each test sees the first log line of each cause, and no exporters of others."""
    guard._seen.clear()
    yield
    for exporter in list(_registered):
        exporter.shutdown()


def provider_of(*processors: SpanProcessor, **options: Any) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False, **options)
    for processor in processors:
        provider.add_span_processor(processor)
    return provider


def ended_span(**options: Any) -> ReadableSpan:
    memory = InMemorySpanExporter()
    tracer = provider_of(SimpleSpanProcessor(memory)).get_tracer("test")
    tracer.start_span(options.pop("name", "a"), **options).end()
    return memory.get_finished_spans()[0]


def waiting_rows(db: Path) -> list[SpanRow]:
    rows: list[SpanRow] = []
    for segment in Spool(spool_folder(db)).segments():
        table = read_segment(segment).table
        columns = [table[name].to_pylist() for name in SpanRow._fields]
        rows += [SpanRow(*values) for values in zip(*columns, strict=True)]
    return rows


def stored_rows(db: Path) -> list[SpanRow]:
    compact_store(db, budget_s=10)
    with open_store(db) as con:
        return [SpanRow(*row) for row in con.execute("SELECT * EXCLUDE (received_at) FROM spans").fetchall()]


def test_everything_that_otlp_carries_arrives(store: Path) -> None:
    exporter = DuckDBSpanExporter(store)
    resource = Resource({"service.name": "shop", "cpu": 4}, "https://example.org/resource")
    limits = SpanLimits(max_span_attributes=9, max_events=1, max_links=1)
    provider = provider_of(SimpleSpanProcessor(exporter), resource=resource, span_limits=limits)
    tracer = provider.get_tracer("scope", "1.2", "https://example.org/scope", {"team": "a"})
    attributes = {
        "dropped": 1,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "place_order",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.usage.input_tokens": 12,
        "text": "größe\u2028",
        "flag": True,
        "ratio": 0.5,
        "many": ["a", "b"],
        "raw": b"\x00\xff",
    }
    span = tracer.start_span(
        "execute_tool place_order",
        context=set_span_in_context(NonRecordingSpan(REMOTE)),
        kind=SpanKind.CLIENT,
        attributes=attributes,
        links=[Link(REMOTE), Link(REMOTE, {"why": "retry"})],
        start_time=1_000,
    )
    span.add_event("dropped", timestamp=1_100)
    span.add_event("note", {"size": 3}, timestamp=1_200)
    span.set_status(Status(StatusCode.ERROR, "supplier timed out"))
    span.end(end_time=2_000)

    [row] = stored_rows(store)
    kept = {key: value for key, value in attributes.items() if key != "dropped"} | {"raw": "AP8="}
    link = {
        "trace_id": f"{0xABC:032x}",
        "span_id": f"{0xDEF:016x}",
        "trace_state": "vendor=7",
        "attributes": {"why": "retry"},
        "dropped_attributes_count": 0,
        "flags": 0x301,
    }
    assert json.loads(row.attributes) == kept
    assert json.loads(row.events) == [
        {"time_unix_nano": 1_200, "name": "note", "attributes": {"size": 3}, "dropped_attributes_count": 0}
    ]
    assert json.loads(row.links) == [link]
    assert json.loads(row.resource_attributes) == {"service.name": "shop", "cpu": 4}
    assert json.loads(row.scope_attributes) == {"team": "a"}
    assert row._replace(attributes="", events="", links="", resource_attributes="", scope_attributes="") == SpanRow(
        trace_id=f"{0xABC:032x}",
        span_id=f"{span.get_span_context().span_id:016x}",
        parent_span_id=f"{0xDEF:016x}",
        name="execute_tool place_order",
        span_kind="client",
        start_time_unix_nano=1_000,
        end_time_unix_nano=2_000,
        status_code="error",
        status_message="supplier timed out",
        service_name="shop",
        scope_name="scope",
        scope_version="1.2",
        operation_name="execute_tool",
        openinference_kind=None,
        agent_name=None,
        tool_name="place_order",
        tool_call_id="call_1",
        conversation_id=None,
        model=None,
        input_tokens=12,
        output_tokens=None,
        error_type=None,
        attributes="",
        events="",
        links="",
        resource_attributes="",
        scope_attributes="",
        trace_state="vendor=7",
        flags=0x301,
        resource_schema_url="https://example.org/resource",
        scope_schema_url="https://example.org/scope",
        dropped_attributes_count=1,
        dropped_events_count=1,
        dropped_links_count=1,
        resource_dropped_attributes_count=0,
        scope_dropped_attributes_count=0,
    )


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        ([1.5, -math.inf], [1.5, "-Infinity"]),
        ("a\ud800", "a?"),
        (2**70, 2**70),
        (10**5_000, f"{10**5_000:#x}"),
        (b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
        ({"a": {"b": [b"x", None]}}, {"a": {"b": ["eA==", None]}}),
        (None, None),
        ("null", "null"),
        ("\x00", "\x00"),
    ],
    ids=[
        "nan",
        "infinity",
        "in a list",
        "surrogate",
        "70 bits",
        "5000 digits",
        "bytes",
        "nested",
        "none",
        "word",
        "nul",
    ],
)
def test_values_that_json_has_no_word_for_stay_readable(value: Any, stored: Any) -> None:
    row = sdk_span_row(ended_span(attributes={"key": value}))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(row.attributes, parse_constant=refuse) == {"key": stored}


def test_great_depth_is_cut_and_not_an_error() -> None:
    deep: Any = math.nan
    for _ in range(400):
        deep = [deep]
    assert "nested too deeply" in sdk_span_row(ended_span(attributes={"key": deep})).attributes


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=8)
@given(
    name=st.text(),
    attributes=st.dictionaries(st.text(min_size=1), JSON, max_size=4),
    event=st.dictionaries(st.text(min_size=1), JSON, max_size=2),
    times=st.tuples(st.integers(0, 2**70), st.integers(-5, 2**70)),
    kind=st.sampled_from(SpanKind),
)
def test_any_sdk_span_comes_back_from_the_store(
    name: str,
    attributes: dict[str, Any],
    event: dict[str, Any],
    times: tuple[int, int],
    kind: SpanKind,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    db = tmp_path_factory.mktemp("store") / "any.duckdb"
    memory = InMemorySpanExporter()
    provider = provider_of(SimpleSpanProcessor(DuckDBSpanExporter(db)), SimpleSpanProcessor(memory))
    span = provider.get_tracer("test").start_span(name, kind=kind, attributes=attributes, start_time=times[0])
    span.add_event("event", event, timestamp=times[0])
    span.end(times[1])
    [row] = stored_rows(db)
    assert row == sdk_span_row(memory.get_finished_spans()[0])

    def plain(value: Any) -> Any:
        if isinstance(value, str):
            return value.encode("utf-8", "replace").decode()
        if isinstance(value, dict):
            return {plain(key): plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    assert json.loads(row.attributes) == plain(attributes)
    assert json.loads(row.events)[0]["attributes"] == plain(event)
    assert row.name == plain(name)
    assert row.end_time_unix_nano == max(0, min(times[1], 2**63 - 1))


@pytest.mark.parametrize("processor", [SimpleSpanProcessor, BatchSpanProcessor])
def test_it_works_behind_the_processors_of_the_sdk(store: Path, processor: Any) -> None:
    exporter = DuckDBSpanExporter(store)
    provider = provider_of(processor(exporter))
    for number in range(20):
        provider.get_tracer("test").start_span(f"{number}").end()
    provider.shutdown()
    assert {row.name for row in stored_rows(store)} == {str(number) for number in range(20)}
    assert (exporter.written, exporter.waiting, exporter.dropped) == (20, 0, 0)


def test_a_flush_moves_segments_into_the_store(store: Path) -> None:
    exporter = DuckDBSpanExporter(store)
    assert exporter.export([ended_span()]) is SpanExportResult.SUCCESS
    assert exporter.waiting == 1
    assert exporter.force_flush()
    assert exporter.waiting == 0
    with open_store(store) as con:
        assert con.execute("SELECT count(*) FROM spans").fetchall() == [(1,)]


def test_a_shutdown_moves_segments_into_the_store_and_ends_the_exporter(store: Path) -> None:
    exporter = DuckDBSpanExporter(store)
    exporter.export([ended_span()])
    exporter.shutdown()
    exporter.shutdown()
    assert exporter.waiting == 0
    assert exporter.export([ended_span(), ended_span()]) is SpanExportResult.FAILURE
    assert (exporter.written, exporter.dropped) == (1, 2)
    assert not record_outcome(OutcomeRow("t", 1, None, "human", True, None, None, 0))


def test_an_empty_batch_writes_nothing(store: Path) -> None:
    assert DuckDBSpanExporter(store).export([]) is SpanExportResult.SUCCESS
    assert not spool_folder(store).exists()


def test_the_path_is_the_variable_and_stays_when_the_program_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTTRACE_DB", "mine.duckdb")
    monkeypatch.chdir(tmp_path)
    exporter = DuckDBSpanExporter()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    exporter.export([ended_span()])
    assert len(waiting_rows(tmp_path / "mine.duckdb")) == 1


def test_a_folder_that_is_not_there_is_made(tmp_path: Path) -> None:
    exporter = DuckDBSpanExporter(tmp_path / "new" / "deep" / "a.duckdb")
    assert exporter.export([ended_span()]) is SpanExportResult.SUCCESS


def test_eight_threads_export_and_lose_no_span(store: Path) -> None:
    exporter = DuckDBSpanExporter(store)
    provider = provider_of(SimpleSpanProcessor(exporter))

    def work(number: int) -> None:
        for step in range(25):
            provider.get_tracer("test").start_span(f"{number}-{step}").end()
            if step % 10 == 0:
                exporter.force_flush()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({row.name for row in stored_rows(store)}) == 200
    assert exporter.written == 200


UNUSABLE = {"below a file": "file/a.duckdb", "in /proc": "/proc/nowhere/a.duckdb"}


@pytest.mark.parametrize("place", sorted(UNUSABLE))
def test_an_unusable_path_is_one_log_line_and_a_count(
    place: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    exporter = DuckDBSpanExporter(tmp_path / UNUSABLE[place])
    with caplog.at_level(logging.WARNING, "agenttrace"):
        for _ in range(3):
            assert exporter.export([ended_span()]) is SpanExportResult.FAILURE
        exporter.write_started(provider_of().get_tracer("test").start_span("a"))
        exporter.force_flush()
        exporter.shutdown()
    assert (exporter.written, exporter.dropped, exporter.starts_missed) == (0, 3, 1)
    assert len([line for line in caplog.messages if "were not recorded" in line]) == 1


def test_a_full_disk_is_one_log_line_and_a_count(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    exporter = DuckDBSpanExporter(small_disk / "a.duckdb")
    exporter.export([ended_span()])
    free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_bsize
    (small_disk / "ballast").write_bytes(bytes(free - 100_000))
    with caplog.at_level(logging.WARNING, "agenttrace"):
        for _ in range(3):
            exporter.export([ended_span(attributes={"a": "x" * 250_000})])
    assert (exporter.written, exporter.dropped) == (1, 3)
    assert len([line for line in caplog.messages if "No space left" in line]) == 1
    (small_disk / "ballast").unlink()
    assert exporter.export([ended_span()]) is SpanExportResult.SUCCESS


def test_a_file_that_is_no_store_keeps_the_spans_waiting(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    store.write_text("mine")
    exporter = DuckDBSpanExporter(store)
    with caplog.at_level(logging.WARNING, "agenttrace"):
        exporter.export([ended_span()])
        exporter.force_flush()
        exporter.shutdown()
    assert (exporter.written, exporter.waiting, exporter.dropped) == (1, 1, 0)
    assert len(caplog.messages) == 1
    assert "is not a DuckDB file" in caplog.text


def test_a_full_spool_makes_room_in_the_store_first(store: Path) -> None:
    exporter = DuckDBSpanExporter(store, cap_bytes=3_000)
    for _ in range(12):
        exporter.export([ended_span()])
        exporter._full_until = 0.0
    assert exporter.written > 4


def test_a_full_spool_that_cannot_be_emptied_refuses_and_counts(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    store.write_text("no store")
    exporter = DuckDBSpanExporter(store, cap_bytes=3_000)
    with caplog.at_level(logging.WARNING, "agenttrace"):
        for _ in range(12):
            exporter.export([ended_span()])
    assert exporter.written + exporter.dropped == 12
    assert exporter.dropped > 0
    assert len(waiting_rows(store)) == exporter.written
    assert len([line for line in caplog.messages if "the cap is 3000" in line]) == 1


def test_a_span_that_cannot_be_converted_takes_no_other_with_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "strict", False)
    exporter = DuckDBSpanExporter(store)
    assert exporter.export([ended_span(), ReadableSpan("without a context"), ended_span()]) is SpanExportResult.SUCCESS
    assert (exporter.written, exporter.dropped) == (2, 1)


def test_odd_scopes_and_times_are_stored(store: Path) -> None:
    exporter = DuckDBSpanExporter(store)
    provider = provider_of(SimpleSpanProcessor(exporter))
    provider.get_tracer("test", 1.5).start_span("a", start_time=1.7e18).end()  # type: ignore[arg-type]
    (row,) = stored_rows(store)
    assert (row.scope_version, row.start_time_unix_nano) == ("1.5", 1_700_000_000_000_000_000)


class Refused(ReadableSpan):
    @property
    def dropped_events(self) -> Any:
        return "many"


def test_a_span_that_cannot_be_stored_takes_no_other_with_it(store: Path) -> None:
    exporter = DuckDBSpanExporter(store)
    spans = [ended_span() for _ in range(5)]
    refused = Refused("a", context=spans[0].context, start_time=1, end_time=2)
    assert exporter.export([*spans[:3], refused, *spans[3:]]) is SpanExportResult.FAILURE
    assert (exporter.written, exporter.dropped) == (5, 1)
    assert len(stored_rows(store)) == 5


def test_an_attribute_with_methods_of_its_own_takes_no_span_with_it(store: Path) -> None:
    class Text(str):
        def __len__(self) -> int:
            raise GeneratorExit

    exporter = DuckDBSpanExporter(store)
    provider = provider_of(SimpleSpanProcessor(exporter))
    provider.get_tracer("test").start_span(Text("a"), attributes={"gen_ai.tool.name": Text("rice")}).end()
    (row,) = stored_rows(store)
    assert (row.name, row.tool_name) == ("a", "rice")


def test_cut_attributes_are_warned_about_once(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    exporter = DuckDBSpanExporter(store)
    provider = provider_of(SimpleSpanProcessor(exporter), span_limits=SpanLimits(max_span_attributes=1))
    with caplog.at_level(logging.WARNING, "agenttrace"):
        for _ in range(3):
            provider.get_tracer("test").start_span("a", attributes={"a": 1, "b": 2}).end()
    assert len([line for line in caplog.messages if "Span limits cut attributes" in line]) == 1


class TestAgentSpans:
    """`spans="agent"`."""

    def names(self, db: Path) -> set[str]:
        return {row.name for row in waiting_rows(db)}

    def test_spans_of_a_convention_and_their_ancestors_are_kept(self, store: Path) -> None:
        provider = provider_of(BatchSpanProcessor(DuckDBSpanExporter(store, spans="agent")))
        tracer = provider.get_tracer("web")
        with tracer.start_as_current_span("request"):
            with tracer.start_as_current_span("handler"), tracer.start_as_current_span("SELECT"):
                pass
            with (
                tracer.start_as_current_span("view"),
                tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}),
                tracer.start_as_current_span("POST"),
            ):
                pass
        with tracer.start_as_current_span("health check"):
            pass
        provider.force_flush()
        provider.shutdown()
        assert {row.name for row in stored_rows(store)} == {"request", "view", "chat"}

    def test_ancestors_that_end_in_a_later_batch_are_kept(self, store: Path) -> None:
        provider = provider_of(SimpleSpanProcessor(DuckDBSpanExporter(store, spans="agent")))
        tracer = provider.get_tracer("web")
        with tracer.start_as_current_span("request"), tracer.start_as_current_span("view"):
            with tracer.start_as_current_span("SELECT"):
                pass
            with provider.get_tracer("agenttrace").start_as_current_span("ours"):
                pass
        assert self.names(store) == {"request", "view", "ours"}


class TestStarts:
    """Records of spans that have only begun."""

    def test_a_started_span_is_on_disk_before_it_ends_and_then_replaced(self, store: Path) -> None:
        provider = provider_of(SimpleSpanProcessor(DuckDBSpanExporter(store)))
        span = provider.get_tracer("agenttrace").start_span(
            "execute_tool refund", attributes={"gen_ai.tool.name": "refund"}
        )
        record_start(span)
        [row] = waiting_rows(store)
        assert (row.name, row.tool_name, row.end_time_unix_nano) == ("execute_tool refund", "refund", None)
        span.set_attribute("gen_ai.tool.call.result", "done")
        span.end()
        [row] = stored_rows(store)
        assert row.end_time_unix_nano is not None
        assert "done" in row.attributes

    def test_behind_a_batch_processor_and_wrappers_of_others(self, store: Path) -> None:
        class Wrapper(SpanProcessor):
            def __init__(self, processor: SpanProcessor) -> None:
                self.processor = processor

        processor = BatchSpanProcessor(DuckDBSpanExporter(store))
        record_start(provider_of(Wrapper(Wrapper(processor))).get_tracer("test").start_span("a"))
        processor.shutdown()
        assert len(stored_rows(store)) == 1

    def test_only_in_the_store_of_its_own_provider(self, tmp_path: Path) -> None:
        mine, other = tmp_path / "mine.duckdb", tmp_path / "other.duckdb"
        provider = provider_of(SimpleSpanProcessor(DuckDBSpanExporter(mine)))
        held = provider_of(SimpleSpanProcessor(DuckDBSpanExporter(other)))
        record_start(provider.get_tracer("test").start_span("a"))
        assert len(waiting_rows(mine)) == 1
        assert waiting_rows(other) == []
        held.shutdown()

    def test_where_a_processor_hides_its_exporter_any_store_is_meant(self, store: Path) -> None:
        class Opaque(SpanProcessor):
            pass

        exporter = DuckDBSpanExporter(store)
        record_start(provider_of(Opaque()).get_tracer("test").start_span("a"))
        assert len(waiting_rows(store)) == 1
        exporter.shutdown()

    def test_a_foreign_backend_sees_nothing_of_it(self, store: Path) -> None:
        memory = InMemorySpanExporter()
        exporter = DuckDBSpanExporter(store)
        record_start(provider_of(SimpleSpanProcessor(memory)).get_tracer("test").start_span("a"))
        assert memory.get_finished_spans() == ()
        assert waiting_rows(store) == []
        exporter.shutdown()

    def test_not_for_spans_that_nobody_records(self, store: Path) -> None:
        processor = SimpleSpanProcessor(DuckDBSpanExporter(store))
        record_start(provider_of(processor, sampler=ALWAYS_OFF).get_tracer("test").start_span("a"))
        record_start(NonRecordingSpan(REMOTE))
        assert waiting_rows(store) == []

    def test_not_after_a_shutdown(self, store: Path) -> None:
        exporter = DuckDBSpanExporter(store)
        provider = provider_of(SimpleSpanProcessor(exporter))
        exporter.shutdown()
        record_start(provider.get_tracer("test").start_span("a"))
        assert waiting_rows(store) == []

    def test_a_disk_that_stands_still_holds_the_tool_up_for_50_ms_and_is_counted(
        self, store: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        exporter = DuckDBSpanExporter(store)
        span = provider_of(SimpleSpanProcessor(exporter)).get_tracer("test").start_span("a")
        busy, free = threading.Event(), threading.Event()
        stuck = Stuck(busy, free)
        exporter._writes.submit(stuck)
        assert busy.wait(10)
        with caplog.at_level(logging.WARNING, "agenttrace"):
            record_start(span)
        free.set()
        assert exporter.starts_missed == 1
        assert "before its start record was on disk" in caplog.text
        # It is written behind, and later starts are on time again.
        exporter._writes.run(Stuck(busy, free), 10)
        assert len(waiting_rows(store)) == 1


class Stuck:
    """A start record whose write takes as long as a test likes."""

    def __init__(self, busy: threading.Event, free: threading.Event) -> None:
        self.busy, self.free = busy, free

    kind, rows = "spans", ()

    def store(self, *_: Any) -> bool:
        self.busy.set()
        self.free.wait(10)
        return False


def test_an_outcome_reaches_the_store(store: Path) -> None:
    exporter = DuckDBSpanExporter(store)
    assert record_outcome(OutcomeRow("task-1", 2, None, "checker", True, 1.0, "stock is right", 1_000_000))
    exporter.shutdown()
    with open_store(store) as con:
        assert con.execute("SELECT task_id, trial, passed, score FROM outcomes").fetchall() == [
            ("task-1", 2, True, 1.0)
        ]


def test_an_outcome_without_a_store_is_told(store: Path) -> None:
    assert not record_outcome(OutcomeRow("task-1", 2, None, "checker", True, None, None, 0))


def test_a_logging_handler_that_raises_reaches_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_record: logging.LogRecord) -> bool:
        raise RuntimeError("a filter of the user's")

    exporter = DuckDBSpanExporter(tmp_path / "s.duckdb")
    (tmp_path / "s.duckdb.spool").write_text("no folder")
    logger = logging.getLogger("agenttrace")
    logger.addFilter(refuse)
    try:
        assert exporter.export([ended_span()]) is SpanExportResult.FAILURE
    finally:
        logger.removeFilter(refuse)
    assert (exporter.written, exporter.dropped) == (0, 1)
