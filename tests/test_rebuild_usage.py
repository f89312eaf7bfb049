"""Rules 4 and 5: tokens count once, cost is stated or computed."""

import json
from pathlib import Path

import pytest
from span_trees import Forest, Node, Run, agent, chat, rebuilt, span, tool

from agenttrace.config import Prices, Settings

trees = Forest()


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    return trees.run(request.function.__name__)


def tokens(run: Run) -> tuple[int | None, int | None, int | None]:
    return run.trajectory["input_tokens"], run.trajectory["output_tokens"], run.trajectory["total_tokens"]


SUM = {"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 9}


@trees.of(agent("restock", chat(tokens=(10, 4)), chat(tokens=(20, 5)), attributes=SUM))
def test_a_roll_up_on_the_agent_is_not_counted_again(run: Run) -> None:
    assert tokens(run) == (30, 9, 39)
    assert {step["kind"]: step["usage_source"] for step in run.steps} == {"agent": "aggregate", "model": "own"}


@trees.of(agent("restock", chat(tokens=None), attributes=SUM))
def test_a_roll_up_counts_where_nothing_below_reports(run: Run) -> None:
    assert tokens(run) == (30, 9, 39)


@trees.of(
    agent("outer", span("turn", chat(tokens=None), attributes={"gen_ai.operation.name": "task"} | SUM), attributes=SUM)
)
def test_of_nested_roll_ups_the_innermost_counts(run: Run) -> None:
    assert tokens(run) == (30, 9, 39)


@trees.of(agent("restock", chat(tokens=None)))
def test_tokens_that_nobody_reported_are_null(run: Run) -> None:
    assert tokens(run) == (None, None, None)
    assert run.counted[0]["usage_source"] is None


@trees.of(agent("restock", chat(tokens=None, attributes={"gen_ai.usage.output_tokens": 5}), attributes=SUM))
def test_output_alone_is_a_report(run: Run) -> None:
    assert tokens(run) == (None, 5, 5)


@trees.of(agent("restock", chat(chat(tokens=(10, 5), scope_name="sdk"), tokens=(10, 5), scope_name="framework")))
def test_a_wrapper_and_the_sdk_below_are_one_call(run: Run) -> None:
    assert tokens(run) == (10, 5, 15)
    assert run.trajectory["model_call_count"] == 1
    assert sorted(str(step["usage_source"]) for step in run.steps) == ["None", "duplicate", "own"]


def _nested(*messages: bool) -> Node:
    """Model spans in one another, the outermost first; True: it holds the messages."""
    found: tuple[Node, ...] = ()
    for number, holds in reversed(list(enumerate(messages))):
        found = (chat(*found, says="yes" if holds else None, scope_name=f"library {number}"),)
    return found[0]


@trees.of(
    agent("restock", _nested(True, False, False)),
    agent("second", _nested(False, True, False), _nested(False, False, False)),
)
def test_three_recordings_of_one_call_are_one_call(run: Run) -> None:
    by_agent = {trajectory["agent_name"]: trajectory for trajectory in run.trajectories}
    assert (by_agent["restock"]["model_call_count"], by_agent["second"]["model_call_count"]) == (1, 2)
    assert by_agent["restock"]["final_response"] == "yes"
    assert (by_agent["restock"]["input_tokens"], by_agent["second"]["input_tokens"]) == (10, 20)


@trees.of(agent("restock", chat(chat(tokens=(7, 1)), chat(tokens=(10, 5), says=None), says="yes", tokens=(17, 6))))
def test_a_wrapper_around_several_calls_is_none_itself(run: Run) -> None:
    assert tokens(run) == (17, 6, 23)
    assert run.trajectory["model_call_count"] == 2
    # What only the wrapper knows is the last call's.
    assert run.trajectory["final_response"] == "yes"


def _side(scope: str, at: float, until: float, response_id: str | None = None, **more: object) -> Node:
    attributes = {"gen_ai.response.id": response_id} if response_id else {}
    return chat(scope_name=scope, at=at, until=until, attributes=attributes, **more)  # pyright: ignore[reportArgumentType]


@trees.of(
    agent("restock", _side("a", 10, 50, "r1"), _side("b", 12, 48, "r1"), _side("a", 60, 90, "r2"), _side("b", 61, 89))
)
def test_two_libraries_side_by_side_are_one_call_each(run: Run) -> None:
    assert (run.trajectory["model_call_count"], tokens(run)) == (2, (20, 10, 30))


def _ran(scope: str, at: float, name: str, *arguments: object, **more: object) -> Node:
    return tool(name, *arguments, scope_name=scope, at=at, until=at + 30, **more)  # pyright: ignore[reportArgumentType]


@trees.of(
    agent(
        "restock",
        # Callbacks of one framework: the first to begin is the first to end.
        *(_side("a", 10, 50), _side("b", 12, 52)),
        *(_ran("a", 60, "order", {"n": 1}), _ran("b", 61, "order", {"n": 1})),
        *(_ran("a", 110, "order", {"n": 2}), _ran("b", 111, "order")),
        *(_ran("a", 160, "ask", id="k1"), _ran("b", 161, "ask", {}, id="k1")),
    )
)
def test_callbacks_of_two_libraries_record_each_call_once(run: Run) -> None:
    assert (run.trajectory["model_call_count"], tokens(run)) == (1, (10, 5, 15))
    assert [json.loads(step["arguments"] or "0") for step in run.tools] == [{"n": 1}, {"n": 2}, {}]


@trees.of(
    agent(
        "restock",
        # Two parallel calls that one library saw, another's with other arguments, ids or times.
        *(_ran("a", 10, "order", {"n": 1}), _ran("a", 11, "order", {"n": 1}), _ran("b", 12, "order", {"n": 2})),
        *(_ran("a", 60, "ask", {}, id="k1"), _ran("b", 61, "ask", {}, id="k2"), _ran("b", 100, "ask", {})),
        *(_side("a", 150, 180), _side("b", 175, 220)),
    )
)
def test_other_calls_of_two_libraries_are_calls_of_their_own(run: Run) -> None:
    assert len(run.tools) == 6
    assert run.trajectory["model_call_count"] == 2


@trees.of(
    agent(
        "restock",
        # Each of two parallel calls, seen by two libraries: with nothing that tells the calls apart, by place alone.
        *(_ran("a", 10, "order", {"n": 1}), _ran("b", 11, "order", {"n": 1})),
        *(_ran("a", 12, "order", {"n": 1}), _ran("b", 13, "order", {"n": 1})),
        *(_ran("a", 100, "ask", id="k1"), _ran("b", 101, "ask"), _ran("a", 102, "ask", id="k2"), _ran("b", 103, "ask")),
        *(_side("a", 200, 240), _side("b", 201, 241), _side("a", 202, 242), _side("b", 203, 243)),
    )
)
def test_parallel_calls_that_are_equal_stay_as_many_as_they_are(run: Run) -> None:
    assert run.trajectory["tools"] == ["order", "order", "ask", "ask"]
    assert (run.trajectory["model_call_count"], tokens(run)) == (2, (20, 10, 30))


@trees.of(
    agent(
        "restock",
        tool("order", {"n": 1}, scope_name="a", at=10, until=90),
        tool("order", {"n": 1}, scope_name="b", at=20, until=40, raises=("TimeoutError", "timed out")),
        tool("order", {"n": 1}, scope_name="b", at=50, until=80),
    )
)
def test_of_two_attempts_beside_a_call_one_is_the_call(run: Run) -> None:
    assert len(run.tools) == 2


@trees.of(
    agent("restock", _ran("a", 10, "order", {"n": 1}, id="k1"), _ran("agenttrace", 11, "order", {"n": 1, "qty": 2}))
)
def test_a_decorator_beside_the_call_knows_defaults_too(run: Run) -> None:
    assert run.tool["arguments"] == '{"n": 1}'


def _agents(*tools: Node) -> tuple[Node, ...]:
    return tuple(
        agent(f"agent {n}", found, scope_name=found.fields["scope_name"], at=5 + n, until=90 + n)
        for n, found in enumerate(tools)
    )


@trees.of(
    agent("lead", *_agents(_ran("a", 10, "order", {"n": 1}), _ran("b", 11, "order", {"n": 1})), at=0, until=100),
    agent("second", *_agents(_ran("a", 110, "ask", {"n": 1}, id="k"), _ran("b", 111, "ask", {"n": 2}, id="k")), at=105),
    agent("third", *_agents(_side("a", 310, 350), _side("b", 311, 351)), at=300, until=400),
)
def test_equal_calls_of_two_agents_that_work_side_by_side_are_two(run: Run) -> None:
    by_agent = {trajectory["agent_name"]: trajectory for trajectory in run.trajectories}
    assert (by_agent["lead"]["tools"], by_agent["second"]["tools"]) == (["order", "order"], ["ask", "ask"])
    assert (by_agent["third"]["model_call_count"], by_agent["third"]["input_tokens"]) == (2, 20)


@trees.of(
    agent("refunds", _ran("a", 10, "order", {"n": 1}, id="k"), scope_name="a", at=5, until=60),
    agent("refunds", _ran("b", 11, "order", {"n": 1}), scope_name="b", at=6, until=61),
)
def test_one_agent_that_two_libraries_recorded_calls_once(run: Run) -> None:
    assert len(run.tools) == 1


@trees.of(
    agent(
        "lead",
        tool(
            "ask",
            {"n": 1},
            agent("expert", tool("ask", {"n": 1}, id="k", scope_name="b", at=30, until=60), at=20, until=70),
            chat(scope_name="b", at=75, until=85),
            id="k",
            scope_name="a",
            at=10,
            until=90,
        ),
        at=0,
        until=100,
    )
)
def test_an_agent_below_a_tool_calls_that_tool_itself(run: Run) -> None:
    assert run.trajectory["tools"] == ["ask", "ask"]


@trees.of(
    agent(
        "lead",
        chat(
            tool("ask", {}, chat(scope_name="b", at=30, until=60), scope_name="a", at=20, until=70),
            scope_name="a",
            at=10,
            until=80,
        ),
    )
)
def test_a_model_call_of_a_tool_within_a_model_call_is_another(run: Run) -> None:
    assert (run.trajectory["model_call_count"], tokens(run)) == (2, (20, 10, 30))


@trees.of(
    agent(
        "mocked", *(_side(scope, n * 100 + d, n * 100 + 50, "same") for n in range(3) for d, scope in enumerate("ab"))
    )
)
def test_a_test_server_that_gives_every_response_one_id_loses_no_call(run: Run) -> None:
    assert run.trajectory["model_call_count"] == 3


@trees.of(agent("restock", _side("a", 10, 50), _side("a", 10, 50), _side("a", 60, 70), _side("b", 80, 90)))
def test_equal_calls_of_one_library_or_at_other_times_are_different_calls(run: Run) -> None:
    assert run.trajectory["model_call_count"] == 4


@trees.of(
    agent(
        "restock",
        chat(
            tokens=(100, 1),
            attributes={"gen_ai.usage.cache_read.input_tokens": 40, "gen_ai.usage.cache_write.input_tokens": 10},
        ),
        chat(
            tokens=(3, 1),
            attributes={"gen_ai.usage.cache_read.input_tokens": 40, "gen_ai.usage.cache_creation.input_tokens": 10},
        ),
    )
)
def test_cached_tokens_are_part_of_the_input(run: Run) -> None:
    # The second producer leaves them out: 3 + 40 + 10.
    assert [(s["input_tokens"], s["cached_input_tokens"], s["cache_write_tokens"]) for s in run.counted] == [
        (100, 40, 10),
        (53, 40, 10),
    ]
    assert tokens(run) == (153, 2, 155)


@trees.of(
    agent(
        "hostile",
        *(
            chat(tokens=None, attributes={"gen_ai.usage.input_tokens": value})
            for value in (-1, 2**63 - 1, 10**40, "many", True, "12", 1e300)
        ),
    )
)
def test_counts_that_no_provider_makes_are_not_captured(run: Run) -> None:
    assert [step["input_tokens"] for step in run.counted] == [None, None, None, None, None, 12, None]


@trees.of(
    agent(
        "restock",
        chat(attributes={"gen_ai.usage.cost": 0.25}),
        # gpt-4o: 2.5 and 10 US dollars per million tokens.
        chat(tokens=(1000, 100), model="gpt-4o"),
        chat(model="nobodys-model"),
        chat(attributes={"gen_ai.usage.cost": "NaN"}, model="unknown", tokens=None),
    )
)
def test_cost_is_stated_or_computed_or_unknown(run: Run) -> None:
    assert [step["cost_source"] for step in run.counted] == ["stated", "computed", None, None]
    assert run.counted[1]["cost_usd"] == pytest.approx(0.0035)
    assert run.trajectory["cost_usd"] == pytest.approx(0.2535)
    assert run.trajectory["unpriced_model_calls"] == 2


@trees.of(
    agent(
        "restock",
        chat(tokens=None, model="x"),
        chat(tokens=None, model="x"),
        attributes=SUM | {"gen_ai.usage.cost": 0.5},
    )
)
def test_the_cost_of_a_whole_run_covers_calls_without_usage(run: Run) -> None:
    assert (run.trajectory["cost_usd"], run.trajectory["unpriced_model_calls"]) == (0.5, 0)


@trees.of(agent("restock", chat(attributes={"gen_ai.usage.cost": 0.1}), attributes={"gen_ai.usage.cost": 0.1} | SUM))
def test_cost_counts_once_as_tokens_do(run: Run) -> None:
    assert run.trajectory["cost_usd"] == 0.1


@trees.of(agent("restock", *(chat(attributes={"gen_ai.usage.cost": cost}) for cost in (0.1, 0.2, 0.3, 1e9))))
def test_the_sum_of_costs_does_not_depend_on_the_order(run: Run) -> None:
    assert run.trajectory["cost_usd"] == 1000000000.6


@trees.of(
    tool("search", {}, chat(), attributes={"gen_ai.usage.input_tokens": 99}),
    span("embed", attributes={"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 7}),
)
def test_embeddings_count_and_a_tool_above_a_model_does_not(run: Run) -> None:
    assert tokens(run)[0] == 17


def test_own_prices_go_first(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        '["gpt-4o"]\ninput_usd_per_million_tokens = 1000\noutput_usd_per_million_tokens = 0\n', encoding="utf-8"
    )
    run = rebuilt(agent("restock", chat(tokens=(1000, 10))), settings=Settings(prices=Prices(path=path)))
    assert (run.trajectory["cost_usd"], run.counted[0]["cost_source"]) == (1.0, "computed")
