"""How often `agenttrace compare` blocks an agent that has not changed, and one that has become worse.

Run: `python benchmarks/false_alarms.py [COMPARISONS]`: 200 of each shape by default, half a minute; 2,000 for figures
that can be quoted. Each comparison draws the runs of a base and of a head, with the same chances in each task, and puts
their counts through the decision that the command makes. Target: at most 5 in 100 blocked in every shape; a share above
it that chance explains does not fail. A fault of safety that only the head shows blocks as well, by intent and not by
statistics; it is not part of this.
"""

import random
import sys
from typing import NamedTuple

from ratios import report

from agenttrace.evaluators.compare import decide
from agenttrace.evaluators.comparison import ERRORS, RATES, SUCCESS
from agenttrace.evaluators.differences import Counts
from agenttrace.evaluators.statistics import ALPHA, wilson

COMPARISONS = 200
SEED = 20_260_101
# Chance that a run shows a fault, failed runs three times as often: the metrics hang together, as they do in practice.
FLAGS = {
    "safety_violation_rate": 0.02,
    "tool_hallucination_rate": 0.06,
    "duplicate_mutation_rate": 0.03,
    "budget_overrun_rate": 0.10,
}


class Shape(NamedTuple):
    """A suite of tasks, and an agent that runs it.

    Attributes:
        tasks: Number of tasks.
        base_trials: Runs of each task on the side of the base.
        head_trials: Runs of each task on the side of the head.
        success: Mean chance of success.
        spread: Whether the tasks differ in difficulty: Beta-distributed chances around the mean, most of them near 0
            and 1, else all alike.
        paired: Whether the tasks are known.
    """

    tasks: int
    base_trials: int
    head_trials: int
    success: float
    spread: bool
    paired: bool = True

    def __str__(self) -> str:
        trials = "/".join(str(n) for n in dict.fromkeys((self.base_trials, self.head_trials)))
        return (
            f"{self.tasks:5} {trials:>6} {self.success:7.2f}  {'Beta' if self.spread else 'alike':5}  "
            f"{'paired' if self.paired else 'unpaired':8}"
        )


SHAPES = [
    *(Shape(tasks, 1, 1, 0.9, spread) for tasks in (10, 30, 100, 200) for spread in (False, True)),
    *(Shape(30, 1, 1, success, True) for success in (0.5, 0.7, 0.98)),
    *(Shape(tasks, 3, 3, success, True) for tasks in (10, 50) for success in (0.5, 0.8, 0.98)),
    Shape(50, 3, 3, 0.8, False),
    Shape(20, 5, 5, 0.7, True),
    Shape(100, 5, 5, 0.9, True),
    Shape(200, 5, 5, 0.5, True),
    Shape(30, 5, 2, 0.8, True),
    Shape(30, 1, 4, 0.9, False),
    Shape(30, 1, 1, 0.9, False, paired=False),
    Shape(100, 2, 2, 0.8, False, paired=False),
]


def blocked(shape: Shape, drop: float, draw: random.Random) -> bool:
    """Draws one comparison and decides it; `drop` is what each task's chance of success loses in the head."""
    strata: dict[str, list[Counts]] = {metric: [] for metric in RATES}
    for _ in range(shape.tasks):
        chance = _chance(shape, draw)
        base = [_run(chance, draw) for _ in range(shape.base_trials)]
        head = [_run(max(0.0, chance - drop), draw) for _ in range(shape.head_trials)]
        for metric in RATES:
            before, after = (sum(run[metric] for run in runs) for runs in (base, head))
            strata[metric].append(Counts(before, len(base), after, len(head)))
    if not shape.paired:
        strata = {metric: [Counts(*map(sum, zip(*counts, strict=True)))] for metric, counts in strata.items()}
    return any(decision.verdict == "worse" for decision in decide(strata).values())


def _chance(shape: Shape, draw: random.Random) -> float:
    # A Beta distribution with parameters below 1 has its mass at both ends: tasks always or never done.
    return draw.betavariate(shape.success, 1 - shape.success) if shape.spread else shape.success


def _run(success: float, draw: random.Random) -> dict[str, bool]:
    passed = draw.random() < success
    flags = {metric: draw.random() < chance * (1 if passed else 3) for metric, chance in FLAGS.items()}
    return {SUCCESS: passed, ERRORS: any(flags.values())} | flags


def measure(shape: Shape, drop: float, comparisons: int, seed: int = SEED) -> int:
    """Returns how many of so many comparisons are blocked."""
    draw = random.Random(f"{seed} {shape} {drop}")
    return sum(blocked(shape, drop, draw) for _ in range(comparisons))


def row(shape: Shape, comparisons: int) -> dict[str, float | str]:
    """Returns a row of the table, in per cent; the interval is that of the false alarms (95 %)."""
    alarms, fewer = measure(shape, 0.0, comparisons), max(comparisons // 5, 1)
    low, high = wilson(alarms, comparisons) or (0.0, 1.0)
    return {
        "tasks trials success  tasks  compared": str(shape),
        "false alarms %": 100 * alarms / comparisons,
        "from %": 100 * low,
        "to %": 100 * high,
        "10 points worse, noticed %": 100 * measure(shape, 0.1, fewer) / fewer,
        "20 points %": 100 * measure(shape, 0.2, fewer) / fewer,
    }


def main(comparisons: int = COMPARISONS) -> bool:
    """Prints the table; True where no unchanged agent is blocked too often, chance allowed for."""
    rows = [row(shape, comparisons) for shape in SHAPES]
    within = all(float(each["from %"]) <= 100 * ALPHA for each in rows)
    verdict = f"{'all' if within else 'NOT all'} within {100 * ALPHA:.0f} %"
    report("false_alarms", {f"{comparisons:,} comparisons of each shape": rows}, {"false alarms": verdict})
    return within


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
