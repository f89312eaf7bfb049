"""Rates over all judged runs: what the evaluators found, and what the outcomes say."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from agenttrace.evaluators.results import Finding, Measurement, Unjudged
from agenttrace.evaluators.statistics import clustered_wilson, mean_interval, pass_at_k, pass_hat_k, ratio_interval

# Findings of these evaluators make a rate: runs with a finding over runs that could be judged.
RATES = {
    "budget_overruns": "budget_overrun_rate",
    "duplicate_mutations": "duplicate_mutation_rate",
    "tool_hallucination": "tool_hallucination_rate",
}
SAFETY_RATE = "safety_violation_rate"
# Errors of these are violations of safety; of the last one only those of the kind `confirmed`.
SAFETY = ("forbidden_tools", "tenant_isolation", "unconfirmed_mutation", "leaks", "duplicate_mutations")
# What the verdicts on trials tell.
OF_OUTCOMES = ("task_completion_rate", "pass_at_k", "pass_hat_k")
_LARGEST_K = 10
_LEFT_OUT = {"could_not_run": "left_out"}


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
    could_not_run: bool = False
    trial: int | None = None


def is_violation(finding: Finding) -> bool:
    """Whether a finding is a violation of safety, which no average may hide."""
    confirmed = finding.evaluator != "duplicate_mutations" or finding.kind == "confirmed"
    return finding.evaluator in SAFETY and finding.severity == "error" and confirmed


def unsafe_to_say(unjudged: Unjudged) -> set[str]:
    """Returns the runs of which nothing can be said about safety.

    They are those for which one of the evaluators has a rule and lacks evidence, and those for which none has a rule.
    """
    lacking = (unjudged.lacking(name) for name in SAFETY)
    without_rule = (unjudged.without_rule(name) for name in SAFETY)
    return set[str]().union(*lacking) | set[str].intersection(*without_rule)


def rate(metric: str, clusters: Iterable[Cluster]) -> Measurement:
    """Returns flagged runs over runs that could be judged; a run with a finding was judged, whatever it lacks.

    The interval is Wilson's over tasks as clusters; see `clustered_wilson` for the papers.
    """
    groups = list(clusters)
    blind = sum(cluster.blind for cluster in groups)
    counts: list[tuple[int, int]] = []
    for cluster in groups:
        seen = cluster.runs - cluster.blind
        if cluster.task_id is None:
            counts += [(1, 1)] * cluster.flagged + [(0, 1)] * (seen - cluster.flagged)
        else:
            counts.append((cluster.flagged, seen))
    return ratio(metric, counts, blind)


def of_outcomes(verdicts: Collection[Verdict], runs: int) -> list[Measurement]:
    """Returns task_completion_rate, cost_per_success_usd, and pass_at_k and pass_hat_k for each k that a task allows.

    A trial that could not run counts as failed, not as missing: an agent that crashes has not done its task. Where
    there are such trials, each metric comes a second time with the dimension could_not_run = "left_out", as if they
    had not been started; whoever knows that it was the harness that crashed reads that one.

    Args:
        verdicts: All trials with an outcome.
        runs: Judged runs, with an outcome or without.
    """
    if not verdicts:
        return []
    measured = _of_trials(verdicts, runs)
    ran = [verdict for verdict in verdicts if not verdict.could_not_run]
    if len(ran) < len(verdicts):
        measured += [m._replace(dimensions=m.dimensions | _LEFT_OUT) for m in _of_trials(ran, runs)]
    return measured


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


def ratio(metric: str, counts: Sequence[tuple[int, int]], n_not_evaluable: int) -> Measurement:
    """Returns hits over observations with its interval, from the hits and observations of each cluster."""
    n = sum(size for _, size in counts)
    low, high = clustered_wilson(counts) or (None, None)
    value = sum(successes for successes, _ in counts) / n if n else None
    return Measurement(metric, {}, value, "ratio", n, n_not_evaluable, low, high)


def _identity(measurement: Measurement) -> tuple[str, tuple[tuple[str, str], ...]]:
    return measurement.metric, tuple(sorted((name, str(value)) for name, value in measurement.dimensions.items()))


def _of_trials(verdicts: Collection[Verdict], runs: int) -> list[Measurement]:
    judged = [verdict for verdict in verdicts if verdict.trajectory_id is not None]
    counts = [(sum(v.passed for v in group), len(group)) for group in _by_task(judged)]
    return [
        ratio("task_completion_rate", counts, runs - len(judged)),
        _cost_per_success(judged),
        *_over_trials(verdicts),
    ]


def _by_task(verdicts: Iterable[Verdict]) -> list[list[Verdict]]:
    """Trials of one task are a cluster; one without a task is a cluster of its own."""
    tasks: dict[str, list[Verdict]] = defaultdict(list)
    alone: list[list[Verdict]] = []
    for verdict in verdicts:
        if verdict.task_id is None:
            alone.append([verdict])
        else:
            tasks[verdict.task_id].append(verdict)
    return alone + list(tasks.values())


def _cost_per_success(verdicts: Sequence[Verdict]) -> Measurement:
    """Returns money over successes: what failed runs cost is part of what a success costs.

    Runs without a full price are left out on both sides. The interval is that of a ratio estimator with tasks as
    clusters; see `ratio_interval` for the source.
    """
    priced = [v for v in verdicts if v.cost_usd is not None and not v.unpriced_model_calls]
    sums = [(sum(v.cost_usd or 0 for v in group), sum(v.passed for v in group)) for group in _by_task(priced)]
    successes = sum(passed for _, passed in sums)
    value = sum(cost for cost, _ in sums) / successes if successes else None
    low, high = ratio_interval(sums) or (None, None)
    return Measurement("cost_per_success_usd", {}, value, "usd", len(priced), len(verdicts) - len(priced), low, high)


def _over_trials(verdicts: Iterable[Verdict]) -> list[Measurement]:
    trials: dict[str, list[bool]] = defaultdict(list)
    for verdict in verdicts:
        if verdict.task_id is not None:
            trials[verdict.task_id].append(verdict.passed)
    largest = min(max((len(passed) for passed in trials.values()), default=0), _LARGEST_K)
    return [_over_tasks(metric, trials, k) for metric in ("pass_at_k", "pass_hat_k") for k in range(1, largest + 1)]


def _over_tasks(metric: str, trials: Mapping[str, Sequence[bool]], k: int) -> Measurement:
    """Returns the mean over tasks of an unbiased estimate; a task with fewer than k trials is not evaluable."""
    estimate = pass_at_k if metric == "pass_at_k" else pass_hat_k
    each = [estimate(sum(passed), len(passed), k) for passed in trials.values()]
    known = [value for value in each if value is not None]
    low, high = mean_interval(known) or (None, None)
    value = sum(known) / len(known) if known else None
    return Measurement(metric, {"k": k}, value, "ratio", len(known), len(each) - len(known), low, high)
