"""Mutated inputs through decoder, receiver and importer: `make fuzz`, not part of the tests.

Each input begins as a recording, an export or a document that Hypothesis made, and is torn, spliced, flipped, nested,
packed or given hostile values. Nothing may crash or hang, a good request beside each bad one must land whole, and
memory stays bounded. The same seed gives the same inputs. A fault is printed and its input kept; the exit code is 1.
"""

import argparse
import asyncio
import copy
import faulthandler
import gzip
import http.client
import itertools
import json
import logging
import os
import random
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import orjson
from google.protobuf.json_format import ParseDict
from hypothesis import HealthCheck, Phase, given, seed, settings
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

sys.path.insert(0, str(Path(__file__).parent))
import test_decode as made
from test_formats import to_jaeger, to_tempo

from agenttrace.collectors import intake
from agenttrace.collectors.decode import decode_logs_protobuf, decode_traces_protobuf
from agenttrace.collectors.decode_json import decode_json
from agenttrace.collectors.files import import_files
from agenttrace.collectors.formats import FORMATS
from agenttrace.collectors.json_fields import load_json
from agenttrace.collectors.otlp import OTLPReceiver
from agenttrace.errors import DecodeError
from agenttrace.store import Refreshed, compact_store, open_store, refresh

TESTS = Path(__file__).parent
GROUP = 40
# Of the processor, for one input; a shared machine may take much longer by the clock.
LIMIT_S = 20.0
STUCK_S = 600.0
MAX_RSS_MB = 2_500
MAX_ADDRESS_BYTES = 8 << 30
ACCEPTED = {200, 400, 413, 415}
SEED_BYTES = 24 << 10

Input = tuple[str, bytes]


# Seeds


def seeds() -> list[Input]:
    """Kind and body of what is mutated: requests of one or a few spans, and whole small ones."""
    found: list[Input] = []
    for path in sorted((TESTS / "traces").glob("*/*.jsonl")):
        signal_name = "logs" if path.name.endswith(".logs.jsonl") else "traces"
        lines = [line for line in path.read_bytes().splitlines() if line and len(line) < 8 * SEED_BYTES]
        for line in lines[:3]:
            request = _short(json.loads(line))
            body = orjson.dumps(request)
            if len(body) > SEED_BYTES:
                continue
            # Few recordings have log records.
            weight = 20 if signal_name == "logs" else 1
            found += [(f"{signal_name} json", body)] * weight
            found += [(f"{signal_name} protobuf", _protobuf(request, signal_name))] * weight
            if signal_name == "traces":
                found.append(("file", orjson.dumps(to_jaeger([request]))))
                found.append(("file", orjson.dumps(to_tempo([request]))))
    for path in sorted((TESTS / "traces").glob("*.pb")):
        found.append(("traces protobuf", path.read_bytes()[:SEED_BYTES]))
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
    answer = {"role": "tool", "tool_call_id": "1", "content": "no"}
    found.append(("file", orjson.dumps({"task_id": "t", "trial": 1, "passed": True, "messages": [message, answer]})))
    found.append(("file", b"task_id,trial,passed,reward,source,detail\nt1,0,true,,human,x\nt2,1,,0.5,judge,\n"))
    return found


def _short(request: dict[str, Any]) -> dict[str, Any]:
    for group in request.get("resourceSpans", []):
        for part in group["scopeSpans"]:
            part["spans"] = part["spans"][:2]
    return request


def _protobuf(request: dict[str, Any], signal_name: str) -> bytes:
    message = ExportLogsServiceRequest() if signal_name == "logs" else ExportTraceServiceRequest()

    def with_bytes(value: Any) -> Any:
        if isinstance(value, list):
            return [with_bytes(item) for item in value]
        if not isinstance(value, dict):
            return value
        ids = ("traceId", "spanId", "parentSpanId")
        return {
            key: _base64(item) if key in ids and isinstance(item, str) else with_bytes(item)
            for key, item in value.items()
        }

    return ParseDict(with_bytes(request), message, ignore_unknown_fields=True).SerializeToString()


def _base64(text: str) -> str:
    import base64

    return base64.b64encode(bytes.fromhex(text)).decode()


# Mutations

HOSTILE: list[Any] = [None, True, -1, 0, 2**63, 2**64, -(2**64), 1e308, 0.1, "", "\x00", "\ud83d", "x" * 300, [], {}]
HOSTILE += [
    "9" * 400,
    "1e999",
    "NaN",
    [[[[]]]],
    [{}],
    {"": {}},
    {"values": [{}]},
    {"stringValue": {"a": 1}},
    "\x1b[31m",
]
BYTES = [
    b"\x00",
    b"\xff",
    b"\n",
    b'"',
    b"{",
    b"[",
    b"]",
    b"}",
    b"\\",
    b"\x0a\x00",
    b"\x12\xff\xff\xff\xff\x0f",
    b"\x80",
]


def mutate_bytes(rng: random.Random, body: bytes, pool: list[Input]) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 4))):
        at, end = sorted((rng.randrange(len(body) + 1), rng.randrange(len(body) + 1)))
        end = min(end, at + rng.choice((1, 4, 64, 4_096)))
        match rng.randrange(9):
            case 0:
                body = body[:at]
            case 1:
                body = body[:at] + body[end:]
            case 2:
                body = body[:end] + body[at:end] * rng.choice((1, 2, 50)) + body[end:]
            case 3:
                body = body[:at] + rng.choice(BYTES) + body[end:]
            case 4:
                body = body[:at] + rng.randbytes(end - at) + body[end:]
            case 5:
                other = rng.choice(pool)[1]
                cut = rng.randrange(len(other) + 1)
                body = body[:at] + other[cut:]
            case 6 if body:
                at = min(at, len(body) - 1)
                body = body[:at] + bytes([body[at] ^ 1 << rng.randrange(8)]) + body[at + 1 :]
            case 7:
                body = body + rng.choice(pool)[1]
            case _:
                body = body[end:] + body[:at]
        body = body[: 16 * SEED_BYTES]
    return body


def mutate_json(rng: random.Random, body: bytes, pool: list[Input]) -> bytes:
    try:
        document = json.loads(body)
    except ValueError:
        return mutate_bytes(rng, body, pool)
    for _ in range(rng.choice((1, 1, 3))):
        holders = [found for found in _containers(document) if found]
        if not holders:
            break
        holder = rng.choice(holders)
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        match rng.randrange(6):
            case 0:
                # A copy, for the next mutation may change it.
                holder[key] = copy.deepcopy(rng.choice(HOSTILE))
            case 1:
                del holder[key]
            case 2 if isinstance(holder, dict):
                holder[rng.choice(("traceId", "spans", "value", "key", "\x00", "trace_id", "data"))] = holder.pop(key)
            case 3 if isinstance(holder, list):
                holder += [holder[key]] * rng.choice((1, 50))
                break
            case 4:
                # A copy, or the document would hold itself.
                with suppress(TypeError):
                    holder[key] = orjson.loads(orjson.dumps(rng.choice(holders)))
            case _:
                deep: Any = holder[key]
                for _ in range(rng.choice((3, 70, 400, 2_000))):
                    deep = [deep] if rng.random() < 0.5 else {"arrayValue": {"values": [deep]}}
                holder[key] = deep
    try:
        return json.dumps(document).encode()[: 64 * SEED_BYTES]
    except (RecursionError, ValueError):
        return b'{"a":' * 5_000 + body


def _containers(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict | list):
            yield found
            waiting += found.values() if isinstance(found, dict) else found


def mutate_packed(rng: random.Random, body: bytes, pool: list[Input]) -> tuple[bytes, str]:
    """Packs a body, rightly or not."""
    packed = gzip.compress(body, 1)
    match rng.randrange(7):
        case 0:
            return packed, "gzip"
        case 1:
            return mutate_bytes(rng, packed, pool), "gzip"
        case 2:
            return packed + gzip.compress(rng.choice(pool)[1], 1), "gzip"
        case 3:
            return gzip.compress(packed, 1), "gzip"
        case 4:
            return mutate_bytes(rng, zlib.compress(body), pool), "deflate"
        case 5:
            return packed + b"\x00" * 9, "gzip"
        case _:
            return body, rng.choice(("gzip", "deflate", "br", "identity"))


def inputs(start: int, stop: int, base: int, pool: list[Input]) -> Iterator[tuple[int, str, bytes, str]]:
    """Yields number, kind, body and content encoding."""
    for number in range(start, stop):
        rng = random.Random(f"{base} {number}")
        kind, body = rng.choice(pool)
        is_text = body[:1] in (b"{", b"[")
        body = mutate_json(rng, body, pool) if is_text and rng.random() < 0.5 else mutate_bytes(rng, body, pool)
        encoding = ""
        if rng.random() < 0.2:
            body, encoding = mutate_packed(rng, body, pool)
        yield number, kind, body, encoding


def bombs() -> Iterator[tuple[str, bytes, str]]:
    """A few bodies that grow: unpacked, parsed, or by what each record gets a copy of."""
    many = 4 << 20
    for kind, body in (
        ("traces protobuf", bytes(512 << 20)),
        ("traces json", b" " * (512 << 20)),
        ("traces protobuf", b"\x0a\x00" * many),
        ("traces protobuf", _field(1, _field(2, b"\x12\x00" * many))),
        ("logs protobuf", _field(1, _field(2, b"\x12\x00" * many))),
        ("traces json", b'{"resourceSpans":[' + b"{}," * many + b"{}]}"),
        ("logs json", b"[" + b"{}," * many + b"{}]"),
        ("traces json", b"[" * many),
        ("traces json", b'{"a":' * many),
        ("traces json", b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":' + b"[" * 900 + b"]" * 900),
        ("traces protobuf", _nested(many)),
        ("traces protobuf", _wide(1 << 20, 20_000)),
    ):
        yield kind, gzip.compress(body, 1), "gzip"
        yield kind, gzip.compress(gzip.compress(body, 1), 1), "gzip"


def _field(number: int, content: bytes) -> bytes:
    length, prefix = len(content), bytearray([number << 3 | 2])
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    return bytes(prefix) + bytes([length]) + content


def _nested(size: int) -> bytes:
    body = b"x"
    while len(body) < size // 512:
        body = _field(5, _field(1, body))
    return _field(1, _field(2, _field(2, _field(9, _field(2, body)))))


def _wide(width: int, count: int) -> bytes:
    """A large resource over many small spans."""
    own = _field(1, _field(1, _field(1, b"a") + _field(2, _field(1, b"x" * width))))
    spans = b"".join(_field(2, _field(1, b"t" * 16) + _field(2, number.to_bytes(8))) for number in range(1, count))
    return _field(1, own + _field(2, spans))


# Good neighbours


def good(number: int) -> dict[str, Any]:
    span = {
        "traceId": f"{0xF00D + number // 400:032x}",
        "spanId": f"{number + 1:016x}",
        "name": "neighbour",
        "startTimeUnixNano": str(10**18 + number),
        "endTimeUnixNano": str(10**18 + number + 1),
        "attributes": [{"key": "number", "value": {"intValue": str(number)}}],
    }
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "neighbours"}, "spans": [span]}]}]}


def good_body(number: int, kind: str) -> bytes:
    return _protobuf(good(number), "traces") if kind == "protobuf" else orjson.dumps(good(number))


# The campaign


class Stuck(BaseException):
    """An input took too long."""


class Campaign:
    """One process's share."""

    def __init__(self, folder: Path, base: int, start: int, stop: int, with_bombs: bool) -> None:
        self.folder, self.base, self.start, self.stop, self.with_bombs = folder, base, start, stop, with_bombs
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.db = folder / "received" / "agenttrace.duckdb"
        self.db.parent.mkdir(parents=True)
        self.landed: set[int] = set()
        self.imported: set[int] = set()
        self.numbers = itertools.count(start * 4)
        self.receiver = OTLPReceiver(self.db, http_port=0, grpc_port=0)
        self.current = b"", 0.0
        self.expected: set[int] = set()

    def run(self) -> tuple[Counter[str], list[str]]:
        logger = logging.getLogger("agenttrace")
        logger.addHandler(_Faults(self))
        logger.propagate = False
        threading.excepthook = lambda given: self.fault("a thread died", b"", given.exc_value)
        signal.signal(signal.SIGPROF, _stuck)
        # Mutations of a recording are all of the same traces: to rebuild them again and again takes longer each time.
        # The files have a new store after every thousand, and there they are rebuilt.
        intake.refresh = _compacted
        threading.Thread(target=self.watch, daemon=True).start()
        pool = seeds()
        with self.receiver:
            client = Client(self.receiver)
            for group in _groups(inputs(self.start, self.stop, self.base, pool), GROUP):
                for _, kind, body, encoding in group:
                    self.decode(kind, body, encoding)
                self.receive([(kind, body, encoding) for _, kind, body, encoding in group])
                if group[0][0] % (GROUP * 5) < GROUP:
                    self.send(client, group)
                self.files(group)
                if self.start == 0 and self.counts["decoded"] % (GROUP * 25) == 0:
                    print(f"{self.counts['decoded']:,} ...", flush=True)
            if self.start == 0:
                self.hypothesis()
                if self.with_bombs:
                    self.bombs(client)
            client.close()
        self.check("received", self.db, self.landed)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        self.counts["peak MB"] = peak
        if peak > MAX_RSS_MB:
            self.fault(f"memory: {peak} MB", b"")
        return self.counts, self.faults

    def watch(self) -> None:
        """Ends the process where an input holds it for good."""
        while True:
            time.sleep(5.0)
            body, since = self.current
            if since and time.monotonic() - since > STUCK_S:
                self.fault(f"stuck for {STUCK_S} s", body)
                faulthandler.dump_traceback()
                os._exit(1)

    def fault(self, what: str, body: bytes, err: BaseException | None = None) -> None:
        path = self.folder / f"fault-{self.start}-{len(self.faults)}"
        if len(self.faults) < 50:
            path.write_bytes(body)
            text = "" if err is None else "".join(traceback.format_exception(err)[-6:])
            path.with_suffix(".txt").write_text(f"{what}\n{text}", encoding="utf-8", errors="replace")
        self.faults.append(f"{what}: {err!r} -> {path}")
        print("FAULT", self.faults[-1], flush=True)

    @contextmanager
    def guarded(
        self, what: str, body: bytes, *allowed: type[BaseException], limit_s: float = LIMIT_S
    ) -> Iterator[None]:
        self.current = body, time.monotonic()
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        try:
            yield
        except allowed:
            self.counts[f"{what}: refused"] += 1
        except Exception as err:
            self.fault(what, body, err)
        except Stuck:
            self.fault(f"{what}: more than {limit_s} s", body)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self.current = b"", 0.0
            if (used := time.process_time() - started) > limit_s:
                self.fault(f"{what}: {used:.0f} s", body)

    def decode(self, kind: str, body: bytes, encoding: str) -> None:
        if encoding == "gzip":
            with suppress(OSError, EOFError, zlib.error):
                body = gzip.decompress(body)
        decoders: list[Callable[[bytes], Any]] = [decode_traces_protobuf, decode_logs_protobuf, decode_json]
        for decoder in decoders if len(body) < 2_000 else decoders[:2] if "protobuf" in kind else decoders[2:]:
            with self.guarded("decoder", body, DecodeError):
                decoded = decoder(body)
                for row in (*decoded.spans, *decoded.logs):
                    orjson.loads(row.attributes)
        if kind == "file":
            with self.guarded("decoder", body, DecodeError):
                document = load_json(body)
                for form in FORMATS.values():
                    if form.recognises(document):
                        form.decode(document, None)
        self.counts["decoded"] += 1

    def receive(self, requests: list[tuple[str, bytes, str]]) -> None:
        """Bad and good requests together, through the application and the gRPC method themselves."""

        async def all_of_them() -> list[int]:
            calls: list[Any] = []
            for kind, body, encoding in requests:
                content = "application/x-protobuf" if "protobuf" in kind else "application/json"
                path = "/v1/logs" if kind.startswith("logs") else "/v1/traces"
                calls.append(self.ask(path, content, encoding, body))
                calls.append(self.ask_good(next(self.numbers)))
            return await asyncio.gather(*calls)

        with self.guarded("receiver", requests[0][1]):
            for status in asyncio.run(all_of_them()):
                self.counts[f"receiver: {status}"] += 1
        for kind, body, encoding in requests[::4]:
            if "protobuf" in kind and not encoding:
                context = _Context()
                with self.guarded("gRPC method", body, _AbortError):
                    signal_name: Any = kind.split()[0]
                    self.receiver._service._export(signal_name, iter([body]), context)
                if context.code == grpc.StatusCode.INTERNAL:
                    self.fault("gRPC method: INTERNAL", body)
                self.counts[f"gRPC method: {context.code}"] += 1

    async def ask(self, path: str, content: str, encoding: str, body: bytes) -> int:
        rng = random.Random(len(body))
        cuts = sorted(rng.randrange(len(body) + 1) for _ in range(rng.randrange(3)))
        pieces = [body[a:b] for a, b in itertools.pairwise([0, *cuts, len(body)])]
        messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        messages.append({"type": "http.request", "body": b"", "more_body": False})
        statuses: list[int] = []

        async def receive() -> Any:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        headers = [(b"content-type", content.encode()), (b"content-encoding", encoding.encode())]
        await self.receiver._app({"path": path, "method": "POST", "headers": headers}, receive, send)
        if len(statuses) != 1 or statuses[0] not in ACCEPTED:
            self.fault(f"receiver answered {statuses}", body)
        return statuses[0]

    async def ask_good(self, number: int) -> int:
        kind = "json" if number % 2 else "protobuf"
        status = await self.ask(
            "/v1/traces", f"application/{'json' if number % 2 else 'x-protobuf'}", "", good_body(number, kind)
        )
        self.acknowledged(number, status)
        return status

    def acknowledged(self, number: int, status: int) -> None:
        if status == 200:
            self.landed.add(number)
        else:
            self.fault(f"a good request was answered {status}", good_body(number, "json"))

    def send(self, client: "Client", group: list[tuple[int, str, bytes, str]]) -> None:
        """A share over real sockets."""
        client.reconnect()
        for number, kind, body, encoding in group:
            with self.guarded("socket", body):
                self.counts[f"socket: {client.post(kind, body, encoding)}"] += 1
                if number % 4 == 0:
                    client.torn(random.Random(number), kind, body)
                if number % 4 == 1 and "protobuf" in kind:
                    self.counts[f"gRPC: {client.call(kind, body)}"] += 1
                neighbour = next(self.numbers)
                self.acknowledged(neighbour, client.post("traces json", good_body(neighbour, "json"), ""))
                if number % 4 == 2:
                    neighbour = next(self.numbers)
                    code = client.call("traces protobuf", good_body(neighbour, "protobuf"))
                    self.acknowledged(neighbour, 200 if code == "OK" else 500)

    def files(self, group: list[tuple[int, str, bytes, str]]) -> None:
        """Bad files between good ones, and bad lines between good lines; then what became of them, up to the steps."""
        first = group[0][0]
        folder = self.folder / f"files-{self.start}"
        db = folder / "agenttrace.duckdb"
        if (first - self.start) % (GROUP * 25) < GROUP:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            self.expected = set()
        paths: list[Path] = []
        for number, _, body, _ in group:
            path = folder / f"{number}"
            neighbour, last = next(self.numbers), next(self.numbers)
            self.expected.add(neighbour)
            if number % 3:
                path.write_bytes(body)
                paths += [path, folder / f"{number}-good"]
                paths[-1].write_bytes(good_body(neighbour, "json" if number % 2 else "protobuf"))
                continue
            self.expected.add(last)
            path.write_bytes(b"\n".join((good_body(neighbour, "json"), body, good_body(last, "json"))) + b"\n")
            paths.append(path)
        with self.guarded("importer", b"\n".join(body for _, _, body, _ in group)):
            import_files(paths, db)
        self.counts["imported"] += len(group)
        if (first - self.start) // GROUP % 25 not in (4, 9, 14, 19, 24) and len(group) == GROUP:
            return
        with self.guarded("store", b"", limit_s=STUCK_S):
            self.bring_in(db)
            for missing in sorted(self.expected - _neighbours(db)):
                files = [path for path in folder.iterdir() if path.is_file()]
                near = [path for path in files if good_body(missing, "json") in path.read_bytes()]
                self.fault(f"importer lost neighbour {missing}", near[0].read_bytes() if near else b"")
            self.expected = set()

    def bring_in(self, db: Path) -> None:
        # In one process one thread at a time writes, and the receiver's own has a store to fill.
        while (outcome := refresh(db, wait_s=60.0)).pending and not outcome.problem:
            time.sleep(0.1)
        if outcome.problem:
            self.fault(f"rebuild: {outcome.problem}", b"")

    def hypothesis(self) -> None:
        """Documents that Hypothesis makes."""
        examples = max(100, (self.stop - self.start) // 10)
        options = settings(
            max_examples=examples,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )

        @seed(self.base)
        @options
        @given(made.spans, made.log_records, made.json_values)
        def run(span: Any, record: Any, value: Any) -> None:
            traces, logs = ExportTraceServiceRequest(), ExportLogsServiceRequest()
            traces.resource_spans.add().scope_spans.add().spans.append(span)
            logs.resource_logs.add().scope_logs.add().log_records.append(record)
            texts = [
                made.otlp_json(traces),
                value,
                {"resourceSpans": value},
                {"data": [{"spans": value, "traceID": 1}]},
            ]
            bodies = [("traces protobuf", traces.SerializeToString()), ("logs protobuf", logs.SerializeToString())]
            bodies += [("file", json.dumps(text).encode()) for text in texts]
            for kind, body in bodies:
                self.decode(kind, body, "")
            self.counts["from Hypothesis"] += len(bodies)
            if self.counts["from Hypothesis"] % 20 == 0:
                self.receive([(kind, body, "") for kind, body in bodies])

        run()

    def bombs(self, client: "Client") -> None:
        for kind, body, encoding in bombs():
            with self.guarded("bomb", body):
                self.counts[f"bomb: {client.post(kind, body, encoding)}"] += 1
                neighbour = next(self.numbers)
                self.acknowledged(neighbour, client.post("traces json", good_body(neighbour, "json"), ""))
            path = self.folder / "bomb"
            path.write_bytes(body)
            # Whoever imports a file waits for it; a receiver has other clients.
            with self.guarded("bomb file", body, limit_s=3 * LIMIT_S):
                import_files([path], self.folder / "bombs" / "agenttrace.duckdb")

    def check(self, what: str, db: Path, expected: set[int]) -> None:
        compact_store(db, budget_s=STUCK_S, wait_s=60.0)
        missing = expected - _neighbours(db)
        self.counts[f"neighbours {what}"] = len(expected)
        if missing:
            self.fault(f"{what}: {len(missing)} acknowledged neighbours are not in the store", b"")


class _Faults(logging.Handler):
    def __init__(self, campaign: Campaign) -> None:
        super().__init__(logging.WARNING)
        self._campaign = campaign

    def emit(self, record: logging.LogRecord) -> None:
        # What the inputs are made for: the receiver says so once.
        if record.getMessage().startswith("a record was skipped"):
            return
        err = record.exc_info[1] if record.exc_info else None
        self._campaign.fault(f"logged: {record.getMessage()}", b"", err)


class _AbortError(Exception):
    pass


class _Context:
    """What the gRPC method asks of its call."""

    code: Any = "OK"

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def set_trailing_metadata(self, _metadata: Any) -> None: ...

    def abort(self, code: Any, _message: str) -> None:
        self.code = code
        raise _AbortError


class Client:
    """Real connections to a receiver."""

    def __init__(self, receiver: OTLPReceiver) -> None:
        url = urlsplit(receiver.urls[0])
        self._address = (url.hostname or "", url.port or 0)
        self._http = http.client.HTTPConnection(*self._address, timeout=LIMIT_S)
        self._channel = grpc.insecure_channel(
            receiver.urls[1].removeprefix("grpc://"), options=[("grpc.max_send_message_length", -1)]
        )

    def post(self, kind: str, body: bytes, encoding: str) -> int:
        content = "application/x-protobuf" if "protobuf" in kind else "application/json"
        headers = {"Content-Type": content} | ({"Content-Encoding": encoding} if encoding else {})
        path = "/v1/logs" if kind.startswith("logs") else "/v1/traces"
        try:
            self._http.request("POST", path, body, headers)
            response = self._http.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            raise
        if response.status not in ACCEPTED:
            raise AssertionError(f"status {response.status}")
        return response.status

    def reconnect(self) -> None:
        """Leaves a connection that may have rested for longer than the receiver lets it."""
        self._http.close()

    def torn(self, rng: random.Random, kind: str, body: bytes) -> None:
        """A request that is no HTTP, or breaks off."""
        content = "application/x-protobuf" if "protobuf" in kind else "application/json"
        head = "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: {content}\r\nContent-Length: {len(body)}\r\n\r\n"
        raw = mutate_bytes(rng, head.encode() + body[:500], [(kind, body or b"x")])
        with socket.create_connection(self._address, timeout=LIMIT_S) as client, suppress(OSError):
            client.sendall(raw)
            client.shutdown(socket.SHUT_WR)
            client.settimeout(0.05)
            client.recv(100)

    def call(self, kind: str, body: bytes) -> str:
        service = "logs.v1.LogsService" if kind.startswith("logs") else "trace.v1.TraceService"
        export = self._channel.unary_unary(f"/opentelemetry.proto.collector.{service}/Export")
        try:
            export(body, timeout=LIMIT_S, compression=grpc.Compression.Gzip)
        except grpc.RpcError as err:
            if err.code() != grpc.StatusCode.INVALID_ARGUMENT:
                raise
            return "INVALID_ARGUMENT"
        return "OK"

    def close(self) -> None:
        self._http.close()
        self._channel.close()


def _compacted(db: Path, **_: Any) -> Refreshed:
    compacted = compact_store(db, budget_s=STUCK_S, wait_s=1.0)
    return Refreshed(compacted.segments if compacted else 0, 0, 0.0, 0, busy=compacted is None)


def _stuck(_number: int, _frame: Any) -> None:
    raise Stuck


def _groups(found: Iterator[Any], size: int) -> Iterator[list[Any]]:
    while group := list(itertools.islice(found, size)):
        yield group


def _neighbours(db: Path) -> set[int]:
    with open_store(db, wait_s=60.0) as con:
        query = "SELECT CAST(attributes->>'number' AS BIGINT) FROM spans WHERE scope_name = 'neighbours'"
        return {number for (number,) in con.execute(query).fetchall()}


def _share(arguments: tuple[Path, int, int, int, bool]) -> tuple[Counter[str], list[str]]:
    # What grows without end must end here, as a fault, and not the machine.
    resource.setrlimit(resource.RLIMIT_AS, (MAX_ADDRESS_BYTES, MAX_ADDRESS_BYTES))
    return Campaign(*arguments).run()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-bombs", action="store_true", help="leave out the bodies that grow")
    parser.add_argument("--folder", type=Path, default=None, help="where faults go; else a new folder under /tmp")
    given_ = parser.parse_args()
    folder = given_.folder or Path(tempfile.mkdtemp(prefix="agenttrace-fuzz-"))
    edges = [given_.inputs * job // given_.jobs for job in range(given_.jobs + 1)]
    shares = [(folder / f"job-{a}", given_.seed, a, b, not given_.no_bombs) for a, b in itertools.pairwise(edges)]
    started = time.monotonic()
    with get_context("spawn").Pool(given_.jobs) as pool:
        found = pool.map(_share, shares, chunksize=1)
    counts: Counter[str] = Counter()
    for count, _ in found:
        counts.update({name: number for name, number in count.items() if name != "peak MB"})
        counts["peak MB"] = max(counts["peak MB"], count["peak MB"])
    faults = [fault for _, found_faults in found for fault in found_faults]
    for name, number in sorted(counts.items()):
        print(f"{number:>9,}  {name}")
    print(f"seed {given_.seed}: {given_.inputs:,} inputs, {len(faults)} faults, {time.monotonic() - started:.0f} s")
    for fault in faults[:20]:
        print(fault)
    if not faults:
        shutil.rmtree(folder)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
