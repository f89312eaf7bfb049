"""Rates over all judged runs: what the evaluators found, and what the outcomes say."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agenttrace.evaluators.results import Measurement
from agenttrace.evaluators.statistics import clustered_wilson, mean_interval, pass_at_k, pass_hat_k

# Findings of these evaluators make a rate: runs with a finding over runs that could be judged.
RATES = {
    "tool_hallucination": "tool_hallucination_rate",
    "duplicate_mutations": "duplicate_mutation_rate",
    "budget_overruns": "budget_overrun_rate",
}
# Not having seen other runs of a session says nothing about the run itself.
ACROSS_RUNS = "across_runs"
_LARGEST_K = 10


class Cluster(NamedTuple):
    """Runs of one task; without a task (None) each run is a cluster of its own."""

    task_id: str | None
    blind: int
    flagged: int
    runs: int


class Verdict(NamedTuple):
    """One trial with an outcome; `trajectory_id` is None where the trial itself is not in the store."""

    trajectory_id: str | None
    task_id: str | None
    passed: bool
    cost_usd: float | None
    unpriced_model_calls: int | None


def rate(metric: str, clusters: Iterable[Cluster]) -> Measurement:
    """Returns flagged runs over runs that could be judged; a run with a finding was judged, whatever it lacks."""
    groups = list(clusters)
    blind = sum(cluster.blind for cluster in groups)
    counts: list[tuple[int, int]] = []
    for cluster in groups:
        seen = cluster.runs - cluster.blind
        if cluster.task_id is None:
            counts += [(1, 1)] * cluster.flagged + [(0, 1)] * (seen - cluster.flagged)
        else:
            counts.append((cluster.flagged, seen))
    return _ratio(metric, counts, blind)


def of_outcomes(verdicts: Sequence[Verdict], runs: int) -> list[Measurement]:
    """Returns task_completion_rate, cost_per_success_usd, and pass_at_k and pass_hat_k for each k that a task allows.

    Args:
        verdicts: All trials with an outcome.
        runs: Judged runs, with an outcome or without.
    """
    if not verdicts:
        return []
    judged = [verdict for verdict in verdicts if verdict.trajectory_id is not None]
    by_task: dict[str | None, list[bool]] = defaultdict(list)
    for verdict in judged:
        by_task[verdict.task_id].append(verdict.passed)
    counts = [(int(passed), 1) for passed in by_task.pop(None, [])]
    counts += [(sum(trials), len(trials)) for trials in by_task.values()]
    return [
        _ratio("task_completion_rate", counts, runs - len(judged)),
        _cost_per_success(judged),
        *_of_trials(verdicts),
    ]


def against_previous(current: Sequence[Measurement], previous: Sequence[Measurement]) -> list[Measurement]:
    """Returns what the period before had, and by how much each number changed since.

    Returns:
        For each measurement of `previous` one with the dimension period = "previous", and where both periods have a
        value one with period = "change": current over previous, minus 1. Each row has its own n.
    """
    before = {_identity(m): m for m in previous}
    rows: list[Measurement] = []
    for now in current:
        then = before.get(_identity(now))
        if then is None:
            continue
        rows.append(then._replace(dimensions=then.dimensions | {"period": "previous"}))
        if now.value is not None and then.value:
            change = now.value / then.value - 1
            dimensions = now.dimensions | {"period": "change"}
            rows.append(Measurement(now.metric, dimensions, change, "ratio", now.n, now.n_not_evaluable, None, None))
    return rows


def _identity(measurement: Measurement) -> tuple[str, tuple[tuple[str, str], ...]]:
    return measurement.metric, tuple(sorted((name, str(value)) for name, value in measurement.dimensions.items()))


def _ratio(metric: str, counts: Sequence[tuple[int, int]], n_not_evaluable: int) -> Measurement:
    n = sum(size for _, size in counts)
    low, high = clustered_wilson(counts) or (None, None)
    value = sum(successes for successes, _ in counts) / n if n else None
    return Measurement(metric, {}, value, "ratio", n, n_not_evaluable, low, high)


def _cost_per_success(verdicts: Sequence[Verdict]) -> Measurement:
    """Money of failed runs is part of what a success costs; runs without a full price are left out on both sides."""
    priced = [v for v in verdicts if v.cost_usd is not None and not v.unpriced_model_calls]
    successes = sum(verdict.passed for verdict in priced)
    value = sum(verdict.cost_usd or 0 for verdict in priced) / successes if successes else None
    return Measurement("cost_per_success_usd", {}, value, "usd", len(priced), len(verdicts) - len(priced), None, None)


def _of_trials(verdicts: Sequence[Verdict]) -> list[Measurement]:
    trials: dict[str, list[bool]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.task_id is not None:
            trials[verdict.task_id].append(verdict.passed)
    largest = min(max((len(passed) for passed in trials.values()), default=0), _LARGEST_K)
    return [_over_tasks(metric, trials, k) for metric in ("pass_at_k", "pass_hat_k") for k in range(1, largest + 1)]


def _over_tasks(metric: str, trials: Mapping[str, Sequence[bool]], k: int) -> Measurement:
    estimate = pass_at_k if metric == "pass_at_k" else pass_hat_k
    each = [estimate(sum(passed), len(passed), k) for passed in trials.values()]
    known = [value for value in each if value is not None]
    low, high = mean_interval(known) or (None, None)
    value = sum(known) / len(known) if known else None
    return Measurement(metric, {"k": k}, value, "ratio", len(known), len(each) - len(known), low, high)
