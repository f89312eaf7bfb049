"""Reading fields of JSON objects that may be anything: each reader gives the value or says what it found instead.

`names` are the spellings of one key, OTLP's own first; another one is counted. Content stays out of messages: they show
ids, numbers and key names, cut to a few characters.
"""

import binascii
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import orjson

from agenttrace.collectors.decode import BadRecordError, collector_off, id_text
from agenttrace.errors import DecodeError

Object = dict[str, Any]
Leniencies = Counter[str]

_MAX_UINT32 = 2**32 - 1
# Longer digit strings are no 64-bit numbers, and Python takes quadratic time to read them.
_MAX_DIGITS = 20
_SHOWN_CHARACTERS = 40
_SHOWN_KEYS = 5
DROPPED = {what: (f"dropped{what}Count", f"dropped_{what.lower()}_count") for what in ("Attributes", "Events", "Links")}


def load_json(text: bytes, leniencies: Counter[str] | None = None) -> Any:
    """Parses one JSON document.

    Python's own parser is the second try: it takes NaN and Infinity, and lone surrogates, which JavaScript writes when
    it cuts a text in the middle of an emoji. A lone surrogate becomes U+FFFD.

    Args:
        text: UTF-8, with or without a byte order mark.
        leniencies: Counts a document that needed the second try.

    Raises:
        DecodeError: The text is not one JSON document; the message holds a position, never content.
    """
    with collector_off():
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as err:
            try:
                value = _replace_surrogates(json.loads(text.decode("utf-8-sig")))
            except (ValueError, RecursionError):
                raise DecodeError(f"not JSON: {err}") from err
    if leniencies is not None:
        leniencies["NaN, lone surrogates or a byte order mark in JSON"] += 1
    return value


def describe(value: object) -> str:
    """Names a JSON value by its type, an object also by its first keys; shows nothing else of it."""
    if isinstance(value, dict):
        keys = [cut(key) for key in cast("Object", value)]
        if not keys:
            return "an empty object"
        return f"an object with the keys {', '.join(keys[:_SHOWN_KEYS])}{', ...' if len(keys) > _SHOWN_KEYS else ''}"
    names: dict[type, str] = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list"}
    return names.get(type(value), "null")


def id_of(record: Object, names: tuple[str, ...], size: int, leniencies: Leniencies) -> str:
    """Reads an id as lower-case hex; "" where it is absent or zero."""
    text = text_of(record, names, leniencies)
    if not text:
        return ""
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if len(raw) == size and raw.hex() == text:
        return text if any(raw) else ""
    if len(raw) in (size, 2 * size):
        if not text.islower() and not text.isdecimal():
            leniencies["upper-case ids"] += 1
        return id_text(raw, size, names[0], leniencies)
    raw = base64_bytes(text)
    if raw is None or len(raw) not in (size, 2 * size):
        raise BadRecordError(f"{names[0]} is {cut(text)}; expected {2 * size} hex characters")
    leniencies["base64 ids"] += 1
    return id_text(raw, size, names[0], leniencies)


def base64_bytes(text: str) -> bytes | None:
    """Reads base64 of either alphabet, padded or not; None if it is something else."""
    padded = text.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    try:
        return b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def enum_of(record: Object, names: tuple[str, ...], numbers: Mapping[str, int], leniencies: Leniencies) -> int:
    """Reads an enum from its number or its name; an unknown one is 0, and counted."""
    value = record.get(names[0])
    if type(value) is int and 0 <= value <= _MAX_UINT32:
        return value
    value = first_of(record, names, leniencies)
    if value is None:
        return 0
    number = whole_number(value)
    if number is None and isinstance(value, str):
        number = numbers.get(value.upper())
        leniencies["enum names" if number is not None else "unknown enum names"] += 1
    return number if number is not None and abs(number) <= _MAX_UINT32 else 0


def dropped_of(record: Object, what: str, leniencies: Leniencies) -> int:
    """Reads a count of dropped attributes, events or links."""
    return number_of(record, DROPPED[what], _MAX_UINT32, leniencies)


def number_of(record: Object, names: tuple[str, ...], limit: int, leniencies: Leniencies) -> int:
    """Reads a number from 0 to `limit`, written as a number or a string; absent is 0, as in protobuf."""
    value = first_of(record, names, leniencies)
    if value is None:
        return 0
    number = value if type(value) is int else whole_number(value)
    if number is None or not 0 <= number <= limit:
        raise BadRecordError(f"{names[0]} is {cut(value)}; expected a whole number from 0 to {limit}")
    return number


def whole_number(value: Any) -> int | None:
    """Reads a whole number from a number or a string, as protobuf's JSON does; None if it is none."""
    if isinstance(value, str):
        digits = value if value[:1] != "-" else value[1:]
        return int(value) if len(digits) <= _MAX_DIGITS and digits.isdigit() and digits.isascii() else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(record: Object, names: tuple[str, ...], leniencies: Leniencies) -> str:
    """Reads a string; absent is "", as in protobuf."""
    # Own name and right type, as nearly always: no more calls.
    value = record.get(names[0])
    if type(value) is str:
        return value
    value = first_of(record, names, leniencies)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRecordError(f"{names[0]} is {describe(value)}; expected a string")
    return value


def first_of(record: Object, names: tuple[str, ...], leniencies: Leniencies) -> Any:
    """Reads a key by the first of its spellings that is there; null counts as absent."""
    for name in names:
        value = record.get(name)
        if value is not None:
            if name is not names[0]:
                leniencies["old or snake-case key names"] += 1
            return value
    return None


def list_of(value: Any, name: str) -> list[Any]:
    """Passes a list; null is the empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRecordError(f"{name} is {describe(value)}; expected a list")
    return cast("list[Any]", value)


def object_of(value: Any, name: str) -> Object:
    """Passes an object."""
    if not isinstance(value, dict):
        raise BadRecordError(f"{name} is {describe(value)}; expected an object")
    return cast("Object", value)


def cut(value: object) -> str:
    """Shows the beginning of a value, with control characters escaped."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        pairs = cast("Object", value).items()
        return {_replace_surrogates(key): _replace_surrogates(item) for key, item in pairs}
    return value
