"""What a comparison can notice at all, and how much the agent swings by itself."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from agenttrace.evaluators import differences
from agenttrace.evaluators.comparison import SUCCESS, Run
from agenttrace.evaluators.differences import Counts
from agenttrace.evaluators.statistics import ALPHA, noticeable, within_task_variance


def power(strata: Sequence[Counts], tested: int) -> str:
    """Says which drop of task success would be noticed.

    Args:
        strata: Passed runs and runs of each task, on both sides.
        tested: Metrics that the comparison corrects for.
    """
    counts = [group for group in strata if group.base_n and group.head_n]
    values = differences.rates(counts)
    if values is None:
        return "No task has a verdict on both sides: no drop of task success could be noticed."
    n, ratio = sum(group.head_n for group in counts), values[0]
    if ratio == 0:
        return f"With {n} runs no drop could be noticed: no run of the base succeeded."
    alone = noticeable(n, ratio)
    against = _least_blocking(counts, max(tested, 1))
    if against is None:
        return f"With {n} runs against {_base_n(counts)} of the base no drop from {_percent(ratio)} could be noticed."
    ideal = "" if alone is None else f"to {_of(alone, n)} or lower if the base's rate were its true one, "
    metrics = f"{tested} metrics tested at once" if tested > 1 else "nothing else tested"
    return (
        f"With {n} runs a drop from {_percent(ratio)} would be noticed: {ideal}to {_of(against, n)} or lower against "
        f"the {_base_n(counts)} runs of the base, spread over its tasks, with {metrics}."
    )


def swing(tasks: Iterable[Sequence[Run]]) -> dict[str, Any] | None:
    """Returns how much the success rate moves from run to run with nothing changed; None without repeated trials.

    Returns:
        tasks: Tasks with several verdicts.
        within_task_sd: Standard deviation of one trial's verdict around its own task's rate.
        rate_sd: Standard deviation of the success rate over one trial of each of these tasks.
        lowest, highest: Success rate over these tasks by number of the trial, for trials that all of them have; a
            trial that was run again counts with all its runs. None without such trials.
    """
    known = [[run for run in runs if run.values.get(SUCCESS) is not None] for runs in tasks]
    repeated = [runs for runs in known if len(runs) > 1]
    variance = within_task_variance((_passed(runs), len(runs)) for runs in repeated)
    if variance is None:
        return None
    trials = set[int | None].intersection(*({run.trial for run in runs} for runs in repeated)) - {None}
    by_trial = [[run for runs in repeated for run in runs if run.trial == trial] for trial in trials]
    rates = [_passed(runs) / len(runs) for runs in by_trial]
    return {
        "tasks": len(repeated),
        "within_task_sd": math.sqrt(variance),
        "rate_sd": math.sqrt(variance / len(repeated)),
        "lowest": min(rates, default=None),
        "highest": max(rates, default=None),
    }


def _passed(runs: Iterable[Run]) -> int:
    return sum(bool(run.values.get(SUCCESS)) for run in runs)


def _least_blocking(counts: Sequence[Counts], tested: int) -> int | None:
    """Returns the largest count of successes in the head that would block, were the base's runs lost evenly."""
    start = [group._replace(head=round(group.base / group.base_n * group.head_n)) for group in counts]
    most = sum(group.head for group in start)
    low, high = 0, most
    # The chance falls with each success lost, so that halving finds the first loss that counts.
    while low < high:
        middle = (low + high) // 2
        if differences.fewer(_lowered(start, middle)) <= ALPHA / tested:
            high = middle
        else:
            low = middle + 1
    return most - low if differences.fewer(_lowered(start, low)) <= ALPHA / tested else None


def _lowered(counts: Sequence[Counts], lost: int) -> list[Counts]:
    """Takes one success from each task in turn until so many are lost."""
    left = [group.head for group in counts]
    while lost:
        for index, successes in enumerate(left):
            if lost and successes:
                left[index] -= 1
                lost -= 1
    return [group._replace(head=successes) for group, successes in zip(counts, left, strict=True)]


def _base_n(counts: Iterable[Counts]) -> int:
    return sum(group.base_n for group in counts)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"


def _of(count: int, n: int) -> str:
    return f"{_percent(count / n)} ({count} of {n})"
