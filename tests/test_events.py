"""Findings as OpenTelemetry events, at a real receiver."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import duckdb
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from test_reports import EVALUATION, EVIL, finding

from agenttrace.cli import main
from agenttrace.collectors.otlp import OTLPReceiver
from agenttrace.errors import UsageError
from agenttrace.evaluators import events
from agenttrace.store import refresh

Fill = Callable[..., Path]
TRACE, ROOT, SPAN = "0af7651916cd43dd8448eb211c80319c", "00000000000000aa", "00000000000000bb"
STEPS: list[dict[str, object]] = [
    {"trajectory_id": "abc123", "trace_id": TRACE, "span_id": SPAN, "kind": "tool", "step_index": 0},
    {"trajectory_id": "abc123", "trace_id": TRACE, "span_id": ROOT, "kind": "agent"},
    {"trajectory_id": "abc123", "trace_id": TRACE, "span_id": f"{SPAN}#2", "kind": "tool", "response_id": "resp-1"},
]
FOUND = replace(
    EVALUATION,
    findings=[
        finding(1, span_id=SPAN, state="new"),
        finding(2, span_id=None, severity="note", tool_name=None),
        finding(3, span_id=f"{SPAN}#2", severity="warning", message=EVIL.replace("\ud800", "")),
        finding(4, trajectory_id="gone"),
    ],
)


@pytest.fixture
def evaluated(fill_store: Fill) -> Path:
    return fill_store(trajectories=[{"trajectory_id": "abc123", "trace_id": TRACE}], steps=STEPS)


def arrived(db: Path) -> list[dict[str, Any]]:
    refresh(db)
    with duckdb.connect(db, read_only=True) as con:
        rows = con.execute(
            "SELECT trace_id, span_id, event_name, severity_text, attributes, service_name, scope_name FROM log_records"
        ).fetchall()
    names = ("trace_id", "span_id", "event_name", "severity_text", "attributes", "service_name", "scope_name")
    return [dict(zip(names, row, strict=True)) | {"attributes": json.loads(row[4])} for row in rows]


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_each_finding_arrives_with_its_span_as_parent(evaluated: Path, tmp_path: Path, protocol: str) -> None:
    backend = tmp_path / "backend.duckdb"
    with OTLPReceiver(backend, http_port=0, grpc_port=0) as receiver:
        assert events.send(FOUND, evaluated, receiver.urls[protocol == "grpc"]) == 4
    found = {each["attributes"]["agenttrace.finding.id"]: each for each in arrived(backend)}
    # A record without a span is in no table of ours; another backend has it.
    assert {name: (each["trace_id"], each["span_id"]) for name, each in found.items()} == {
        "f1": (TRACE, SPAN),
        "f2": (TRACE, ROOT),
        "f3": (TRACE, SPAN),
    }
    assert found["f1"] | {"attributes": None} == {
        "trace_id": TRACE,
        "span_id": SPAN,
        "event_name": "gen_ai.evaluation.result",
        "severity_text": "error",
        "attributes": None,
        "service_name": "agenttrace",
        "scope_name": "agenttrace",
    }
    assert found["f1"]["attributes"] == {
        "gen_ai.evaluation.name": "duplicate_mutations/confirmed",
        "gen_ai.evaluation.score.label": "fail",
        "gen_ai.evaluation.explanation": "place_order(item=rice) ran twice",
        "gen_ai.tool.name": "place_order",
        "agenttrace.evaluation.id": "8c1f00aa12345678",
        "agenttrace.finding.id": "f1",
        "agenttrace.finding.fingerprint": "p1",
        "agenttrace.finding.severity": "error",
        "agenttrace.finding.state": "new",
        "agenttrace.trajectory.id": "abc123",
    }
    assert found["f2"]["attributes"]["gen_ai.evaluation.score.label"] == "note"
    assert found["f3"]["attributes"]["gen_ai.response.id"] == "resp-1"


def test_a_backend_that_does_not_take_them_is_named_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = str(Path(sys.executable).with_name("agenttrace"))
    store = tmp_path / "demo" / "agenttrace-demo.duckdb"
    main(["demo", str(store.parent)])
    capsys.readouterr()
    with OTLPReceiver(tmp_path / "backend.duckdb", http_port=0, grpc_port=0, token="s3cret") as receiver:
        # In a process of its own: the exporter says the same only once in a while.
        done = subprocess.run(
            [program, "evaluate", "--db", store, "--events", receiver.urls[0]],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert re.fullmatch(
        rf"agenttrace: --events {receiver.urls[0]}: did not take the findings \(.*401.*\); 0 of \d+ were sent\. "
        r"The evaluation itself is kept\.\n",
        done.stderr,
    )


PARTIAL = ExportLogsServiceResponse(partial_success={"rejected_log_records": 3, "error_message": "quota\x1b[31m"})


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (307, b"", "(HTTP 307); 0 of 4 were sent"),
        (200, PARTIAL.SerializeToString(), "(quota\\x1b[31m); 1 of 4 were sent"),
    ],
)
def test_only_what_the_backend_has_taken_counts(evaluated: Path, status: int, body: bytes, message: str) -> None:
    class Backend(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Backend) as backend:
        thread = threading.Thread(target=backend.serve_forever)
        thread.start()
        try:
            with pytest.raises(UsageError, match=re.escape(message)):
                events.send(FOUND, evaluated, f"http://127.0.0.1:{backend.server_port}")
        finally:
            backend.shutdown()
            thread.join()


def test_headers_are_those_of_the_environment(evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_TIMEOUT_S", 1.0)
    with OTLPReceiver(tmp_path / "backend.duckdb", http_port=0, grpc_port=0, token="s3cret") as receiver:
        with pytest.raises(UsageError, match="did not take the findings"):
            events.send(FOUND, evaluated, receiver.urls[0])
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20s3cret")
        assert events.send(FOUND, evaluated, receiver.urls[0]) == 4


def test_what_is_no_endpoint_is_refused_before_anything_is_judged(
    evaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("evaluate", "nightly"):
        assert main([command, "--db", str(evaluated), "--events", "ftp://host"]) == 2
        assert "--events ftp://host: is no endpoint; expected one like http://host:4318" in capsys.readouterr().err
    with duckdb.connect(evaluated, read_only=True) as con:
        assert con.execute("SELECT count(*) FROM evaluation_runs").fetchone() == (0,)


def test_the_command_sends_and_says_how_many(
    evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with OTLPReceiver(tmp_path / "backend.duckdb", http_port=0, grpc_port=0) as receiver:
        main(["evaluate", "--db", str(evaluated), "--events", receiver.urls[0]])
        assert capsys.readouterr().err.endswith(f"findings sent to {receiver.urls[0]}\n")


def test_github_gets_the_summary_of_the_step(
    evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    main(["evaluate", "--db", str(evaluated), "--format", "table"])
    assert summary.read_text() == "before\n"
    main(["evaluate", "--db", str(evaluated), "--format", "github"])
    assert summary.read_text().startswith("before\n## agenttrace: ")
