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
