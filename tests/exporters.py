"""What real exporters and a real collector send: `make exporters`, not part of the tests, since it installs them.

The SDKs of Node (JSON, protobuf, gRPC) and Python (protobuf, JSON, gRPC, file) each send the same two spans and log
record, plain and packed, straight to the receiver and by way of a collector. All must arrive alike.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import requests

from agenttrace.collectors.files import import_files
from agenttrace.collectors.otlp import OTLPReceiver
from agenttrace.store import open_store, refresh

TESTS = Path(__file__).parent
# The exporters to JSON depend on pre-releases.
PACKAGES = [
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-exporter-otlp-proto-grpc",
    "rotel",
]
JSON_PACKAGES = ["opentelemetry-exporter-otlp-json-http", "opentelemetry-exporter-otlp-json-file"]
AGENTTRACE = Path(sys.executable).with_name("agenttrace")
TIMEOUT_S = 120
PYTHON = """
import importlib, sys
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
module, name = sys.argv[1].split(":")
exporter = getattr(importlib.import_module(module), name)
provider = TracerProvider(resource=Resource({"service.name": "exporters"}))
provider.add_span_processor(BatchSpanProcessor(exporter(*sys.argv[2:])))
tracer = provider.get_tracer("lib", "1.0")
with tracer.start_as_current_span("invoke_agent", attributes={"gen_ai.operation.name": "invoke_agent"}) as agent:
    attributes = {
        "text": "gr\\u00fc\\u00dfe \\U0001f680", "whole": 9007199254740991, "half": 0.5, "yes": True,
        "list": ["a", "b"], "numbers": [1, 2],
    }
    links = [trace.Link(agent.get_span_context(), {"why": "cause"})]
    client = trace.SpanKind.CLIENT
    with tracer.start_as_current_span("execute_tool", kind=client, attributes=attributes, links=links) as tool:
        tool.add_event("event", {"n": 1})
        tool.set_status(trace.StatusCode.ERROR, "boom")
provider.shutdown()
"""
TOOL = {
    "text": "grüße 🚀",
    "whole": 9007199254740991,
    "half": 0.5,
    "yes": True,
    "list": ["a", "b"],
    "numbers": [1, 2],
}
EXPECTED = [
    (
        "execute_tool",
        "client",
        "error",
        "boom",
        "exporters",
        "lib",
        "1.0",
        TOOL,
        [("event", {"n": 1})],
        [{"why": "cause"}],
    ),
    (
        "invoke_agent",
        "internal",
        "unset",
        None,
        "exporters",
        "lib",
        "1.0",
        {"gen_ai.operation.name": "invoke_agent"},
        [],
        [],
    ),
]


def run(command: list[str | Path], folder: Path, **environment: str) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        command, cwd=folder, env=own | environment, capture_output=True, text=True, timeout=10 * TIMEOUT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")


def install(folder: Path) -> None:
    """Installs what is missing."""
    for name, packages in (("venv", PACKAGES), ("venv-json", JSON_PACKAGES)):
        if not (folder / name / "installed").exists():
            run([sys.executable, "-m", "venv", folder / name], folder)
            options = ["--pre"] if packages is JSON_PACKAGES else []
            run([folder / name / "bin" / "pip", "install", "--quiet", *options, *packages], folder)
            (folder / name / "installed").touch()
    script = TESTS / "exporters.mjs"
    (folder / script.name).write_text(script.read_text(encoding="utf-8"), encoding="utf-8")
    if not (folder / "node_modules").exists():
        needed = script.read_text(encoding="utf-8").partition("\n")[0].removeprefix("// npm:").split()
        run(["npm", "install", "--silent", "--no-audit", "--no-fund", *needed], folder)


def check(name: str, db: Path, logs: int) -> bool:
    refresh(db)
    with open_store(db, wait_s=TIMEOUT_S) as con:
        found = con.execute(
            "SELECT name, span_kind, status_code, status_message, service_name, scope_name, scope_version, attributes, "
            "events, links FROM spans ORDER BY name"
        ).fetchall()
        parents = con.execute("SELECT count(*) FROM spans c JOIN spans p ON c.parent_span_id = p.span_id").fetchall()
        records = con.execute("SELECT event_name, body FROM log_records").fetchall()
    rows = [(*row[:7], json.loads(row[7]), _events(row[8]), _links(row[9])) for row in found]
    wrong = [
        f"{got} is not {wanted}"
        for got, wanted in ((rows, EXPECTED), (parents, [(1,)]), (records, [("gen_ai.choice", '{"index":0}')] * logs))
        if got != wanted
    ]
    print(f"{'FAIL' if wrong else 'ok  '}  {name}", *wrong, sep="\n      ")
    return not wrong


def _events(text: str) -> list[tuple[str, Any]]:
    return [(event["name"], event["attributes"]) for event in json.loads(text)]


def _links(text: str) -> list[Any]:
    return [link["attributes"] for link in json.loads(text)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def collector(folder: Path, receiver: OTLPReceiver, protocol: str) -> Iterator[str]:
    """A collector, built apart from ours, between a program and the receiver; yields where it listens."""
    (program,) = (folder / "venv").glob("lib/*/site-packages/rotel/rotel-agent")
    grpc_port, http_port = free_port(), free_port()
    target = receiver.urls[0] if protocol == "http" else receiver.urls[1].replace("grpc://", "http://")
    arguments = {
        "otlp-grpc-endpoint": f"127.0.0.1:{grpc_port}",
        "otlp-http-endpoint": f"127.0.0.1:{http_port}",
        "pid-file": str(folder / "collector.pid"),
        "log-file": str(folder / "collector.log"),
        "exporter": "otlp",
        "otlp-exporter-endpoint": target,
        "otlp-exporter-protocol": protocol,
        "otlp-exporter-custom-headers": "authorization=Bearer s3cret",
    }
    command = [str(program), "start", *(text for name, value in arguments.items() for text in (f"--{name}", value))]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", http_port), timeout=1):
                break
            time.sleep(0.1)
        try:
            yield f"http://127.0.0.1:{http_port}"
        finally:
            process.terminate()
            process.wait(TIMEOUT_S)


def until_arrived(receiver: OTLPReceiver) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while (receiver.counts.spans, receiver.counts.logs) != (2, 1) and time.monotonic() < deadline:
        time.sleep(0.1)


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    install(folder)
    fine, before = True, folder

    def straight(name: str, command: list[str | Path], is_grpc: bool, packed: str, logs: int) -> None:
        nonlocal fine
        db = folder / "stores" / f"{time.time_ns()}.duckdb"
        with OTLPReceiver(db, http_port=0, grpc_port=0, token="s3cret") as receiver:
            url = receiver.urls[1].replace("grpc://", "http://") if is_grpc else receiver.urls[0]
            run(
                command,
                folder,
                OTEL_EXPORTER_OTLP_ENDPOINT=url,
                OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20s3cret",
                OTEL_EXPORTER_OTLP_INSECURE="true",
                **({"OTEL_EXPORTER_OTLP_COMPRESSION": packed} if packed else {}),
            )
        fine &= check(f"{name}, {packed or 'plain'}", db, logs)

    python = folder / "venv" / "bin" / "python"
    json_python = folder / "venv-json" / "bin" / "python"
    otlp = "opentelemetry.exporter.otlp"
    for packed in ("", "gzip"):
        for kind in ("http", "proto", "grpc"):
            straight(f"Node, otlp-{kind}", ["node", "exporters.mjs", kind], kind == "grpc", packed, 1)
        for interpreter, module in (
            (python, f"{otlp}.proto.http.trace_exporter"),
            (python, f"{otlp}.proto.grpc.trace_exporter"),
            (json_python, f"{otlp}.json.http.trace_exporter"),
        ):
            command: list[str | Path] = [interpreter, "-c", PYTHON, f"{module}:OTLPSpanExporter"]
            straight(f"Python, {module.removeprefix(otlp + '.')}", command, "grpc" in module, packed, 0)
    for protocol in ("http", "grpc"):
        db = folder / "stores" / f"{time.time_ns()}.duckdb"
        with (
            OTLPReceiver(db, http_port=0, grpc_port=0, token="s3cret") as receiver,
            collector(folder, receiver, protocol) as url,
        ):
            run(["node", "exporters.mjs", "proto"], folder, OTEL_EXPORTER_OTLP_ENDPOINT=url)
            until_arrived(receiver)
        before = db
        fine &= check(f"Node by way of a collector over {protocol}", db, 1)
    lines, db = folder / f"{time.time_ns()}.jsonl", folder / "stores" / f"{time.time_ns()}.duckdb"
    with (
        OTLPReceiver(db, http_port=0, grpc_port=0, token="s3cret") as receiver,
        collector(folder, receiver, "http") as url,
    ):
        # What the last one sent, as `agenttrace export` writes it.
        run([AGENTTRACE, "export", lines, "--db", before], folder)
        for line in lines.read_bytes().splitlines():
            signal = "traces" if line.startswith(b'{"resourceSpans"') else "logs"
            headers = {"Content-Type": "application/json"}
            requests.post(f"{url}/v1/{signal}", line, headers=headers, timeout=TIMEOUT_S).raise_for_status()
        until_arrived(receiver)
    fine &= check("Our own export by way of a collector", db, 1)
    path, db = folder / f"{time.time_ns()}.jsonl", folder / "stores" / f"{time.time_ns()}.duckdb"
    run([json_python, "-c", PYTHON, f"{otlp}.json.file:FileSpanExporter", path], folder)
    assert import_files([path], db).skipped == []
    fine &= check("Python, json.file", db, 0)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
