"""Findings as OpenTelemetry events, sent to the backend that has the spans: each with the span at fault as its parent.

Source: OpenTelemetry semantic conventions for generative AI, event `gen_ai.evaluation.result` (development, 2026-11).
"""

import logging
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib.metadata import version
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import requests
from google.protobuf.message import DecodeError
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from agenttrace import show, terminal
from agenttrace.configure import target_of
from agenttrace.errors import ConfigError, UsageError
from agenttrace.evaluators.reports import summary
from agenttrace.evaluators.results import Evaluation, Finding
from agenttrace.store import open_store

if TYPE_CHECKING:
    from opentelemetry.util.types import AttributeValue

EVENT = "gen_ai.evaluation.result"
_SEVERITIES = {"error": SeverityNumber.ERROR, "warning": SeverityNumber.WARN, "note": SeverityNumber.INFO}
_BATCH = 512
# A request is tried again for so long.
_TIMEOUT_S = 20.0
_REASON_WIDTH = 300
_SPAN_ID = re.compile(r"([0-9a-f]{16})(?:#\d+)?")


def send(evaluation: Evaluation, db: Path, endpoint: str) -> int:
    """Sends each finding as an event.

    Headers, certificates and compression are those of the OTEL_EXPORTER_OTLP_* variables.

    Args:
        evaluation: What was found.
        db: The store, where the runs are.
        endpoint: `http://host:4318` or `grpc://host:4317`, with TLS `https://` or `grpcs://`.

    Returns:
        How many were sent.

    Raises:
        UsageError: The endpoint is none, or does not take them.
    """
    answers: list[requests.Response] = []
    exporter = _exporter(endpoint, answers)
    events = _events(evaluation, db)
    sent = 0
    try:
        while batch := list(islice(events, _BATCH)):
            with _said() as said:
                is_taken = exporter.export(batch) is LogRecordExportResult.SUCCESS
            # The first line is the cause; later ones say that it was tried again.
            refused, reason = _refused(answers[-1]) if is_taken and answers else (0, said[0] if said else "")
            if is_taken and not refused:
                sent += len(batch)
                continue
            sent += len(batch) - min(refused, len(batch)) if is_taken else 0
            reason = f" ({terminal.cut(reason, _REASON_WIDTH)})" if reason else ""
            raise UsageError(
                f"--events {endpoint}: did not take the findings{reason}; {sent} of "
                f"{len(evaluation.findings)} were sent. The evaluation itself is kept."
            )
    finally:
        exporter.shutdown()
    return sent


def address_of(endpoint: str) -> tuple[str, str]:
    """Returns the kind of an endpoint, http, grpc or grpcs, and its address.

    Raises:
        UsageError: It is none.
    """
    with suppress(ConfigError):
        kind, address = target_of(endpoint)
        if kind != "store":
            return kind, address
    raise UsageError(f"--events {endpoint}: is no endpoint; expected one like http://host:4318 or grpc://host:4317.")


def _refused(answer: requests.Response) -> tuple[int, str]:
    """Returns how many records an answer over HTTP refuses, and why; a success of OTLP may be one in part.

    Source: OTLP specification, "Partial Success".
    """
    if answer.status_code // 100 != 2:
        # A redirect that leads nowhere is a success to the exporter.
        return _BATCH, f"HTTP {answer.status_code}"
    with suppress(DecodeError):
        partial = ExportLogsServiceResponse.FromString(answer.content).partial_success
        return partial.rejected_log_records, partial.error_message
    return 0, ""


def _exporter(endpoint: str, answers: list[requests.Response]) -> LogRecordExporter:
    kind, address = address_of(endpoint)
    if kind == "http":
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

        session = requests.Session()

        def keep(answer: requests.Response, *_: object, **__: object) -> None:
            answers.append(answer)

        session.hooks["response"].append(keep)
        address = address.removesuffix("/v1/traces") + "/v1/logs"
        return OTLPLogExporter(address, timeout=_TIMEOUT_S, session=session)
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter

    return GrpcLogExporter(address, insecure=kind == "grpc", timeout=_TIMEOUT_S)


def _events(evaluation: Evaluation, db: Path) -> Iterator[ReadableLogRecord]:
    places = _places(evaluation.findings, db)
    resource = Resource.create({"service.name": "agenttrace"})
    scope = InstrumentationScope("agenttrace", version("agenttrace-otel"))
    time_ns = int(datetime.fromisoformat(evaluation.run["finished_at"]).timestamp() * 1e9)
    for finding in evaluation.findings:
        trace_id, span_id, response_id = places.get(finding.finding_id, (None, None, None))
        record = LogRecord(
            timestamp=time_ns,
            observed_timestamp=time_ns,
            context=_within(trace_id, span_id),
            severity_text=finding.severity,
            severity_number=_SEVERITIES[finding.severity],
            attributes=dict(_attributes(evaluation, finding, response_id)),
            event_name=EVENT,
        )
        yield ReadableLogRecord(record, resource, scope)


def _within(trace_id: str | None, span_id: str | None) -> Context:
    flags = TraceFlags(TraceFlags.SAMPLED)
    place = SpanContext(int(trace_id or "0", 16), int(span_id or "0", 16), is_remote=True, trace_flags=flags)
    return set_span_in_context(NonRecordingSpan(place), Context())


def _attributes(
    evaluation: Evaluation, finding: Finding, response_id: str | None
) -> "Iterator[tuple[str, AttributeValue]]":
    stated: dict[str, AttributeValue | None] = {
        "gen_ai.evaluation.name": summary.rule(finding),
        # A note tells of something worth a look, not of a fault.
        "gen_ai.evaluation.score.label": "note" if finding.severity == "note" else "fail",
        "gen_ai.evaluation.explanation": finding.message,
        "gen_ai.response.id": response_id,
        "gen_ai.tool.name": finding.tool_name,
        "agenttrace.evaluation.id": evaluation.run["run_id"],
        "agenttrace.finding.id": finding.finding_id,
        "agenttrace.finding.fingerprint": finding.fingerprint,
        "agenttrace.finding.severity": finding.severity,
        "agenttrace.finding.state": finding.state,
        "agenttrace.trajectory.id": finding.trajectory_id,
    }
    for name, value in stated.items():
        if value is not None:
            yield name, value


def _places(findings: Sequence[Finding], db: Path) -> dict[str, tuple[str, str, str | None]]:
    """Returns trace, span and response id of each finding; one that names no span belongs to the first of its run."""
    query = files("agenttrace.evaluators.relations").joinpath("event_places.sql").read_text(encoding="utf-8")
    with open_store(db) as con:
        steps = show.rows(con, query, {"runs": list({each.trajectory_id for each in findings if each.trajectory_id})})
    by_span: dict[tuple[str, str | None], show.Row] = {}
    for step in steps:
        by_span.setdefault((step["trajectory_id"], None), step)
        by_span[step["trajectory_id"], step["span_id"]] = step
    places: dict[str, tuple[str, str, str | None]] = {}
    for finding in findings:
        run = finding.trajectory_id or ""
        step = by_span.get((run, finding.span_id)) or by_span.get((run, None))
        # A step that was built from messages has no span of its own; its id begins with that of its model call.
        if step is not None and (span_id := _SPAN_ID.fullmatch(step["span_id"])):
            places[finding.finding_id] = step["trace_id"], span_id[1], step["response_id"]
    return places


@contextmanager
def _said() -> Generator[list[str]]:
    """Collects what the exporter would log: its reason belongs into our one line."""
    said: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage().splitlines()[0])

    logger = logging.getLogger("opentelemetry")
    handler, before = Collect(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = before
