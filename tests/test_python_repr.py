"""Reprs of Python values, as some producers write them, become JSON; any other text is none."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttrace.python_repr import json_of_repr

_TEXTS = st.text(st.characters(codec="utf-8"))
_LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | _TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{'a': 1, \"b\": [None, True, 1.5, -3]}", {"a": 1, "b": [None, True, 1.5, -3]}),
        ("('it\\'s', \"a \\\"b\\\"\\n\\x41\\u00e9\")", ["it's", 'a "b"\nAé']),
        ("{1, 2}", [1, 2]),
        ("{1: 'a'}", {"1": "a"}),
        ("Call(name='x', status=<Status.OK: 'ok'>, at=datetime.date(2026, 1, 2))",
         {"name": "x", "status": "<Status.OK: 'ok'>", "at": [2026, 1, 2]}),
        ("{'at': <object at 0x7f>, 'n': nan}", {"at": "<object at 0x7f>", "n": None}),
        ("'\\ud800'", "�"),
        # Beyond what a float can hold.
        ("[" + "9" * 400 + ", 1e999]", [int("9" * 400), None]),
    ],
)  # fmt: skip
def test_a_literal_becomes_its_value(text: str, expected: object) -> None:
    found = json_of_repr(text)
    assert found is not None
    assert json.loads(found) == expected


@pytest.mark.parametrize(
    "text",
    ["", "hello", "Refunded 30 EUR.", "Refund(ed", "[1 2]", "{'a' 1}", "{'a': }", "[", "07", "<a>", "[" * 99 + "]" * 99,
     "'" + "x" * 200_000 + "'"],
)  # fmt: skip
def test_any_other_text_is_none(text: str) -> None:
    assert json_of_repr(text) is None


@given(_LITERALS)
def test_what_python_writes_is_read_back(value: object) -> None:
    found = json_of_repr(repr(value))
    assert found is not None
    assert json.loads(found) == value


@given(st.text() | st.text("[](){}'\",:=\\xuab1 <>."))
def test_no_text_makes_it_fail(text: str) -> None:
    found = json_of_repr(text)
    assert found is None or json.loads(found) is not NotImplemented
