"""The rebuild as a whole: incremental, independent of order, and safe against what traces may hold."""

import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from span_trees import (
    MS,
    START_NS,
    Forest,
    Json,
    Run,
    agent,
    answer,
    asked,
    call,
    chat,
    insert,
    make_log,
    make_row,
    open_memory,
    records,
    runs,
    span_rows,
    text,
    tool,
    user,
)

from agenttrace.config import Prices, Settings, ToolSettings
from agenttrace.rebuild import rebuild
from agenttrace.spans import LogRow, SpanRow

trees = Forest()


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    return trees.run(request.function.__name__)


def _tables(con: duckdb.DuckDBPyConnection) -> tuple[list[Json], list[Json]]:
    return (
        records(con, "SELECT * FROM steps ORDER BY trace_id, span_id"),
        records(con, "SELECT * EXCLUDE (last_arrival, revision) FROM trajectories ORDER BY trajectory_id"),
    )


def _shop(trace_id: str) -> list[SpanRow]:
    return span_rows(
        trace_id,
        agent(
            "restock",
            chat(
                reads=[user("order rice")],
                asks=[call("order", {"n": 1}, "a"), call("order", {"n": 2}, "b")],
                offers=["order"],
            ),
            tool("order", {"n": 2}, id="b", raises=("ReadTimeout", "x")),
            tool("order", {"n": 1}, tool("order", {"n": 1}), id="a", result="ok"),
            chat(reads=[user("order rice"), asked(call("order", {"n": 1}, "a")), answer("a", "ok")], says="Done."),
        ),
    )


def test_a_rebuild_touches_only_dirty_traces() -> None:
    con = open_memory()
    insert(con, _shop("1" * 32))
    assert rebuild(con) == 1
    con.execute("UPDATE steps SET name = 'kept'")
    con.execute("UPDATE trajectories SET agent_name = 'kept'")
    insert(con, _shop("2" * 32))
    assert rebuild(con) == 1
    assert rebuild(con) == 0
    kept = con.execute("SELECT trace_id, bool_and(name = 'kept') FROM steps GROUP BY ALL ORDER BY ALL").fetchall()
    assert kept == [("1" * 32, True), ("2" * 32, False)]
    assert con.execute("SELECT agent_name FROM trajectories ORDER BY trace_id").fetchall() == [("kept",), ("restock",)]


def test_late_children_join_their_trajectory() -> None:
    con, rows = open_memory(), _shop("1" * 32)
    for row in reversed(rows):
        insert(con, [row])
        rebuild(con)
    late = _tables(con)
    con = open_memory()
    insert(con, rows)
    rebuild(con)
    assert late == _tables(con)


def test_other_settings_rebuild_all_and_the_same_settings_nothing(tmp_path: Path) -> None:
    con = open_memory()
    insert(con, _shop("1" * 32))
    rebuild(con)
    own = Settings(tools=ToolSettings(read_only=["order"]))
    assert (rebuild(con), rebuild(con, settings=own), rebuild(con, settings=own)) == (0, 1, 0)
    assert con.execute(
        "SELECT DISTINCT mutability FROM steps WHERE tool_name = 'order' AND duplicate_of IS NULL"
    ).fetchall() == [("read_only",)]
    path = tmp_path / "prices.toml"
    priced = Settings(prices=Prices(path=path))
    for price in (1, 2):
        path.write_text(
            f'["*"]\ninput_usd_per_million_tokens = {price}\noutput_usd_per_million_tokens = 0\n', encoding="utf-8"
        )
        assert rebuild(con, settings=priced) == 1
        assert con.execute("SELECT cost_usd FROM trajectories").fetchall() == [(pytest.approx(price * 20e-6),)]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_and_threads_make_no_difference(threads: int, seed: int) -> None:
    rows = [row for n in range(40) for row in _shop(f"{n + 1:032x}")]
    con = open_memory()
    insert(con, rows)
    rebuild(con)
    expected = _tables(con)
    con = open_memory()
    con.execute(f"SET threads = {threads}")
    random.Random(seed).shuffle(rows)
    insert(con, rows)
    rebuild(con)
    assert _tables(con) == expected


HOSTILE = "'; DROP TABLE spans; -- \" \\ $value {x} %s \x1b[31m \u202e 💥"


@trees.of(
    agent(
        HOSTILE,
        chat(reads=[user(HOSTILE)], asks=[call(HOSTILE, {HOSTILE: HOSTILE}, HOSTILE)], says=HOSTILE, offers=[HOSTILE]),
        tool(HOSTILE, {HOSTILE: HOSTILE}, id=HOSTILE, raises=(HOSTILE, HOSTILE), result=HOSTILE),
        attributes={"gen_ai.conversation.id": HOSTILE},
    )
)
def test_text_is_data(run: Run) -> None:
    assert (run.trajectory["agent_name"], run.trajectory["session_id"], run.trajectory["user_input"]) == (HOSTILE,) * 3
    assert json.loads(run.tool["arguments"]) == {HOSTILE: HOSTILE}
    assert json.loads(run.tool["observation"]) == HOSTILE
    assert run.tool["turn_span_id"] == run.counted[0]["span_id"]


DEEP = "[" * 2000 + "]" * 2000
ARGUMENTS = {
    "long integers stay": ('{"n": 123456789012345678901234567890}', '{"n": 123456789012345678901234567890}'),
    "duplicate keys stay": ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
    "nan is text": ('{"a": NaN}', json.dumps('{"a": NaN}')),
    "infinity by exponent is text": ('{"a": 1e400}', json.dumps('{"a": 1e400}')),
    "trailing commas are text": ('{"a": 1,}', json.dumps('{"a": 1,}')),
    "lone surrogates are replaced": (
        '{"a": "\\ud800", "\\udc00\\ud83d\\ude00": 1}',
        '{"a": "\\ufffd", "\\ufffd\\ud83d\\ude00": 1}',
    ),
    "escaped backslashes are no surrogates": ('{"a": "\\\\ud800"}', '{"a": "\\\\ud800"}'),
    "too deep is text": (DEEP, json.dumps(DEEP)),
    "nothing is nothing": ("", None),
    "null is nothing": ("null", None),
    "a word is text": ("Lima", '"Lima"'),
    "a number is text": ("5", '"5"'),
    "double encoding is undone": (json.dumps('{"a": 1}'), '{"a": 1}'),
    "a null character stays": ('{"a": "\\u0000"}', '{"a": "\\u0000"}'),
    "positional values stay": ('{"args": [1], "kwargs": {"b": 2}}', '{"b":2,"_args":[1]}'),
}


@pytest.fixture(scope="module")
def arguments() -> dict[str, Run]:
    con = open_memory()
    trees = [
        agent("a", chat(asks=[call("t", text, name)]), tool("t", text, id=name))
        for name, (text, _) in ARGUMENTS.items()
    ]
    rows = [row for number, tree in enumerate(trees) for row in span_rows(f"{number + 1:032x}", tree)]
    insert(con, rows)
    rebuild(con)
    return dict(zip(ARGUMENTS, runs(con, rows).values(), strict=True))


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_keep_their_value(name: str, arguments: dict[str, Run]) -> None:
    found = arguments[name].tool["arguments"]
    expected = ARGUMENTS[name][1]
    # JSON that is not an object is repaired from the request, which says the same.
    assert (found is None) if expected is None else (json.loads(found) == json.loads(expected)), found
    if expected and expected.startswith("{"):
        assert found == expected


@trees.of(
    agent(
        "a",
        *(
            chat(
                attributes={
                    "gen_ai.input.messages": value,
                    "gen_ai.output.messages": value,
                    "gen_ai.tool.definitions": value,
                }
            )
            for value in (
                "[",
                "{}",
                "[[]]",
                "[null, 1, {}]",
                '[{"role": {"a": 1}, "parts": {"a": 1}}]',
                '[{"parts": [[], null, {"type": {}}]}]',
                DEEP,
                7,
                True,
                None,
                [],
                {"messages": "no"},
                '[{"role": "tool"}]',
                '[{"role": "assistant", "tool_calls": "x"}]',
                '[{"parts": [{"type": "tool_call"}]}]',
                '[{"role": "user", "content": "\\ud800"}]',
                f'[{{"role": "user", "parts": [{{"type": "x", "y": {"[" * 990 + "]" * 990}}}]}}]',
            )
        ),
    ),
    tool(
        "t",
        7,
        attributes={
            "gen_ai.tool.name": ["t"],
            "gen_ai.tool.call.id": 7,
            "gen_ai.agent.name": {},
            "error.type": 5,
            "gen_ai.tool.call.result": 2.5,
        },
    ),
)
def test_values_of_any_shape_lose_no_step(run: Run) -> None:
    assert run.trajectory["model_call_count"] == 17
    assert len(run.steps) == 19


def _timed(seconds: float, rows: Sequence[SpanRow]) -> duckdb.DuckDBPyConnection:
    con = open_memory()
    insert(con, rows)
    began = time.process_time()
    rebuild(con)
    assert time.process_time() - began < seconds
    return con


def test_a_chain_of_ten_thousand_spans_is_no_problem() -> None:
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 1}
    ids = [f"{n:016x}" for n in range(1, 10_001)]
    rows = [
        make_row("1" * 32, own, parent, "chat", attributes, START_NS + n * MS)
        for n, (own, parent) in enumerate(zip(ids, [None, *ids], strict=False))
    ]
    con = _timed(20, rows)
    assert con.execute(
        "SELECT count(*), count(DISTINCT span_id), count(*) FILTER (duplicate_of IS NULL) FROM steps"
    ).fetchall() == [(10_000, 10_000, 1)]


def test_a_trace_of_many_calls_with_one_id_is_no_problem() -> None:
    """Each of these would be compared with each other one if the rebuild joined by id alone: 400 million pairs."""
    trees = [
        child
        for n in range(20_000)
        for child in (
            chat(
                reads=[answer("c", n)],
                asks=[call("t", {}, "c")],
                scope_name="ab"[n % 2],
                attributes={"gen_ai.response.id": "same"},
            ),
            tool("t", {}, id="c"),
        )
    ]
    con = _timed(60, span_rows("1" * 32, agent("a", *trees), agent("b")))
    assert con.execute("SELECT tool_call_count, model_call_count FROM trajectories ORDER BY ALL").fetchall() == [
        (0, 0),
        (20_000,) * 2,
    ]
    # The n-th result stands in the call after the n-th request.
    found = con.execute("SELECT observation FROM steps WHERE kind = 'tool' ORDER BY step_index LIMIT 3").fetchall()
    assert found == [("1",), ("2",), ("3",)]


_KEYS = [
    "gen_ai.operation.name",
    "gen_ai.tool.name",
    "gen_ai.tool.call.id",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.agent.name",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.tool.definitions",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.system",
    "gen_ai.response.id",
    "gen_ai.request.model",
    "gen_ai.usage.cost",
    "mcp.method.name",
    "agenttrace.trial",
    "agenttrace.tool.mutates",
    "error.type",
    "session.id",
    "openinference.span.kind",
    "tool.name",
    "input.value",
    "output.value",
    "llm.input_messages.0.message.role",
    "llm.output_messages.0.message.content",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name",
    "llm.token_count.prompt",
    "llm.tools.0.tool.json_schema",
    "tool.parameters",
]
_WORDS = st.sampled_from(
    [
        "chat",
        "execute_tool",
        "invoke_agent",
        "invoke_workflow",
        "embeddings",
        "t",
        "u",
        "c1",
        "c2",
        "tools/call",
        "LLM",
        "TOOL",
        "AGENT",
        "CHAIN",
        "gpt-4o",
        "r1",
        "Error: no",
        "timed out",
        "NaN",
        "",
        "null",
        "{}",
        "[]",
        '{"a": 1}',
        '{"error": "x"}',
        "1e400",
        '"\\ud800"',
        "user",
    ]
)
_MESSAGES = st.sampled_from(
    [
        json.dumps([user("hi"), asked(call("t", {"a": 1}, "c1"))]),
        json.dumps([asked(call("t", {"a": 1}, "c1"), call("u", '{"b": 2}'))]),
        json.dumps([answer("c1", "ok"), answer(None, {"error": "x"})]),
        json.dumps([{"role": "assistant", "parts": [text("Done.")]}]),
    ]
)
_VALUES = st.one_of(
    _WORDS,
    _MESSAGES,
    st.booleans(),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(_WORDS, max_size=2),
)
_IDS = st.integers(0, 6).map(lambda n: f"{n:016x}")
_TIMES = st.one_of(st.integers(-5, 50).map(lambda n: START_NS + n * MS), st.sampled_from([0, 2**63 - 1]))
_EVENTS = st.sampled_from(
    [
        "[]",
        '[{"name": "exception", "attributes": {"exception.type": "E", "exception.message": "m"}}]',
        '[{"name": "gen_ai.choice", "attributes": {"message": "x"}}]',
        '[{"name": null, "attributes": null}, {}]',
    ]
)


@st.composite
def _span(draw: st.DrawFn) -> SpanRow:
    attributes = draw(st.dictionaries(st.sampled_from(_KEYS), _VALUES, max_size=8))
    row = make_row(
        draw(st.sampled_from("abcd")) * 32, draw(_IDS), draw(st.none() | _IDS), draw(_WORDS), attributes, draw(_TIMES)
    )
    return row._replace(
        end_time_unix_nano=draw(st.none() | _TIMES),
        status_code=draw(st.sampled_from(["unset", "ok", "error"])),
        status_message=draw(st.none() | _WORDS),
        scope_name=draw(st.sampled_from([None, "x", "agenttrace"])),
        events=draw(_EVENTS),
    )


@st.composite
def _log(draw: st.DrawFn) -> LogRow:
    name = draw(
        st.sampled_from(
            ["gen_ai.choice", "gen_ai.user.message", "gen_ai.tool.message", "gen_ai.client.inference.operation.details"]
        )
    )
    body: Any = draw(
        st.none()
        | _VALUES
        | st.dictionaries(st.sampled_from(["content", "message", "id", "tool_calls"]), _VALUES, max_size=3)
    )
    return make_log(draw(st.sampled_from("abcd")) * 32, draw(_IDS), name, body=body, at=draw(st.integers(0, 3)))


def _rebuilt_tables(rows: Sequence[SpanRow], logs: Sequence[LogRow], threads: int) -> tuple[list[Json], list[Json]]:
    con = open_memory()
    con.execute(f"SET threads = {threads}")
    insert(con, rows, logs)
    rebuild(con)
    return _tables(con)


@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(_span(), max_size=24, unique_by=lambda row: (row.trace_id, row.span_id)),
    st.lists(_log(), max_size=8),
    st.randoms(use_true_random=False),
)
def test_any_spans_become_one_row_each_in_any_order(
    rows: list[SpanRow], logs: list[LogRow], shuffler: random.Random
) -> None:
    steps, trajectories = _rebuilt_tables(rows, logs, threads=1)
    of_spans = [(step["trace_id"], step["span_id"]) for step in steps if step["origin"] == "span"]
    assert of_spans == sorted((row.trace_id, row.span_id) for row in rows)
    assert len({trajectory["trajectory_id"] for trajectory in trajectories}) == len(trajectories)
    counted = [(step["trajectory_id"], step["step_index"]) for step in steps if step["step_index"] is not None]
    assert len(counted) == len(set(counted))
    rows, logs = list(rows), list(logs)
    shuffler.shuffle(rows)
    shuffler.shuffle(logs)
    assert _rebuilt_tables(rows, logs, threads=4) == (steps, trajectories)


def test_a_row_whose_json_is_broken_stops_nothing() -> None:
    con = open_memory()
    good, broken = (make_row(letter * 32, number * 16, None, "span", {}, START_NS) for letter, number in ("a1", "b2"))
    log = make_log("a" * 32, "1" * 16, "gen_ai.choice")._replace(attributes="?", body='"\\ud83d"')
    insert(con, [good, broken._replace(attributes='{"gen_ai.', events="?", resource_attributes="")], [log])
    assert rebuild(con) == 2
    assert con.execute("SELECT trace_id FROM steps ORDER BY 1").fetchall() == [("a" * 32,), ("b" * 32,)]


def test_defaults_do_not_undo_the_settings_that_built_the_steps() -> None:
    con = open_memory()
    insert(con, [make_row("a" * 32, "1" * 16, None, "span", {}, START_NS)], [])
    own = Settings(tools=ToolSettings(mutating=["post_*"]))
    assert (rebuild(con, settings=own), rebuild(con), rebuild(con, settings=own)) == (1, 0, 0)
