"""Rates and outcomes, and the thresholds over them."""

import math

import pytest

from agenttrace.config import Threshold
from agenttrace.errors import ConfigError
from agenttrace.evaluators import answers, catalog, gate
from agenttrace.evaluators.metrics import Cluster, Verdict, is_violation, of_outcomes, rate, unsafe_to_say
from agenttrace.evaluators.results import Finding, Measurement, Unjudged
from agenttrace.evaluators.statistics import Z_95, ratio_interval, wilson
from agenttrace.evaluators.tallies import Tally, measure, shortfalls, without


def test_rate_counts_runs_that_could_be_judged() -> None:
    # 2 + 1 flagged of (10 - 4) + 2 judged.
    measured = rate("tool_hallucination_rate", [Cluster(None, 4, 2, 10), Cluster("t", 0, 1, 2)])
    assert (measured.value, measured.n, measured.n_not_evaluable) == (3 / 8, 8, 4)


def test_rate_of_nothing_judged_is_undefined() -> None:
    measured = rate("tool_hallucination_rate", [Cluster(None, 4, 0, 4)])
    assert measured == Measurement("tool_hallucination_rate", {}, None, "ratio", 0, 4, None, None)


def test_runs_without_task_stand_alone() -> None:
    measured = rate("budget_overrun_rate", [Cluster(None, 0, 8, 10)])
    assert (measured.low, measured.high) == pytest.approx(wilson(8, 10))


def verdicts(*rows: tuple[str | None, bool, float | None]) -> list[Verdict]:
    return [Verdict(f"r{i}", task, passed, cost, 0) for i, (task, passed, cost) in enumerate(rows)]


def by_name(measurements: list[Measurement], **dimensions: object) -> dict[tuple[str, object], Measurement]:
    """Those with exactly these dimensions beside k."""
    return {
        (m.metric, m.dimensions.get("k")): m
        for m in measurements
        if {name: value for name, value in m.dimensions.items() if name != "k"} == dimensions
    }


def test_outcomes() -> None:
    # Task a: 1 of 2, task b: 2 of 2. pass_hat_1 = (0.5 + 1)/2, pass_hat_2 = (0 + 1)/2, pass_at_2 = (1 + 1)/2.
    measured = by_name(
        of_outcomes(verdicts(("a", True, 0.1), ("a", False, 0.3), ("b", True, 0.2), ("b", True, 0.2)), runs=6)
    )
    completion = measured["task_completion_rate", None]
    assert (completion.value, completion.n, completion.n_not_evaluable) == (0.75, 4, 2)
    # The failed run's money counts: 0.8 for 3 successes.
    assert measured["cost_per_success_usd", None].value == pytest.approx(0.8 / 3)
    assert measured["pass_hat_k", 1].value == 0.75
    assert measured["pass_hat_k", 2].value == 0.5
    assert measured["pass_at_k", 2].value == 1


def test_tasks_with_too_few_trials_are_counted_not_guessed() -> None:
    measured = by_name(of_outcomes(verdicts(("a", True, None), ("b", True, None), ("b", False, None)), runs=3))
    two = measured["pass_hat_k", 2]
    assert (two.value, two.n, two.n_not_evaluable) == (0.0, 1, 1)


def test_no_success_and_no_price_leave_the_cost_undefined() -> None:
    cost = by_name(of_outcomes(verdicts(("a", False, 0.1), ("a", True, None)), runs=2))["cost_per_success_usd", None]
    assert (cost.value, cost.n, cost.n_not_evaluable) == (None, 1, 1)


def test_interval_of_the_cost_of_a_success() -> None:
    # Runs without a task are clusters: costs 1, 2, 3 and successes 1, 0, 1 make 6/2 = 3. Residuals 1-3, 2, 3-3 have the
    # squares 4 + 4 + 0; 3/2 * 8 = 12; half = 1.96 * sqrt(12) / 2 = 3.39, and money is not below 0.
    cost = by_name(of_outcomes(verdicts((None, True, 1.0), (None, False, 2.0), (None, True, 3.0)), runs=3))[
        "cost_per_success_usd", None
    ]
    assert cost.value == pytest.approx(3)
    assert (cost.low, cost.high) == pytest.approx((0, 3 + Z_95 * 12**0.5 / 2))


@pytest.mark.parametrize(
    ("clusters", "interval"),
    [
        ([], None),
        ([(1.0, 2.0)], None),
        ([(1.0, 0.0), (2.0, 0.0)], None),
        # Equal ratios tell nothing of the swing, also where their sums are rounded.
        ([(0.1, 1), (0.2, 2), (0.7, 7)], None),
        # Means of 1 and 3, two runs each: 8/4 = 2; residuals -2 and 2; 2/1 * 8 = 16; half = 1.96 * 4 / 4.
        ([(2.0, 2.0), (6.0, 2.0)], (2 - Z_95, 2 + Z_95)),
    ],
)
def test_ratio_interval(clusters: list[tuple[float, float]], interval: tuple[float, float] | None) -> None:
    found = ratio_interval(clusters)
    assert found == (None if interval is None else pytest.approx(interval))


def test_a_trial_that_could_not_run_is_a_failure_and_can_be_left_out() -> None:
    # Task a: passed, passed, crashed; task b: passed. pass^1 = (2/3 + 1)/2, without the crash (1 + 1)/2.
    trials = verdicts(("a", True, 0.1), ("a", True, 0.1), ("a", False, 0.4), ("b", True, 0.1))
    trials[2] = trials[2]._replace(could_not_run=True)
    measured = of_outcomes(trials, runs=5)
    failed, left_out = by_name(measured), by_name(measured, could_not_run="left_out")
    assert failed["pass_hat_k", 1].value == pytest.approx(5 / 6)
    assert left_out["pass_hat_k", 1].value == 1
    assert [(m["pass_hat_k", 3].value, m["pass_hat_k", 3].n) for m in (failed,)] == [(0, 1)]
    assert ("pass_hat_k", 3) not in left_out
    completion = [rows["task_completion_rate", None] for rows in (failed, left_out)]
    assert [(m.value, m.n, m.n_not_evaluable) for m in completion] == [(0.75, 4, 1), (1, 3, 2)]
    costs = [rows["cost_per_success_usd", None].value for rows in (failed, left_out)]
    assert costs == pytest.approx([0.7 / 3, 0.1])


def test_where_every_trial_ran_nothing_is_said_twice() -> None:
    assert not by_name(of_outcomes(verdicts(("a", True, 0.1)), runs=1), could_not_run="left_out")


def test_no_outcomes_no_metrics() -> None:
    assert of_outcomes([], runs=5) == []


# Successes of each of the 50 tasks in four trials: sierra-research/tau-bench, commit 59a200c,
# historical_trajectories/gpt-4o-airline.json; pass^1 to pass^4 from its README, row "TC (gpt-4o)".
TAU_SUCCESSES = "01100111000142021140430040220122003443413241222144"


def test_published_pass_hat_k_of_tau_bench() -> None:
    trials = [
        Verdict(None, str(task), trial < int(successes), None, None)
        for task, successes in enumerate(TAU_SUCCESSES)
        for trial in range(4)
    ]
    measured = by_name(of_outcomes(trials, runs=0))
    found = [measured["pass_hat_k", k].value for k in (1, 2, 3, 4)]
    assert found == pytest.approx([0.42, 0.273, 0.22, 0.2], abs=5e-4)


def test_shares_count_observations_and_know_tasks_as_clusters() -> None:
    counted = [Tally("r1", "a", 3, 4), Tally("r2", "a", 1, 2), Tally("r3", None, 2, 2), Tally("r4", "b", 0, 0, 1)]
    measured = measure("tool_selection_recall", counted)
    assert (measured.value, measured.n, measured.n_not_evaluable) == (6 / 8, 8, 1)
    alone = [tally._replace(task_id=None) for tally in counted]
    low, high = measure("tool_selection_recall", alone)[6:]
    assert measured.low is not None
    assert low is not None
    assert measured.low <= low < 6 / 8 < (high or 0)
    assert measure("tool_selection_recall", [])[2:6] == (None, "ratio", 0, 0)


def test_step_efficiency_is_a_mean_over_runs() -> None:
    # 4/2, 3/3 and 6/2 make (2 + 1 + 3) / 3. Clusters a (3, 2 runs) and r3 (3, 1 run): residuals -1 and
    # 1; 2/1 * 2 = 4; half = 1.96 * 2 / 3.
    counted = [Tally("r1", "a", 4, 2), Tally("r2", "a", 3, 3), Tally("r3", None, 6, 2), Tally("r4", None, 9, 1)]
    measured = measure("step_efficiency_ratio", without(counted, {"r4"}))
    assert (measured.value, measured.n, measured.n_not_evaluable) == (2, 3, 1)
    assert (measured.low, measured.high) == pytest.approx((2 - Z_95 * 2 / 3, 2 + Z_95 * 2 / 3))


def test_shortfalls_name_the_farthest_off_first() -> None:
    counted = [Tally("r1", "a", 1, 1), Tally("r2", "a", 0, 1), Tally("r3", "b", 0, 1), Tally("r4", None, 3, 1)]
    assert shortfalls([*counted, Tally("r5", "c", 1, 1), Tally("r6", None, 0, 0, 1)]) == [
        "run r4 (3/1)",
        "task b (0/1)",
        "task a (1/2)",
    ]


def test_safety_is_said_where_every_rule_that_applies_was_judged() -> None:
    unjudged = Unjudged()
    for run in ("nothing_set", "one_set", "blind"):
        for name in ("forbidden_tools", "tenant_isolation", "unconfirmed_mutation", "leaks"):
            unjudged.add(name, "no_rule", run, "no rule for this run")
    unjudged.add("duplicate_mutations", "no_rule", "nothing_set", "no rule for this run")
    unjudged.add("duplicate_mutations", "across_runs", "one_set", "no session id")
    unjudged.add("duplicate_mutations", "confirmed", "blind", "arguments were not captured")
    assert unsafe_to_say(unjudged) == {"nothing_set", "blind"}


@pytest.mark.parametrize(
    ("evaluator", "kind", "severity", "violation"),
    [
        ("leaks", "secret", "error", True),
        ("leaks", "secret", "warning", False),
        ("duplicate_mutations", "confirmed", "error", True),
        ("duplicate_mutations", "unverified_retry", "error", False),
        ("tool_order", "before", "error", False),
    ],
)
def test_violations_of_safety(evaluator: str, kind: str, severity: str, violation: bool) -> None:
    found = Finding("f", "p", evaluator, kind, severity, None, "r1", "t1", "s1", [], None, "it happened", {})
    assert is_violation(found) is violation


LATENCY = [
    Measurement("latency_ms", {"quantile": "p95"}, 3000.0, "ms", 9, 0, None, None),
    Measurement("latency_ms", {"quantile": "p95", "agent": "shop"}, 5000.0, "ms", 4, 0, None, None),
    Measurement("pass_hat_k", {"k": 3}, 0.5, "ratio", 4, 2, 0.1, 0.9),
    Measurement("tool_hallucination_rate", {}, None, "ratio", 0, 7, None, None),
    Measurement("f1_score", {}, 0.95, "ratio", 9, 0, None, None),
]


@pytest.mark.parametrize(
    ("key", "threshold", "passed", "reason"),
    [
        ("latency_ms.p95", Threshold(max=3500), True, None),
        ("latency_ms.p95", Threshold(max=3000), True, None),
        ("latency_ms.p95", Threshold(max=2999), False, "3000 is above 2999 (n 9, no 95 % interval)"),
        ("latency_ms.p95{agent=shop}", Threshold(max=3500), False, "5000 is above 3500 (n 4, no 95 % interval)"),
        (
            "pass_hat_k.3",
            Threshold(min=0.6),
            False,
            "0.5 is below 0.6 (n 4, 2 not evaluable, 95 % interval 0.1 to 0.9)",
        ),
        ("tool_hallucination_rate", Threshold(max=0), None, "no value: 7 not evaluable"),
        ("f1_score", Threshold(min=0.9), True, None),
        ("latency_ms.p99", Threshold(max=1), None, "not measured in this evaluation"),
        ("latency_ms", Threshold(max=1), None, "not measured in this evaluation"),
        ("latency_m.p95", Threshold(max=1), None, "not measured in this evaluation; did you mean latency_ms?"),
    ],
)
def test_threshold(key: str, threshold: Threshold, passed: bool | None, reason: str | None) -> None:
    (verdict,) = gate.verdicts({key: threshold}, LATENCY)
    assert (verdict["passed"], verdict["reason"]) == (passed, reason)


def test_a_threshold_that_fails_names_the_first_offenders() -> None:
    offenders = {"pass_hat_k": [f"task {name} (0/3)" for name in ("a", "b" * 300, "c", "d", "e")]}
    keys = {"pass_hat_k.3": Threshold(min=0.6), "latency_ms.p95": Threshold(max=1)}
    found = {v["threshold"]: v["reason"] for v in gate.verdicts(keys, LATENCY, lambda name: offenders.get(name, []))}
    first, *named = found["pass_hat_k.3"].split("; ")
    assert first.startswith("0.5 is below 0.6")
    assert named == ["task a (0/3)", f"task {'b' * 192}...", "task c (0/3)", "and 2 more"]
    assert ";" not in found["latency_ms.p95"]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_no_value(value: float) -> None:
    row = {"metric": "share", "dimensions": None, "value": value, "unit": "ratio", "n": 0, "n_not_evaluable": 3}
    measured = answers.measurement(catalog.load()["cost_percentiles"], row | {"low": 0.1, "high": value})
    assert measured == Measurement("share", {}, None, "ratio", 0, 3, 0.1, None)
    (verdict,) = gate.verdicts({"share": Threshold(max=0.5)}, [measured])
    assert verdict["passed"] is None


@pytest.mark.parametrize("key", ["p95 of latency", "latency_ms.p95{shop}", ""])
def test_threshold_of_nothing(key: str) -> None:
    with pytest.raises(ConfigError, match="thresholds: "):
        gate.verdicts({key: Threshold(max=1)}, LATENCY)
