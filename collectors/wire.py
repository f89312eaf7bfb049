"""OTLP protobuf body -> its groups, parts and records, such that memory stays in proportion to the body.

Two bytes hold a message, and the parsed one takes a hundred times their room: a body of 64 MiB could take 6 GiB. So the
records of a large body are parsed some at a time, and the fields of a large record are counted beforehand. Only
the outline of the wire format is read here, tags and lengths; what is in a piece is upb's to read and to refuse.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import DecodeError as ProtobufDecodeError
from google.protobuf.message import Message

from agenttrace.errors import DecodeError

LARGE_BYTES = 1 << 20
_BATCH_BYTES = 1 << 16
_MAX_DEPTH = 100
_GROUP_FIELD, _PART_FIELD, _RECORD_FIELD = 1, 2, 2
# Of a number that has more than 64 bits upb drops the rest.
_MAX_TAG, _MAX_SIZE, _MAX_NUMBER = 2**32 - 1, 2**31 - 1, 2**70 - 1
_VARINT_BYTES = {_MAX_TAG: 5, _MAX_SIZE: 5, _MAX_NUMBER: 10}
# Attributes and values within a record are far smaller than a record is.
_FIELDS_PER_PART = 8

M = TypeVar("M", bound=Message)
Place = tuple[int, int, int]
"""Where a field begins, where its content begins, and where both end."""
Field = tuple[int, int, int, int]
"""Number, where the field begins, where its content begins, and where both end."""


class TooManyPartsError(DecodeError):
    """A request holds too many groups, records, events or links; nothing of it is used."""

    def __init__(self, most: int) -> None:
        super().__init__(f"more than {most} spans, events and the like; send smaller batches")


@dataclass(frozen=True)
class Signal:
    """The messages of traces or logs: a request holds groups (resources), those parts (scopes), and those records."""

    request: type[Any]
    group: type[Any]
    part: type[Any]
    record: type[Any]
    names: tuple[str, str, str]
    """Fields that hold the groups of a request, the parts of a group, the records of a part."""

    def groups(self, body: bytes, max_parts: int) -> Iterator[tuple[Any, Iterator[tuple[Any, Any]]]]:
        """Yields each group with its parts, and each part with its records, which have a length and are read once.

        Raises:
            DecodeError: The body is no such request; what was yielded before must not be used.
        """
        if len(body) > LARGE_BYTES:
            for count, (number, at, start, end) in enumerate(_fields(body, 0, len(body))):
                if count == max_parts:
                    raise TooManyPartsError(max_parts)
                if number == _GROUP_FIELD and start:
                    group, parts = _open(self.group, body, (at, start, end), _PART_FIELD, max_parts)
                    yield group, self._parts(body, parts, max_parts)
            return
        groups, parts, records = self.names
        for group in getattr(parse(self.request, body), groups):
            yield group, ((part, getattr(part, records)) for part in getattr(group, parts))

    def _parts(self, body: bytes, parts: list[Place], max_parts: int) -> Iterator[tuple[Any, "_Records"]]:
        for place in parts:
            part, records = _open(self.part, body, place, _RECORD_FIELD, max_parts)
            yield part, _Records(self, body, records, max_parts)


@dataclass(frozen=True)
class _Records:
    """The records of a part, parsed when their turn comes; some at once, for each parse costs as much as a record."""

    signal: Signal
    body: bytes
    places: list[Place]
    max_parts: int

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches():
            yield from getattr(_parse_counted(self.signal.part, batch, self.max_parts), self.signal.names[2])

    def _batches(self) -> Iterator[bytes]:
        """Yields parts of records that stand side by side, as many as have room, at least one."""
        first = last = self.places[0][0] if self.places else 0
        for begin, _, end in self.places:
            if begin != last or end - first > _BATCH_BYTES:
                yield self.body[first:last]
                first = begin
            last = end
        yield self.body[first:last]


def parse(message: type[M], raw: bytes) -> M:
    """Parses a message.

    Raises:
        DecodeError: It is none.
    """
    try:
        return message.FromString(raw)
    except ProtobufDecodeError as err:
        # The text of protobuf names the message type and the fault, and none of the content.
        raise DecodeError(f"not an OTLP protobuf request: {err}") from err


def _open(kind: type[M], body: bytes, place: Place, children: int, max_parts: int) -> tuple[M, list[Place]]:
    """Parses a message without some of its children, and says where those are."""
    _, first, last = place
    places: list[Place] = []
    rest: list[bytes] = []
    for count, (number, at, start, end) in enumerate(_fields(body, first, last)):
        if count == max_parts:
            raise TooManyPartsError(max_parts)
        if number == children and start:
            places.append((at, start, end))
        else:
            rest.append(body[at:end])
    return _parse_counted(kind, b"".join(rest), max_parts), places


def _parse_counted(kind: type[M], raw: bytes, max_parts: int) -> M:
    """Parses a message; one that is large is looked at first, for it may be of very many small ones."""
    if len(raw) > LARGE_BYTES:
        _count(raw, 0, len(raw), kind.DESCRIPTOR, _MAX_DEPTH, _FIELDS_PER_PART * max_parts, max_parts)
    return parse(kind, raw)


def _count(raw: bytes, at: int, end: int, kind: Any, depth: int, room: int, max_parts: int) -> int:
    """Returns what is left of `room` after the fields of a message; upb refuses what is nested beyond `depth`."""
    for number, _, start, stop in _fields(raw, at, end):
        room -= 1
        if room < 0:
            raise TooManyPartsError(max_parts)
        field = kind.fields_by_number.get(number)
        if start and field is not None and field.message_type is not None and depth:
            room = _count(raw, start, stop, field.message_type, depth - 1, room, max_parts)
    return room


def _fields(body: bytes, at: int, end: int) -> Iterator[Field]:
    """Yields the fields of a message; those that hold a number have no content: 0.

    OTLP has no groups of fields, which are skipped: their begin, end and fields come as fields of number 0.

    Raises:
        DecodeError: A field goes beyond the end of the message, or is none.
    """
    groups: list[int] = []
    while at < end:
        begin, start = at, 0
        # Nearly every tag is one byte, and a call for each would take as long as the rest.
        tag, at = (body[at], at + 1) if body[at] < 128 else _varint(body, at, _MAX_TAG)
        number, kind = tag >> 3, tag & 7
        is_outside = not groups
        if is_outside and not number:
            raise DecodeError("not an OTLP protobuf request: a field without a number")
        match kind:
            case 2:
                size, start = _varint(body, at, _MAX_SIZE)
                at = start + size
            case 0:
                _, at = _varint(body, at, _MAX_NUMBER)
            case 1:
                at += 8
            case 5:
                at += 4
            case 3 if len(groups) < _MAX_DEPTH:
                groups.append(number)
                is_outside = False
            case 4 if groups and groups.pop() == number:
                pass
            case _:
                raise DecodeError(f"not an OTLP protobuf request: a field of wire type {kind}")
        if at > end:
            raise DecodeError("not an OTLP protobuf request: a field goes beyond its message")
        yield (number, begin, start, at) if is_outside else (0, begin, 0, at)
    if groups:
        raise DecodeError("not an OTLP protobuf request: a group does not end")


def _varint(body: bytes, at: int, most: int) -> tuple[int, int]:
    """Reads a number; returns it and what is behind it."""
    # Most have one byte or two, and there is one in front of every field.
    if at + 1 < len(body):
        low, high = body[at], body[at + 1]
        if low < 128:
            return low, at + 1
        if high < 128:
            return low & 127 | high << 7, at + 2
    number = shift = 0
    for byte in body[at : at + _VARINT_BYTES[most]]:
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            if number > most:
                break
            return number, at
        shift += 7
    raise DecodeError("not an OTLP protobuf request: a number does not end")
