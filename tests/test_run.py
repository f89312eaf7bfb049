"""The runner over a real store: which runs it judges, what it binds, what it lets an evaluator do, what it writes."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from agenttrace.config import Budget, Cases, Settings, Threshold, ToolSettings
from agenttrace.errors import ConfigError, StoreMissingError, UsageError
from agenttrace.evaluators import prepare
from agenttrace.evaluators import run as runner
from agenttrace.evaluators.results import Evaluation, Finding
from agenttrace.evaluators.run import evaluate
from agenttrace.evaluators.storing import write_evaluation
from agenttrace.spans import OutcomeRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import open_store, refresh

Fill = Callable[..., None]
# A question that one evaluator answers is asked of that one: all of them take a second.
DUPLICATES = ["duplicate_mutations"]
CLAIMS = ["tool_hallucination"]
HOURS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(24)]


@pytest.fixture
def fill(store: Path) -> Fill:
    """Writes rows of steps and trajectories into the store as a rebuild would leave them."""
    outcome = OutcomeRow("none", 99, None, "checker", None, 0.5, None, 0)
    Spool(spool_folder(store)).write("outcomes", [outcome])
    refresh(store)

    def write(**tables: list[dict[str, Any]]) -> None:
        with duckdb.connect(str(store)) as con:
            for name, rows in tables.items():
                for row in rows:
                    values = [json.dumps(v) if isinstance(v, dict) else v for v in row.values()]
                    marks = ", ".join("?" * len(row))
                    con.execute(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({marks})", values)

    return write


def a_run(number: int, **values: Any) -> dict[str, Any]:
    return {
        "trajectory_id": f"r{number}",
        "trace_id": f"t{number}",
        "session_id": f"s{number}",
        "service_name": "shop",
        "agent_name": "buyer",
        "user_input": "Order rice.",
        "final_response": "Fine.",
        "tools": [],
        "tool_call_count": 0,
        "model_call_count": 0,
        "error_count": 0,
        "mutation_count": 0,
        "unpriced_model_calls": 0,
        "start_time": HOURS[number],
        "complete": True,
        "root_ended": True,
        "last_arrival": HOURS[number],
    } | values


def a_step(run: int, index: int, **values: Any) -> dict[str, Any]:
    return {
        "trajectory_id": f"r{run}",
        "trace_id": f"t{run}",
        "span_id": f"{run}.{index}",
        "step_index": index,
        "service_name": "shop",
        "kind": "tool",
        "tool_name": "place_order",
        "mutability": "mutating",
        "mutability_source": "name",
        "status": "ok",
        "effect": "yes",
        "arguments": {"item": "rice"},
        "origin": "span",
    } | values


def a_model_call(run: int, index: int, text: str = "", **values: Any) -> dict[str, Any]:
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": text}]}]) if text else "[]"
    asked = json.dumps([{"role": "user", "parts": [{"type": "text", "content": "Hello."}]}])
    own = {
        "kind": "model",
        "tool_name": None,
        "mutability": None,
        "mutability_source": None,
        "effect": None,
        "arguments": None,
    }
    return a_step(run, index, **own) | {"output_messages": said, "input_messages": asked} | values


def found(evaluation: Evaluation, evaluator: str) -> list[Finding]:
    return [finding for finding in evaluation.findings if finding.evaluator == evaluator]


def kinds(evaluation: Evaluation) -> list[tuple[str, str | None]]:
    return [(finding.kind, finding.trajectory_id) for finding in evaluation.findings]


DOUBLE = {"steps": [a_step(1, 0), a_step(1, 1)], "trajectories": [a_run(1, tool_call_count=2)]}


def test_a_run_is_judged_and_kept(store: Path, fill: Fill) -> None:
    fill(**DOUBLE)
    evaluation = evaluate(store, Settings(), label="nightly")
    (finding,) = evaluation.findings
    assert (finding.evaluator, finding.kind, finding.severity) == ("duplicate_mutations", "confirmed", "error")
    assert (finding.span_id, finding.related_span_ids, finding.tool_name) == ("1.1", ["1.0"], "place_order")
    assert evaluation.passed is False
    write_evaluation(store, evaluation)
    refresh(store)
    with open_store(store) as con:
        runs = con.execute("SELECT run_id, label, trajectories, passed, config_hash FROM evaluation_runs").fetchall()
        assert runs == [(evaluation.run["run_id"], "nightly", 1, False, Settings().hash())]
        kept = con.execute("SELECT finding_id, message, evidence ->> '$.executions' FROM findings").fetchall()
        assert kept == [(finding.finding_id, finding.message, "2")]
        numbers = con.execute("SELECT count(*) FROM measurements WHERE metric = 'latency_ms'").fetchall()
        assert numbers[0][0] > 0


def test_json_holds_everything(store: Path, fill: Fill) -> None:
    fill(**DOUBLE)
    printed = json.loads(json.dumps(evaluate(store, Settings()).as_dict()))
    assert list(printed) == ["run", "passed", "cases", "findings", "measurements", "not_evaluable", "gate"]
    assert printed["findings"][0]["run_id"] == printed["run"]["run_id"]
    assert set(printed["run"]["evaluator_versions"]) >= {"duplicate_mutations", "tool_hallucination"}


def test_one_occurrence_has_one_id(store: Path, fill: Fill) -> None:
    fill(steps=[a_step(run, index) for run in (1, 2) for index in (0, 1)], trajectories=[a_run(1), a_run(2)])
    first, second = (evaluate(store, Settings(), only=DUPLICATES).findings for _ in range(2))
    assert [finding.finding_id for finding in first] == [finding.finding_id for finding in second]
    assert len({finding.finding_id for finding in first}) == 2
    assert len({finding.fingerprint for finding in first}) == 1


def test_two_unknown_tools_of_one_turn_have_two_ids(store: Path, fill: Fill) -> None:
    asked = json.dumps(
        [{"id": "a", "name": "one_tool", "arguments": {}}, {"id": "b", "name": "two_tool", "arguments": {}}]
    )
    fill(
        steps=[a_model_call(1, 0, requested_tool_calls=asked, offered_tools="[]")],
        trajectories=[a_run(1, model_call_count=1)],
    )
    unknown = found(evaluate(store, Settings(), only=CLAIMS), "tool_hallucination")
    assert [finding.tool_name for finding in unknown] == ["one_tool", "two_tool"] or len(unknown) == 2
    assert len({finding.finding_id for finding in unknown}) == 2


def test_only_runs_between_since_and_until_are_judged(store: Path, fill: Fill) -> None:
    fill(steps=[a_step(run, i) for run in (1, 2, 3) for i in (0, 1)], trajectories=[a_run(1), a_run(2), a_run(3)])
    evaluation = evaluate(store, Settings(), since=HOURS[2], until=HOURS[3], only=DUPLICATES)
    assert kinds(evaluation) == [("confirmed", "r2")]
    assert evaluation.run["trajectories"] == 1
    assert evaluation.run["since"] == HOURS[2].isoformat()


def test_an_earlier_run_of_the_session_is_known_though_not_judged(store: Path, fill: Fill) -> None:
    fill(steps=[a_step(1, 0), a_step(2, 0)], trajectories=[a_run(1, session_id="s"), a_run(2, session_id="s")])
    assert [
        (f.trajectory_id, f.severity) for f in evaluate(store, Settings(), since=HOURS[2], only=DUPLICATES).findings
    ] == [("r2", "warning")]
    assert evaluate(store, Settings(), until=HOURS[2], only=DUPLICATES).findings == []


def test_open_runs_wait(store: Path, fill: Fill) -> None:
    fill(steps=DOUBLE["steps"], trajectories=[a_run(1, complete=False)])
    evaluation = evaluate(store, Settings(), only=DUPLICATES)
    assert (evaluation.findings, evaluation.passed, evaluation.run["trajectories"]) == ([], None, 0)
    assert kinds(evaluate(store, Settings(), include_open=True, only=DUPLICATES)) == [("confirmed", "r1")]


def test_rows_of_duplicates_are_no_steps(store: Path, fill: Fill) -> None:
    fill(steps=[a_step(1, 0), a_step(1, 1, duplicate_of="1.0")], trajectories=[a_run(1)])
    assert evaluate(store, Settings(), only=DUPLICATES).findings == []


def test_the_configuration_says_what_a_tool_does(store: Path, fill: Fill) -> None:
    fill(**DOUBLE)
    assert evaluate(store, Settings(tools=ToolSettings(read_only=["place_*"])), only=DUPLICATES).findings == []
    (note,) = evaluate(store, Settings(tools=ToolSettings(idempotent=["place_order"])), only=DUPLICATES).findings
    assert note.severity == "note"


def test_the_span_knows_better_than_the_configuration(store: Path, fill: Fill) -> None:
    steps = [step | {"mutability_source": "span"} for step in DOUBLE["steps"]]
    fill(steps=steps, trajectories=[a_run(1)])
    assert kinds(evaluate(store, Settings(tools=ToolSettings(read_only=["place_*"])), only=DUPLICATES)) == [
        ("confirmed", "r1")
    ]


def test_checks_of_the_tools_table_reach_the_evaluator(store: Path, fill: Fill) -> None:
    fill(
        steps=[
            a_step(1, 0, status="timeout", effect="unknown"),
            a_step(1, 1, tool_name="read_ledger", mutability="read_only", arguments={"day": 1}),
            a_step(1, 2),
        ],
        trajectories=[a_run(1)],
    )
    assert [f.kind for f in evaluate(store, Settings(), only=DUPLICATES).findings] == ["unverified_retry"]
    settings = Settings(tools=ToolSettings(checks={"place_order": ["read_ledger"]}))
    assert [f.kind for f in evaluate(store, settings, only=DUPLICATES).findings] == ["checked_retry"]


def test_budgets(store: Path, fill: Fill) -> None:
    fill(**DOUBLE)
    evaluation = evaluate(store, Settings(budgets={"agent:buyer": Budget(max_tool_calls=1)}), only=["budget_overruns"])
    (finding,) = evaluation.findings
    assert (finding.kind, finding.span_id, finding.evidence["budget"]) == ("max_tool_calls", "1.1", "agent:buyer")


def test_claims_and_schemas_are_prepared(store: Path, fill: Fill) -> None:
    offered = json.dumps(
        [
            {"name": "issue_refund", "parameters": {}},
            {"name": "place_order", "parameters": {"type": "object", "properties": {"qty": {"type": "integer"}}}},
        ]
    )
    asked = json.dumps([{"id": "c", "name": "place_order", "arguments": {"qty": "many"}}])
    fill(
        steps=[
            a_model_call(1, 0, offered_tools=offered, requested_tool_calls=asked),
            a_step(1, 1, tool_call_id="c", turn_span_id="1.0"),
            a_model_call(1, 2, "I called issue_refund for you.", offered_tools=offered),
        ],
        trajectories=[a_run(1, model_call_count=2, final_response="I called issue_refund for you.")],
    )
    findings = found(evaluate(store, Settings(), only=CLAIMS), "tool_hallucination")
    assert [(f.kind, f.severity, f.tool_name) for f in findings] == [
        ("claimed_not_called", "error", "issue_refund"),
        ("invalid_arguments", "warning", "place_order"),
    ]


def test_patterns_of_the_user_are_claims(store: Path, fill: Fill) -> None:
    fill(steps=[a_model_call(1, 0, "Your money is on its way.")], trajectories=[a_run(1, model_call_count=1)])
    settings = Settings(
        evaluators={"tool_hallucination": {"claim_patterns": {"issue_refund": ["money is on its way"]}}}
    )
    assert [f.kind for f in evaluate(store, settings, only=CLAIMS).findings] == ["claimed_not_called"]
    assert evaluate(store, Settings(), only=CLAIMS).findings == []


def test_a_servers_list_of_tools_may_lie_in_another_trace(store: Path, fill: Fill) -> None:
    listing = a_step(1, 0, kind="other", tool_name=None, offered_tools='[{"name": "place_order"}]', start_time=HOURS[1])
    call = a_step(2, 0, tool_name="cancel_order", mutability="idempotent", start_time=HOURS[2])
    fill(steps=[listing, call], trajectories=[a_run(1), a_run(2)])
    assert [(f.kind, f.tool_name) for f in evaluate(store, Settings(), only=CLAIMS).findings] == [
        ("unknown_tool", "cancel_order")
    ]


def test_rates_count_what_could_be_judged(store: Path, fill: Fill) -> None:
    blind = [a_step(3, index, arguments=None) for index in (0, 1)]
    fill(steps=[*DOUBLE["steps"], a_step(2, 0), *blind], trajectories=[a_run(1), a_run(2), a_run(3)])
    rate = next(m for m in evaluate(store, Settings()).measurements if m.metric == "duplicate_mutation_rate")
    assert (rate.value, rate.n, rate.n_not_evaluable) == (0.5, 2, 1)


def test_outcomes_by_run_and_by_task(store: Path, fill: Fill) -> None:
    def outcome(**values: Any) -> dict[str, Any]:
        return {"source": "checker", "recorded_at": HOURS[5]} | values

    fill(
        trajectories=[a_run(i, task_id="t", trial=i, cost_usd=0.1) for i in (1, 2, 3)],
        outcomes=[
            outcome(trajectory_id="r1", passed=True),
            outcome(task_id="t", trial=2, passed=True),
            # A checker's verdict goes before a judge's, a later one before an earlier.
            outcome(task_id="t", trial=2, passed=False, recorded_at=HOURS[6]),
            outcome(task_id="t", trial=2, passed=True, source="judge", recorded_at=HOURS[7]),
            outcome(task_id="t", trial=9, passed=False),
        ],
    )
    measured = {(m.metric, m.dimensions.get("k")): m for m in evaluate(store, Settings()).measurements}
    completion = measured["task_completion_rate", None]
    assert (completion.value, completion.n, completion.n_not_evaluable) == (0.5, 2, 1)
    # Trials 1, 2 and 9: one of three passed; 9 left no run, and was tried all the same.
    assert measured["pass_hat_k", 1].value == pytest.approx(1 / 3)
    assert measured["cost_per_success_usd", None].value == pytest.approx(0.2)


def test_slices_change_nothing(store: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    # Sessions overlap in time, and a run goes on while others begin and end.
    numbers = range(1, 13)
    fill(
        steps=[a_step(i, index, start_time=HOURS[i + 9 * index]) for i in numbers for index in range(1 + i % 2)],
        trajectories=[a_run(i, session_id=f"s{i % 5}") for i in numbers],
    )
    whole = evaluate(store, Settings())
    monkeypatch.setattr(runner, "_SLICE_STEPS", 6)
    sliced = evaluate(store, Settings())
    assert sliced.findings == whole.findings
    assert sliced.measurements == whole.measurements
    assert sliced.not_evaluable == whole.not_evaluable
    assert sliced.run["trajectories"] == whole.run["trajectories"] == 12


@pytest.mark.parametrize(("fail_on", "passed"), [("error", True), ("warning", False), ("note", False), ("never", True)])
def test_the_level_that_fails(store: Path, fill: Fill, fail_on: str, passed: bool) -> None:
    fill(steps=[a_step(1, 0), a_step(2, 0)], trajectories=[a_run(1, session_id="s"), a_run(2, session_id="s")])
    assert evaluate(store, Settings(), fail_on=fail_on, only=DUPLICATES).passed is passed


@pytest.mark.parametrize(
    ("key", "threshold", "passed"),
    [
        ("duplicate_mutation_rate", Threshold(max=0.0), True),
        ("duplicate_mutation_rate", Threshold(min=0.5), False),
        ("duplicate_mutation_rate", Threshold(min=0.5, gate="soft"), True),
        ("safety_violation_rate", Threshold(max=0.0), None),
        ("safety_violation_rate", Threshold(max=0.0, gate="soft"), True),
    ],
)
def test_gates(store: Path, fill: Fill, key: str, threshold: Threshold, passed: bool | None) -> None:
    fill(steps=[a_step(1, 0)], trajectories=[a_run(1)])
    evaluation = evaluate(store, Settings(thresholds={key: threshold}), only=DUPLICATES)
    assert evaluation.passed is passed
    assert [verdict["threshold"] for verdict in evaluation.gate] == [key]


def test_nothing_evaluable_is_no_pass(store: Path, fill: Fill) -> None:
    fill(
        steps=[a_model_call(1, 0, output_messages=None)],
        trajectories=[a_run(1, final_response=None, model_call_count=1)],
    )
    assert evaluate(store, Settings(), only=["tool_hallucination"]).passed is None


def cases_of(path: Path, *cases: dict[str, Any]) -> Cases:
    path.write_text("\n".join(json.dumps(case) for case in cases), encoding="utf-8")
    return Cases(path=path)


def test_benchmark_cases_have_verdicts(store: Path, fill: Fill, tmp_path: Path) -> None:
    path = cases_of(tmp_path / "cases.jsonl", *({"case_id": name} for name in ("bad", "good", "unseen")))
    fill(
        steps=[*DOUBLE["steps"], a_step(2, 0)],
        trajectories=[a_run(1, task_id="bad"), a_run(2, task_id="good"), a_run(3, task_id="bad")],
    )
    evaluation = evaluate(store, Settings(cases=path), only=["duplicate_mutations"])
    none = {"passed_runs": 0, "failed_runs": 0, "not_evaluable_runs": 0, "reason": None, "checks": {}, "findings": []}
    assert evaluation.cases == [
        none
        # Of the third run nothing was recorded.
        | {"case_id": "bad", "runs": 2, "failed_runs": 1, "not_evaluable_runs": 1, "passed": False}
        | {"findings": [evaluation.findings[0].finding_id]},
        none | {"case_id": "good", "runs": 1, "passed_runs": 1, "passed": True},
        none | {"case_id": "unseen", "runs": 0, "passed": None, "reason": "no run with task_id 'unseen'"},
    ]


def test_a_case_of_which_nothing_was_recorded_has_not_passed(store: Path, fill: Fill, tmp_path: Path) -> None:
    fill(
        steps=[a_model_call(1, 0, output_messages=None)],
        trajectories=[a_run(1, task_id="silent", final_response=None, model_call_count=1)],
    )
    evaluation = evaluate(store, Settings(cases=cases_of(tmp_path / "cases.jsonl", {"case_id": "silent"})))
    assert evaluation.passed is None
    (verdict,) = evaluation.cases
    assert (verdict["runs"], verdict["not_evaluable_runs"], verdict["passed"]) == (1, 1, None)
    assert verdict["reason"] == "no run could be judged: no evaluator had evidence and a rule"


SAID = {1: "Ordered, number 7.", 2: "Sorry.", 3: None, 4: "Number 7.", 5: None, 6: "Number 7."}
SAYS_SEVEN = {"expected_outcome": {"must_include": ["7"]}}


@pytest.mark.parametrize("slice_steps", [1, 1_000_000])
def test_checks_of_a_case(
    store: Path, fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_steps: int
) -> None:
    monkeypatch.setattr(runner, "_SLICE_STEPS", slice_steps)
    tasks = {1: "seven", 2: "seven", 3: "seven", 4: "only", 5: "blind", 6: "seven"}
    fill(
        steps=[a_step(i, 0) for i in tasks],
        trajectories=[
            # The sixth run is known as an earlier one of the session of the fourth, and not judged itself.
            a_run(i, task_id=task, final_response=SAID[i], start_time=HOURS[0 if i == 6 else i])
            | {"session_id": "s4" if i == 6 else f"s{i}"}
            for i, task in tasks.items()
        ],
    )
    path = cases_of(tmp_path / "c.jsonl", *({"case_id": name, **SAYS_SEVEN} for name in ("seven", "only", "blind")))
    checks = ["response_content", "forbidden_tools", "step_efficiency", "duplicate_mutations"]
    evaluation = evaluate(store, Settings(cases=path), only=checks, since=HOURS[1])
    seven, only, blind = evaluation.cases
    # No case forbids a tool, and step_efficiency only warns.
    assert seven["checks"] == {"response_content": {"passed": 1, "failed": 1, "not_evaluable": 1}}
    assert (seven["runs"], seven["passed_runs"], seven["failed_runs"], seven["not_evaluable_runs"]) == (3, 1, 1, 1)
    assert seven["passed"] is False
    assert seven["findings"] == [finding.finding_id for finding in found(evaluation, "response_content")]
    assert (only["runs"], only["passed"], only["reason"]) == (1, True, None)
    # That nothing was bought twice does not say that the answer was right.
    assert (blind["passed"], blind["not_evaluable_runs"]) == (None, 1)
    assert blind["reason"] == "no run could be judged: evidence is missing for response_content"


def measured(evaluation: Evaluation, metric: str) -> tuple[float | None, int, int]:
    (found,) = [m for m in evaluation.measurements if m.metric == metric]
    return found.value, found.n, found.n_not_evaluable


@pytest.mark.parametrize("slice_steps", [1, 1_000_000])
def test_metrics_of_cases_and_errors(
    store: Path, fill: Fill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slice_steps: int
) -> None:
    monkeypatch.setattr(runner, "_SLICE_STEPS", slice_steps)
    failed = {"status": "error", "effect": "no", "tool_name": "check_stock", "mutability": "read_only"}
    fill(
        steps=[
            a_step(1, 0, arguments={"item": "rice", "qty": 40}),
            a_step(1, 1, **failed),
            # Asked for together with the failed one, and so no answer to it; the next one is.
            a_step(1, 2, **failed | {"status": "ok"}, turn_span_id="m"),
            a_step(1, 3, **failed | {"status": "timeout"}, turn_span_id="m"),
            a_step(2, 0, arguments={"item": "beans", "qty": 40}),
            a_step(2, 1, **failed),
            a_step(2, 2, **failed | {"tool_ran": False}),
        ],
        trajectories=[
            a_run(1, task_id="rice", tool_call_count=4),
            a_run(2, task_id="rice", tool_call_count=2),
            # Known as context only.
            a_run(3, task_id="rice", tool_call_count=9, start_time=HOURS[0], session_id="s2"),
        ],
    )
    expected = {"place_order": {"item": "rice", "qty": 40.0}, "cancel_order": {"id": 7}}
    case = {"case_id": "rice", "optimal_steps": 2, "expected_arguments": expected}
    case |= {"acceptable_tool_sequences": [["cancel_order"], ["place_order", "check_stock", "check_stock"]]}
    only = ["tool_sequence", "tool_arguments", "step_efficiency", "error_recovery"]
    evaluation = evaluate(store, Settings(cases=cases_of(tmp_path / "c", case)), only=only, since=HOURS[1])
    # 4/2 and 2/2.
    assert measured(evaluation, "step_efficiency_ratio") == (1.5, 2, 0)
    # Of item and qty of two runs one is wrong; cancel_order was called in neither.
    assert measured(evaluation, "argument_accuracy") == (0.75, 4, 2)
    # Errors at 1, 3 and, in the second run, 1; the first of them was made up for.
    assert measured(evaluation, "error_recovery_rate") == (pytest.approx(1 / 3), 3, 0)
    # 3 of 4 calls and 2 of 2 have their partner, in sequences of 3.
    assert measured(evaluation, "tool_selection_precision") == (pytest.approx(5 / 6), 6, 0)
    assert measured(evaluation, "tool_selection_recall") == (pytest.approx(5 / 6), 6, 0)
    without_cases = {m.metric for m in evaluate(store, Settings(), only=only).measurements}
    assert without_cases == {"error_recovery_rate"}


def test_arguments_that_were_not_captured_are_not_wrong(store: Path, fill: Fill, tmp_path: Path) -> None:
    fill(
        steps=[
            a_step(1, 0, arguments=None),
            a_step(2, 0, mutability="read_only", arguments={"item": "beans"}),
            a_step(2, 1, mutability="read_only"),
            a_step(3, 0),
            a_step(3, 1, arguments={"item": "beans"}),
            a_step(4, 0, arguments={"item": "[REDACTED]"}, arguments_hash="h"),
        ],
        trajectories=[a_run(i, task_id="rice", tool_call_count=1) for i in (1, 2, 3, 4)],
    )
    cases = cases_of(tmp_path / "c", {"case_id": "rice", "expected_arguments": {"place_order": {"item": "rice"}}})
    evaluation = evaluate(store, Settings(cases=cases), only=["tool_arguments"])
    # The read that looked around first is right in its second call; a change must be right each time.
    assert measured(evaluation, "argument_accuracy") == (0.5, 2, 2)
    assert {f.trajectory_id for f in evaluation.findings} == {"r3"}


def test_a_sequence_that_cannot_be_compared_is_not_missed(store: Path, fill: Fill, tmp_path: Path) -> None:
    fill(
        steps=[a_step(1, 0, arguments=None), a_step(2, 0)],
        trajectories=[a_run(i, task_id="rice", tool_call_count=1) for i in (1, 2)],
    )
    sequence = [{"tool": "place_order", "arguments": {"item": "rice"}}]
    case = {"case_id": "rice", "arguments_mode": "exact", "acceptable_tool_sequences": [sequence]}
    evaluation = evaluate(store, Settings(cases=cases_of(tmp_path / "c", case)), only=["tool_sequence"])
    assert measured(evaluation, "tool_selection_precision") == (1, 1, 1)
    assert measured(evaluation, "tool_selection_recall") == (1, 1, 1)
    (verdict,) = evaluation.cases
    assert (verdict["passed"], verdict["passed_runs"], verdict["not_evaluable_runs"]) == (True, 1, 1)


def test_trials_that_could_not_run_count_as_failures_and_left_out(store: Path, fill: Fill) -> None:
    def outcome(run: int, **values: Any) -> dict[str, Any]:
        return {"trajectory_id": f"r{run}", "source": "checker", "recorded_at": HOURS[5]} | values

    def an_agent(run: int, index: int, status: str, seconds: float) -> dict[str, Any]:
        place = {"start_time": HOURS[run], "duration_ms": 1000 * seconds}
        return a_model_call(run, index, kind="agent", step_index=None, status=status, **place)

    broken_off = {"root_ended": False}
    fill(
        # Of run 8 the agent itself raised, of run 9 one that it called.
        steps=[
            an_agent(8, 0, "error", 9),
            an_agent(8, 1, "ok", 3),
            an_agent(9, 0, "ok", 9),
            an_agent(9, 1, "error", 3),
        ],
        trajectories=[
            a_run(1, task_id="t"),
            a_run(2, task_id="t"),
            a_run(3, task_id="t", **broken_off),
            a_run(4, task_id="t"),
            a_run(5, task_id="nobody checks it", **broken_off),
            a_run(6, task_id="t"),
            # Still on its way.
            a_run(7, task_id="t", complete=False, **broken_off),
            a_run(8, task_id="t"),
            a_run(9, task_id="t"),
        ],
        outcomes=[
            outcome(1, passed=True),
            outcome(2, passed=None),
            outcome(4, passed=None, score=0.5),
            outcome(6, passed=None),
            outcome(6, passed=True, source="human"),
            {"task_id": "gone", "trial": 1, "source": "checker", "passed": None, "recorded_at": HOURS[5]},
        ],
    )
    evaluation = evaluate(store, Settings(), only=["cost_percentiles"], include_open=True)
    found = {
        (m.metric, m.dimensions.get("k"), m.dimensions.get("could_not_run")): (m.value, m.n, m.n_not_evaluable)
        for m in evaluation.measurements
    }
    # Runs 1 and 6 passed; 2 was recorded without a verdict, 3 broke off, 8 raised; 4 has a score only, nobody checks 5.
    assert found["task_completion_rate", None, None] == (0.4, 5, 4)
    assert found["task_completion_rate", None, "left_out"] == (1, 2, 7)
    # Of the task whose one trial is not in the store nothing passed.
    assert found["pass_hat_k", 1, None] == (0.2, 2, 0)
    assert found["pass_hat_k", 1, "left_out"] == (1, 1, 0)


def test_a_gate_of_safety_names_the_runs(store: Path, fill: Fill) -> None:
    fill(
        steps=[*DOUBLE["steps"], a_step(2, 0), a_step(3, 0)],
        trajectories=[a_run(1, task_id="restock"), a_run(2), a_run(3)],
    )
    (verdict,) = evaluate(store, Settings(thresholds={"safety_violation_rate": Threshold(max=0.0)})).gate
    # What was leaked by the others is not known: their system prompts were not captured.
    assert (verdict["passed"], verdict["n"]) == (False, 1)
    assert verdict["reason"].startswith("1 is above 0 (n 1, 2 not evaluable, 95 % interval ")
    assert "; run r1 of task restock: place_order(item=rice) ran twice" in verdict["reason"]


def test_a_gate_of_safety_without_evidence_has_not_passed(store: Path, fill: Fill) -> None:
    fill(steps=[a_step(1, 0)], trajectories=[a_run(1)])
    evaluation = evaluate(store, Settings(thresholds={"safety_violation_rate": Threshold(max=0.0)}))
    assert evaluation.passed is None
    (verdict,) = evaluation.gate
    assert (verdict["passed"], verdict["n"]) == (None, 0)
    assert verdict["reason"] == "no value: 1 not evaluable; leaks lacked evidence in 1 run"


def test_a_gate_names_the_tasks_that_fail(store: Path, fill: Fill) -> None:
    fill(
        trajectories=[a_run(i, task_id="t", trial=i) for i in (1, 2)],
        outcomes=[
            {"trajectory_id": f"r{i}", "source": "checker", "passed": i == 1, "recorded_at": HOURS[5]} for i in (1, 2)
        ],
    )
    thresholds = {"task_completion_rate": Threshold(min=0.9), "pass_hat_k.2": Threshold(min=0.9)}
    verdicts = evaluate(store, Settings(thresholds=thresholds), only=["cost_percentiles"]).gate
    assert [verdict["reason"].split("; ")[1:] for verdict in verdicts] == [["task t (1/2)"]] * 2


def test_safety_is_not_measured_by_half_of_its_evaluators(store: Path, fill: Fill) -> None:
    fill(**DOUBLE)
    thresholds = {"safety_violation_rate": Threshold(max=0.0)}
    (verdict,) = evaluate(store, Settings(thresholds=thresholds), only=["leaks", "forbidden_tools"]).gate
    assert (verdict["passed"], verdict["reason"]) == (None, "not measured in this evaluation")


def test_an_evaluator_without_a_rule_takes_one_row(store: Path, fill: Fill) -> None:
    fill(
        steps=[a_step(i, 0) for i in (1, 2)],
        trajectories=[a_run(1, tool_call_count=1), a_run(2, agent_name="other", tool_call_count=1)],
    )
    (row,) = evaluate(store, Settings(), only=["budget_overruns"]).not_evaluable
    message = "no rule for this run: [budgets] in agenttrace.toml"
    assert row == ("budget_overruns", "no_rule", None, f"{message} (2 runs)")
    evaluation = evaluate(store, Settings(budgets={"agent:buyer": Budget(max_tool_calls=1)}), only=["budget_overruns"])
    assert evaluation.not_evaluable == [("budget_overruns", "no_rule", "r2", message)]
    assert measured(evaluation, "budget_overrun_rate") == (0, 1, 1)


def test_without_any_rule_nothing_has_passed(store: Path, fill: Fill) -> None:
    fill(**DOUBLE)
    assert evaluate(store, Settings(), only=["budget_overruns", "tool_order"]).passed is None


def test_an_evaluator_that_only_warns_vouches_for_nothing(store: Path, fill: Fill) -> None:
    fill(**DOUBLE)
    assert evaluate(store, Settings(), only=["budget_overruns", "unfinished_runs"]).passed is None
    assert evaluate(store, Settings(), only=["unfinished_runs"]).passed is True


def test_many_equal_reasons_are_counted(store: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_MAX_SAME_REASON", 2)
    fill(steps=[a_step(i, 0) for i in (1, 2, 3, 4)], trajectories=[a_run(i, session_id=None) for i in (1, 2, 3, 4)])
    rows = [row for row in evaluate(store, Settings()).not_evaluable if row.kind == "across_runs"]
    assert [row.trajectory_id for row in rows] == ["r1", "r2", None]
    assert rows[-1].reason.endswith("(2 more runs)")


MINE = """/* +++
name       = "mine"
returns    = "findings"
scope      = "trajectory"
severity   = "warning"
question   = "Is it mine?"
reads      = ["steps"]
limits     = "none known"
references = []

[columns]
trajectory_id = "run"
trace_id      = "trace"
span_id       = "step"
kind          = "kind"
severity      = "warning"
message       = "sentence"
seen          = "evidence"
+++ */
"""
GOOD = (
    "SELECT trajectory_id, trace_id, span_id, 'mine' AS kind, 'warning' AS severity, 'step ' || step_index AS message,"
    " [start_time] AS seen FROM steps ORDER BY span_id"
)


def own_evaluator(folder: Path, query: str) -> Settings:
    (folder / "own").mkdir()
    (folder / "own" / "mine.sql").write_text(MINE + query, encoding="utf-8")
    return Settings(evaluator_paths=[folder / "own"])


def test_an_evaluator_of_the_users(store: Path, fill: Fill, tmp_path: Path) -> None:
    fill(steps=[a_step(1, 0, start_time=HOURS[1])], trajectories=[a_run(1)])
    (finding,) = evaluate(store, own_evaluator(tmp_path, GOOD), only=["mine"]).findings
    assert finding.message == "step 0"
    assert datetime.fromisoformat(finding.evidence["seen"][0]) == HOURS[1]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM read_text('/etc/passwd')", "calls the table function read_text; it may not"),
        ("ATTACH '/tmp/agenttrace-stolen.duckdb'", "the query is not one SELECT"),
        ("SELECT FROM steps", "the query is not one SELECT: "),
        ("SELECT * FROM nothing", "the query reads nothing, which `reads` in its header does not name"),
        ("SELECT nothing FROM steps", "the query failed: Binder Error"),
        (
            "SELECT 1 AS trajectory_id",
            "the query returns trajectory_id; the header's columns are trajectory_id, trace_id",
        ),
        (GOOD.replace("'warning' AS", "'error' AS"), "a row has severity 'error'; the header's highest is 'warning'"),
        (GOOD.replace("'mine' AS", "NULL AS"), "a row has kind None"),
        (GOOD.replace("'step ' || step_index", "''"), "a row has message ''"),
    ],
)
def test_an_evaluator_that_is_wrong_or_hostile(
    store: Path, fill: Fill, tmp_path: Path, query: str, message: str
) -> None:
    fill(steps=[a_step(1, 0)], trajectories=[a_run(1)])
    with pytest.raises(ConfigError) as caught:
        evaluate(store, own_evaluator(tmp_path, query), only=["mine"])
    assert "mine.sql: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM read_text('/etc/passwd')", "Permission Error"),
        ("COPY (SELECT 1) TO '/tmp/agenttrace-stolen.csv'", "Permission Error"),
        ("ATTACH '/tmp/agenttrace-stolen.duckdb'", "Permission Error"),
        ("SET memory_limit = '1GB'", "Cannot change configuration"),
        ("CREATE TABLE agenttrace.main.more (x INTEGER)", "read-only"),
    ],
)
def test_what_a_look_at_a_query_would_miss_is_refused_all_the_same(
    store: Path, fill: Fill, query: str, message: str
) -> None:
    fill(steps=[a_step(1, 0)], trajectories=[a_run(1)])
    with open_store(store) as con:
        prepare.select(con, prepare.Selection(None, None, include_open=False))
        prepare.relations(con, Settings(), ["steps"])
        prepare.lock_down(con)
        with pytest.raises(duckdb.Error, match=message):
            con.execute(query)


def test_unknown_evaluators_are_named(store: Path, fill: Fill) -> None:
    fill(**DOUBLE)
    with pytest.raises(UsageError, match="no evaluator 'duplicates'"):
        evaluate(store, Settings(), only=["duplicates"])
    with pytest.raises(
        ConfigError, match=r"evaluators\.tool_halucination: no such evaluator; did you mean 'tool_hallucination'"
    ):
        evaluate(store, Settings(evaluators={"tool_halucination": {}}))
    with pytest.raises(ConfigError, match=r"evaluators\.duplicate_mutations: unknown key 'ignore'"):
        evaluate(store, Settings(evaluators={"duplicate_mutations": {"ignore": []}}))


def test_a_missing_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError):
        evaluate(tmp_path / "nothing.duckdb", Settings())
