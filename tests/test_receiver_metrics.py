"""What a receiver says of itself: to Prometheus, to OpenTelemetry, in its log, and to doctor."""

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agenttrace import commands, doctor, self_metrics
from agenttrace.collectors import intake as intakes
from agenttrace.collectors.counts import read_counts
from agenttrace.collectors.otlp import OTLPReceiver
from agenttrace.collectors.receiver_metrics import METRICS, prometheus_name, prometheus_text
from agenttrace.compact import Totals, read_totals
from agenttrace.completeness import age
from agenttrace.config import Settings
from agenttrace.self_metrics import Observed
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import Refreshed, compact_store, open_store, refresh

DEADLINE_S = 30.0
JSON = {"Content-Type": "application/json"}
MakeSpan = Callable[..., SpanRow]


@contextmanager
def receiving(db: Path, **options: Any) -> Iterator[OTLPReceiver]:
    with OTLPReceiver(db, http_port=0, **options) as receiver:
        yield receiver


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What arrives comes into the store without a pause."""
    monkeypatch.setattr(intakes, "_REFRESH_S", 0.03)
    monkeypatch.setattr(intakes, "_REFRESH_WAIT_S", 0.0)
    monkeypatch.setattr(intakes, "_REFRESH_SHARE", 0)
    monkeypatch.setattr(intakes, "_WAITING_AGE_S", -1.0)


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def ask(
    receiver: OTLPReceiver, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, str, str]:
    url = urlsplit(receiver.urls[0])
    with closing(http.client.HTTPConnection(url.hostname or "", url.port, timeout=DEADLINE_S)) as connection:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], answer.read().decode()


def send(receiver: OTLPReceiver, *span_ids: str) -> None:
    spans = [
        {"traceId": "1" * 32, "spanId": span_id, "name": "x", "startTimeUnixNano": "5", "endTimeUnixNano": "6"}
        for span_id in span_ids
    ]
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()
    assert ask(receiver, "POST", "/v1/traces", body, JSON)[0] == 200


def samples(text: str) -> dict[str, float]:
    """The values of an exposition by series; each must have its kind and its meaning before it."""
    found: dict[str, float] = {}
    kind = help_ = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            help_ = line.split()[2]
        elif line.startswith("# TYPE "):
            kind = line.split()[2]
        else:
            series, _, value = line.rpartition(" ")
            assert series.partition("{")[0] == kind == help_
            found[series] = float(value)
    return found


@pytest.mark.usefixtures("at_once")
def test_every_span_is_counted_on_its_way(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(self_metrics, "get_meter", provider.get_meter)
    monkeypatch.setattr(intakes, "receivers", Observed(METRICS))
    with receiving(store) as receiver:
        before = samples(ask(receiver, "GET", "/metrics")[2])
        send(receiver, "a" * 16, "b" * 16, "no id")
        send(receiver, "a" * 16)
        assert ask(receiver, "POST", "/v1/traces", b"{", JSON)[0] == 400
        assert ask(receiver, "GET", "/v1/logs")[0] == 405
        until(lambda: receiver._intake.totals is not None and receiver._intake.totals.duplicate_spans == 1)
        status, content_type, text = ask(receiver, "GET", "/metrics")
        collected = reader.get_metrics_data()
        # Refusals are written, too, where nothing else has come.
        assert ask(receiver, "GET", "/v1/logs")[0] == 405
        until(lambda: (counts := read_counts(store)) is not None and counts.refused["405"] == 2)
    assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = samples(text)
    moments = "agenttrace_store_last_compaction_timestamp_seconds", "agenttrace_store_lag_seconds"
    last, lag = (found.pop(name) for name in moments)
    assert time.time() - DEADLINE_S < last <= time.time()
    assert 0 < lag < DEADLINE_S
    assert found == {
        "agenttrace_receiver_accepted_spans_total": 3,
        "agenttrace_receiver_accepted_log_records_total": 0,
        'agenttrace_receiver_rejected_spans_total{error_type="invalid"}': 1,
        'agenttrace_receiver_rejected_log_records_total{error_type="invalid"}': 0,
        'agenttrace_receiver_rejected_log_records_total{error_type="no_span"}': 0,
        'agenttrace_receiver_refused_requests_total{error_type="400"}': 1,
        'agenttrace_receiver_refused_requests_total{error_type="405"}': 1,
        "agenttrace_spool_segments": 0,
        "agenttrace_spool_size_bytes": 0,
        "agenttrace_spool_age_seconds": 0,
        "agenttrace_spool_set_aside": 0,
        "agenttrace_store_stored_spans_total": 2,
        "agenttrace_store_duplicate_spans_total": 1,
        "agenttrace_store_id_conflicts": 0,
    }
    # What is not known yet is not 0.
    assert not [name for name in before if name.startswith("agenttrace_store")]
    assert collected
    (resource,) = collected.resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "agenttrace"
    points = {
        (metric.name, *point.attributes.values()): point.value
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    names = {prometheus_name(metric): metric.name for metric in METRICS}
    expected = {
        (names[series.partition("{")[0]], *re.findall('"(.*)"', series)): value
        for series, value in (found | dict(zip(moments, (last, lag), strict=True))).items()
    }
    assert points == expected
    assert scope.metrics[0].unit == "{span}"


def test_metrics_need_the_token_that_spans_need(store: Path) -> None:
    with receiving(store, token="s3cret") as receiver:
        assert ask(receiver, "GET", "/metrics")[0] == 401
        assert ask(receiver, "GET", "/metrics", headers={"Authorization": "Bearer s3cret"})[0] == 200
        assert ask(receiver, "GET", "/healthz")[0] == 200


def test_hostile_text_cannot_forge_a_line(store: Path) -> None:
    intake = intakes.Intake(store, settings=None, max_waiting_bytes=1)
    intake.count_refused('4"} 5\nforged{a="\\')
    lines = [line for line in prometheus_text(intake).splitlines() if "forged" in line]
    assert lines == [r'agenttrace_receiver_refused_requests_total{error_type="4\"} 5\nforged{a=\"\\"} 1']


def test_metrics_are_listed_in_the_docs() -> None:
    page = (Path(__file__).parents[1] / "docs" / "collect.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if "` | `agenttrace_" in line]
    assert rows == [f"| `{metric.name}` | `{prometheus_name(metric)}` | {metric.description} |" for metric in METRICS]


# What has come into a store


def totals(db: Path) -> Totals:
    compact_store(db, budget_s=DEADLINE_S, wait_s=DEADLINE_S)
    with open_store(db) as con:
        return read_totals(con)


def test_ends_are_counted_once_and_starts_are_no_duplicates(store: Path, make_span: MakeSpan) -> None:
    spool = Spool(spool_folder(store))

    def start(number: int) -> SpanRow:
        return make_span(number, end_time_unix_nano=None)

    counted: list[tuple[int, int]] = []
    for segments in (
        [[make_span(1), start(2)], [make_span(2), make_span(3)]],
        [[make_span(1)], [start(3), start(4), start(4)]],
        [[make_span(4), make_span(4)]],
    ):
        for segment in segments:
            spool.write("spans", segment)
        found = totals(store)
        counted.append((found.spans, found.duplicate_spans))
    assert counted == [(3, 0), (3, 1), (4, 2)]
    # Whole traces of the past are counted in the same way, and nothing is where nothing came.
    spool.write("spans", [make_span(5), make_span(1)], settled=True)
    found = totals(store)
    assert (found.spans, found.duplicate_spans) == (5, 3)
    assert totals(store) == found


def test_totals_of_other_releases_are_read(store: Path, make_span: MakeSpan) -> None:
    Spool(spool_folder(store)).write("spans", [make_span(1)])
    compact_store(store, budget_s=DEADLINE_S)
    with duckdb.connect(store) as con:
        con.execute("""UPDATE agenttrace_meta SET value = '{"spans": 7, "more": 1}' WHERE key = 'totals'""")
        assert read_totals(con) == Totals(7, 0, 0.0, 0.0)
        con.execute("DELETE FROM agenttrace_meta WHERE key = 'totals'")
        assert read_totals(con) == Totals(0, 0, 0.0, 0.0)


# A spool that grows old


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_199, "120 min"), (7_200, "2 h"), (172_800, "2 days")],
)
def test_ages_are_for_people(seconds: float, text: str) -> None:
    assert age(seconds) == text


def older(path: Path, seconds: int) -> None:
    """Sets back the time of arrival of a segment."""
    stamp, _, rest = path.name.partition("-")
    path.rename(path.with_name(f"{int(stamp) - seconds * 10**9:020d}-{rest}"))


@pytest.mark.usefixtures("at_once")
def test_spool_that_grows_old_is_told_to_everybody_who_asks(
    store: Path,
    make_span: MakeSpan,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spool = Spool(spool_folder(store))
    spool.write("spans", [make_span(1)])
    compact_store(store, budget_s=DEADLINE_S)
    older(spool.write("spans", [make_span(2)]), 60)
    hold = f"import duckdb; con = duckdb.connect({str(store)!r}, read_only=True); print('held', flush=True); input()"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", hold], **pipes) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        name = f"process {holder.pid} ("
        # Whoever reads would wait two seconds for it each time.
        monkeypatch.setitem(refresh.__kwdefaults__ or {}, "wait_s", 0.2)
        commands.take_in(store, Settings())
        young = capsys.readouterr().err
        with receiving(store) as receiver:
            looks: list[Refreshed] = []
            tell_age = receiver._intake._tell_age
            monkeypatch.setattr(receiver._intake, "_tell_age", lambda found: (tell_age(found), looks.append(found)))
            until(lambda: len(looks) > 1)
            assert "wait to come" not in caplog.text
            older(spool.segments()[0].path, 7_200)
            until(lambda: "wait to come" in caplog.text)
            before = len(looks)
            until(lambda: len(looks) > before + 3)
            commands.take_in(store, Settings())
            old = capsys.readouterr().err
            lines = [line for line in doctor.examine(store, None) if "wait to come" in line.fact]
            assert samples(ask(receiver, "GET", "/metrics")[2])["agenttrace_spool_age_seconds"] > 7_200
            holder.communicate("\n")
            until(lambda: spool.segments() == [])
    who = rf"because {re.escape(name)}.*\) holds the file"
    assert re.search(rf"the oldest 6\d s old, {who}; run the command again\.$", young)
    assert re.search(rf"the oldest 2 h old, {who}; end it, or have it close the file\.$", old)
    assert [(line.state, name in line.fact, line.advice) for line in lines] == [
        ("warn", True, "end it, or have it close the file; nothing is lost while the spool has room")
    ]
    warnings = [record.getMessage() for record in caplog.records if "wait to come" in record.getMessage()]
    (warning,) = warnings
    assert warning.startswith(f"{store}: 1 segments wait to come into the store, the oldest for 2 h, because {name}")
    assert warning.endswith(
        "holds the file: end it, or have it close the file; nothing is lost while the spool has room."
    )


@pytest.mark.usefixtures("at_once")
def test_receiver_takes_in_what_others_have_left(
    store: Path, make_span: MakeSpan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intakes, "_LOOK_S", 0.1)
    spool = Spool(spool_folder(store))
    with receiving(store) as receiver:
        until(lambda: not receiver._intake._wake.is_set())
        spool.write("spans", [make_span(1)])
        until(lambda: spool.segments() == [])


@pytest.mark.usefixtures("at_once")
def test_record_that_is_skipped_is_named_once(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with receiving(store) as receiver:
        send(receiver, "no id")
        send(receiver, "no id")
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == (
        "a record was skipped; further ones are only counted: "
        "resourceSpans[0].scopeSpans[0].spans[0]: spanId is 'no id'; expected 16 hex characters"
    )
