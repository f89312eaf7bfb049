"""Rules 2 and 3: the order of steps, and which request, execution and result belong together."""

import json
from typing import Any

import pytest
from span_trees import Forest, Run, agent, answer, asked, call, chat, message, span, tool, user

trees = Forest()


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    return trees.run(request.function.__name__)


def linked(run: Run) -> list[tuple[str, str | None, int | None]]:
    """Each execution: its tool, the id of its call, and the number of the model call that asked for it."""
    turns = [step["span_id"] for step in run.counted if step["kind"] == "model"]
    return [
        (
            step["tool_name"],
            step["tool_call_id"],
            turns.index(step["turn_span_id"]) + 1 if step["turn_span_id"] else None,
        )
        for step in run.tools
    ]


RICE, BEANS, CORN = ({"item": item} for item in ("rice", "beans", "corn"))


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", RICE, "a"), call("order", BEANS, "b"), call("order", CORN, "c")]),
        tool("order", CORN, id="c", at=100, until=150),
        tool("order", RICE, id="a", at=105, until=160),
        tool("order", BEANS, id="b", at=102, until=120),
        chat(at=200),
    )
)
def test_parallel_calls_keep_the_requested_order(run: Run) -> None:
    assert [step["tool_call_id"] for step in run.tools] == ["a", "b", "c"]
    assert [step["step_index"] for step in run.counted] == [0, 1, 2, 3, 4]
    assert [step["kind"] for step in run.counted] == ["model", "tool", "tool", "tool", "model"]


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", RICE, "a"), call("check", BEANS, "b")]),
        tool("check", BEANS, id="b", at=100, until=110),
        tool("order", RICE, id="a", at=120, until=130),
        chat(at=200),
    )
)
def test_calls_of_one_turn_that_run_one_after_the_other_keep_their_time(run: Run) -> None:
    assert run.trajectory["tools"] == ["check", "order"]


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", RICE, "c1")]),
        tool("order", RICE, id="c1"),
        chat(asks=[call("order", BEANS, "c1")]),
        tool("order", BEANS, id="c1"),
        chat(
            reads=[
                asked(call("order", RICE, "c1")),
                answer("c1", "first"),
                asked(call("order", BEANS, "c1")),
                answer("c1", "second"),
            ]
        ),
    )
)
def test_ids_that_repeat_in_later_turns_link_to_the_latest_turn_before(run: Run) -> None:
    assert linked(run) == [("order", "c1", 1), ("order", "c1", 2)]
    assert run.tools[1]["observation"] == '"second"'


@trees.of(
    agent(
        "outer",
        chat(asks=[call("delegate", {}, "c1")]),
        tool(
            "delegate",
            {},
            agent("inner", chat(asks=[call("search", {}, "c1")]), chat(reads=[answer("c1", "found it")], says="done")),
            id="c1",
        ),
        chat(reads=[answer("c1", "delegated")]),
    )
)
def test_ids_that_repeat_in_an_agent_below_stay_with_their_agent(run: Run) -> None:
    observed = {step["tool_name"]: (step["observation"], step["origin"]) for step in run.tools}
    assert observed == {"delegate": ('"delegated"', "span"), "search": ('"found it"', "message")}


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", RICE, "same"), call("order", BEANS, "same")]),
        tool("order", RICE, id="same"),
        tool("order", BEANS, id="same"),
        chat(reads=[answer("same", "r"), answer("same", "b")]),
    )
)
def test_ids_that_repeat_within_one_turn_link_by_order(run: Run) -> None:
    assert [(step["arguments"], step["observation"]) for step in run.tools] == [
        (json.dumps(RICE), '"r"'),
        (json.dumps(BEANS), '"b"'),
    ]


@trees.of(
    agent("restock", chat(asks=[call("order", RICE, "a")]), tool("order", RICE, id="a"), tool("order", RICE, id="a"))
)
def test_a_call_that_runs_again_unasked_is_a_second_execution(run: Run) -> None:
    assert linked(run) == [("order", "a", 1), ("order", "a", 1)]


@trees.of(
    agent("restock", chat(asks=[call("order", RICE, "a")], at=500, until=600), tool("order", RICE, id="a", at=400))
)
def test_a_clock_that_is_behind_does_not_part_a_call_from_its_request(run: Run) -> None:
    assert linked(run) == [("order", "a", 1)]


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", {"item": "rice", "qty": 1}), call("order", {"item": "beans", "qty": 2})]),
        tool("order", {"qty": 2.0, "item": "beans"}, at=100, until=101),
        tool("order", {"qty": 1, "item": "rice"}, at=110, until=111),
        chat(asks=[call("order", {"item": "rice", "qty": 1})], at=120),
        tool("order", {"qty": 1, "item": "rice"}, at=150),
    )
)
def test_without_ids_equal_arguments_link_the_nth_to_the_nth(run: Run) -> None:
    asked_by = [step["turn_span_id"] for step in run.tools]
    first, second = (step["span_id"] for step in run.counted if step["kind"] == "model")
    assert asked_by == [first, first, second]


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", RICE, "a"), call("order", BEANS, "b")]),
        tool("order", BEANS, id="run-1"),
        tool("order", RICE, id="run-2"),
        chat(reads=[answer("a", "r"), answer("b", "b")]),
    )
)
def test_ids_of_a_frameworks_own_give_way_to_the_models(run: Run) -> None:
    assert [(step["tool_call_id"], step["observation"]) for step in run.tools] == [("b", '"b"'), ("a", '"r"')]


@trees.of(agent("restock", chat(asks=[call("lookup", {"city": "Lima"}, "a")]), tool("lookup", "Lima")))
def test_a_bare_value_is_repaired_from_the_request(run: Run) -> None:
    assert (run.tool["arguments"], run.tool["tool_call_id"]) == ('{"city":"Lima"}', "a")


@trees.of(agent("restock", chat(asks=[call("order", RICE, "a")]), tool("order"), tool("order")))
def test_without_ids_and_arguments_the_order_links(run: Run) -> None:
    assert linked(run) == [("order", "a", 1), ("order", None, None)]
    assert run.tools[0]["arguments"] == '{"item":"rice"}'


@trees.of(
    agent(
        "lead",
        agent("first", chat(asks=[call("order", RICE)]), tool("order", RICE, at=900, until=901), at=10, until=990),
        agent(
            "second", chat(asks=[call("order", RICE)], at=60), tool("order", RICE, at=100, until=101), at=50, until=990
        ),
    )
)
def test_without_ids_the_agent_goes_before_the_order(run: Run) -> None:
    asker = {step["span_id"]: step["agent_name"] for step in run.counted if step["kind"] == "model"}
    assert [(step["agent_name"], asker[step["turn_span_id"]]) for step in run.tools] == [
        ("second", "second"),
        ("first", "first"),
    ]


def _recorded_four_times() -> Any:
    server = tool(
        "order",
        {},
        span_kind="server",
        scope_name="mcp-server",
        attributes={"mcp.method.name": "tools/call"},
        result={"id": "o1"},
    )
    client = tool(
        "order", RICE, server, span_kind="client", scope_name="mcp-client", attributes={"mcp.method.name": "tools/call"}
    )
    framework = tool("order", RICE | {"note": None}, client, id="a", scope_name="framework")
    return tool(
        "order", RICE, span("guard", framework), scope_name="agenttrace", attributes={"agenttrace.tool.mutates": True}
    )


@trees.of(agent("restock", chat(asks=[call("order", RICE, "a")]), _recorded_four_times()))
def test_one_execution_is_one_step_however_many_libraries_recorded_it(run: Run) -> None:
    step = run.tool
    assert (step["tool_call_id"], step["arguments"], step["observation"]) == ("a", '{"item": "rice"}', '{"id": "o1"}')
    assert (step["mutability"], step["mutability_source"], run.trajectory["tools"]) == ("mutating", "span", ["order"])
    assert {s["duplicate_of"] for s in run.steps if s["kind"] == "tool"} == {None, step["span_id"]}


@trees.of(
    agent("restock", tool("order", RICE, tool("order", RICE, raises=("ReadTimeout", "timed out"), at=20, until=30)))
)
def test_a_failure_that_only_the_inner_span_saw_counts(run: Run) -> None:
    assert (run.tool["status"], run.tool["error_type"], run.tool["effect"]) == ("timeout", "ReadTimeout", "unknown")


@trees.of(agent("restock", tool("order", RICE, tool("order", RICE, raises=("E", "x")), tool("order", RICE))))
def test_a_wrapper_around_retries_is_no_call_of_its_own(run: Run) -> None:
    assert [step["status"] for step in run.tools] == ["error", "ok"]
    assert run.trajectory["tool_call_count"] == 2


@trees.of(agent("walker", tool("walk", {"path": "/"}, tool("walk", {"path": "/a"}, tool("walk", {"path": "/a/b"})))))
def test_a_recursive_call_has_other_arguments_and_stays(run: Run) -> None:
    assert run.trajectory["tools"] == ["walk", "walk", "walk"]


@trees.of(agent("lead", tool("ask", RICE, agent("expert", tool("ask", RICE)))))
def test_a_tool_that_runs_an_agent_does_not_swallow_the_agents_calls(run: Run) -> None:
    assert run.trajectory["tools"] == ["ask", "ask"]


@trees.of(agent("lead", tool("order", RICE, tool("check", RICE))))
def test_another_tool_inside_a_tool_is_another_call(run: Run) -> None:
    assert run.trajectory["tools"] == ["order", "check"]


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", RICE, "a"), call("check", BEANS, "b")], offers=["order", "check"]),
        chat(reads=[asked(call("order", RICE, "a")), answer("a", "ok"), answer("b", {"stock": 3})]),
        chat(reads=[asked(call("order", RICE, "a")), answer("a", "ok"), answer("b", {"stock": 3})]),
    )
)
def test_a_result_that_stands_only_in_messages_is_one_execution(run: Run) -> None:
    assert [(s["tool_name"], s["origin"], s["tool_ran"], s["status"]) for s in run.tools] == [
        ("order", "message", True, "ok"),
        ("check", "message", True, "ok"),
    ]
    assert run.tools[1]["observation"] == '{"stock":3}'
    assert run.tools[0]["span_id"] == f"{run.counted[0]['span_id']}#1"
    assert run.tools[0]["turn_span_id"] == run.counted[0]["span_id"]


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", RICE), call("order", BEANS)]),
        chat(
            reads=[message("tool", {"type": "tool_call_response", "name": "order", "response": r}) for r in ("r", "b")]
        ),
    )
)
def test_messages_without_ids_link_by_name_and_order(run: Run) -> None:
    assert [(step["arguments"], step["observation"]) for step in run.tools] == [
        ('{"item":"rice"}', '"r"'),
        ('{"item":"beans"}', '"b"'),
    ]


@trees.of(
    agent(
        "restock",
        chat(asks=[call("order", RICE, "a"), call("order", BEANS, "b")], offers=["order"]),
        tool("order", RICE, id="a"),
        chat(reads=[answer("a", "ok"), answer("b", "The user did not approve this.")]),
    )
)
def test_a_result_without_a_span_of_a_tool_that_has_spans_is_a_refusal(run: Run) -> None:
    assert [(s["tool_call_id"], s["tool_ran"], s["effect"]) for s in run.tools] == [
        ("a", True, "yes"),
        ("b", False, "no"),
    ]
    assert run.trajectory["tools"] == ["order"]


@trees.of(
    agent(
        "restock",
        chat(asks=[call("ordr", RICE, "a")], offers=["order"]),
        chat(reads=[answer("a", "Error: ordr is not a valid tool, try one of [order].")]),
    )
)
def test_an_unknown_tool_is_a_refusal(run: Run) -> None:
    assert (run.tool["tool_ran"], run.tool["status"], run.tool["effect"]) == (False, "error", "no")
    assert (run.trajectory["tools"], run.trajectory["tool_call_count"], run.trajectory["error_count"]) == ([], 0, 1)


@trees.of(
    agent(
        "restock",
        chat(asks=[call("ordr", RICE, "a")], offers=["order"]),
        tool("ordr", RICE, id="a", result={"id": "o1"}),
    )
)
def test_a_tool_that_was_not_offered_and_ran_is_an_execution(run: Run) -> None:
    assert (run.tool["tool_ran"], run.tool["effect"]) == (True, "yes")


@trees.of(agent("coder", tool("run_function", {"name": "f"}, raises=("LookupError", "function f does not exist"))))
def test_words_about_another_function_are_no_refusal_of_the_tool(run: Run) -> None:
    assert (run.tool["tool_ran"], run.tool["status"]) == (True, "error")


@trees.of(agent("coder", tool("ordr", {}, raises=("ToolError", "Unknown tool: ordr"))))
def test_words_about_the_tool_itself_are_a_refusal(run: Run) -> None:
    assert run.tool["tool_ran"] is False


@trees.of(agent("restock", chat(asks=[call("order", RICE, "a")], says="let me see"), chat(says="Done.")))
def test_a_request_that_nobody_answered_has_no_row(run: Run) -> None:
    assert run.tools == []
    assert json.loads(run.counted[0]["requested_tool_calls"]) == [{"id": "a", "name": "order", "arguments": RICE}]
    assert run.counted[0]["thought"] == "let me see"


@trees.of(
    agent(
        "talker",
        chat(
            reads=[user("hi"), asked(call("order", RICE, "old")), answer("old", "ok")],
            asks=[call("order", RICE, "new")],
        ),
        chat(reads=[user("hi"), asked(call("order", RICE, "old")), answer("old", "ok"), answer("new", "ok")]),
    )
)
def test_calls_of_an_earlier_run_in_the_history_are_no_steps(run: Run) -> None:
    assert [step["tool_call_id"] for step in run.tools] == ["new"]
