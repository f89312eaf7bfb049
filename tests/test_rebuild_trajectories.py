"""Rules 1 and 9: which spans make a run of an agent, and what broken traces become."""

import hashlib

import pytest
from span_trees import Forest, Run, agent, asked, call, chat, insert, open_memory, runs, span, span_rows, tool, user

from agenttrace.rebuild import rebuild

trees = Forest()


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Run:
    return trees.run(request.function.__name__)


@trees.of(span("POST /chat", agent("outer", chat(), tool("delegate", {}, agent("inner", chat())))))
def test_the_outermost_agent_is_the_trajectory(run: Run) -> None:
    trajectory = run.trajectory
    expected = hashlib.md5(f"{trajectory['trace_id']}{run.span_id('invoke_agent outer')}".encode()).hexdigest()[:16]
    assert trajectory["trajectory_id"] == expected
    assert (trajectory["agent_name"], trajectory["model_call_count"], trajectory["tools"]) == ("outer", 2, ["delegate"])
    assert {step["trajectory_id"] for step in run.steps} == {expected}
    assert [step["agent_name"] for step in run.counted] == ["outer", "outer", "inner"]


@trees.of(agent("skewed", at=100, until=50))
def test_a_clock_that_was_set_back_leaves_the_duration_unknown(run: Run) -> None:
    assert run.trajectory["duration_ms"] is None


@trees.of(chat(), tool("check_stock", {"item": "rice"}))
def test_a_trace_without_an_agent_is_one_trajectory(run: Run) -> None:
    assert run.trajectory["trajectory_id"] == hashlib.md5(run.trajectory["trace_id"].encode()).hexdigest()[:16]
    assert (run.trajectory["model_call_count"], run.trajectory["tool_call_count"]) == (1, 1)


@trees.of(span("batch", *(agent(f"worker{n}", chat(), tool("check_stock", {"n": n})) for n in range(100))))
def test_a_batch_root_over_a_hundred_agents_is_a_hundred_trajectories(run: Run) -> None:
    assert [trajectory["agent_name"] for trajectory in run.trajectories] == [f"worker{n}" for n in range(100)]
    assert all(t["tools"] == ["check_stock"] and t["model_call_count"] == 1 for t in run.trajectories)
    (root,) = (step for step in run.steps if step["name"] == "batch")
    assert root["kind"] == "other"
    assert root["trajectory_id"] not in {trajectory["trajectory_id"] for trajectory in run.trajectories}


@trees.of(span("GET /health", span("SELECT 1")))
def test_a_trace_of_another_system_is_no_trajectory_but_keeps_its_rows(run: Run) -> None:
    assert run.trajectories == []
    assert [(step["name"], step["kind"], step["status"]) for step in run.steps] == [
        ("GET /health", "other", "ok"),
        ("SELECT 1", "other", "ok"),
    ]


@trees.of(
    span(
        "batch",
        agent("first", chat(), at=0, until=100),
        agent("second", chat(), at=200, until=300),
        chat(model="gpt-4o-mini", at=250, until=260),
        chat(model="gpt-4.1", at=150, until=160),
    )
)
def test_a_call_beside_several_agents_belongs_to_the_one_whose_time_holds_it(run: Run) -> None:
    agents = {trajectory["agent_name"]: trajectory["model_call_count"] for trajectory in run.trajectories}
    assert agents == {"first": 1, "second": 2, None: 1}


@trees.of(agent("killed", chat(), ended=False), chat(model="gpt-4.1"), agent("other", at=5, until=6))
def test_an_agent_that_never_ended_holds_what_began_after_it(run: Run) -> None:
    agents = {trajectory["agent_name"]: trajectory["model_call_count"] for trajectory in run.trajectories}
    assert agents == {"killed": 2, "other": 0}


@trees.of(chat(at=0, until=5), agent("only", chat(at=20), at=10, until=100), tool("notify", {}, at=200))
def test_what_stands_beside_the_only_agent_is_part_of_its_run(run: Run) -> None:
    assert (run.trajectory["agent_name"], run.trajectory["model_call_count"], run.trajectory["tools"]) == (
        "only",
        2,
        ["notify"],
    )


@trees.of(
    agent(
        "restock",
        chat(reads=[user("order rice")], asks=[call("place_order", {"item": "rice"}, "c1")]),
        tool("place_order", {"item": "rice"}, id="c1", result={"id": "o1"}),
        chat(reads=[user("order rice"), asked(call("place_order", {"item": "rice"}, "c1"))], says="Ordered."),
        attributes={"gen_ai.conversation.id": "s-1", "user.id": "u-1"},
        resource_attributes='{"agenttrace.task.id": "task-1", "agenttrace.trial": 2, "tenant.id": "acme"}',
    )
)
def test_a_trajectory_says_who_what_and_how_long(run: Run) -> None:
    found = run.trajectory
    assert (found["session_id"], found["user_id"], found["tenant_id"], found["task_id"], found["trial"]) == (
        *("s-1", "u-1", "acme"),
        *("task-1", 2),
    )
    assert (found["user_input"], found["final_response"], found["complete"]) == ("order rice", "Ordered.", True)
    assert (found["service_name"], found["duration_ms"]) == ("shop", 70.0)
    assert {step["session_id"] for step in run.steps} == {"s-1"}
    assert {step["trial"] for step in run.steps} == {2}


@trees.of(span("POST /chat", agent("restock", chat()), attributes={"session.id": "s-2", "user.id": "u-2"}))
def test_the_session_stated_by_the_application_reaches_the_run(run: Run) -> None:
    assert (run.trajectory["session_id"], run.trajectory["user_id"]) == ("s-2", "u-2")


@trees.of(
    agent(
        "asker",
        chat(says="I will look it up.", asks=[call("check_stock", {}, "c1")]),
        tool("check_stock", {}, id="c1"),
        chat(asks=[call("check_stock", {}, "c2")]),
    )
)
def test_a_run_that_ends_in_a_request_has_no_final_response(run: Run) -> None:
    assert run.trajectory["final_response"] is None


@trees.of(agent("outer", chat(says="The answer."), tool("ask", {}, agent("inner", chat(says="Inner words.")))))
def test_the_final_response_is_the_agents_own(run: Run) -> None:
    assert run.trajectory["final_response"] == "The answer."


@trees.of(tool("place_order", {}, parent_span_id="feedfeedfeedfeed"), chat(parent_span_id="beefbeefbeefbeef"))
def test_missing_parents_leave_one_trajectory(run: Run) -> None:
    assert (run.trajectory["tool_call_count"], run.trajectory["model_call_count"]) == (1, 1)
    assert run.trajectory["root_ended"] is False


@trees.of(agent("itself", chat(), parent_span_id="0000000000000001"))
def test_a_span_that_is_its_own_parent_is_a_root(run: Run) -> None:
    assert (run.trajectory["agent_name"], run.counted[0]["agent_name"]) == ("itself", "itself")


@trees.of(agent("one", agent("two", chat()), parent_span_id="0000000000000002"))
def test_a_cycle_of_parents_loses_no_span(run: Run) -> None:
    assert len(run.steps) == 3
    assert sum(trajectory["model_call_count"] for trajectory in run.trajectories) == 1


@trees.of(agent("restock", chat(at=-500, until=-400), tool("check_stock", {}, at=-700, until=-650), at=0, until=100))
def test_children_that_begin_before_their_parent_stay_in_the_run(run: Run) -> None:
    assert [step["kind"] for step in run.counted] == ["tool", "model"]
    assert run.trajectory["duration_ms"] == 800.0


@trees.of(agent("restock", tool("place_order", {}, ended=False), ended=False))
def test_a_span_without_an_end_is_unfinished(run: Run) -> None:
    assert {step["status"] for step in run.steps} == {"unfinished"}
    assert run.tool["effect"] == "unknown"
    assert (run.trajectory["complete"], run.trajectory["end_time"]) == (False, None)


@trees.of(
    agent(
        "outer",
        span("HTTP POST", attributes={"http.request.method": "POST"}),
        span("invoke_workflow flow", chat(), attributes={"gen_ai.operation.name": "invoke_workflow"}),
    )
)
def test_a_workflow_below_an_agent_is_a_group(run: Run) -> None:
    kinds = {step["name"]: step["kind"] for step in run.steps}
    assert (kinds["HTTP POST"], kinds["invoke_workflow flow"]) == ("other", "other")
    assert run.counted[0]["agent_name"] == "outer"


@trees.of(
    span("invoke_workflow flow", agent("worker", chat()), attributes={"gen_ai.operation.name": "invoke_workflow"})
)
def test_an_outermost_workflow_is_the_agent(run: Run) -> None:
    assert len(run.trajectories) == 1
    assert {step["name"]: step["kind"] for step in run.steps}["invoke_workflow flow"] == "agent"


def test_a_late_outer_agent_re_forms_the_trajectory_and_old_findings_go() -> None:
    con = open_memory()
    rows = span_rows("1" * 32, agent("outer", agent("inner", chat()), agent("second", chat())))
    insert(con, rows[1:])
    rebuild(con)
    before = runs(con, rows)["1" * 32]
    assert sorted(trajectory["agent_name"] for trajectory in before.trajectories) == ["inner", "second"]
    for found in [*(trajectory["trajectory_id"] for trajectory in before.trajectories), "another"]:
        con.execute("INSERT INTO not_evaluable VALUES ('r', 'e', 'k', ?, 'why')", [found])
        con.execute(
            "INSERT INTO findings VALUES ('f', 'p', 'r', 'e', 'k', 'error', NULL, ?, NULL, NULL, [], NULL, 'm', '{}')",
            [found],
        )
    insert(con, rows[:1])
    rebuild(con)
    after = runs(con, rows)["1" * 32]
    assert (after.trajectory["agent_name"], after.trajectory["model_call_count"]) == ("outer", 2)
    for table in ("findings", "not_evaluable"):
        assert con.execute(f"SELECT trajectory_id FROM {table}").fetchall() == [("another",)]


@pytest.mark.parametrize(("received", "complete"), [("now()", False), ("now() - INTERVAL 11 MINUTE", True)])
def test_an_open_run_is_complete_when_nothing_has_arrived_for_ten_minutes(received: str, complete: bool) -> None:
    con = open_memory()
    rows = span_rows("1" * 32, agent("restock", chat(), ended=False))
    insert(con, rows, received=received)
    rebuild(con)
    assert runs(con, rows)["1" * 32].trajectory["complete"] is complete


def test_an_open_run_that_falls_silent_becomes_complete_without_new_spans() -> None:
    con = open_memory()
    rows = span_rows("1" * 32, agent("restock", ended=False))
    insert(con, rows)
    rebuild(con)
    con.execute("UPDATE trajectories SET last_arrival = now() - INTERVAL 11 MINUTE")
    assert rebuild(con) == 0
    assert runs(con, rows)["1" * 32].trajectory["complete"] is True


def test_an_import_settles_what_it_brings() -> None:
    con = open_memory()
    rows = span_rows("1" * 32, agent("restock", ended=False))
    insert(con, rows)
    con.execute("INSERT INTO settled_traces VALUES (?)", ["1" * 32])
    rebuild(con)
    assert runs(con, rows)["1" * 32].trajectory["complete"] is True


def _two_traces(**sdk: object) -> tuple[dict[str, Run], str, str]:
    """One model call as the framework and as the SDK below it recorded it, the latter in a trace of its own."""
    con = open_memory()
    outer, inner = "a" * 32, "b" * 32
    framework = span_rows(
        outer, agent("restock", chat(attributes={"gen_ai.response.id": "r1"}, scope_name="framework", at=10, until=50))
    )
    own = {"scope_name": "sdk", "at": 20, "until": 40} | sdk
    separate = span_rows(inner, chat(attributes={"gen_ai.response.id": "r1"}, **own))
    insert(con, separate)
    rebuild(con)
    con.execute("INSERT INTO not_evaluable SELECT 'r', 'e', 'k', trajectory_id, 'x' FROM trajectories")
    insert(con, framework)
    rebuild(con)
    assert con.execute(
        "SELECT count(*) FROM not_evaluable ANTI JOIN trajectories USING (trajectory_id)"
    ).fetchall() == [(0,)]
    return runs(con, framework + separate), outer, inner


def test_a_trace_that_repeats_anothers_model_call_is_none() -> None:
    found, outer, inner = _two_traces()
    assert found[inner].trajectories == []
    assert [step["duplicate_of"] for step in found[inner].steps] == [f"{'0' * 15}2@{outer}"]
    assert found[outer].trajectory["input_tokens"] == 10


@pytest.mark.parametrize("sdk", [{"at": 500, "until": 600}, {"scope_name": "framework"}])
def test_the_same_response_id_at_another_time_or_from_the_same_library_is_another_call(sdk: dict[str, object]) -> None:
    found, outer, inner = _two_traces(**sdk)
    assert found[inner].trajectory["input_tokens"] == found[outer].trajectory["input_tokens"] == 10
