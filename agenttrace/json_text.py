"""JSON text: strict parsing without loss, and the values that texts of producers hold."""

import json
import math
import re
from typing import Any, NoReturn

import orjson

Object = dict[str, Any]

# Markers that producers leave where content was switched off or hidden: not captured, never a value.
_HIDDEN = frozenset({"", "<REDACTED>", "[REDACTED]", "__REDACTED__", "REDACTED", "readacted", "<elided>"})
# What a JSON object, list or string begins with.
_OPENINGS = frozenset('{["')
# orjson turns integers beyond 64 bits into floats; those texts take the slower parser.
_LONG_INTEGER = re.compile(r"[1-9][0-9]{18}")
# Of every sixth character, three of 19 digits in a row stand side by side: most texts need not be searched whole.
_THREE_DIGITS = re.compile(r"[0-9]{3}")
# An escape: a surrogate pair (12 characters), a lone surrogate (6), any other (2).
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
_LONE_SURROGATE_LENGTH = 6


def parse(text: str) -> Any:
    """Parses strict JSON without loss; a lone surrogate, which no UTF-8 text can hold, becomes U+FFFD.

    Raises:
        ValueError: The text is not strict JSON (NaN, Infinity, 1e999 and trailing commas are not), or is nested too
            deeply.
    """
    if not _THREE_DIGITS.search(text[::6]) or not _LONG_INTEGER.search(text):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            if "\\u" not in text:
                raise
    try:
        return json.loads(_without_lone_surrogates(text), parse_constant=_refuse, parse_float=_finite)
    except RecursionError as err:
        raise ValueError("nested too deeply") from err


def dump(value: Any) -> str:
    """Writes JSON text without white space."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def decoded(text: str) -> str | None:
    """A JSON value; a JSON string that holds an object, a list or a string is parsed, twice at most.

    Some producers encode arguments twice.
    """
    for _ in range(2):
        if not text.startswith('"'):
            break
        inner = try_parse(text)
        if not isinstance(inner, str) or not _holds_json(inner):
            break
        text = _without_lone_surrogates(inner)
    return None if text == "null" else text


def decoded_value(text: str) -> Any:
    """What `decoded` gives, parsed: one pass less."""
    value = try_parse(text)
    for _ in range(2):
        inner = _held_json(value) if isinstance(value, str) else None
        if inner is None:
            break
        value = inner
    return value


def json_of_text(text: str) -> str | None:
    """The JSON object, list or string that a text holds, else the text as a JSON string; None where it was hidden."""
    if captured(text) is None or text.strip() == "null":
        return None
    return decoded(dump(text))


def captured(text: str) -> str | None:
    """The text, unless it is a marker for content that was switched off or hidden."""
    # The last is Logfire's.
    return None if text.strip() in _HIDDEN or text.startswith("[Scrubbed due to ") else text


def try_parse(text: str) -> Any:
    """Parses strict JSON; None where it is none."""
    try:
        return parse(text)
    except ValueError:
        return None


def parsed_value(value: Any) -> Any:
    """A value of which a string that holds JSON is parsed: what `json_of_text` gives, in one pass."""
    if not isinstance(value, str):
        return value
    if captured(value) is None or value.strip() == "null":
        return None
    inner = _held_json(value)
    if value.startswith('"') and isinstance(inner, str):
        again = _held_json(inner)
        return inner if again is None else again
    return value if inner is None else inner


def as_object(value: Any) -> Object:
    """The value where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType] - a call less than a cast


def as_list(value: Any) -> list[Any]:
    """The value where it is a JSON list, else an empty one."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType] - a call less than a cast


def _holds_json(text: str) -> bool:
    return _held_json(text) is not None


def _held_json(text: str) -> Any:
    """The object, list or string that a text holds; None where it holds none."""
    return try_parse(text) if text.lstrip()[:1] in _OPENINGS else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _without_lone_surrogates(text: str) -> str:
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: r"\ufffd" if len(found[0]) == _LONE_SURROGATE_LENGTH else found[0], text)
