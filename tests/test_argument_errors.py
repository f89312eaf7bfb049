"""Arguments against offered schemas, which are hostile, and configured ones."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttrace.config import Settings
from agenttrace.evaluators import argument_errors
from agenttrace.evaluators.run import evaluate

ORDER = {
    "type": "object",
    "properties": {
        "item": {"type": "string"},
        "qty": {"type": "integer", "minimum": 1},
        "speed": {"enum": ["slow", "fast"]},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]},
        },
        "note": {"type": ["string", "null"]},
    },
    "required": ["item", "qty"],
    "additionalProperties": False,
}


def check(schema: Any, arguments: Any) -> tuple[str, str] | None:
    return argument_errors.check(json.dumps(schema), json.dumps(arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        {"item": "rice", "qty": 40},
        {"item": "rice", "qty": 40.0},
        {"item": "rice", "qty": 40, "note": None, "speed": "fast", "lines": [{"sku": "a"}]},
        {"item": "[REDACTED]", "qty": "[REDACTED]"},
        "a recorder's short form",
        None,
    ],
)
def test_right_arguments(arguments: Any) -> None:
    assert check(ORDER, arguments) is None


@pytest.mark.parametrize(
    ("arguments", "rule", "message"),
    [
        ({"item": "rice"}, "required", "qty is missing"),
        ({}, "required", "item, qty is missing"),
        ({"item": "rice", "qty": "40"}, "type", 'qty is "40", expected integer'),
        ({"item": "rice", "qty": 0}, "minimum", "qty is 0, which breaks minimum of the schema"),
        ({"item": "rice", "qty": 1, "colour": "red"}, "additionalProperties", "colour is not in the schema"),
        ({"item": "rice", "qty": 1, "speed": "warp"}, "enum", 'speed is "warp", expected one of ["slow", "fast"]'),
        ({"item": "rice", "qty": 1, "lines": [{}]}, "required", "lines[0].sku is missing"),
        ({"item": "rice", "qty": 1, "note": 5}, "type", "note is 5, expected string or null"),
        ('{"item": "rice", ', "type", "the arguments are no valid JSON"),
    ],
)
def test_wrong_arguments(arguments: Any, rule: str, message: str) -> None:
    assert check(ORDER, arguments) == (rule, message)


def test_three_faults_are_told_and_the_rest_counted() -> None:
    schema = {"properties": {key: {"type": "string"} for key in "abcde"}}
    error = check(schema, dict.fromkeys("abcde", 1))
    assert error is not None
    assert error[1].endswith(", and 2 more")


def test_other_dialects() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {"item": {"type": "STRING", "nullable": True}, "qty": {"type": "INTEGER"}},
    }
    assert check(schema, {"item": None, "qty": 1}) is None
    assert check(schema, {"item": "rice", "qty": "1"}) == ("type", 'qty is "1", expected integer')


def doubling(depth: int) -> dict[str, Any]:
    """A schema whose check doubles with each definition."""
    definitions: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(depth)
    }
    return {"$defs": definitions | {f"d{depth}": {"type": "string"}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "http://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"$ref": "#/$defs/missing"},
        doubling(40),
        {"properties": {"a": {"pattern": "(a+)+$"}}},
        {"patternProperties": {"(a+)+$": {"type": "string"}}, "additionalProperties": False},
        {"properties": [1], "required": 5},
        {"type": "nonsense"},
        {"type": 5},
        {"enum": 5},
        {"items": 5},
        [],
        None,
        "x",
        {"not": {"$ref": "#"}},
        {"$id": "http://example.com/", "$ref": "other.json"},
        json.loads('{"properties":{"a":' * 60 + "{}" + "}}" * 60),
        {"x": "y" * 200_000},
    ],
)
def test_a_hostile_schema_says_nothing_and_ends(schema: Any) -> None:
    assert check(schema, {"a": "a" * 60 + "!"}) is None


keys = st.sampled_from(["type", "properties", "items", "$ref", "anyOf", "enum", "a"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


@given(json_values, json_values)
def test_any_schema_and_arguments(schema: Any, arguments: Any) -> None:
    check(schema, arguments)


def test_the_relation_has_its_columns() -> None:
    offered = json.dumps([{"name": "place_order", "parameters": ORDER}, {"name": "plain"}, "odd"])
    requested = json.dumps(
        [
            {"id": "c1", "name": "place_order", "arguments": {"item": "rice", "qty": 1}},
            {"id": "c2", "name": "place_order", "arguments": {"item": "rice", "qty": "1"}},
            {"id": "c3", "name": "plain", "arguments": {"x": 1}},
            {"id": "c4", "name": "unknown", "arguments": {}},
            {"id": "c5", "name": "place_order", "arguments": None},
        ]
    )
    table = argument_errors.table(
        [("r1", "t1", "m1", "offered", offered, requested), ("r2", "t2", "m2", "offered", "{", "[")]
    )
    assert table.schema == argument_errors.SCHEMA
    assert [(row["position"], row["tool_call_id"], row["source"], row["rule"]) for row in table.to_pylist()] == [
        (2, "c2", "offered", "type")
    ]


def test_configured_schemas_are_tools_like_offered_ones() -> None:
    tools = argument_errors.definitions({"place_order": ORDER, "since": {"const": date(2026, 1, 1)}})
    calls = json.dumps([{"id": "c1", "name": "place_order", "arguments": {"item": "rice"}}])
    (row,) = argument_errors.table([("r1", "t1", "s1", "configured", tools, calls)]).to_pylist()
    assert (row["span_id"], row["position"], row["source"]) == ("s1", 1, "configured")
    assert (row["tool_name"], row["rule"], row["message"]) == ("place_order", "required", "qty is missing")


def test_configured_schemas_are_for_executed_calls_of_their_tools(fill_store: Callable[..., Path]) -> None:
    wrong = {"kind": "tool", "arguments": '{"item": "rice"}', "effect": "yes"}
    store = fill_store(
        trajectories=[{"trajectory_id": "r1", "complete": True}],
        steps=[
            wrong | {"trajectory_id": "r1", "span_id": "s1", "tool_name": "place_order"},
            wrong | {"trajectory_id": "r1", "span_id": "s2", "tool_name": "place_order", "tool_ran": False},
            wrong | {"trajectory_id": "r1", "span_id": "s3", "tool_name": "check_stock"},
        ],
    )
    settings = Settings(evaluators={"tool_arguments": {"schemas": {"place_order": ORDER}}})
    (finding,) = evaluate(store, settings, only=["tool_arguments"]).findings
    assert (finding.span_id, finding.kind) == ("s1", "schema")
    assert finding.message == "place_order was called with arguments that break its configured schema: qty is missing"
