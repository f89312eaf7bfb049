"""Rates and outcomes, and the thresholds over them."""

import pytest

from agenttrace.config import Threshold
from agenttrace.errors import ConfigError
from agenttrace.evaluators import gate
from agenttrace.evaluators.metrics import Cluster, Verdict, of_outcomes, rate
from agenttrace.evaluators.results import Measurement
from agenttrace.evaluators.statistics import wilson


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


def by_name(measurements: list[Measurement]) -> dict[tuple[str, object], Measurement]:
    return {(m.metric, m.dimensions.get("k")): m for m in measurements}


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


LATENCY = [
    Measurement("latency_ms", {"quantile": "p95"}, 3000.0, "ms", 9, 0, None, None),
    Measurement("latency_ms", {"quantile": "p95", "agent": "shop"}, 5000.0, "ms", 4, 0, None, None),
    Measurement("pass_hat_k", {"k": 3}, 0.5, "ratio", 4, 0, None, None),
    Measurement("tool_hallucination_rate", {}, None, "ratio", 0, 7, None, None),
]


@pytest.mark.parametrize(
    ("key", "threshold", "passed", "reason"),
    [
        ("latency_ms.p95", Threshold(max=3500), True, None),
        ("latency_ms.p95", Threshold(max=3000), True, None),
        ("latency_ms.p95", Threshold(max=2999), False, "3000 is above 2999"),
        ("latency_ms.p95{agent=shop}", Threshold(max=3500), False, "5000 is above 3500"),
        ("pass_hat_k.3", Threshold(min=0.6), False, "0.5 is below 0.6"),
        ("tool_hallucination_rate", Threshold(max=0), None, "no value: 7 not evaluable"),
        ("latency_ms.p99", Threshold(max=1), None, "not measured in this evaluation"),
        ("latency_ms", Threshold(max=1), None, "not measured in this evaluation"),
        ("latency_m.p95", Threshold(max=1), None, "not measured in this evaluation; did you mean latency_ms?"),
    ],
)
def test_threshold(key: str, threshold: Threshold, passed: bool | None, reason: str | None) -> None:
    (verdict,) = gate.verdicts({key: threshold}, LATENCY)
    assert (verdict["passed"], verdict["reason"]) == (passed, reason)


@pytest.mark.parametrize("key", ["p95 of latency", "latency_ms.p95{shop}", ""])
def test_threshold_of_nothing(key: str) -> None:
    with pytest.raises(ConfigError, match="thresholds: "):
        gate.verdicts({key: Threshold(max=1)}, LATENCY)
