"""Message dialects and value envelopes, each as its producer writes it."""

import json
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttrace import dialects, envelopes, sql_functions

CALL = {"type": "tool_call", "id": "k7", "name": "fx", "arguments": {"to": "SEK"}}
ARGUMENTS = '{"to": "SEK"}'

# name: (message, parts of the message that it must become)
MESSAGES: dict[str, tuple[Any, list[Any]]] = {
    "otel": ({"parts": [{"type": "text", "content": "hi"}]}, [{"type": "text", "content": "hi"}]),
    "otel arguments as text": ({"parts": [CALL | {"arguments": ARGUMENTS}]}, [CALL]),
    "openai": (
        {
            "content": None,
            "tool_calls": [{"id": "k7", "type": "function", "function": {"name": "fx", "arguments": ARGUMENTS}}],
        },
        [CALL],
    ),
    "openai calls as text": (
        {"tool_calls": json.dumps([{"id": "k7", "function": {"name": "fx", "arguments": ARGUMENTS}}])},
        [CALL],
    ),
    "anthropic": (
        {
            "content": [
                {"type": "text", "text": "Now."},
                {"type": "tool_use", "id": "k7", "name": "fx", "input": {"to": "SEK"}},
            ]
        },
        [{"type": "text", "content": "Now."}, CALL],
    ),
    "vercel 4": (
        {"content": [{"type": "tool-call", "toolCallId": "k7", "toolName": "fx", "args": {"to": "SEK"}}]},
        [CALL],
    ),
    "vercel 5": (
        {"content": [{"type": "tool-call", "toolCallId": "k7", "toolName": "fx", "input": {"to": "SEK"}}]},
        [CALL],
    ),
    "bedrock": ({"content": [{"toolUse": {"toolUseId": "k7", "name": "fx", "input": {"to": "SEK"}}}]}, [CALL]),
    "gemini": ({"parts": [{"functionCall": {"id": "k7", "name": "fx", "args": {"to": "SEK"}}}]}, [CALL]),
    "langchain": (
        {
            "lc": 1,
            "kwargs": {"type": "ai", "content": "", "tool_calls": [{"name": "fx", "args": {"to": "SEK"}, "id": "k7"}]},
        },
        [CALL],
    ),
    "responses api": ({"type": "function_call", "call_id": "k7", "name": "fx", "arguments": ARGUMENTS}, [CALL]),
    "anthropic's blocks as a text": (
        {"content": json.dumps([{"type": "tool_use", "id": "k7", "name": "fx", "input": {"to": "SEK"}}])},
        [CALL],
    ),
    "a user's own json": (
        {"content": '[{"type": "tool_list", "name": "fx"}]'},
        [{"type": "text", "content": '[{"type": "tool_list", "name": "fx"}]'}],
    ),
    "hidden text beside a call": (
        {"content": "<elided>", "tool_calls": [{"id": "k7", "function": {"name": "fx", "arguments": ARGUMENTS}}]},
        [CALL],
    ),
    "gemini content": (
        {
            "content": {
                "role": "model",
                "parts": [{"function_call": {"id": "k7", "name": "fx", "args": {"to": "SEK"}}, "text": None}],
            }
        },
        [CALL],
    ),
    "content beside an empty list of blocks": ({"content": "hi", "blocks": []}, [{"type": "text", "content": "hi"}]),
    "gemini thought": ({"parts": [{"text": "hm", "thought": True}]}, [{"type": "reasoning", "content": "hm"}]),
    "nothing": ({}, []),
    "an image": (
        {"parts": [{"type": "image", "url": "x"}]},
        [{"type": "other", "content": {"type": "image", "url": "x"}}],
    ),
}

RESULTS: dict[str, tuple[Any, str | None, Any, bool | None]] = {
    "otel": (
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "k7", "response": "11.2"}]},
        "k7",
        "11.2",
        None,
    ),
    "otel result as object": (
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "k7", "result": {"rate": 1}}]},
        "k7",
        {"rate": 1},
        None,
    ),
    "openai": ({"role": "tool", "tool_call_id": "k7", "content": '{"rate": 1}'}, "k7", {"rate": 1}, None),
    "anthropic": (
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "k7",
                    "content": [{"type": "text", "text": "no"}],
                    "is_error": True,
                }
            ],
        },
        "k7",
        "no",
        True,
    ),
    "bedrock": (
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "k7", "status": "error", "content": [{"text": "no"}]}}],
        },
        "k7",
        "no",
        True,
    ),
    "vercel 5": (
        {
            "role": "tool",
            "content": [{"type": "tool-result", "toolCallId": "k7", "output": {"type": "error-text", "value": "no"}}],
        },
        "k7",
        "no",
        True,
    ),
    "gemini": (
        {"role": "user", "parts": [{"functionResponse": {"id": "k7", "name": "fx", "response": {"rate": 1}}}]},
        "k7",
        {"rate": 1},
        None,
    ),
    "langchain": (
        {"type": "tool", "data": {"content": "no", "tool_call_id": "k7", "status": "error"}},
        "k7",
        "no",
        True,
    ),
    "no id": ({"role": "tool", "content": "11.2"}, None, "11.2", None),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_of_all_dialects_become_one_form(name: str) -> None:
    message, parts = MESSAGES[name]
    (found,) = json.loads(dialects.messages(json.dumps([{"role": "assistant", **message}])) or "[]")
    assert found["role"] == "assistant"
    assert found["parts"] == parts


@pytest.mark.parametrize("marker", ["__REDACTED__", "<elided>", "<REDACTED>"])
def test_messages_of_which_all_was_hidden_were_not_captured(marker: str) -> None:
    hidden = {"role": "user", "content": marker}
    assert dialects.messages(json.dumps([hidden, hidden])) is None
    assert dialects.messages(json.dumps([{"role": "assistant", "content": ""}])) is not None


@pytest.mark.parametrize("name", RESULTS)
def test_results_of_all_dialects_become_one_form(name: str) -> None:
    message, call_id, response, failed = RESULTS[name]
    (found,) = json.loads(dialects.messages(json.dumps([message])) or "[]")
    (part,) = found["parts"]
    assert (part["type"], part["id"], part["response"]) == ("tool_call_response", call_id, response)
    assert part.get("is_error") == failed


@pytest.mark.parametrize(
    "text", ["7", "null", '"words"', "[]", "{", "[1, null]", json.dumps(json.dumps(json.dumps("[]")))]
)
def test_what_is_no_list_of_messages_is_none(text: str) -> None:
    assert dialects.messages(text) is None


def test_messages_may_be_one_message_or_stand_in_an_object() -> None:
    one = [{"role": "user", "name": None, "parts": [{"type": "text", "content": "hi"}]}]
    for value in ({"role": "user", "content": "hi"}, {"messages": [{"role": "user", "content": "hi"}]}):
        assert json.loads(dialects.messages(json.dumps(json.dumps(value))) or "") == one


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"args": [], "kwargs": {"a": 1}}, {"a": 1}),
        ({"args": [7], "kwargs": {}}, {"_args": [7]}),
        ({"args": [], "kwargs": {"a": 1}, "sanitize_inputs_outputs": True}, {"a": 1}),
        # A tool may itself have parameters of these names.
        ({"args": "x", "kwargs": "y"}, {"args": "x", "kwargs": "y"}),
        ({"args": [], "kwargs": {}, "city": "Lima"}, {"args": [], "kwargs": {}, "city": "Lima"}),
        ({"input_str": "{'a': 1}", "inputs": {"a": 1}, "tags": []}, {"a": 1}),
    ],
)
def test_arguments_lose_the_envelope(given: Any, expected: Any) -> None:
    assert json.loads(envelopes.call_arguments(json.dumps(given))) == expected


@pytest.mark.parametrize(
    ("given", "expected", "failed"),
    [
        ({"type": "tool", "data": {"content": '{"a": 1}', "status": "success"}}, {"a": 1}, None),
        ({"lc": 1, "kwargs": {"content": "no", "status": "error"}}, "no", True),
        ({"tool_name": "t", "raw_output": {"a": 1}, "blocks": [], "is_error": False}, {"a": 1}, None),
        ({"tool_name": "t", "raw_output": None, "blocks": [{"text": "no"}], "is_error": True}, "no", True),
        ({"content": [{"type": "text", "text": '{"a": 1}'}], "isError": False}, {"a": 1}, None),
        (
            {"content": [{"type": "image", "data": "x"}], "isError": True},
            {"content": [{"type": "image", "data": "x"}], "isError": True},
            True,
        ),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab", None),
        ([1, 2], [1, 2], None),
        ({"content": "mine"}, {"content": "mine"}, None),
    ],
)
def test_results_lose_the_envelope(given: Any, expected: Any, failed: bool | None) -> None:
    assert json.loads(envelopes.result_value(json.dumps(given)) or "") == expected
    assert envelopes.result_failed(json.dumps(given)) is failed


@pytest.mark.parametrize(
    ("inner", "outer", "same"),
    [
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({}, {"a": 1}, True),
        ({"a": 1}, {}, False),
        ({"a": 2}, {"a": 1}, False),
        ({"b": 1}, {"a": 1}, False),
        ("Lima", {"city": "Lima"}, True),
        ({"city": "Lima"}, "Cusco", False),
    ],
)
def test_recordings_of_one_call_hold_one_another(inner: Any, outer: Any, same: bool) -> None:
    assert envelopes.same_arguments(json.dumps(inner), json.dumps(outer)) is same


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"m.10.x": "ten", "m.9.x": "nine"}, [{"x": "nine"}, {"x": "ten"}]),
        ({"m.0": "a", "m.0.x": 1}, ["a"]),
        ({"other.0.x": 1, "mm.0": 1}, None),
        ({"m.a.b": 1}, {"a": {"b": 1}}),
        ({"m." + "9" * 5000: 1}, {"9" * 5000: 1}),
        ({"m." + "0." * 5000 + "x": 1}, None),
    ],
)
def test_flattened_attributes_nest_again(attributes: dict[str, Any], expected: Any) -> None:
    found = envelopes.unflatten(json.dumps(attributes), "m")
    assert (json.loads(found) if found else None) == expected


def test_canonical_arguments_forget_order_and_spelling() -> None:
    one, two = ('{"b": 1.0, "a": [2, {"d": 1, "c": 2}]}', '{"a":[2.0,{"c":2,"d":1}],"b":1}')
    assert envelopes.canonical_arguments(one) == envelopes.canonical_arguments(two)
    assert envelopes.canonical_arguments('{"n": 12345678901234567891}') != envelopes.canonical_arguments(
        '{"n": 12345678901234567890}'
    )


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["role", "tool", "{}", "[", '"\\ud800"', "1e400"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "parts",
                    "content",
                    "type",
                    "id",
                    "name",
                    "arguments",
                    "tool_calls",
                    "function",
                    "message",
                    "kwargs",
                    "data",
                    "output",
                    "text",
                    "result",
                    "status",
                    "lc",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON.map(json.dumps) | st.text(max_size=30))
def test_no_text_makes_a_function_fail_in_the_database(text: str) -> None:
    con = duckdb.connect()
    sql_functions.register(con)
    sql_functions.register(con)
    names = (
        "json_of_text",
        "json_of_repr",
        "messages",
        "repr_messages",
        "tool_definitions",
        "call_arguments",
        "result_value",
        "captured",
        "canonical_arguments",
        "result_failed",
    )
    calls = ", ".join(f"{name}($text)" for name in names)
    found = con.execute(
        f"SELECT {calls}, unflatten($text, 'a'), same_arguments($text, $text)", {"text": text}
    ).fetchone()
    assert found is not None
    # What comes out as JSON is JSON to the database as well.
    con.execute("SELECT json_type(json_of_text($text)), json_type(messages($text))", {"text": text}).fetchall()


def test_null_gives_null_and_too_deep_is_not_captured() -> None:
    con = duckdb.connect()
    sql_functions.register(con)
    deep = '[{"role": "user", "parts": [{"type": "x", "y": ' + "[" * 990 + "]" * 990 + "}]}]"
    found = con.execute(
        "SELECT messages(NULL), unflatten(NULL, 'a'), same_arguments('{}', NULL), messages(?)", [deep]
    ).fetchall()
    assert found == [(None, None, None, None)]
