"""What a receiver says of itself: OpenTelemetry metrics, and the same as the text that Prometheus reads.

`opentelemetry-exporter-prometheus` is not used: it brings a second registry for these few numbers, is a pre-release,
and shows nothing where OTEL_SDK_DISABLED is set.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from agenttrace.self_metrics import Metric, Observed, Values

if TYPE_CHECKING:
    from agenttrace.collectors.intake import Intake

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

_UNITS = {"s": "_seconds", "By": "_bytes"}
_NO_NAME = re.compile(r"\W", re.ASCII)


def _total(intake: "Intake", name: str) -> Values:
    # Not known before the first look into the store.
    return [(getattr(intake.totals, name), {})] if intake.totals is not None else []


def _last(intake: "Intake", name: str) -> Values:
    return _total(intake, name) if intake.totals is not None and intake.totals.compacted_at else []


def _rejected_logs(intake: "Intake") -> Values:
    counts = intake.counts
    return [(counts.rejected_logs, {"error.type": "invalid"}), (counts.logs_without_span, {"error.type": "no_span"})]


def _refused(intake: "Intake") -> Values:
    return [(count, {"error.type": reason}) for reason, count in list(intake.counts.refused.items())]


METRICS: "tuple[Metric[Intake], ...]" = (
    Metric(
        "agenttrace.receiver.accepted_spans",
        "counter",
        "{span}",
        "Spans that were acknowledged: they are on disk.",
        lambda intake: [(intake.counts.spans, {})],
    ),
    Metric(
        "agenttrace.receiver.accepted_log_records",
        "counter",
        "{record}",
        "Log records that were acknowledged.",
        lambda intake: [(intake.counts.logs, {})],
    ),
    Metric(
        "agenttrace.receiver.rejected_spans",
        "counter",
        "{span}",
        "Spans that were skipped in accepted requests; the sender was told.",
        lambda intake: [(intake.counts.rejected_spans, {"error.type": "invalid"})],
    ),
    Metric(
        "agenttrace.receiver.rejected_log_records",
        "counter",
        "{record}",
        "Log records that were skipped in accepted requests; those that belong to no span are not kept.",
        _rejected_logs,
    ),
    Metric(
        "agenttrace.receiver.refused_requests",
        "counter",
        "{request}",
        "Requests that were not taken, by HTTP status or gRPC code; 503 and UNAVAILABLE are to be sent again.",
        _refused,
    ),
    Metric(
        "agenttrace.spool.segments",
        "gauge",
        "{segment}",
        "Segments that wait to come into the store.",
        lambda intake: [(intake.waiting().segments, {})],
    ),
    Metric(
        "agenttrace.spool.size",
        "gauge",
        "By",
        "Size of what waits to come into the store.",
        lambda intake: [(intake.waiting().bytes, {})],
    ),
    Metric(
        "agenttrace.spool.age",
        "gauge",
        "s",
        "How long the oldest segment has waited to come into the store.",
        lambda intake: [(intake.waiting().oldest_s, {})],
    ),
    Metric(
        "agenttrace.spool.set_aside",
        "gauge",
        "{segment}",
        "Segments that could not be read, and wait for somebody to look at them.",
        lambda intake: [(intake.waiting().set_aside, {})],
    ),
    Metric(
        "agenttrace.store.stored_spans",
        "counter",
        "{span}",
        "Ended spans that came into the store since it was made, each once, whoever brought them.",
        lambda intake: _total(intake, "spans"),
    ),
    Metric(
        "agenttrace.store.duplicate_spans",
        "counter",
        "{span}",
        "Ended spans that were in the store already.",
        lambda intake: _total(intake, "duplicate_spans"),
    ),
    Metric(
        "agenttrace.store.id_conflicts",
        "gauge",
        "{span}",
        "Spans with the ids of other spans: they are in the table `spans`, but in no run.",
        lambda intake: _total(intake, "id_conflicts"),
    ),
    Metric(
        "agenttrace.store.last_compaction.timestamp",
        "gauge",
        "s",
        "When something came into the store last, in seconds since 1970-01-01 UTC.",
        lambda intake: _last(intake, "compacted_at"),
    ),
    Metric(
        "agenttrace.store.lag",
        "gauge",
        "s",
        "How long the oldest of what came in last had been acknowledged by then.",
        lambda intake: _last(intake, "lag_s"),
    ),
)

receivers: "Observed[Intake]" = Observed(METRICS)


def prometheus_text(intake: "Intake") -> str:
    """Writes the metrics of one receiver for Prometheus.

    Source:
        https://prometheus.io/docs/instrumenting/exposition_formats/ (text format 0.0.4), and for the names
        https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/; checked 2026-11-30.
    """
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, metric.read(intake)))


def prometheus_name(metric: "Metric[Intake]") -> str:
    """Returns what Prometheus calls a metric."""
    name = _NO_NAME.sub("_", metric.name) + _UNITS.get(metric.unit, "")
    return f"{name}_total" if metric.kind == "counter" else name


def _lines(metric: "Metric[Intake]", values: Values) -> Iterator[str]:
    name = prometheus_name(metric)
    yield f"# HELP {name} {_escaped(metric.description)}"
    yield f"# TYPE {name} {'counter' if metric.kind == 'counter' else 'gauge'}"
    for value, attributes in values:
        yield f"{name}{_labels(attributes)} {value!r}"


def _labels(attributes: Mapping[str, str]) -> str:
    pairs = [f'{_NO_NAME.sub("_", key)}="{_escaped(value, quotes=True)}"' for key, value in attributes.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quotes else text
