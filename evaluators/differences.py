"""Tests of a difference between two groups of runs, within tasks: exact, one-sided, conditional on the totals.

An unchanged agent has, in each task, the same chances before and after; nothing is assumed of how tasks differ from
each other. So what is compared is always a task with itself, and the tasks' results are added up.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Terms below this are cut off at both ends of a distribution: a tail of 19 standard deviations is kept.
_NEGLIGIBLE = 1e-80
# So many ways of dealing the runs of all tasks to the two sides are counted one by one; beyond, they are near normal.
_COUNTED_DEALS = 100_000

# The smallest count, and the chances of the counts from there on.
_Chances = tuple[int, NDArray[np.float64]]


class Counts(NamedTuple):
    """Runs of one task that count, and runs, on both sides."""

    base: int
    base_n: int
    head: int
    head_n: int

    @property
    def turned(self) -> "Counts":
        """The runs that do not count."""
        return Counts(self.base_n - self.base, self.base_n, self.head_n - self.head, self.head_n)


class Numbers(NamedTuple):
    """One number per run of one task, on both sides."""

    base: Sequence[float]
    head: Sequence[float]


def fewer(strata: Iterable[Counts]) -> float:
    """Returns the chance that an unchanged agent has as few counting runs in the head as were seen, or fewer.

    Within a task, given its total, the head's count of an unchanged agent is hypergeometric: every deal of the runs to
    the two sides is as likely. The sum's distribution is the convolution over the tasks. With one run per task and side
    it is the exact test of McNemar, over tasks whose verdicts differ; with one task it is Fisher's exact test.

    Source:
        Mantel and Haenszel, JNCI 22 (1959), in the exact form of Agresti, "Categorical Data Analysis" (3rd ed., 2013),
        section 7.3.5; McNemar, Psychometrika 12 (1947); Fisher, "The Design of Experiments" (1935).
    """
    groups = list(strata)
    first, chances = _sum_of_heads(groups)
    seen = sum(group.head for group in groups)
    return min(1.0, math.fsum(chances[: max(0, seen - first + 1)]))


def fewest(strata: Iterable[Counts]) -> float:
    """Returns the smallest value that `fewer` can take with the totals of these tasks: 1 where nothing can differ.

    A test that cannot reach the level at all need not be corrected for.

    Source:
        Tarone, "A modified Bonferroni method for discrete data", Biometrics 46 (1990).
    """
    return fewer([_emptied(group) for group in strata])


def more(strata: Iterable[Counts]) -> float:
    """Returns the chance that an unchanged agent has as many counting runs in the head as were seen, or more."""
    return fewer([group.turned for group in strata])


def rates(strata: Iterable[Counts]) -> tuple[float, float] | None:
    """Returns the rate on both sides, weighted so that a task weighs the same on both: plain where n are equal.

    Their difference has the sign of what `fewer` tests, which that of two pooled rates need not have where a task has
    more runs on one side (Simpson's paradox). None without a task on both sides.

    Source:
        Weights of Mantel and Haenszel for a difference of rates: Greenland and Robins, Biometrics 41 (1985).
    """
    return _weighted([group for group in strata if group.base_n and group.head_n])


def means(strata: Iterable[Numbers]) -> tuple[float, float] | None:
    """Returns the mean on both sides, weighted as `rates` are."""
    return _weighted(
        [
            (math.fsum(group.base), len(group.base), math.fsum(group.head), len(group.head))
            for group in strata
            if group.base and group.head
        ]
    )


def higher(strata: Iterable[Numbers]) -> float:
    """Returns the chance that an unchanged agent's numbers rank as high in the head as those seen, or higher.

    Ranks are taken within tasks, ties share theirs, and a task's rank sum weighs 1 over its runs plus one. Exact over
    all deals of the runs to the two sides where these are few, else from the normal distribution with a correction for
    continuity.

    Source:
        van Elteren, Bulletin of the International Statistical Institute 37 (1960); with one task the test of Wilcoxon,
        Biometrics Bulletin 1 (1945), and Mann and Whitney (1947); variance with ties as in Lehmann, "Nonparametrics"
        (1975), section 3.3.
    """
    groups = [group for group in strata if group.base and group.head]
    deals = math.prod(math.comb(len(group.base) + len(group.head), len(group.head)) for group in groups)
    return _higher_counted(groups) if deals <= _COUNTED_DEALS else _higher_normal(groups)


def lower(strata: Iterable[Numbers]) -> float:
    """Returns the chance that an unchanged agent's numbers rank as low in the head as those seen, or lower."""
    return higher([Numbers([-value for value in base], [-value for value in head]) for base, head in strata])


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values corrected for being several: of all that are luck, none is at most alpha with chance 1 - alpha.

    Source:
        Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
    """
    corrected = [1.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def _weighted(groups: Sequence[tuple[float, int, float, int]]) -> tuple[float, float] | None:
    """Returns the mean of base sum / base n and of head sum / head n, each weighing base n * head n / (both n)."""
    if not groups:
        return None
    weight = math.fsum(base_n * head_n / (base_n + head_n) for _, base_n, _, head_n in groups)
    return (
        math.fsum(base * head_n / (base_n + head_n) for base, base_n, _, head_n in groups) / weight,
        math.fsum(head * base_n / (base_n + head_n) for _, base_n, head, head_n in groups) / weight,
    )


def _emptied(group: Counts) -> Counts:
    """The same totals with as many of the counting runs in the base as it has room for."""
    total = group.base + group.head
    base = min(total, group.base_n)
    return Counts(base, group.base_n, total - base, group.head_n)


def _sum_of_heads(groups: Sequence[Counts]) -> _Chances:
    """Returns the smallest sum of the heads' counts that is not negligible, and the chances from there on."""
    kinds = Counter((group.base + group.head, group.base_n, group.head_n) for group in groups)
    first, chances = 0, np.ones(1)
    for kind, times in kinds.items():
        lowest, one = _head(*kind)
        # Squaring takes log2(times) convolutions: suites have many tasks of few kinds.
        power = (lowest, one)
        while times:
            if times & 1:
                first, chances = _added((first, chances), power)
            power = _added(power, power) if (times := times >> 1) else power
    return first, chances


@lru_cache(maxsize=1_000)
def _head(total: int, base_n: int, head_n: int) -> _Chances:
    """Returns the smallest count of the head, and the hypergeometric chances from there on."""
    low, high = max(0, total - base_n), min(total, head_n)
    ratios = [(total - x) * (head_n - x) / ((x + 1) * (base_n - total + x + 1)) for x in range(low, high)]
    # Chances relative to the most likely count neither overflow nor lose what matters.
    mode = next((index for index, ratio in enumerate(ratios) if ratio < 1), len(ratios))
    chances = [1.0] * (len(ratios) + 1)
    for index in range(mode, len(ratios)):
        chances[index + 1] = chances[index] * ratios[index]
    for index in range(mode, 0, -1):
        chances[index - 1] = chances[index] / ratios[index - 1]
    whole = math.fsum(chances)
    return _trimmed(low, np.array(chances) / whole)


def _added(left: _Chances, right: _Chances) -> _Chances:
    """Returns the distribution of the sum of two independent counts."""
    return _trimmed(left[0] + right[0], np.convolve(left[1], right[1]))


def _trimmed(first: int, chances: NDArray[np.float64]) -> _Chances:
    kept = np.flatnonzero(chances >= _NEGLIGIBLE)
    return first + int(kept[0]), chances[kept[0] : kept[-1] + 1]


def _doubled_ranks(group: Numbers) -> list[int]:
    """Ranks of the head's values after those of the base, times two, so that shared ranks are whole."""
    values = [*group.base, *group.head]
    ordered = sorted(values)
    below: dict[float, int] = {}
    for index, value in enumerate(ordered):
        below.setdefault(value, index)
    tied = Counter(values)
    return [2 * below[value] + tied[value] + 1 for value in values]


def _higher_counted(groups: Sequence[Numbers]) -> float:
    scale = math.lcm(*(len(group.base) + len(group.head) + 1 for group in groups))
    sums: Counter[int] = Counter({0: 1})
    seen = 0
    for group in groups:
        ranks = _doubled_ranks(group)
        weight = scale // (len(ranks) + 1)
        seen += weight * sum(ranks[len(group.base) :])
        deals = Counter(weight * sum(deal) for deal in combinations(ranks, len(group.head)))
        added: Counter[int] = Counter()
        for before, times in sums.items():
            for own, own_times in deals.items():
                added[before + own] += times * own_times
        sums = added
    return sum(times for value, times in sums.items() if value >= seen) / sums.total()


def _higher_normal(groups: Sequence[Numbers]) -> float:
    distance = variance = 0.0
    steps = 1
    for group in groups:
        ranks, head_n = _doubled_ranks(group), len(group.head)
        n = len(ranks)
        ties = sum(times**3 - times for times in Counter(ranks).values())
        if ties == n**3 - n:
            # Equal numbers tell nothing.
            continue
        distance += (sum(ranks[len(group.base) :]) - head_n * (n + 1)) / 2 / (n + 1)
        variance += head_n * (n - head_n) * (n**3 - n - ties) / (12 * n * (n - 1) * (n + 1) ** 2)
        steps = math.lcm(steps, n + 1)
    # The sum moves in steps, and what is as high as seen begins half a step below it.
    return 0.5 * math.erfc((distance - 0.5 / steps) / math.sqrt(2 * variance)) if variance else 1.0
