"""The OTLP receiver on a free port: real exporters, plain HTTP, hostile clients, killed processes."""

import asyncio
import errno
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import Compression, OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from agenttrace.collectors import intake
from agenttrace.collectors.counts import read_counts
from agenttrace.collectors.decode import decode_traces_protobuf
from agenttrace.collectors.files import import_files
from agenttrace.collectors.otlp import OTLPReceiver, _report
from agenttrace.errors import SpoolError, StoreError, UsageError
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import compact_store, open_store

TRACES = Path(__file__).parent / "traces"
BODY = (TRACES / "openinference-openai.s2_duplicate_mutation.0.pb").read_bytes()
PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
DEADLINE_S = 30.0


@contextmanager
def receiving(db: Path, **options: Any) -> Iterator[OTLPReceiver]:
    receiver = OTLPReceiver(db, http_port=0, **options)
    with receiver:
        yield receiver


@pytest.fixture
def receiver(store: Path) -> Iterator[OTLPReceiver]:
    with receiving(store) as running:
        yield running


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OTLPReceiver]:
    """One receiver for requests that leave nothing behind: starting and stopping takes longer than they do."""
    with receiving(tmp_path_factory.mktemp("shared") / "agenttrace.duckdb") as running:
        yield running


def connect(receiver: OTLPReceiver) -> http.client.HTTPConnection:
    url = urlsplit(receiver.urls[0])
    return http.client.HTTPConnection(url.hostname or "", url.port, timeout=DEADLINE_S)


def post(
    receiver: OTLPReceiver, body: bytes, headers: dict[str, str], path: str = "/v1/traces", method: str = "POST"
) -> tuple[int, dict[str, str], bytes]:
    with closing(connect(receiver)) as connection:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


def one_span(number: int = 1, **changes: Any) -> dict[str, Any]:
    span = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": "chat",
        "startTimeUnixNano": "5",
        **changes,
    }
    return {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}


def json_body(number: int = 1, **changes: Any) -> bytes:
    return json.dumps(one_span(number, **changes)).encode()


def rows(db: Path, query: str = "SELECT count(*) FROM spans") -> list[tuple[Any, ...]]:
    """What the store holds after everything has come in."""
    compact_store(db, budget_s=DEADLINE_S, wait_s=DEADLINE_S)
    with open_store(db, wait_s=DEADLINE_S) as con:
        return con.execute(query).fetchall()


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)


def is_dropped(client: socket.socket) -> bool:
    """Says whether the other side has ended a connection; of a blocking one, waits for it."""
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


# Real exporters


@pytest.mark.parametrize("compression", list(Compression))
def test_spans_of_the_sdk_arrive(compression: Compression, store: Path) -> None:
    with receiving(store, token="s3cret") as receiver:
        exporter = OTLPSpanExporter(
            f"{receiver.urls[0]}/v1/traces", headers={"authorization": "Bearer s3cret"}, compression=compression
        )
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with provider.get_tracer("lib", "1.0").start_as_current_span("chat", attributes={"gen_ai.tool.name": "t"}):
            pass
        provider.shutdown()
        assert receiver.counts.spans == 1
    assert rows(store, "SELECT name, tool_name, scope_name, scope_version FROM spans") == [("chat", "t", "lib", "1.0")]


def test_log_records_of_the_sdk_arrive(receiver: OTLPReceiver, store: Path) -> None:
    logs = LoggerProvider()
    logs.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{receiver.urls[0]}/v1/logs")))
    with TracerProvider().get_tracer("lib").start_as_current_span("chat"):
        logs.get_logger("lib").emit(event_name="gen_ai.choice", body={"index": 0})
    logs.get_logger("lib").emit(event_name="of no span", body="x")
    logs.shutdown()
    assert rows(store, "SELECT event_name, body FROM log_records") == [("gen_ai.choice", '{"index":0}')]
    assert (receiver.counts.logs, receiver.counts.logs_without_span) == (1, 1)


# Requests and answers


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (PROTOBUF, BODY),
        ({"Content-Type": "Application/X-Protobuf; charset=x"}, BODY),
        (PROTOBUF | {"Content-Encoding": "gzip"}, gzip.compress(BODY, mtime=0)),
        (
            PROTOBUF | {"Content-Encoding": "X-GZIP"},
            b"".join(gzip.compress(part, mtime=0) for part in (BODY[:100], BODY[100:])),
        ),
        (PROTOBUF | {"Content-Encoding": "deflate"}, zlib.compress(BODY)),
        (PROTOBUF | {"Content-Encoding": "deflate"}, zlib.compress(BODY, wbits=-15)),
        (PROTOBUF | {"Content-Encoding": "identity"}, BODY),
    ],
)
def test_request_is_stored_as_a_file_is(
    headers: dict[str, str], body: bytes, receiver: OTLPReceiver, store: Path, tmp_path: Path
) -> None:
    status, answered, content = post(receiver, body, headers)
    assert (status, answered["content-type"], content) == (200, "application/x-protobuf", b"")
    columns = ", ".join(SpanRow._fields)
    found = rows(store, f"SELECT {columns} FROM spans ORDER BY span_id")
    (tmp_path / "body").write_bytes(BODY)
    imported = tmp_path / "imported.duckdb"
    import_files([tmp_path / "body"], imported)
    assert found == rows(imported, f"SELECT {columns} FROM spans ORDER BY span_id")
    assert found == [tuple(row) for row in sorted(decode_traces_protobuf(BODY).spans, key=lambda row: row.span_id)]


def test_json_is_answered_in_json(receiver: OTLPReceiver, store: Path) -> None:
    assert post(receiver, json_body(), JSON)[::2] == (200, b"{}")
    assert post(receiver, b"{}", JSON)[::2] == (200, b"{}")
    record = {"traceId": f"{1:032x}", "spanId": f"{1:016x}", "eventName": "e"}
    logs = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()
    assert post(receiver, logs, JSON, "/v1/logs/")[::2] == (200, b"{}")
    assert rows(store, "SELECT (SELECT count(*) FROM spans), (SELECT count(*) FROM log_records)") == [(1, 1)]


def test_skipped_spans_are_a_partial_success(receiver: OTLPReceiver, store: Path) -> None:
    request = one_span()
    request["resourceSpans"] += one_span(spanId="x")["resourceSpans"] * 5
    status, _, body = post(receiver, json.dumps(request).encode(), JSON)
    place = "resourceSpans[{}].scopeSpans[0].spans[0]: spanId is 'x'; expected 16 hex characters"
    message = "; ".join(place.format(number) for number in (1, 2, 3)) + "; and 2 more"
    assert status == 200
    assert json.loads(body) == {"partialSuccess": {"rejectedSpans": "5", "errorMessage": message}}
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16)
    status, _, body = post(receiver, message.SerializeToString(), PROTOBUF)
    answer = ExportTraceServiceResponse.FromString(body)
    assert (status, answer.partial_success.rejected_spans) == (200, 1)
    assert rows(store) == [(1,)]
    assert (receiver.counts.spans, receiver.counts.rejected_spans) == (1, 6)


def tag(number: int, content: bytes) -> bytes:
    """One field of protobuf."""
    length, prefix = len(content), bytearray([number << 3 | 2])
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    return bytes(prefix) + bytes([length]) + content


# An attribute of a resource: a list in a list in a list ...
DEEP = tag(1, tag(1, tag(1, tag(2, reduce(lambda value, _: tag(5, tag(1, value)), range(200), b"")))))


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status", "message"),
    [
        ("POST", "/v1/traces", JSON, b"{", 400, "not JSON: "),
        ("POST", "/v1/traces", JSON, b'{"secret": 1', 400, "not JSON: "),
        ("POST", "/v1/traces", JSON, b'{"secret": "\xff"}', 400, "not JSON: "),
        ("POST", "/v1/traces", JSON, b"[" * 100_000, 400, "not JSON: "),
        ("POST", "/v1/traces", PROTOBUF, DEEP, 400, "not an OTLP protobuf request"),
        ("POST", "/v1/traces", JSON, b'{"resourceMetrics": []}', 400, "the document is an object with the keys"),
        ("POST", "/v1/traces", PROTOBUF, b"\xff\xff", 400, "not an OTLP protobuf request"),
        ("POST", "/v1/traces", PROTOBUF, b"\x0a\x05\x1a\x03a\xffc", 400, "not an OTLP protobuf request"),
        ("POST", "/v1/logs", PROTOBUF, b"{}", 400, "not an OTLP protobuf request"),
        ("POST", "/v1/traces", JSON | {"Content-Encoding": "gzip"}, b"{}", 400, "not a gzip body"),
        ("POST", "/v1/traces", JSON | {"Content-Encoding": "gzip"}, b"", 400, "torn gzip body"),
        (
            "POST",
            "/v1/traces",
            JSON | {"Content-Encoding": "gzip"},
            gzip.compress(b"{}", mtime=0)[:-9],
            400,
            "torn gzip body",
        ),
        (
            "POST",
            "/v1/traces",
            JSON | {"Content-Encoding": "gzip"},
            gzip.compress(b"", mtime=0) * 1001,
            413,
            "more than 1000 gzip",
        ),
        ("POST", "/v1/traces", JSON | {"Content-Encoding": "zstd"}, b"", 415, "expected the content encoding gzip"),
        ("POST", "/v1/traces", {"Content-Type": "text/plain"}, b"{}", 415, "expected the content type"),
        ("POST", "/v1/traces", {}, b"{}", 415, "expected the content type"),
        ("GET", "/v1/traces", {}, b"", 405, "GET /v1/traces: expected POST"),
        ("POST", "/v1/metrics", JSON, b"{}", 404, "expected /v1/traces or /v1/logs; metrics are not taken"),
        ("POST", "/", JSON, b"{}", 404, "nothing here; expected /v1/traces or /v1/logs"),
    ],
)
def test_refusals_that_are_not_to_be_sent_again(
    method: str, path: str, headers: dict[str, str], body: bytes, status: int, message: str, shared: OTLPReceiver
) -> None:
    before = Counter(shared.counts.refused)
    found, answered, content = post(shared, body, headers, path, method)
    assert found == status
    assert "retry-after" not in answered
    is_protobuf = answered["content-type"] == "application/x-protobuf"
    text = Status.FromString(content).message if is_protobuf else json.loads(content)["message"]
    assert is_protobuf == (headers == PROTOBUF)
    assert message in text
    assert "secret" not in text
    assert shared.counts.refused - before == {str(status): 1}


def test_wrong_token_is_refused(store: Path) -> None:
    with receiving(store, token="s3cret") as receiver:
        for header in (None, "Bearer wrong", "Basic s3cret", "Bearer", "Bearer s3cre", "bearer s3cr\xe9t"):
            status, answered, _ = post(receiver, BODY, PROTOBUF | ({"Authorization": header} if header else {}))
            assert (status, answered["www-authenticate"]) == (401, "Bearer")
        assert post(receiver, b"", {}, "/healthz", "GET")[::2] == (200, b'{"status":"ok"}')
        assert post(receiver, BODY, PROTOBUF | {"Authorization": "bearer s3cret"})[0] == 200


def test_large_bodies_are_refused(store: Path) -> None:
    with receiving(store, max_body=1_000, max_inflated=50_000) as receiver:
        body = json_body(name="x" * 10_000)
        status, _, content = post(receiver, body, JSON)
        assert (status, json.loads(content)["message"]) == (
            413,
            "the body is larger than 1000 bytes; send smaller batches",
        )
        with closing(connect(receiver)) as connection:
            connection.request("POST", "/v1/traces", iter([body[:500], body[500:]]), JSON, encode_chunked=True)
            assert connection.getresponse().status == 413
        packed = JSON | {"Content-Encoding": "gzip"}
        assert post(receiver, gzip.compress(body), packed)[0] == 200
        status, _, content = post(receiver, gzip.compress(json_body(name="x" * 60_000)), packed)
        assert (status, json.loads(content)["message"]) == (413, "the body unpacks to more than 50000 bytes")


def test_gzip_bomb_is_stopped_while_it_unpacks(shared: OTLPReceiver) -> None:
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(300)) + packer.flush()
    started = time.process_time()
    assert post(shared, bomb, PROTOBUF | {"Content-Encoding": "gzip"})[0] == 413
    # 300 MiB take a second to unpack, the 64 MiB that are allowed a fifth of that.
    assert time.process_time() - started < 1.0
    assert post(shared, BODY, PROTOBUF)[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        gzip.compress(json_body(1), mtime=0) + bytes(16),
        gzip.compress(b"", mtime=0) + bytes(3) + gzip.compress(json_body(1), mtime=0) + bytes(1),
    ],
    ids=["at the end", "between members"],
)
def test_zeros_that_fill_up_a_gzip_body_are_ignored(body: bytes, shared: OTLPReceiver) -> None:
    packed = JSON | {"Content-Encoding": "gzip"}
    assert post(shared, body, packed)[0] == 200
    assert post(shared, body + b"x", packed)[0] == 400


def test_whole_address_in_the_request_line_is_taken(shared: OTLPReceiver) -> None:
    for url in (f"{shared.urls[0]}/v1/traces", f"{shared.urls[0].upper()}/v1/traces?a=b"):
        assert post(shared, json_body(1), JSON, url)[0] == 200
    assert post(shared, b"", {}, f"{shared.urls[0]}/healthz", "GET")[0] == 200
    assert post(shared, b"", JSON, shared.urls[0])[0] == 404


def test_header_that_comes_twice_counts_as_a_list(store: Path) -> None:
    def status(*headers: tuple[str, str]) -> int:
        with closing(connect(receiver)) as connection:
            connection.putrequest("POST", "/v1/traces")
            for header in (("Content-Length", "2"), *headers):
                connection.putheader(*header)
            connection.endheaders(b"{}")
            return connection.getresponse().status

    kind, right, wrong = (
        ("Content-Type", JSON["Content-Type"]),
        ("Authorization", "Bearer s3cret"),
        ("Authorization", "x"),
    )
    with receiving(store, grpc_port=0, token="s3cret") as receiver:
        assert status(kind, right) == 200
        assert [status(kind, *both) for both in ((right, wrong), (wrong, right), (right, right))] == [401] * 3
        assert status(right, kind, ("Content-Type", "text/plain")) == 415
        assert status(right, kind, ("Content-Encoding", "gzip"), ("Content-Encoding", "identity")) == 415
        metadata = [(name.lower(), value) for name, value in (wrong, right)]
        with grpc.insecure_channel(receiver.urls[1].removeprefix("grpc://")) as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            for both in (metadata, metadata[::-1]):
                with pytest.raises(grpc.RpcError) as refused:
                    export(b"", metadata=both, timeout=DEADLINE_S)
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_chunked_body_on_a_connection_that_stays_open(receiver: OTLPReceiver, store: Path) -> None:
    with closing(connect(receiver)) as connection:
        for number in range(1, 4):
            body = json_body(number)
            headers = {"Content-Type": "application/json; charset=utf-8", "Expect": "100-continue"}
            connection.request("POST", "/v1/traces", iter([body[:9], body[9:]]), headers, encode_chunked=True)
            response = connection.getresponse()
            assert (response.status, response.read(), response.will_close) == (200, b"{}", False)
    assert rows(store) == [(3,)]


def test_answers_come_at_once(receiver: OTLPReceiver) -> None:
    # Without TCP_NODELAY the second part of an answer waits for the client's ACK, which comes after 40 ms.
    with closing(connect(receiver)) as connection:
        accepted: list[socket.socket] = []

        def protocol_of_accepted() -> bool:
            server = receiver._server
            accepted[:] = [protocol.transport.get_extra_info("socket") for protocol in server.server_state.connections]
            return bool(accepted)

        connection.connect()
        until(protocol_of_accepted)
        assert accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_fault_of_ours_is_answered_as_one(
    shared: OTLPReceiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(shared._intake, "take", fail)
    status, answered, content = post(shared, BODY, PROTOBUF)
    assert (status, answered["content-type"]) == (500, "application/x-protobuf")
    assert Status.FromString(content).message == "internal error: RuntimeError"
    assert "please report it" in caplog.text
    monkeypatch.undo()
    assert post(shared, BODY, PROTOBUF)[0] == 200


# What grows


EMPTY = b"\x0a\x00" * 4_000
IDS = tag(1, b"t" * 16) + tag(2, b"s" * 8)


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/v1/traces", PROTOBUF, EMPTY),
        ("/v1/logs", PROTOBUF, EMPTY),
        ("/v1/traces", PROTOBUF, tag(1, EMPTY.replace(b"\x0a", b"\x12"))),
        ("/v1/traces", PROTOBUF, tag(1, tag(2, EMPTY.replace(b"\x0a", b"\x12")))),
        ("/v1/logs", PROTOBUF, tag(1, tag(2, EMPTY.replace(b"\x0a", b"\x12")))),
        ("/v1/traces", PROTOBUF, tag(1, tag(2, tag(2, IDS + EMPTY.replace(b"\x0a", b"\x5a"))))),
        ("/v1/traces", JSON, b'{"resourceSpans":[' + b"{}," * 4_000 + b"{}]}"),
        ("/v1/traces", JSON, b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"0," * 4_000 + b"0]}]}]}"),
        ("/v1/traces", JSON, b"[" + b"{}," * 4_000 + b"{}]"),
    ],
)
def test_many_of_next_to_nothing_are_refused(
    path: str, headers: dict[str, str], body: bytes, shared: OTLPReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_MAX_PARTS", 3_000)
    status, _, content = post(shared, gzip.compress(body, 1), headers | {"Content-Encoding": "gzip"}, path)
    assert status == 413
    assert b"more than 3000 spans, events and the like; send smaller batches" in content
    assert post(shared, BODY, PROTOBUF)[0] == 200


def test_millions_of_next_to_nothing_are_refused(shared: OTLPReceiver) -> None:
    packed = gzip.compress(EMPTY * 75, 1)
    status, _, content = post(shared, packed, PROTOBUF | {"Content-Encoding": "gzip"})
    assert status == 413
    assert b"more than 262144 spans" in content


def test_what_stands_beside_every_record_is_bounded(receiver: OTLPReceiver, store: Path) -> None:
    resource = tag(1, tag(1, tag(1, b"a") + tag(2, tag(1, b"x" * (8 << 20)))))
    spans = b"".join(tag(2, tag(1, b"t" * 16) + tag(2, number.to_bytes(8))) for number in range(1, 100))
    status, _, content = post(receiver, tag(1, resource + tag(2, spans)), PROTOBUF)
    answer = ExportTraceServiceResponse.FromString(content).partial_success
    assert (status, answer.rejected_spans) == (200, 84)
    assert "too large to stand beside every record" in answer.error_message
    assert answer.error_message.endswith("; and 81 more")
    assert rows(store) == [(15,)]


# Clients that do not do as they should


def test_client_that_sends_no_headers_is_dropped(shared: OTLPReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agenttrace.collectors.connections.HEADER_TIMEOUT_S", 0.05)
    url = urlsplit(shared.urls[0])
    for beginning in (b"", b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"):
        with socket.create_connection((url.hostname, url.port), timeout=DEADLINE_S) as client:
            client.sendall(beginning)
            assert is_dropped(client)


def test_client_that_sends_its_body_slowly_is_dropped(shared: OTLPReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agenttrace.collectors.otlp_http._IDLE_TIMEOUT_S", 0.05)
    url = urlsplit(shared.urls[0])
    with socket.create_connection((url.hostname, url.port), timeout=DEADLINE_S) as client:
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        answer = b"".join(iter(lambda: client.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer


def test_client_that_leaves_half_way_does_no_harm(shared: OTLPReceiver) -> None:
    url = urlsplit(shared.urls[0])
    with socket.create_connection((url.hostname, url.port), timeout=DEADLINE_S) as client:
        client.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
    assert post(shared, BODY, PROTOBUF)[0] == 200


def test_connections_are_bounded(shared: OTLPReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agenttrace.collectors.connections.MAX_CONNECTIONS", 2)
    url = urlsplit(shared.urls[0])
    clients = [socket.create_connection((url.hostname, url.port), timeout=DEADLINE_S) for _ in range(4)]
    for client in clients:
        client.setblocking(False)
    until(lambda: sum(map(is_dropped, clients)) == 2)
    for client in clients:
        client.close()


def test_connection_rests_between_two_requests_and_makes_way_where_there_are_too_many(
    shared: OTLPReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agenttrace.collectors.connections.HEADER_TIMEOUT_S", 0.3)
    with closing(connect(shared)) as resting, closing(connect(shared)) as latest:
        for connection in (resting, latest):
            connection.request("POST", "/v1/traces", BODY, PROTOBUF)
            assert connection.getresponse().read() == b""
        resting.sock.settimeout(0.6)
        with pytest.raises(TimeoutError):
            resting.sock.recv(1)
        monkeypatch.setattr("agenttrace.collectors.connections.MAX_CONNECTIONS", 2)
        resting.sock.settimeout(DEADLINE_S)
        assert post(shared, BODY, PROTOBUF)[0] == 200
        assert is_dropped(resting.sock)
        # Its next request has begun and does not end.
        latest.sock.sendall(b"POST /v1/traces HTTP/1.1\r\n")
        assert is_dropped(latest.sock)


# gRPC


def test_spans_and_logs_of_the_sdk_arrive_over_grpc(store: Path) -> None:
    with receiving(store, grpc_port=0, token="s3cret") as receiver:
        target = receiver.urls[1].removeprefix("grpc://")
        headers = {"authorization": "Bearer s3cret"}
        exporter = GrpcSpanExporter(f"http://{target}", headers=headers, compression=grpc.Compression.Gzip)
        logs = LoggerProvider()
        log_exporter = GrpcLogExporter(f"http://{target}", headers=headers)
        logs.add_log_record_processor(SimpleLogRecordProcessor(log_exporter))
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with provider.get_tracer("lib", "1.0").start_as_current_span("chat"):
            logs.get_logger("lib").emit(event_name="gen_ai.choice")
        provider.shutdown()
        logs.shutdown()
        assert (receiver.counts.spans, receiver.counts.logs) == (1, 1)
    assert rows(store, "SELECT name, scope_name FROM spans") == [("chat", "lib")]


def test_grpc_at_the_port_of_http_is_named(shared: OTLPReceiver, caplog: pytest.LogCaptureFixture) -> None:
    with grpc.insecure_channel(urlsplit(shared.urls[0]).netloc) as channel:
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
        with pytest.raises(grpc.RpcError):
            export(BODY, timeout=DEADLINE_S)
    assert "a client speaks gRPC to the HTTP port" in caplog.text


def test_grpc_stores_and_refuses_as_http_does(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bearer = (("authorization", "Bearer s3cret"),)
    with receiving(store, grpc_port=0, token="s3cret", max_inflated=50_000) as receiver:
        channel = grpc.insecure_channel(receiver.urls[1].removeprefix("grpc://"))
        export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")

        def code(body: bytes, metadata: tuple[tuple[str, str], ...] = bearer, **options: Any) -> grpc.StatusCode:
            with pytest.raises(grpc.RpcError) as caught:
                export(body, metadata=metadata, timeout=DEADLINE_S, **options)
            return caught.value.code()

        assert export(BODY, metadata=bearer, timeout=DEADLINE_S) == b""
        message = ExportTraceServiceRequest()
        message.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16)
        answer = ExportTraceServiceResponse.FromString(export(message.SerializeToString(), metadata=bearer))
        assert answer.partial_success.rejected_spans == 1
        assert code(b"\xff") == grpc.StatusCode.INVALID_ARGUMENT
        assert code(BODY, ()) == grpc.StatusCode.UNAUTHENTICATED
        assert code(BODY, (("authorization", "Bearer wrong"),)) == grpc.StatusCode.UNAUTHENTICATED
        bomb = {"compression": grpc.Compression.Gzip}
        assert code(bytes(1 << 20), **bomb) == grpc.StatusCode.RESOURCE_EXHAUSTED
        monkeypatch.setattr(receiver._intake._spool, "_cap_bytes", 1)
        with pytest.raises(grpc.RpcError) as refused:
            export(BODY, metadata=bearer, timeout=DEADLINE_S)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        details = dict(refused.value.trailing_metadata())
        (packed,) = Status.FromString(details["grpc-status-details-bin"]).details
        retry, same = RetryInfo(), RetryInfo.FromString(details["google.rpc.retryinfo-bin"])
        assert packed.Unpack(retry)
        assert (retry, retry.retry_delay.seconds) == (same, 2)
        monkeypatch.setattr(receiver._intake._spool, "_cap_bytes", 1 << 30)
        monkeypatch.setattr(receiver._intake, "_max_waiting_bytes", 1)
        assert code(BODY) == grpc.StatusCode.UNAVAILABLE
        too_large = {"CANCELLED": 1}
        refusals = {"INVALID_ARGUMENT": 1, "UNAUTHENTICATED": 2, "UNAVAILABLE": 2} | too_large
        # gRPC tells of what it has refused by itself a moment later.
        deadline = time.monotonic() + DEADLINE_S
        while receiver.counts.refused != refusals and time.monotonic() < deadline:
            time.sleep(0.01)
        assert receiver.counts.refused == refusals
        channel.close()
        with pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1:"):
            OTLPReceiver(store, http_port=0, grpc_port=int(receiver.urls[1].rpartition(":")[2])).start()
    columns = ", ".join(SpanRow._fields)
    expected = sorted(decode_traces_protobuf(BODY).spans, key=lambda row: row.span_id)
    assert rows(store, f"SELECT {columns} FROM spans ORDER BY span_id") == [tuple(row) for row in expected]


# Pushing back


@pytest.mark.parametrize("cause", ["the spool is at its cap", "the folder is gone", "too much waits"])
def test_what_can_be_taken_later_is_to_be_sent_again(
    cause: str, receiver: OTLPReceiver, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: spool_folder(store).is_dir())
    if cause == "the spool is at its cap":
        monkeypatch.setattr(receiver._intake._spool, "_cap_bytes", 1)
    elif cause == "too much waits":
        monkeypatch.setattr(receiver._intake, "_max_waiting_bytes", 1)
    else:
        spool_folder(store).rename(store.with_name("moved"))
        spool_folder(store).write_text("a file")
    status, answered, _ = post(receiver, BODY, PROTOBUF)
    assert (status, answered["retry-after"], receiver.counts.refused) == (503, "2", {"503": 1})
    if cause == "the folder is gone":
        spool_folder(store).unlink()
    monkeypatch.undo()
    assert post(receiver, BODY, PROTOBUF)[0] == 200


def test_requests_are_taken_while_others_hold_the_store(receiver: OTLPReceiver, store: Path) -> None:
    assert post(receiver, json_body(1), JSON)[0] == 200
    compact_store(store, budget_s=DEADLINE_S, wait_s=DEADLINE_S)
    script = f"import duckdb; con = duckdb.connect({str(store)!r}); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        assert post(receiver, json_body(2), JSON)[0] == 200
        with pytest.raises(duckdb.IOException, match="Could not set lock"):
            duckdb.connect(store, read_only=True)
        other.communicate("\n")
    assert rows(store) == [(2,)]


def test_the_store_is_kept_up_to_date_and_left_to_others(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agenttrace.collectors.intake._REFRESH_S", 0.01)

    def stored() -> int:
        with open_store(store, wait_s=DEADLINE_S) as con:
            (count,) = con.execute("SELECT count(*) FROM spans").fetchone() or (0,)
        return int(count)

    with receiving(store) as receiver:
        for number in range(1, 4):
            assert post(receiver, json_body(number), JSON)[0] == 200
            until(lambda number=number: store.exists() and stored() == number)
        counts = read_counts(store)
    assert counts
    assert (counts.pid, counts.urls) == (os.getpid(), receiver.urls)
    counts = read_counts(store)
    assert counts
    assert (counts.spans, counts.stopped) == (3, True)


def test_store_that_cannot_be_used_keeps_nobody_waiting(
    store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("agenttrace.collectors.intake._REFRESH_S", 0.01)
    store.write_text("no database")
    with receiving(store) as receiver:
        for number in range(1, 4):
            assert post(receiver, json_body(number), JSON)[0] == 200
        until(lambda: "is not a DuckDB file" in caplog.text)
    assert caplog.text.count("is not a DuckDB file") == 1
    store.unlink()
    assert rows(store) == [(3,)]


# Many at once


def test_no_span_is_lost_among_eight_clients(store: Path) -> None:
    requests, clients, failed = 40, 8, []

    def send(client: int, receiver: OTLPReceiver) -> None:
        with closing(connect(receiver)) as connection:
            for number in range(requests):
                connection.request("POST", "/v1/traces", json_body(1 + client * requests + number), JSON)
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    failed.append(response.status)

    with receiving(store) as receiver:
        threads = [threading.Thread(target=send, args=(client, receiver)) for client in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        assert receiver.counts.spans == requests * clients
    assert rows(store, "SELECT count(*), count(DISTINCT trace_id) FROM spans") == [(requests * clients,) * 2]


SERVER = """
import sys
from pathlib import Path
from agenttrace.collectors.otlp import OTLPReceiver
OTLPReceiver(Path(sys.argv[1]), http_port=0, grpc_port=0).run(ready=lambda urls: print(*urls, flush=True))
print("ended", flush=True)
"""


@contextmanager
def server_process(db: Path) -> Iterator[tuple[subprocess.Popen[str], OTLPReceiver]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(db)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        client = OTLPReceiver(db)
        client.counts.urls = process.stdout.readline().split()
        yield process, client
    finally:
        process.kill()
        process.communicate()


def test_what_a_killed_receiver_has_acknowledged_is_in_the_store(store: Path) -> None:
    acknowledged = 0
    with server_process(store) as (process, client):
        for number in range(1, 51):
            acknowledged += post(client, json_body(number), JSON)[0] == 200
        process.send_signal(signal.SIGKILL)
    assert acknowledged == 50
    assert rows(store, "SELECT count(*), count(DISTINCT span_id) FROM spans") == [(50, 50)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_receiver_ends_in_good_order(number: signal.Signals, store: Path) -> None:
    with server_process(store) as (process, client):
        assert post(client, json_body(), JSON)[0] == 200
        process.send_signal(number)
        assert process.stdout
        assert process.stdout.read() == "ended\n"
        assert process.wait(DEADLINE_S) == 0
    assert Spool(spool_folder(store)).segments() == []
    counts = read_counts(store)
    assert counts
    assert counts.stopped
    assert rows(store) == [(1,)]


def test_signal_that_another_thread_takes_ends_it(store: Path) -> None:
    # As the kernel may do with one of two at once. Python's main thread, which runs the handlers, is not woken by it.
    main = threading.get_ident()
    rescue = threading.Timer(5, signal.pthread_kill, (main, signal.SIGTERM))

    def take() -> None:
        threading.Event().wait(0.1)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    def ready(_urls: list[str]) -> None:
        rescue.start()
        threading.Thread(target=take).start()

    before = signal.getsignal(signal.SIGTERM)
    OTLPReceiver(store, http_port=0).run(ready=ready)
    assert rescue.is_alive()
    rescue.cancel()
    assert signal.getsignal(signal.SIGTERM) is before


def test_second_signal_ends_it_at_once_and_nothing_acknowledged_is_lost(store: Path) -> None:
    with server_process(store) as (process, client):
        assert post(client, json_body(), JSON)[0] == 200
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) in (0, -signal.SIGINT, -signal.SIGTERM)
    assert rows(store) == [(1,)]


@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_what_was_acknowledged_under_load_is_in_the_store_after_sigterm(transport: str, store: Path) -> None:
    acknowledged: list[int] = []

    def over_http(url: str, numbers: Iterator[int]) -> None:
        address = urlsplit(url)
        with closing(
            http.client.HTTPConnection(address.hostname or "", address.port, timeout=DEADLINE_S)
        ) as connection:
            for number in numbers:
                connection.request("POST", "/v1/traces", json_body(number), JSON)
                if connection.getresponse().read() == b"{}":
                    acknowledged.append(number)

    def over_grpc(url: str, numbers: Iterator[int]) -> None:
        with grpc.insecure_channel(url.removeprefix("grpc://")) as channel:
            export = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            for number in numbers:
                message = ExportTraceServiceRequest()
                message.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=number.to_bytes(8))
                export(message.SerializeToString(), timeout=DEADLINE_S)
                acknowledged.append(number)

    def client(send: Callable[[str, Iterator[int]], None], url: str, first: int) -> None:
        with suppress(OSError, http.client.HTTPException, grpc.RpcError):
            send(url, count(first, 8))

    with server_process(store) as (process, receiver):
        url = receiver.urls[transport == "grpc"]
        send = over_grpc if transport == "grpc" else over_http
        threads = [threading.Thread(target=client, args=(send, url, number)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        until(lambda: len(acknowledged) > 40)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
        for thread in threads:
            thread.join()
    assert Spool(spool_folder(store)).segments() == []
    stored = {int(span_id, 16) for (span_id,) in rows(store, "SELECT span_id FROM spans")}
    assert set(acknowledged) <= stored


def test_place_that_cannot_be_listened_on_is_named(receiver: OTLPReceiver, store: Path) -> None:
    port = urlsplit(receiver.urls[0]).port
    assert port
    with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
        OTLPReceiver(store, http_port=port).start()


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (errno.EADDRINUSE, "Another program may listen there; --grpc-port 0 takes a free port."),
        (errno.EACCES, "Ports below 1024 are the administrator's; name another with --grpc-port."),
        (errno.EADDRNOTAVAIL, "This machine does not have that address; name one of its own with --host."),
    ],
)
def test_why_it_cannot_listen_is_said_with_the_way_out(
    fault: int, advice: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(socket.socket):
        def bind(self, address: Any) -> None:
            if address[1]:
                raise OSError(fault, os.strerror(fault))
            super().bind(address)

    monkeypatch.setattr(socket, "socket", Refused)
    with pytest.raises(UsageError) as refused:
        OTLPReceiver(store, http_port=0, grpc_port=80).start()
    assert str(refused.value) == f"collect: cannot listen on 127.0.0.1:80: {os.strerror(fault)}. {advice}"


def test_folder_is_no_store(store: Path) -> None:
    store.mkdir()
    with pytest.raises(StoreError, match="is a folder; expected a DuckDB file"):
        OTLPReceiver(store, http_port=0).start()
    assert not spool_folder(store).exists()


def test_spool_that_cannot_be_written_is_named(store: Path) -> None:
    spool_folder(store).write_text("a file")
    with pytest.raises(SpoolError, match="cannot be written"):
        OTLPReceiver(store, http_port=0).start()
    assert read_counts(store) is None


def test_open_address_without_token_is_warned_about(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with receiving(store, host="0.0.0.0", allow_anonymous=True):
        pass
    assert "listening on 0.0.0.0 without a token" in caplog.text


@settings(max_examples=5)
@given(order=st.lists(st.integers(0, 5), min_size=6, max_size=12).filter(lambda order: set(order) == set(range(6))))
def test_any_order_and_repetition_of_requests_gives_the_same_store(
    order: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def store_of(numbers: list[int]) -> list[tuple[Any, ...]]:
        db = tmp_path_factory.mktemp("store") / "agenttrace.duckdb"
        spool = Spool(spool_folder(db))
        for number in numbers:
            # Odd requests bring the end of the span that the even one before them began.
            message = ExportTraceServiceRequest()
            message.resource_spans.add().scope_spans.add().spans.add(
                trace_id=b"t" * 16,
                span_id=bytes([1 + number // 2]) * 8,
                start_time_unix_nano=5,
                end_time_unix_nano=9 if number % 2 else 0,
            )
            spool.write("spans", decode_traces_protobuf(message.SerializeToString()).spans)
        return rows(db, "SELECT * EXCLUDE (received_at) FROM spans ORDER BY span_id")

    assert store_of(order) == store_of(list(range(6)))


def test_a_server_that_closes_while_it_was_to_accept_again_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    _report(loop, {"message": "to accept", "exception": ValueError("Invalid file descriptor: -1")})
    assert caplog.text == ""
    _report(loop, {"message": "to serve", "exception": ValueError("another")})
    assert "another" in caplog.text
    loop.close()
