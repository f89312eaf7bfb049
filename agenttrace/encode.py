"""Any Python value -> strict JSON text of a bounded size, in bounded time, without changing or consuming it.

Plain data goes straight to orjson. Everything else, and all that is too large or holds something to hide, goes through
a walker, for orjson turns NaN into null, and refuses big integers, lone surrogates and foreign types.
"""

import math
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import orjson

from agenttrace.guard import is_programs_own, report
from agenttrace.redact import HIDDEN, Redaction, Redactor, is_secret_name, may_hold_secrets, redact_defaults
from agenttrace.values import Items, Label, Opened, Pairs, open_value, type_name

LIMIT_BYTES: Final = 64 << 10
"""Size limit of one call's arguments or result."""
MESSAGES_LIMIT_BYTES: Final = 256 << 10
"""Size limit of messages, tool definitions and states."""

MAX_DEPTH: Final = 40
_MAX_PARTS: Final = 20_000
_MAX_INT_DIGITS: Final = 4000
# Characters looked at beyond a cut, so that a secret which the cut would halve is still recognised.
_OVERLAP: Final = 4096
# Encoding a text to count its bytes takes time; beyond this length they are estimated.
_MAX_COUNTED: Final = 1 << 20


_MAX_FLAT: Final = 64
_FLAT: Final = frozenset({str, int, bool, type(None)})


class Encoded(NamedTuple):
    """A value as JSON text, and what was done to it."""

    text: str
    original_bytes: int
    """Size of the whole as JSON; an estimate where it has more than 20,000 parts or is not plain data."""
    cut: bool
    redacted: bool


class _Room(NamedTuple):
    """How much of a value is kept: characters per string, parts per container, parts in all."""

    text: int
    width: int
    parts: int


def encode(value: object, *, limit_bytes: int = LIMIT_BYTES, redact: Redactor | None = None) -> Encoded:
    """Encodes any value; never raises, whatever the value does.

    Args:
        value: Is neither changed nor consumed: an iterator is named, not read.
        limit_bytes: Largest size of the text in UTF-8. What is larger is cut between tokens, evenly over the whole.
        redact: Hides secrets in every string, keys included.
    """
    original_bytes = None
    try:
        if _room_after(value, _MAX_PARTS, MAX_DEPTH) >= 0:
            data = orjson.dumps(value)
            original_bytes = len(data)
            text = data.decode()
            if original_bytes <= limit_bytes and (redact is None or _is_clean(text, redact)):
                return Encoded(text, original_bytes, cut=False, redacted=False)
    except (TypeError, ValueError, RuntimeError, RecursionError) as error:
        # A lone surrogate, a big integer, a dict that another thread is changing: the walker copes.
        if is_programs_own(error):
            raise
    try:
        return _encode_carefully(value, original_bytes, limit_bytes, redact)
    except Exception as error:
        report("encode a value", error)
        return Encoded('"[unreadable]"', original_bytes or 0, cut=True, redacted=False)


def encode_flat(value: object, redact: Redactor | None) -> str | None:
    """Encodes a dict of scalars with nothing to hide or cut, the most usual arguments and results; None for all else.

    It gives what `encode` gives, in half the time: a decorated call is little more than its span and two of these.
    """
    if type(value) is not dict:
        return None
    flat: dict[object, object] = value  # pyright: ignore[reportUnknownVariableType]
    if len(flat) > _MAX_FLAT:
        return None
    try:
        for part in flat.values():
            kind = type(part)
            # Of a number that JSON cannot say, orjson makes null.
            if kind not in _FLAT and not (kind is float and math.isfinite(part)):  # pyright: ignore[reportArgumentType]
                return None
        text = orjson.dumps(flat).decode()
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        if is_programs_own(error):
            raise
        return None
    # Four bytes a character are the most that UTF-8 needs.
    if len(text) * 4 > LIMIT_BYTES:
        return None
    return text if redact is None or _is_clean(text, redact) else None


def clean_text(text: object, *, limit_bytes: int = LIMIT_BYTES, redact: Redactor | None = None) -> str:
    """Returns a text fit for a span attribute: valid Unicode, redacted, cut; another value as its JSON."""
    if type(text) is not str:
        if not issubclass(type(text), str):
            return encode(text, limit_bytes=limit_bytes, redact=redact).text
        text = str.__str__(text)  # pyright: ignore[reportArgumentType] - a subclass of str, whatever isinstance says
    if len(text) * 4 <= limit_bytes and text.isascii() and redact is None:
        return text
    walk = _Walk(_Room(limit_bytes // 4, 0, 0), redact)
    return walk.string(text)


def _room_after(value: object, room: int, depth: int) -> int:
    """Returns what is left of `room` after plain data of finite numbers; negative for all else."""
    kind = type(value)
    if kind is str:
        return room - 1 - (len(value) >> 8)  # pyright: ignore[reportArgumentType]
    if kind is int or kind is bool or value is None:
        return room - 1
    if kind is float:
        return room - 1 if math.isfinite(value) else -1  # pyright: ignore[reportArgumentType]
    if kind is dict:
        return _room_after_dict(value, room, depth)  # pyright: ignore[reportArgumentType]
    if kind is not list and kind is not tuple:
        return -1
    if not depth or len(value) > room:  # pyright: ignore[reportArgumentType]
        return -1
    parts: list[object] | tuple[object, ...] = value  # pyright: ignore[reportAssignmentType]
    for part in parts:
        room = _room_after(part, room, depth - 1)
        if room < 0:
            return -1
    return room - 1


def _room_after_dict(value: dict[object, object], room: int, depth: int) -> int:
    if not depth or len(value) > room:
        return -1
    for key, part in value.items():
        if type(key) is not str:
            return -1
        room = _room_after(part, room, depth - 1)
        if room < 0:
            return -1
    return room - 1


def _is_clean(text: str, redact: Redactor) -> bool:
    """Tells whether JSON text surely holds nothing to hide.

    Without escapes the strings stand in the text as they are, and no default pattern reaches across a quotation mark.
    """
    if not isinstance(redact, Redaction) or not redact.is_default:
        return False
    return not may_hold_secrets(text) or ("\\" not in text and redact_defaults(text) == text)


def _encode_carefully(value: object, original_bytes: int | None, limit: int, redact: Redactor | None) -> Encoded:
    rooms = (
        _Room(limit, 5000, _MAX_PARTS),
        _Room(limit // 8, 500, 5000),
        _Room(min(1000, limit // 16), 100, 1000),
        _Room(min(200, limit // 32), 30, 200),
        _Room(min(50, limit // 32), 8, 20),
    )
    redacted = False
    for room in rooms:
        walk = _Walk(room, redact)
        data = orjson.dumps(walk.value(value, MAX_DEPTH))
        redacted |= walk.redacted
        original_bytes = walk.size if original_bytes is None else original_bytes
        if len(data) <= limit:
            is_whole = not walk.cut and not redacted
            return Encoded(data.decode(), len(data) if is_whole else original_bytes, walk.cut, redacted)
    return Encoded('"[cut]"', original_bytes or 0, cut=True, redacted=redacted)


def _more_bytes(sample: str, *, of: int) -> int:
    """Returns how many bytes UTF-8 needs beyond one a character for a text of a length, as its sample does."""
    return (len(sample.encode("utf-8", "surrogatepass")) - len(sample)) * of // len(sample)


class _Walk:
    """One pass over a value within a room; counts the size that the whole would have."""

    def __init__(self, room: _Room, redact: Redactor | None) -> None:
        self.cut = False
        self.redacted = False
        self.size = 0
        self._room = room
        self._redact = redact
        self._parts = 0
        self._path: set[int] = set()

    def value(self, value: object, depth: int) -> object:
        self._parts += 1
        opened = open_value(value)
        if isinstance(opened, (Pairs, Items)):
            return self._container(value, opened, depth)
        return self._scalar(opened)

    def string(self, text: str) -> str:
        """Redacts and cuts a text, and escapes what is no Unicode."""
        self.size += len(text) + 2
        room = self._room.text
        window = text if len(text) <= room + _OVERLAP else text[: room + _OVERLAP]
        if not window.isascii():
            self.size += _more_bytes(text if len(text) <= _MAX_COUNTED else window, of=len(text))
            window = window.encode("utf-8", "backslashreplace").decode()
        shown = window if self._redact is None else self._redact(window)
        self.redacted |= shown != window
        if len(text) <= room and len(shown) <= room + _OVERLAP:
            return shown
        self.cut = True
        return f"{shown[:room]}…[+{len(text) - room} characters]"

    def _scalar(self, value: Opened) -> object:
        if type(value) is str:
            return self.string(value)
        if type(value) is float and not math.isfinite(value):
            self.size += 10
            return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
        if type(value) is int and not -(2**63) <= value < 2**64:
            return self._big_int(value)
        self.size += len(value) + 2 if isinstance(value, Label) else 4 if value is None else len(repr(value))
        return str.__str__(value) if isinstance(value, Label) else value

    def _big_int(self, value: int) -> object:
        digits = int(value.bit_length() * 0.30103) + 1
        self.size += digits
        if digits > _MAX_INT_DIGITS:
            self.cut = True
            return f"<int of {value.bit_length()} bits>"
        return orjson.Fragment(str(value))

    def _container(self, value: object, opened: Pairs | Items, depth: int) -> object:
        self.size += 2
        if id(value) in self._path:
            self.cut = True
            return "[cycle]"
        if not depth or self._parts >= self._room.parts:
            self.cut = True
            self.size += 8 * opened.length
            return "[too deep]" if not depth else f"[+{opened.length} parts]"
        self._path.add(id(value))
        try:
            return self._dict(opened, depth) if isinstance(opened, Pairs) else self._list(opened, depth)
        except BaseException as error:  # its iteration is a user's code, or another thread is changing it
            if is_programs_own(error):
                raise
            self.cut = True
            return f"<unreadable: {type_name(type(error))}>"
        finally:
            self._path.discard(id(value))

    def _dict(self, opened: Pairs, depth: int) -> dict[str, object]:
        shown: dict[str, object] = {}
        before = self.size
        for key, part in islice(opened.pairs, self._room.width):
            shown[self._key(key, shown)] = HIDDEN if self._is_secret(key, part) else self.value(part, depth - 1)
            self.size += 2
        if opened.length > len(shown):
            self._leave_out(opened.length - len(shown), self.size - before, len(shown))
            shown["…"] = f"[+{opened.length - len(shown)} keys]"
        return shown

    def _is_secret(self, key: object, part: object) -> bool:
        if type(key) is not str or type(part) is not str or not part or not isinstance(self._redact, Redaction):
            return False
        if not is_secret_name(key):
            return False
        self.redacted = True
        self.size += len(part) + 2
        return True

    def _key(self, key: object, taken: dict[str, object]) -> str:
        plain = self.value(key, 3)
        text = plain if type(plain) is str else orjson.dumps(plain).decode()
        if text not in taken:
            return text
        # Keys that are one text only after redaction, or as JSON, stay two.
        return next(name for number in range(2, len(taken) + 3) if (name := f"{text} ({number})") not in taken)

    def _list(self, opened: Items, depth: int) -> list[object]:
        width = self._room.width
        before = self.size
        if opened.length <= width:
            shown = [self.value(part, depth - 1) for part in islice(opened.items, width)]
        else:
            shown = self._ends(opened.items, opened.length, depth)
            self._leave_out(opened.length - width, self.size - before, width)
        self.size += len(shown)
        return sorted(shown, key=orjson.dumps) if opened.is_set else shown

    def _ends(self, items: Iterable[object], length: int, depth: int) -> list[object]:
        """Keeps the first and the last parts, for in a list of messages both matter."""
        head, tail = self._room.width - self._room.width // 2, self._room.width // 2
        parts = iter(items)
        shown = [self.value(part, depth - 1) for part in islice(parts, head)]
        shown.append(f"[+{length - head - tail} items]")
        # Reading a long list to its end would take unbounded time.
        if length <= _MAX_PARTS:
            shown += [self.value(part, depth - 1) for part in islice(parts, length - head - tail, None)]
        return shown

    def _leave_out(self, count: int, size: int, of: int) -> None:
        self.cut = True
        self.size += count * size // max(of, 1)


__all__ = ["HIDDEN", "LIMIT_BYTES", "MESSAGES_LIMIT_BYTES", "Encoded", "clean_text", "encode"]
