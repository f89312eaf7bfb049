"""Large protobuf bodies: read piece by piece, they give what they give at once, and upb never sees a swarm of parts."""

import random
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from agenttrace.collectors import wire
from agenttrace.collectors.decode import Decoded, decode_logs_protobuf, decode_traces_protobuf
from agenttrace.errors import DecodeError

TRACES = sorted((Path(__file__).parent / "traces").glob("*.pb"))
IDS = b"\x0a\x10" + b"1" * 16 + b"\x12\x08" + b"2" * 8


def field(number: int, content: bytes) -> bytes:
    head, size = bytes([number << 3 | 2]), len(content)
    while size > 127:
        head, size = head + bytes([size & 127 | 128]), size >> 7
    return head + bytes([size]) + content


def request(record: bytes) -> bytes:
    return field(1, field(2, field(2, record)))


@pytest.fixture
def piecewise(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], Decoded | str]:
    def decode(body: bytes, decoder: Callable[[bytes], Decoded] = decode_traces_protobuf) -> Decoded | str:
        with monkeypatch.context() as patch:
            patch.setattr(wire, "LARGE_BYTES", 0)
            return outcome(body, decoder)

    return decode


def outcome(body: bytes, decoder: Callable[[bytes], Decoded] = decode_traces_protobuf) -> Decoded | str:
    try:
        return decoder(body)
    except DecodeError as err:
        return type(err).__name__


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_recorded_requests_are_the_same_in_pieces(path: Path, piecewise: Callable[..., Decoded | str]) -> None:
    body = path.read_bytes()
    two = body + TRACES[0].read_bytes()
    assert piecewise(body) == decode_traces_protobuf(body)
    assert piecewise(two) == decode_traces_protobuf(two)


def test_log_records_are_the_same_in_pieces(piecewise: Callable[..., Decoded | str]) -> None:
    message = ExportLogsServiceRequest()
    for number in range(3):
        record = message.resource_logs.add().scope_logs.add().log_records.add(trace_id=b"1" * 16, span_id=b"2" * 8)
        record.body.kvlist_value.values.add(key="number").value.int_value = number
    body = message.SerializeToString()
    assert piecewise(body, decode_logs_protobuf) == decode_logs_protobuf(body) != Decoded()


def test_fields_in_any_order_and_twice_are_the_same_in_pieces(piecewise: Callable[..., Decoded | str]) -> None:
    name = field(1, field(1, field(1, b"service.name") + field(2, field(1, b"shop"))))
    other = field(1, field(1, field(1, b"zone") + field(2, field(1, b"a"))))
    scope = field(2, field(3, b"schema") + field(2, IDS) + b"\x78\x05" + field(1, field(1, b"lib")))
    body = field(1, name + scope + other + field(2, field(2, IDS))) + field(9, b"unknown")
    assert piecewise(body) == decode_traces_protobuf(body)
    assert [row.service_name for row in decode_traces_protobuf(body).spans] == ["shop", "shop"]


def test_damaged_requests_end_alike_in_pieces(piecewise: Callable[..., Decoded | str]) -> None:
    draw = random.Random(7)
    body = TRACES[0].read_bytes()
    for _ in range(400):
        at = draw.randrange(len(body))
        damaged = body[:at] if draw.random() < 0.3 else body[:at] + draw.randbytes(1) + body[at + 1 :]
        found, expected = piecewise(damaged), outcome(damaged)
        assert found == expected


def varint(number: int, padding: int) -> bytes:
    digits = [number >> shift & 127 for shift in range(0, max(number.bit_length(), 1), 7)] + [0] * padding
    return bytes(digit | 128 for digit in digits[:-1]) + bytes(digits[-1:])


NUMBERS = st.builds(
    varint, st.sampled_from([0, 1, 2, 5, 8, 15, 2**31 - 1, 2**31, 2**32, 2**64, 2**66]), st.integers(0, 3)
)
TAGS = st.builds(
    lambda number, kind, padding: varint(number << 3 | kind, padding),
    st.sampled_from([0, 1, 2, 5, 9, 15, 2**29 - 1, 2**29]),
    st.integers(0, 7),
    st.sampled_from([0, 0, 0, 1, 4]),
)
PIECES = st.lists(st.one_of(TAGS, NUMBERS, st.binary(max_size=9)), max_size=4).map(b"".join)
GROUPS = st.builds(
    lambda number, content: bytes([number << 3 | 3]) + content + bytes([number << 3 | 4]), st.integers(1, 15), PIECES
)


@settings(max_examples=150)
@given(st.lists(PIECES | GROUPS, min_size=3, max_size=3))
def test_what_upb_takes_is_taken_in_pieces_and_nothing_else(odd: list[bytes]) -> None:
    body = field(1, field(2, field(2, IDS) + odd[0]) + odd[1]) + odd[2]
    expected = outcome(body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "LARGE_BYTES", 0)
        assert outcome(body) == expected


def test_a_swarm_of_fields_in_a_group_is_counted() -> None:
    body = field(1, field(15, b"x" * (1 << 20))) + b"\x7b" + b"\x08\x01" * 2_000 + b"\x7c"
    with pytest.raises(wire.TooManyPartsError):
        decode_traces_protobuf(body, 1_000)


@pytest.mark.parametrize(
    "swarm",
    [
        lambda count: field(1, b"") * count,
        lambda count: field(1, field(2, b"") * count),
        lambda count: field(1, field(2, field(2, b"") * count)),
        lambda count: b"\x20\x01" * count,
        lambda count: field(1, field(2, b"\x20\x01" * count)),
        lambda count: request(IDS + b"\x30\x01" * count),
        lambda count: field(1, field(1, field(1, b"") * count)),
        lambda count: request(IDS + field(9, b"") * count),
        lambda count: request(IDS + field(11, b"") * count),
        lambda count: request(IDS + field(13, field(4, b"") * count)),
        lambda count: request(IDS + field(9, field(2, field(5, field(1, b"") * count)))),
        lambda count: request(IDS + field(9, field(2, field(6, field(1, b"") * count)))),
        lambda count: request(IDS + field(9, field(2, field(5, field(1, field(5, field(1, b"") * 9)) * (count // 9))))),
    ],
    ids=[
        "groups",
        "parts",
        "spans",
        "numbers",
        "numbers in a part",
        "numbers in a span",
        "resource",
        "attributes",
        "events",
        "links",
        "array",
        "pairs",
        "nested",
    ],
)
def test_a_swarm_of_parts_is_refused_before_upb_makes_objects_of_it(
    swarm: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    parse = wire.parse

    def watched(message: type[ExportTraceServiceRequest], raw: bytes) -> ExportTraceServiceRequest:
        seen.append(len(raw))
        return parse(message, raw)

    monkeypatch.setattr(wire, "parse", watched)
    body = swarm(700_000)
    assert len(body) > wire.LARGE_BYTES
    with pytest.raises(wire.TooManyPartsError, match="more than 1000 spans"):
        decode_traces_protobuf(body, 1_000)
    assert max(seen, default=0) < 4_000


def test_a_large_span_with_few_parts_is_taken() -> None:
    message = ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add(trace_id=b"1" * 16, span_id=b"2" * 8)
    span.attributes.add(key="page").value.string_value = "x" * (2 << 20)
    values = span.attributes.add(key="rows").value.array_value.values
    for number in range(1_000):
        values.add().int_value = number
    [row] = decode_traces_protobuf(message.SerializeToString(), 1_000).spans
    assert row.attributes == f'{{"page":"{"x" * (2 << 20)}","rows":{orjson.dumps(list(range(1_000))).decode()}}}'


@pytest.mark.parametrize(
    "body",
    [b"\x0a" + b"\xff" * 10 + b"\x01", b"\x0a\x05abc", b"\x0b", b"\x0b\x14", b"\0\0", b"\x09\x01", b"\x80"],
    ids=["endless length", "beyond the end", "half a group", "another's end", "number 0", "short number", "half a tag"],
)
def test_what_is_no_protobuf_is_refused_behind_a_large_piece(body: bytes) -> None:
    with pytest.raises(DecodeError, match="not an OTLP protobuf request"):
        decode_traces_protobuf(field(15, b"x" * (1 << 20)) + body)
