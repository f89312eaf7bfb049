"""OTLP requests -> rows, as a multiple of the bare parse of the same bytes; and the memory that this takes at most.

Run: `python benchmarks/decode.py [ROUNDS]` (15 by default). Target: protobuf at most 14 times the bare upb parse, with
8,192 spans in a request.
"""

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_requests import otlp_json, request
from ratios import Amount, Figure, Work, measure, report

from agenttrace.collectors.decode import MAX_PARTS, decode_traces_protobuf
from agenttrace.collectors.decode_json import decode_json
from agenttrace.errors import DecodeError

HERE = Path(__file__).parent
TRACES = HERE.parent / "tests" / "traces"
PROTOBUF_TARGET = 14.0
ROUNDS = 15
LARGE_BYTES = 64 << 20
Rows = list[Figure] | list[Amount]


def main(rounds: int = ROUNDS) -> bool:
    """Prints the tables; True where the target is met."""
    recorded = [ExportTraceServiceRequest.FromString(path.read_bytes()) for path in sorted(TRACES.glob("*.pb"))]
    tables: dict[str, Rows] = {}
    for name, messages, target in (
        ("recorded requests of 1 to 4 spans", recorded * 40, None),
        ("requests of 20 spans", [request(20, seed) for seed in range(40)], None),
        ("requests of 512 spans", [request(512, seed) for seed in range(4)], None),
        ("a request of 8,192 spans", [request(8_192)], PROTOBUF_TARGET),
    ):
        tables |= compare(name, messages, target, rounds)
    tables["peak memory over a body of 64 MiB"] = memory()
    return report("decode", tables)


def compare(name: str, messages: list[ExportTraceServiceRequest], target: float | None, rounds: int) -> dict[str, Rows]:
    """Measures both encodings of some requests, one request at a time; nothing is kept, as in a receiver."""
    bodies = [message.SerializeToString() for message in messages]
    texts = [otlp_json(message).encode() for message in messages]
    return {
        f"protobuf, {name}": measure(
            [
                Work("upb parse alone", lambda: each(ExportTraceServiceRequest.FromString, bodies)),
                Work("protobuf -> rows", lambda: each(decode_traces_protobuf, bodies), target),
            ],
            rounds=rounds,
        ),
        f"JSON, {name}": measure(
            [
                Work("orjson.loads alone", lambda: each(orjson.loads, texts)),
                Work("OTLP JSON -> rows", lambda: each(decode_json, texts)),
            ],
            rounds=rounds,
        ),
    }


def each(work: Callable[[bytes], Any], bodies: list[bytes]) -> Callable[[], None]:
    """Does the work on each body."""

    def run() -> None:
        for body in bodies:
            work(body)

    return run


def field(number: int, content: bytes) -> bytes:
    """Writes a field of protobuf that holds bytes or a message."""

    def varint(value: int) -> Iterator[int]:
        while value > 127:
            yield value & 127 | 128
            value >>= 7
        yield value

    return bytes((*varint(number << 3 | 2), *varint(len(content)))) + content


def body_of(kind: str) -> bytes:
    """Makes a body of 64 MiB: of an agent's spans, or of as many empty parts as it can hold."""
    if kind == "spans":
        content = request(512).SerializeToString()
        return content * (LARGE_BYTES // len(content))
    ids = field(1, b"1" * 16) + field(2, b"2" * 8)

    def span(content: bytes) -> bytes:
        return field(1, field(2, field(2, ids + content)))

    empty = {
        "groups": lambda parts: field(1, b"") * parts,
        "records": lambda parts: field(1, field(2, field(2, b"") * parts)),
        "events": lambda parts: span(field(11, b"") * parts),
        "attributes": lambda parts: span(field(9, b"") * parts),
        "values": lambda parts: span(field(9, field(2, field(5, field(1, b"") * parts)))),
    }
    return empty[kind](LARGE_BYTES // 2)


def peak(kind: str) -> int:
    """Decodes such a body in this process, and returns by how many KiB its memory has grown."""
    body = body_of(kind)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(DecodeError):
        decode_traces_protobuf(body, MAX_PARTS >> 3)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def memory() -> list[Amount]:
    """Measures each in a process of its own."""
    rows = [Amount("the body", LARGE_BYTES / 2**20, "MiB", 1.0)]
    for kind in ("spans", "groups", "records", "events", "attributes", "values"):
        command = [sys.executable, "-c", f"from decode import peak; print(peak({kind!r}))"]
        found = subprocess.run(command, cwd=HERE, check=True, capture_output=True, text=True)
        grown = int(found.stdout) / 1024
        name = "spans of an agent" if kind == "spans" else f"empty {kind}"
        rows.append(Amount(name, grown, "MiB", grown / (LARGE_BYTES / 2**20)))
    return rows


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
