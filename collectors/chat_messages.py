"""Chat messages -> one form, their calls with what answered them, and their order in time.

Pure. Messages are OpenAI's (content as text or parts, `tool_calls`, the older `function_call`), or any other dialect
that `agenttrace.dialects` knows.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from agenttrace.collectors.json_fields import Leniencies, Object, cut, describe
from agenttrace.dialects import messages as in_one_form
from agenttrace.errors import DecodeError
from agenttrace.json_text import dump, parse

STEP_NS = 1_000
"""Least distance of two messages; the calls of a message stand in between."""

_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
_TIME_KEYS = ("created_at", "timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Nanoseconds in 1973 and 2255: a number outside is no time since 1970. The least number of each unit, and what makes it
# nanoseconds.
_EARLIEST_NS, _LATEST_NS = 10**17, 9 * 10**18
_UNITS = ((1e17, 1), (1e14, 10**3), (1e11, 10**6), (1e8, 10**9))


@dataclass
class Result:
    """What a tool gave back, in message number `message`; `turn` is the last assistant message before it."""

    message: int
    turn: int | None
    id: str | None
    name: str | None
    value: Any
    failed: bool


@dataclass
class Call:
    """A tool call that assistant message number `message` asked for; without `result` nothing answered it."""

    message: int
    id: str | None
    name: str | None
    arguments: Any
    result: Result | None = None


def normalised(given: list[Any], problems: list[str], leniencies: Leniencies) -> tuple[list[Object], list[Object]]:
    """Returns the messages as they came, without what is none, and as [{role, name, parts}].

    Raises:
        DecodeError: They cannot be written as JSON.
    """
    kept: list[Object] = []
    for number, message in enumerate(given):
        if isinstance(message, dict) and message:
            kept.append(cast("Object", message))
        else:
            shown = describe(cast("object", message))
            problems.append(f"message {number} is {shown}; expected an object with a role")
    found = in_one_form(dump([_in_openai_form(message, leniencies) for message in kept]))
    if found is None and kept:
        raise DecodeError("the messages are nested too deeply, hold numbers that JSON lacks, or are all redacted")
    messages: list[Object] = parse(found) if found else []
    problems += _of_unknown_roles(messages)
    return kept, messages


def _of_unknown_roles(messages: list[Object]) -> Iterator[str]:
    """Says of what role messages are that stand for nothing: neither a question, an answer, a call nor a result."""
    roles = Counter(str(message["role"]) for message in messages)
    for role, count in ((role, count) for role, count in roles.items() if role not in _ROLES):
        yield f"messages of role {cut(role)} tell nothing ({count} here); known are {', '.join(sorted(_ROLES))}"


def _in_openai_form(message: Object, leniencies: Leniencies) -> Object:
    """Names what OpenAI's older forms, and other producers, leave to the reader."""
    found = dict(message)
    legacy = found.pop("function_call", None)
    if isinstance(legacy, dict) and not found.get("tool_calls"):
        found["tool_calls"] = [{"function": legacy}]
    if found.get("content") is None and isinstance(found.get("refusal"), str):
        found["content"] = found["refusal"]
    content = found.get("content")
    if isinstance(content, dict):
        found["content"] = [content]
    elif content is not None and not isinstance(content, str | list):
        found["content"] = dump(content)
    if content == "" and found.get("role") in ("tool", "function"):
        # Other producers leave a text empty that they did not capture; in a transcript the tool gave back nothing.
        found["content"] = '""'
    if not found.get("role") and not found.get("type"):
        leniencies["messages without a role"] += 1
        found["role"] = "assistant" if found.get("tool_calls") else "tool" if found.get("tool_call_id") else "user"
    return found


def text_of(message: Object) -> str | None:
    """Returns the text parts of a message, or None where it has none."""
    texts = [part["content"] for part in message["parts"] if part["type"] == "text" and part["content"]]
    return "\n".join(texts) if texts else None


def calls_of(messages: list[Object]) -> list[Call]:
    """Returns all tool calls in order, each with the result that belongs to it.

    A result belongs to the latest assistant message before it that asked with its id, there to the first call of that
    id that has none yet: ids repeat within a message and over the whole run. What no id decides goes in order, within
    the calls of the assistant message before it and to a tool of the same name, where the result has a name.
    """
    calls = [
        Call(number, _text(part.get("id")), _text(part.get("name")), part.get("arguments"))
        for number, message in enumerate(messages)
        if message["role"] == "assistant"
        for part in message["parts"]
        if part["type"] == "tool_call"
    ]
    rest = _pair_by_id(calls, _results(messages))
    _pair_in_order(calls, rest)
    return calls


def _results(messages: list[Object]) -> list[Result]:
    results: list[Result] = []
    turn: int | None = None
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            turn = number
            continue
        results += [
            Result(
                number,
                turn,
                _text(part.get("id")),
                _text(part.get("name")),
                part.get("response"),
                part.get("is_error") is True,
            )
            for part in message["parts"]
            if part["type"] == "tool_call_response"
        ]
    return results


def _pair_by_id(calls: list[Call], results: list[Result]) -> list[Result]:
    """Pairs what ids decide; returns the results that are left."""
    waiting: dict[str, list[Call]] = defaultdict(list)
    left: list[Result] = []
    asked = iter(calls)
    upcoming = next(asked, None)
    for result in results:
        while upcoming is not None and upcoming.message < result.message:
            if upcoming.id is not None:
                waiting[upcoming.id].append(upcoming)
            upcoming = next(asked, None)
        same_id = waiting.get(result.id) if result.id is not None else None
        if not same_id:
            left.append(result)
            continue
        first = len(same_id) - 1
        while first > 0 and same_id[first - 1].message == same_id[-1].message:
            first -= 1
        same_id.pop(first).result = result
    return left


def _pair_in_order(calls: list[Call], results: list[Result]) -> None:
    waiting: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        if call.result is None:
            waiting[call.message].append(call)
    for result in results:
        open_calls = waiting.get(result.turn, []) if result.turn is not None else []
        for position, call in enumerate(open_calls):
            if result.name is None or call.name is None or result.name == call.name:
                open_calls.pop(position).result = result
                break


def times_of(given: list[Object]) -> list[int]:
    """Returns a time for each message, in nanoseconds since 1970, strictly in the order of the messages.

    A message that states none has the time of the one before. Where no message states one, the times are their places
    in the order and nothing more: all of them in the first days of 1970.
    """
    stated = [next((time for key in _TIME_KEYS if (time := _unix_nano(message.get(key)))), 0) for message in given]
    latest = next(filter(None, stated), 0)
    times: list[int] = []
    for time in stated:
        latest = max(latest, time)
        times.append(max(latest, times[-1] + STEP_NS if times else STEP_NS))
    return times


def _unix_nano(value: Any) -> int:
    """Reads a time as a number of seconds, or of milli-, micro- or nanoseconds, or as ISO 8601; 0 where it is none."""
    nanoseconds = 0
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return 0
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        nanoseconds = (moment - _EPOCH) // timedelta(microseconds=1) * 1_000
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        nanoseconds = next((int(value * factor) for least, factor in _UNITS if value >= least), 0)
    return nanoseconds if _EARLIEST_NS <= nanoseconds < _LATEST_NS else 0


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
