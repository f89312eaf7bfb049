"""When two tool calls are equal: modes, paths, tolerance, and what hidden values leave open."""

from typing import Any

import pytest

from agenttrace.evaluators.sequence_calls import Call, Equality, Mode


def equal(mode: Mode, run: Any, reference: Any, tolerance: float = 0.0) -> bool | None:
    return Equality({"*": mode}, tolerance)(Call("place", run), Call("place", reference))


@pytest.mark.parametrize(
    ("mode", "run", "reference", "expected"),
    [
        ("exact", {"a": 1, "b": [1, {"c": None}]}, {"b": [1.0, {"c": None}], "a": 1.0}, True),
        ("exact", {"a": True}, {"a": 1}, False),
        ("exact", {"a": "1"}, {"a": 1}, False),
        ("exact", {"a": None}, {}, False),
        ("exact", {"a": [1, 2]}, {"a": [2, 1]}, False),
        ("exact", {"a": [1]}, {"a": [1, 2]}, False),
        ("exact", {"a": 10**30}, {"a": 1e30}, False),
        ("exact", {"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
        ("ignore", {"a": 1}, {"a": 2}, True),
        ("ignore", None, {"a": 2}, True),
        ("subset", {"a": 1}, {"a": 1, "b": 2}, True),
        ("subset", {"a": 1, "b": 2}, {"a": 1}, False),
        ("subset", {}, {"a": 1}, True),
        ("superset", {"a": 1, "b": 2}, {"a": 1}, True),
        ("superset", {"a": 1}, {"a": 1, "b": 2}, False),
        # Only the arguments themselves may be more or fewer; a nested value is compared whole.
        ("superset", {"a": {"x": 1, "y": 2}}, {"a": {"x": 1}}, False),
        (["a"], {"a": 1, "b": 2}, {"a": 1, "b": 3}, True),
        (["a", "b"], {"a": 1, "b": 2}, {"a": 1, "b": 3}, False),
        (["time.start"], {"time": {"start": 1, "end": 2}}, {"time": {"start": 1, "end": 3}}, True),
        (["items.1.sku"], {"items": [{"sku": "x"}, {"sku": "y"}]}, {"items": [{}, {"sku": "y"}]}, True),
        (["items.1"], {"items": ["x", "y"]}, {"items": ["z", "y"]}, True),
        (["items.2.sku"], {"items": [1]}, {"items": [{"sku": 1}, 2, {"sku": 1}]}, False),
        (["a.b"], {"a.b": 1}, {"a.b": 2, "a": {"b": 1}}, False),
        (["x"], {"a": 1}, {"b": 2}, True),
        (["x"], {"x": None}, {"b": 2}, False),
        (["a.b"], {"a": 7}, {"a": 8}, True),
    ],
)
def test_arguments(mode: Mode, run: Any, reference: Any, expected: bool) -> None:
    assert equal(mode, run, reference) is expected


@pytest.mark.parametrize("mode", ["exact", "ignore", "subset", "superset", ["a"]])
def test_a_bare_name_stands_for_any_arguments(mode: Mode) -> None:
    assert equal(mode, {"a": 1}, None) is True
    assert equal(mode, None, None) is True


@pytest.mark.parametrize(
    ("mode", "run", "reference", "expected"),
    [
        ("exact", None, {"a": 1}, None),
        ("exact", {"to": "[REDACTED]"}, {"to": "ann@example.org"}, None),
        # Two values may hide behind one mark.
        ("exact", {"to": "[REDACTED]"}, {"to": "[REDACTED]"}, None),
        ("exact", {"to": "[REDACTED]", "n": 1}, {"to": "ann@example.org", "n": 2}, False),
        ("exact", {"card": "[REDACTED]"}, {"card": 4111}, None),
        ("subset", {"to": "[REDACTED]", "cc": "x"}, {"to": "ann@example.org"}, False),
        ("superset", {"to": "ann", "note": "<REDACTED>"}, {"to": "ann"}, True),
        (["n"], {"to": "[REDACTED]", "n": 1}, {"to": "ann", "n": 1}, True),
        (["to.name"], {"to": "__REDACTED__"}, {"to": {"name": "ann"}}, None),
        ("exact", {"text": "Dear…[+900 characters]"}, {"text": "Dear Ann"}, None),
        ("exact", {"ids": [1, "[+7 items]", 9]}, {"ids": [1, 2, 3, 9]}, None),
        ("exact", {"a": 1, "…": "[+3 keys]"}, {"a": 1, "b": 2}, None),
        ("exact", {"a": 1, "…": "[+3 keys]"}, {"a": 2, "b": 2}, False),
        ("superset", {"a": 1, "…": "[+3 keys]"}, {"a": 1}, True),
        ("superset", {"a": 1, "…": "[+3 keys]"}, {"b": 1}, None),
        ("subset", {"a": 1, "…": "[+3 keys]"}, {"a": 1, "b": 1}, None),
        (["b"], {"a": 1, "…": "[+3 keys]"}, {"b": 1}, None),
    ],
)
def test_hidden_arguments_leave_it_open_unless_others_decide(
    mode: Mode, run: Any, reference: Any, expected: Any
) -> None:
    assert equal(mode, run, reference) is expected


def test_tolerance_counts_in_decimals() -> None:
    assert equal("exact", {"price": 1.1}, {"price": 1.0}, 0.1) is True
    assert equal("exact", {"price": 1.11}, {"price": 1}, 0.1) is False
    assert equal("exact", {"price": 10**400}, {"price": 1.5}, 0.1) is False
    assert equal("exact", {"price": True}, {"price": 1}, 5) is False
    assert equal("exact", {"at": {"x": [1.04]}}, {"at": {"x": [1]}}, 0.05) is True


def test_modes_by_tool() -> None:
    equality = Equality({"place": ["item"], "*": "exact"})
    assert equality(Call("place", {"item": 1, "n": 2}), Call("place", {"item": 1})) is True
    assert equality(Call("check", {"item": 1, "n": 2}), Call("check", {"item": 1})) is False
    assert Equality({"place": "exact"})(Call("check", {"n": 2}), Call("check", {"n": 1})) is True
