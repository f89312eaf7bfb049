"""Any value -> strict JSON: faithful, bounded, and without touching the value."""

import asyncio
import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import math
import pathlib
import re
import sys
import threading
import time
import types
import typing
import unittest.mock
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import httpx
import hypothesis
import msgspec
import numpy
import orjson
import pydantic
import pytest
from hypothesis import strategies

from agenttrace.canonical import arguments_hash
from agenttrace.encode import Encoded, clean_text, encode
from agenttrace.redact import HIDDEN, Redaction, redact_defaults


def strict(text: str) -> Any:
    """Parses as a strict parser does: no NaN, no lone surrogate, no trailing comma."""
    text.encode()
    orjson.loads(text)
    return json.loads(text, parse_constant=pytest.fail)


def shown(value: object, **options: Any) -> Any:
    return strict(encode(value, **options).text)


# --- faithful


class Color(enum.Enum):
    RED = "red"
    ODD = ("a", 1)


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Line:
    item: str
    price: decimal.Decimal
    _note: str = "kept"


@attrs.define
class Attrs:
    item: str
    tags: list[str]


class Struct(msgspec.Struct):
    item: str


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    item: str
    line: Line
    secret: pydantic.SecretStr = pydantic.SecretStr("x")
    internal: int = pydantic.Field(default=1, exclude=True)


class Root(pydantic.RootModel[list[int]]):
    pass


class Point(typing.NamedTuple):
    x: int
    y: int


class Typed(typing.TypedDict):
    item: str


class Text(str):
    def __str__(self) -> str:
        raise RuntimeError


class Number(int):
    def __repr__(self) -> str:
        raise RuntimeError


UTC = datetime.UTC
FAITHFUL: list[tuple[object, object]] = [
    (None, None),
    ([1, 2.5, True, "é", {"a": None}], [1, 2.5, True, "é", {"a": None}]),
    (Line("rice", decimal.Decimal("10.50")), {"item": "rice", "price": "10.50", "_note": "kept"}),
    (Attrs("rice", ["a"]), {"item": "rice", "tags": ["a"]}),
    (Struct("rice"), {"item": "rice"}),
    (
        Model.model_validate({"item": "rice", "line": Line("a", decimal.Decimal(1)), "more": 2}),
        {
            "item": "rice",
            "line": {"item": "a", "price": "1", "_note": "kept"},
            "secret": "SecretStr('**********')",
            "more": 2,
        },
    ),
    (Root([1, 2]), [1, 2]),
    (Typed(item="rice"), {"item": "rice"}),
    (Point(1, 2), {"x": 1, "y": 2}),
    ([Color.RED, Color.ODD, Level.HIGH], ["red", ["a", 1], 3]),
    (
        {Color.RED: 1, Level.HIGH: 2, 4: 5, None: 6, True: 7, (1, 2): 8},
        {"red": 1, "3": 2, "4": 5, "null": 6, "true": 7, "[1,2]": 8},
    ),
    (datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "2026-01-02T03:04:05.000006+00:00"),
    (datetime.datetime(2026, 1, 2), "2026-01-02T00:00:00"),  # noqa: DTZ001
    ([datetime.date(2026, 1, 2), datetime.time(3, 4)], ["2026-01-02", "03:04:00"]),
    (datetime.timedelta(days=1, seconds=2, microseconds=3), "P1DT2.000003S"),
    (datetime.timedelta(days=-1), "-P1DT0S"),
    (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ([b"hello", bytearray(b"a"), memoryview(b"b")], ["hello", "a", "b"]),
    (b"\xff\x00", base64.b64encode(b"\xff\x00").decode()),
    (pathlib.PurePosixPath("/tmp/x"), "/tmp/x"),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset(["b", "a"]), ["a", "b"]),
    ([numpy.float32(1.5), numpy.int64(3), numpy.bool_(True), numpy.str_("s")], [1.5, 3, True, "s"]),
    (numpy.arange(4).reshape(2, 2), [[0, 1], [2, 3]]),
    (numpy.array(5), 5),
    (numpy.array([1.0, math.nan]), [1.0, "NaN"]),
    (numpy.array(["2026-01-02"], dtype="datetime64[D]"), ["2026-01-02"]),
    (numpy.array([1, 2], dtype="timedelta64[s]"), ["1 seconds", "2 seconds"]),
    (numpy.datetime64("2026-01-02"), "2026-01-02"),
    (numpy.longdouble(2), "2.0"),
    (numpy.array([{"a": 1}, None], dtype=object), [{"a": 1}, None]),
    ([math.nan, math.inf, -math.inf], ["NaN", "Infinity", "-Infinity"]),
    ({"a": math.nan, "b": None}, {"a": "NaN", "b": None}),
    (10**30, 10**30),
    ([2**63, -(2**63) - 1, 2**64], [2**63, -(2**63) - 1, 2**64]),
    (Text("t"), "t"),
    (Number(5), 5),
    (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (collections.deque([1, 2]), [1, 2]),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (collections.UserDict(a=1), {"a": 1}),
    (collections.UserList([1]), [1]),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    ({"a": 1}.keys(), ["a"]),
    (range(3), "range(0, 3)"),
    (fractions.Fraction(1, 3), "1/3"),
    (1 + 2j, "(1+2j)"),
    (ipaddress.ip_address("10.0.0.1"), "10.0.0.1"),
    (ValueError("no"), "ValueError: no"),
    (re.compile("a"), "re.compile('a')"),
    (Line, f"<type {__name__}.Line>"),
    (json.dumps, "<function json.dumps>"),
    (json, "<module json>"),
]


@pytest.mark.parametrize(("value", "expected"), FAITHFUL, ids=lambda value: type(value).__name__)
def test_values_are_shown_faithfully(value: object, expected: object) -> None:
    encoded = encode(value)
    assert strict(encoded.text) == expected
    assert not encoded.cut
    assert not encoded.redacted
    # Inside a container of which the fast path takes the rest.
    assert shown({"value": value})["value"] == expected
    assert shown([value], redact=Redaction()) == [expected]


def test_a_text_like_sequence_is_a_text() -> None:
    assert shown(collections.UserString("ab")) == "ab"


def test_order_of_sets_and_addresses_do_not_show() -> None:
    class Client:
        pass

    assert shown(Client()) == f"<{__name__}.test_order_of_sets_and_addresses_do_not_show.<locals>.Client>"
    assert shown(threading.Lock()) == "<unlocked _thread.lock>"
    assert "0x" not in encode([Client(), threading.Event(), unittest.mock.MagicMock(), httpx.Client, object()]).text
    assert encode({"b", "a", 3}).text == encode({3, "a", "b"}).text


# --- hostile


class Hostile:
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError

    __eq__ = __hash__ = __iter__ = __len__ = __bool__ = __repr__ = __str__ = _raise  # type: ignore[assignment]


class Liar:
    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        raise RuntimeError

    def __repr__(self) -> str:
        return 3  # type: ignore[return-value] # pyright: ignore


class BadMapping(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        raise OSError

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


class BadDict(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError

    __iter__ = __len__ = items  # type: ignore[assignment]


class Exiting:
    def __repr__(self) -> str:
        raise GeneratorExit


class Metaclass(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(name)


def make_strange() -> object:
    class Strange(metaclass=Metaclass):
        pass

    return Strange()


@pytest.mark.parametrize("kind", [Hostile, Liar, BadMapping, Exiting, make_strange, unittest.mock.MagicMock])
def test_objects_that_raise_are_shown_as_unreadable(kind: Callable[[], object]) -> None:
    for value in (kind(), [kind()], {"a": kind()}, {"rows": [{"a": kind(), "b": 1}]}):
        text = encode(value, redact=Redaction()).text
        strict(text)
    assert shown({"rows": [{"a": kind(), "b": 1}]})["rows"][0]["b"] == 1
    assert "1" in encode({1: kind(), "b": 1}).text


def test_a_subclass_cannot_interfere() -> None:
    assert shown(BadDict(a=1)) == {"a": 1}
    broken = object.__new__(Line)
    assert shown(broken) == {"item": "<unset>", "price": "<unset>", "_note": "kept"}


def test_iterators_are_never_consumed() -> None:
    numbers = iter([1, 2, 3])
    values = (number for number in range(3))
    coroutine = asyncio.sleep(0)
    assert encode([numbers, values, coroutine, zip([1], [2], strict=True)]).text.count("<") >= 3
    coroutine.close()
    assert list(numbers) == [1, 2, 3]
    assert list(values) == [0, 1, 2]


def test_cycles_are_marked() -> None:
    row: dict[str, Any] = {"n": 1}
    row["self"] = row
    rows: list[Any] = [row]
    rows.append(rows)
    encoded = encode(rows)
    assert strict(encoded.text) == [{"n": 1, "self": "[cycle]"}, "[cycle]"]
    assert encoded.cut
    twice = [1]
    assert shown([twice, twice]) == [[1], [1]]


def test_wide_sharing_takes_bounded_time() -> None:
    value: Any = ["x"]
    for _ in range(60):
        value = [value, value]
    strict(encode(value).text)
    assert arguments_hash({"value": value}) is None


@pytest.mark.parametrize("levels", [100, 1000, 100_000])
def test_depth_is_cut(levels: int) -> None:
    value: dict[str, list[Any]] = {}
    for _ in range(levels):
        value = {"a": [value]}
    encoded = encode(value)
    assert encoded.cut
    assert "too deep" in encoded.text
    strict(encoded.text)
    while value:  # or Python itself overflows its stack when it lets go
        value = value.pop("a").pop()


# --- cut


def test_a_long_text_is_cut_and_its_size_kept() -> None:
    encoded = encode("é" * 100_000, limit_bytes=1000)
    assert encoded.cut
    assert encoded.original_bytes == 200_002
    assert len(encoded.text.encode()) <= 1000
    assert re.fullmatch("é+…\\[\\+[0-9]+ characters\\]", strict(encoded.text))


def test_containers_are_cut_evenly_and_keep_both_ends() -> None:
    rows = [{"id": number, "text": "x" * 50} for number in range(1000)]
    encoded = encode(rows, limit_bytes=10_000)
    assert encoded.cut
    assert encoded.original_bytes == len(orjson.dumps(rows))
    kept = strict(encoded.text)
    assert kept[0] == rows[0]
    assert kept[-1] == rows[-1]
    assert any(re.fullmatch(r"\[\+\d+ items\]", row) for row in kept if isinstance(row, str))
    wide = encode({str(number): number for number in range(100_000)}, limit_bytes=10_000)
    assert strict(wide.text)["…"].endswith(" keys]")
    assert 0.5 < wide.original_bytes / 1_277_781 < 1.5


@pytest.mark.parametrize("limit", [0, 1, 7, 20, 100])
def test_the_smallest_limits(limit: int) -> None:
    for value in ("x" * 1000, list(range(1000)), {"a" * 100: {"b" * 100: "c" * 1000}}, 10**300):
        encoded = encode(value, limit_bytes=limit)
        strict(encoded.text)
        assert len(encoded.text) <= max(limit, 7)
        assert encoded.cut


@pytest.mark.parametrize(
    "make",
    [
        lambda: "x" * 50_000_000,
        lambda: list(range(3_000_000)),
        lambda: {number: {number: number} for number in range(300_000)},
        lambda: [[[list(range(40)) for _ in range(40)] for _ in range(40)] for _ in range(5)],
        lambda: numpy.zeros((3000, 3000)),
        lambda: b"\xff" * 50_000_000,
        lambda: "1 " * 5_000_000,
        lambda: [decimal.Decimal(1)] * 1_000_000,
    ],
)
def test_huge_values_take_bounded_time(make: Callable[[], object]) -> None:
    value = make()
    start = time.process_time()
    encoded = encode(value, redact=Redaction())
    # A hundredth of this on an idle machine.
    assert time.process_time() - start < 5
    strict(encoded.text)
    assert encoded.cut
    assert len(encoded.text.encode()) <= 64 << 10
    assert encoded.original_bytes > 64 << 10


def test_an_integer_without_end() -> None:
    limit = sys.get_int_max_str_digits()
    assert shown(-(10**6000)).startswith("<int of 19")
    assert sys.get_int_max_str_digits() == limit


def test_a_dict_that_another_thread_changes() -> None:
    changing: dict[int, int] = dict.fromkeys(range(1000), 0)
    stop = threading.Event()

    def change() -> None:
        number = 1000
        while not stop.is_set():
            changing[number] = number
            changing.pop(number - 1000, None)
            number += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(50):
            strict(encode(changing).text)
            strict(encode([changing, {1: 2}]).text)
    finally:
        stop.set()
        thread.join()


# --- redaction


def test_redaction_reaches_keys_values_and_objects() -> None:
    value = {
        "bob@example.com": Line("alice@example.com", decimal.Decimal(1)),
        "carol@example.com": [{"deep": ("x", b"dave@example.com")}],
        "number": 4111111111111111,
    }
    encoded = encode(value, redact=Redaction())
    assert encoded.redacted
    assert "@" not in encoded.text
    assert strict(encoded.text) == {
        HIDDEN: {"item": HIDDEN, "price": "1", "_note": "kept"},
        f"{HIDDEN} (2)": [{"deep": ["x", HIDDEN]}],
        "number": 4111111111111111,
    }


def test_a_secret_across_a_cut_is_still_hidden() -> None:
    text = "x " * 495 + "bob@example.com " + "y" * 100_000
    for limit in range(990, 1020, 3):
        encoded = encode(text, limit_bytes=limit, redact=Redaction())
        assert "bob" not in encoded.text


def test_escapes_do_not_hide_secrets() -> None:
    assert encode(["call\n415-555-2671"], redact=Redaction()).redacted
    assert encode({"a": "call\t415-555-2671"}, redact=Redaction()).redacted
    assert not encode([4155552671, 41555.52671], redact=Redaction()).redacted


def test_a_custom_redaction_sees_every_text() -> None:
    seen: list[str] = []

    def watch(text: str) -> str:
        seen.append(text)
        return text.replace("rice", "***")

    assert shown({"item": "rice", "n": [{"x": "rices"}]}, redact=Redaction(function=watch)) == {
        "item": "***",
        "n": [{"x": "***s"}],
    }
    assert set(seen) == {"item", "rice", "n", "x", "rices"}


def test_clean_text() -> None:
    assert clean_text("plain") == "plain"
    assert clean_text("a\ud800b") == "a\\ud800b"
    assert clean_text(Text("sub")) == "sub"
    assert clean_text({"a": 1}) == '{"a":1}'
    assert clean_text("to bob@example.com", redact=Redaction()) == f"to {HIDDEN}"
    assert clean_text("x" * 1000, limit_bytes=400) == "x" * 100 + "…[+900 characters]"


# --- hashes


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTTRACE_HASH_KEY", "test")


def test_equal_arguments_have_equal_hashes() -> None:
    same: list[dict[str, object]] = [
        {"to": "bob@example.com", "n": 1, "tags": {"a", "b"}},
        {"n": 1.0, "to": " bob@example.com ", "tags": {"b", "a"}},
        {"tags": frozenset(["a", "b"]), "n": Level(3) - 2, "to": Text("bob@example.com")},
    ]
    assert len({arguments_hash(each) for each in same}) == 1
    # Composed and decomposed.
    assert arguments_hash({"a": "\u00e9"}) == arguments_hash({"a": "e\u0301"})
    assert arguments_hash({"a": 1, "key": 2}, without="key") == arguments_hash({"a": 1, "key": 3}, without="key")


def test_different_arguments_have_different_hashes() -> None:
    different: list[dict[str, Any]] = [
        {"a": value}
        for value in ("1", 1, True, None, [1], [[1]], {"1": 1}, 1.5, math.nan, math.inf, 10**30, 10**30 + 1, "\ud800")
    ]
    different.extend({"a": value} for value in ("x" * 100_000, "x" * 100_001, 2**53, 2**53 + 1))
    different.append({"b": 1})
    assert len({arguments_hash(each) for each in different}) == len(different)


def test_long_bytes_and_texts_that_differ_at_the_end_have_different_hashes() -> None:
    for value in (b"\xff" * 2_000_000, bytearray(2_000_000), "a" * 2_000_000, "日" * 1_100_000):
        end: Any = "z" if isinstance(value, str) else b"z"
        assert arguments_hash({"a": value}) == arguments_hash({"a": value[:]})
        assert arguments_hash({"a": value}) != arguments_hash({"a": value[:-1] + end})


def test_the_hash_is_keyed(monkeypatch: pytest.MonkeyPatch) -> None:
    first = arguments_hash({"a": 1})
    monkeypatch.setenv("AGENTTRACE_HASH_KEY", "other")
    assert arguments_hash({"a": 1}) != first


# --- open input

_SCALARS = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats()
    | strategies.text(strategies.characters())
    | strategies.binary()
    | strategies.decimals()
    | strategies.datetimes()
    | strategies.timedeltas()
    | strategies.uuids()
    | strategies.complex_numbers()
    | strategies.builds(Exiting)
    | strategies.builds(object)
    | strategies.from_regex(r"[\w.]+@[\w.]+|\+?[\d ()-]{6,20}|sk-\w+|Bearer .+", fullmatch=True)
)
_KEYS = strategies.text(strategies.characters()) | strategies.integers() | strategies.none() | strategies.floats()
_VALUES = strategies.recursive(
    _SCALARS,
    lambda inner: (
        strategies.lists(inner)
        | strategies.dictionaries(_KEYS, inner)
        | strategies.tuples(inner, inner)
        | strategies.sets(strategies.integers() | strategies.text())
        | strategies.builds(Line, strategies.text(), inner)
    ),
    max_leaves=30,
)


@hypothesis.given(_VALUES, strategies.sampled_from([None, Redaction(), Redaction(["a+"])]), strategies.integers(0, 300))
def test_any_value_becomes_strict_json_within_the_limit(value: Any, redact: Redaction | None, limit: int) -> None:
    whole = encode(value, redact=redact)
    strict(whole.text)
    small = encode(value, limit_bytes=limit, redact=redact)
    strict(small.text)
    assert len(small.text.encode()) <= max(limit, 7)
    arguments_hash({"value": value})


# Some sixteen digits are a card number.
_HARMLESS = strategies.text().filter(lambda text: redact_defaults(text) == text)
_PLAIN = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | _HARMLESS,
    lambda inner: strategies.lists(inner) | strategies.dictionaries(_HARMLESS, inner),
    max_leaves=30,
)


@hypothesis.given(_PLAIN)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    encoded = encode(value)
    assert strict(encoded.text) == value
    # The walker gives what the fast path gives.
    assert strict(encode(value, redact=Redaction(function=lambda text: text)).text) == value
    assert encoded == Encoded(encoded.text, len(encoded.text.encode()), cut=False, redacted=False)
