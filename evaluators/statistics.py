"""Estimates and intervals; every formula names its source."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate

# Two-sided 95 % quantile of the normal distribution.
Z_95 = 1.959963984540054
# One comparison of an unchanged agent in twenty may raise an alarm, all its metrics taken together.
ALPHA = 0.05


def wilson(successes: float, n: float) -> tuple[float, float] | None:
    """Estimates the 95 % interval of a ratio.

    Args:
        successes: Observations that count, 0 to n; may be fractional with an effective n.
        n: Observations.

    Returns:
        Lower and upper end, each 0 to 1; None when n is 0.

    Raises:
        ValueError: successes outside 0..n.

    Source:
        Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927); the score
        interval without continuity correction, as Brown, Cai and DasGupta, Statistical Science 16 (2001), recommend.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes is {successes}; expected 0 to {n}")
    if n == 0:
        return None
    ratio = successes / n
    square = Z_95 * Z_95
    centre = (ratio + square / (2 * n)) / (1 + square / n)
    half = Z_95 / (1 + square / n) * math.sqrt(ratio * (1 - ratio) / n + square / (4 * n * n))
    # Rounding may leave 1e-17 where the formula gives exactly 0 or 1.
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return low, high


def clustered_wilson(clusters: Iterable[tuple[int, int]]) -> tuple[float, float] | None:
    """Estimates the 95 % interval of a ratio whose observations come in clusters, such as trials of one task.

    Trials of one task resemble each other, so that n trials tell less than n independent ones: the Wilson interval is
    taken over the effective sample size, n divided by the design effect.

    Args:
        clusters: Successes and observations of each cluster.

    Returns:
        Lower and upper end; None without observations.

    Source:
        Kish, "Survey Sampling" (1965), design effect; ratio estimator's variance between clusters as in Cochran,
        "Sampling Techniques" (3rd ed., 1977), section 9A; Wilson over the effective n as in Korn and Graubard,
        Survey Methodology 24 (1998). A design effect below 1 is taken as 1, so that clustering never narrows.
    """
    groups = [(successes, n) for successes, n in clusters if n > 0]
    n = sum(size for _, size in groups)
    if n == 0:
        return None
    ratio = sum(successes for successes, _ in groups) / n
    effect = _design_effect(groups, ratio, n)
    effective = n / effect
    return wilson(min(ratio * effective, effective), effective)


def _design_effect(groups: Sequence[tuple[int, int]], ratio: float, n: int) -> float:
    simple = ratio * (1 - ratio) / n
    if len(groups) == n or len(groups) < 2 or simple == 0:
        # One observation each, or nothing to see between clusters: with one cluster, or with equal outcomes all over,
        # the worst is assumed, that a cluster tells no more than one observation.
        return 1.0 if len(groups) == n else n / len(groups)
    between = sum((successes - ratio * size) ** 2 for successes, size in groups)
    variance = len(groups) / (len(groups) - 1) * between / n**2
    return max(1.0, variance / simple)


def pass_at_k(successes: int, trials: int, k: int) -> float | None:
    """Estimates the chance that at least one of k fresh trials of one task passes.

    Args:
        successes: Trials that passed, 0 to trials.
        trials: Trials that were started; a crashed one counts as failed, not as missing.
        k: Trials of which one must pass, at least 1.

    Returns:
        Ratio 0 to 1, 1 - C(trials - successes, k) / C(trials, k); None when trials < k.

    Raises:
        ValueError: k < 1, or successes outside 0..trials.

    Source:
        Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, equation 1.
    """
    _check(successes, trials, k)
    if trials < k:
        return None
    return 1 - math.comb(trials - successes, k) / math.comb(trials, k)


def pass_hat_k(successes: int, trials: int, k: int) -> float | None:
    """Estimates the chance that k fresh trials of one task all pass.

    Args:
        successes: Trials that passed, 0 to trials.
        trials: Trials that were started; a crashed one counts as failed, not as missing.
        k: Trials that must all pass, at least 1.

    Returns:
        Ratio 0 to 1, C(successes, k) / C(trials, k); None when trials < k.

    Raises:
        ValueError: k < 1, or successes outside 0..trials.

    Source:
        Yao et al., "tau-bench", arXiv 2406.12045, section 4.
    """
    _check(successes, trials, k)
    if trials < k:
        return None
    return math.comb(successes, k) / math.comb(trials, k)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Estimates the 95 % interval of the mean of per-task ratios.

    Args:
        values: One number per task, each 0 to 1.

    Returns:
        Lower and upper end; None with fewer than two tasks.

    Source:
        Variance of the mean from the swing between tasks as independent clusters: Miller, "Adding Error Bars to
        Evals", arXiv 2411.00640, section 2; Wilson over the effective n as in `clustered_wilson`, for near 0 and 1 the
        normal interval covers 75 % with five tasks. Where all values are equal, a task counts as one observation.
    """
    n = len(values)
    if n < 2:
        return None
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    # Equal values differ from their mean by rounding.
    effective = n * mean * (1 - mean) / variance if variance > 1e-18 else n
    return wilson(min(mean * effective, effective), effective)


def ratio_interval(clusters: Iterable[tuple[float, float]]) -> tuple[float, float] | None:
    """Estimates the 95 % interval of a sum over another sum, such as money over successes.

    With the number of runs below the line it is the interval of a mean whose runs come in clusters.

    Args:
        clusters: Numerator and denominator of each cluster, summed over its runs; neither is negative.

    Returns:
        Lower and upper end, not below 0; None with fewer than two clusters, without any denominator, and where all
        clusters have the same ratio, for then nothing tells how far it swings.

    Source:
        Ratio estimator and its variance by linearisation: Cochran, "Sampling Techniques" (3rd ed., 1977), sections
        2.11 and 6.3, with clusters as units; the normal quantile, so that with few clusters it is too narrow.
    """
    groups = list(clusters)
    below = math.fsum(denominator for _, denominator in groups)
    if len(groups) < 2 or not below:
        return None
    ratio = math.fsum(numerator for numerator, _ in groups) / below
    squares = math.fsum((numerator - ratio * denominator) ** 2 for numerator, denominator in groups)
    half = Z_95 * math.sqrt(len(groups) / (len(groups) - 1) * squares) / below
    # Equal ratios differ by the rounding of their sums.
    return None if half <= 1e-9 * ratio else (max(0.0, ratio - half), ratio + half)


def noticeable(n: int, ratio: float, alpha: float = ALPHA) -> int | None:
    """Returns the largest count of successes in n trials that is too low to be luck.

    With 30 trials at 0.9 it is 23: at most 23 succeed with chance 0.026, at most 24 with 0.073.

    Args:
        n: Trials.
        ratio: Chance of one success while nothing has changed, taken as known exactly.
        alpha: Chance up to which a result counts as no luck.

    Returns:
        Count of 0 to n - 1; None where even no success at all may be luck.

    Raises:
        ValueError: ratio outside 0..1.

    Source:
        Lower tail of the binomial distribution; the one-sided exact test of Clopper and Pearson, Biometrika 26 (1934).
    """
    low = sum(1 for tail in lower_tails(n, ratio)[:-1] if tail <= alpha)
    return low - 1 if low else None


def lower_tails(n: int, ratio: float) -> list[float]:
    """Returns the chance that at most 0, 1, ..., n of n independent trials succeed, each with the chance `ratio`.

    Raises:
        ValueError: ratio outside 0..1.
    """
    return list(accumulate(_binomial(n, ratio)))


def within_task_variance(counts: Iterable[tuple[int, int]]) -> float | None:
    """Estimates the variance of one trial's verdict around its own task's rate, averaged over tasks.

    It is the agent's swing from run to run, apart from the tasks being of unequal difficulty.

    Args:
        counts: Successes and trials of each task; tasks with one trial tell nothing, and are left out.

    Returns:
        Variance, 0 to 0.5; None without a task of several trials.

    Source:
        Miller, "Adding Error Bars to Evals", arXiv 2411.00640, section 3: the variance of a score is that between
        tasks plus the mean of those within them. Bessel's n/(n - 1) makes p(1 - p) of each task unbiased.
    """
    variances = [n / (n - 1) * (successes / n) * (1 - successes / n) for successes, n in counts if n > 1]
    return math.fsum(variances) / len(variances) if variances else None


def _binomial(n: int, ratio: float) -> list[float]:
    """Returns the chances of 0 to n successes; by logarithms, for the factors over- and underflow with thousands."""
    if not 0 <= ratio <= 1:
        raise ValueError(f"ratio is {ratio}; expected 0 to 1")
    if ratio in (0, 1):
        return [float(count == ratio * n) for count in range(n + 1)]
    ways = [math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1) for count in range(n + 1)]
    chances = (way + count * math.log(ratio) + (n - count) * math.log1p(-ratio) for count, way in enumerate(ways))
    return [math.exp(chance) for chance in chances]


def cohens_kappa(both_yes: int, only_first: int, only_second: int, both_no: int) -> float | None:
    """Measures how far two raters agree beyond what chance alone would give.

    Args:
        both_yes: Cases that both say yes to.
        only_first: Cases that the first alone says yes to.
        only_second: Cases that the second alone says yes to.
        both_no: Cases that both say no to.

    Returns:
        1 for full agreement, 0 for that of chance, below 0 for less; None without cases, and where each rater gives
        one and the same answer throughout, for then chance alone would agree, too.

    Source:
        Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20 (1960).
    """
    n = both_yes + only_first + only_second + both_no
    if n == 0:
        return None
    first, second = both_yes + only_first, both_yes + only_second
    # Times n squared, so that agreement by chance is exactly 1 where it is.
    by_chance = first * second + (n - first) * (n - second)
    if by_chance == n * n:
        return None
    return ((both_yes + both_no) * n - by_chance) / (n * n - by_chance)


def _check(successes: int, trials: int, k: int) -> None:
    if k < 1:
        raise ValueError(f"k is {k}; expected at least 1")
    if not 0 <= successes <= trials:
        raise ValueError(f"successes is {successes}; expected 0 to {trials}")
