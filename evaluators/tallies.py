"""Metrics that runs add up to: chosen tools, arguments, steps, recovered errors; and which tasks fall short."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from agenttrace.evaluators.metrics import ratio
from agenttrace.evaluators.results import Measurement
from agenttrace.evaluators.statistics import ratio_interval

EFFICIENCY = "step_efficiency_ratio"
# Metric to the evaluator that finds the same faults one by one: where it runs, the relations are there that the query
# with the metric's name reads.
EVALUATOR_OF = {
    "tool_selection_precision": "tool_sequence",
    "tool_selection_recall": "tool_sequence",
    "argument_accuracy": "tool_arguments",
    EFFICIENCY: "step_efficiency",
    "error_recovery_rate": "error_recovery",
}
# These ask what a benchmark case says; without a file of cases they are not measured.
OF_CASES = frozenset(EVALUATOR_OF) - {"error_recovery_rate"}


class Tally(NamedTuple):
    """What one run adds to a metric: `hits` of `size`, beside `blind` observations that could not be made."""

    trajectory_id: str | None
    task_id: str | None
    hits: int
    size: int
    blind: int = 0


def without(tallies: Iterable[Tally], runs: Collection[str]) -> list[Tally]:
    """Returns the tallies, with those of the given runs as one observation each that could not be made."""
    return [
        Tally(tally.trajectory_id, tally.task_id, 0, 0, 1) if tally.trajectory_id in runs else tally
        for tally in tallies
    ]


def measure(metric: str, tallies: Collection[Tally]) -> Measurement:
    """Returns one metric of `EVALUATOR_OF`.

    A share (tool_selection_precision: calls of the runs that the closest accepted sequence has too;
    tool_selection_recall: calls of these sequences that the runs made; argument_accuracy: expected values that the
    calls had; error_recovery_rate: errors of tools that a later success of the same tool followed) is all hits over
    all observations, so that a run counts by its number of calls (micro-average). n are observations; not evaluable
    are runs without a comparison, for arguments expected values of tools that were not called.

    step_efficiency_ratio is the mean over runs of executed over optimal calls: n are runs, 1 is the optimum. A run that
    gave up early is below 1, so it is read beside task_completion_rate.

    Source:
        Precision and recall with micro-averages: Manning, Raghavan and Schuetze, "Introduction to Information
        Retrieval" (2008), sections 8.3 and 13.6. Intervals with tasks as clusters: `clustered_wilson`,
        `ratio_interval`.
    """
    blind = sum(tally.blind for tally in tallies)
    groups = list(_by_place(tallies).values())
    if metric == EFFICIENCY:
        return _mean(metric, groups, blind)
    return ratio(metric, [(sum(t.hits for t in group), sum(t.size for t in group)) for group in groups], blind)


def shortfalls(tallies: Iterable[Tally]) -> list[str]:
    """Returns the tasks, and runs without a task, whose hits are not their size, farthest off first."""
    sums = [
        (place, sum(t.hits for t in group), sum(t.size for t in group)) for place, group in _by_place(tallies).items()
    ]
    off = [(-abs(1 - hits / size), place, hits, size) for place, hits, size in sums if size and hits != size]
    return [f"{place} ({hits}/{size})" for _, place, hits, size in sorted(off)]


def _mean(metric: str, groups: Sequence[Sequence[Tally]], blind: int) -> Measurement:
    seen = [[tally for tally in group if tally.size] for group in groups]
    sums = [(sum(t.hits / t.size for t in group), len(group)) for group in seen if group]
    n = sum(runs for _, runs in sums)
    value = sum(total for total, _ in sums) / n if n else None
    low, high = ratio_interval(sums) or (None, None)
    return Measurement(metric, {}, value, "ratio", n, blind, low, high)


def _by_place(tallies: Iterable[Tally]) -> Mapping[str, list[Tally]]:
    """Runs of one task are a cluster; a run without a task is a cluster of its own."""
    places: dict[str, list[Tally]] = defaultdict(list)
    for tally in sorted(tallies, key=lambda tally: (tally.task_id or "", tally.trajectory_id or "")):
        places[f"run {tally.trajectory_id}" if tally.task_id is None else f"task {tally.task_id}"].append(tally)
    return places
