"""Every door leads to the same rows: one recording over each transport, in any order and cut, and as a file."""

import gzip
import http.client
import json
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenttrace.collectors.files import import_files
from agenttrace.collectors.otlp import OTLPReceiver
from agenttrace.store import open_store, refresh

TRACES = Path(__file__).parent / "traces"
# The second one's content travels as log records.
RECORDINGS = ["strands/s9_handoff", "otel-openai-v2-events/s8_session"]
QUERIES = (
    "SELECT * EXCLUDE (received_at) FROM spans ORDER BY ALL",
    "SELECT * EXCLUDE (received_at) FROM log_records ORDER BY ALL",
    "SELECT * FROM steps ORDER BY ALL",
    "SELECT * EXCLUDE (last_arrival, revision) FROM trajectories ORDER BY ALL",
)

Json = dict[str, Any]
Row = tuple[Any, ...]


def recorded() -> list[Json]:
    paths = [TRACES / f"{name}{suffix}" for name in RECORDINGS for suffix in (".jsonl", ".logs.jsonl")]
    lines = [line for path in paths if path.exists() for line in path.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line) for line in lines]


def rows(db: Path) -> list[list[Row]]:
    refresh(db)
    with open_store(db) as con:
        return [con.execute(query).fetchall() for query in QUERIES]


# Arrangements


def whole(requests: list[Json]) -> list[Json]:
    return requests


def split(requests: list[Json]) -> list[Json]:
    """One request per record."""
    names = {"resourceSpans": ("scopeSpans", "spans"), "resourceLogs": ("scopeLogs", "logRecords")}
    return [
        {groups: [group | {parts: [part | {records: [record]}]}]}
        for request in requests
        for groups, (parts, records) in names.items()
        for group in request.get(groups, [])
        for part in group[parts]
        for record in part[records]
    ]


def children_first(requests: list[Json]) -> list[Json]:
    def start(request: Json) -> int:
        span = request.get("resourceSpans", [{}])[0].get("scopeSpans", [{}])[0].get("spans", [{}])[0]
        return int(span.get("startTimeUnixNano", 0))

    return sorted(split(requests), key=start, reverse=True)


def shuffled(requests: list[Json]) -> list[Json]:
    return random.Random(7).sample(parts := split(requests), len(parts))


def twice(requests: list[Json]) -> list[Json]:
    return [*requests, *split(requests)]


# Doors


def is_logs(request: Json) -> bool:
    return "resourceLogs" in request


def protobuf(request: Json) -> bytes:
    """The request in protobuf; its JSON has ids in base64."""

    def with_bytes(value: Any) -> Any:
        if isinstance(value, list):
            return [with_bytes(item) for item in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {key: base64(item) if key in ids else with_bytes(item) for key, item in value.items()}

    message = ExportLogsServiceRequest() if is_logs(request) else ExportTraceServiceRequest()
    return ParseDict(with_bytes(request), message).SerializeToString()


def base64(hexadecimal: str) -> str:
    from base64 import b64encode

    return b64encode(bytes.fromhex(hexadecimal)).decode()


def received(requests: list[Json], db: Path, send: Callable[[OTLPReceiver, list[Json]], None]) -> None:
    with OTLPReceiver(db, http_port=0, grpc_port=0) as receiver:
        send(receiver, requests)


def over_http(receiver: OTLPReceiver, bodies: list[tuple[str, bytes]], headers: dict[str, str]) -> None:
    url = urlsplit(receiver.urls[0])
    with closing(http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)) as connection:
        for path, body in bodies:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, b"{}" if "json" in headers["Content-Type"] else b"")


def as_protobuf(requests: list[Json], db: Path) -> None:
    def send(receiver: OTLPReceiver, requests: list[Json]) -> None:
        bodies = [(f"/v1/{'logs' if is_logs(request) else 'traces'}", protobuf(request)) for request in requests]
        over_http(receiver, bodies, {"Content-Type": "application/x-protobuf"})

    received(requests, db, send)


def as_packed_json(requests: list[Json], db: Path) -> None:
    def send(receiver: OTLPReceiver, requests: list[Json]) -> None:
        bodies = [
            (f"/v1/{'logs' if is_logs(request) else 'traces'}", gzip.compress(json.dumps(request).encode()))
            for request in requests
        ]
        headers = {"Content-Type": "application/json; charset=utf-8", "Content-Encoding": "gzip"}
        over_http(receiver, bodies, headers)

    received(requests, db, send)


def over_grpc(requests: list[Json], db: Path) -> None:
    def send(receiver: OTLPReceiver, requests: list[Json]) -> None:
        with grpc.insecure_channel(receiver.urls[1].removeprefix("grpc://")) as channel:
            for request in requests:
                service = "logs.v1.LogsService" if is_logs(request) else "trace.v1.TraceService"
                export = channel.unary_unary(f"/opentelemetry.proto.collector.{service}/Export")
                assert export(protobuf(request), timeout=30, compression=grpc.Compression.Gzip) == b""

    received(requests, db, send)


def as_json_lines(requests: list[Json], db: Path) -> None:
    path = db.with_name("requests.jsonl")
    path.write_text("\n".join(map(json.dumps, requests)), encoding="utf-8")
    assert import_files([path], db).skipped == []


def as_protobuf_messages(requests: list[Json], db: Path) -> None:
    """What the Collector's file exporter writes with `format: proto`."""
    path = db.with_name("requests.pb")
    bodies = map(protobuf, requests)
    path.write_bytes(gzip.compress(b"".join(len(body).to_bytes(4) + body for body in bodies)))
    assert import_files([path], db).skipped == []


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[list[Row]]:
    db = tmp_path_factory.mktemp("doors") / "agenttrace.duckdb"
    as_json_lines(recorded(), db)
    found = rows(db)
    assert all(found)
    return found


@pytest.mark.xdist_group("doors")
@pytest.mark.parametrize(
    ("door", "arrange"),
    [
        (over_grpc, whole),
        (over_grpc, shuffled),
        (as_protobuf, whole),
        (as_protobuf, children_first),
        (as_packed_json, split),
        (as_packed_json, twice),
        (as_json_lines, shuffled),
        (as_protobuf_messages, children_first),
    ],
)
def test_every_door_leads_to_the_same_rows(
    door: Callable[[list[Json], Path], None],
    arrange: Callable[[list[Json]], list[Json]],
    store: Path,
    expected: list[list[Row]],
) -> None:
    door(arrange(recorded()), store)
    assert rows(store) == expected
