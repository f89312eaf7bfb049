"""The interval of a ratio of two sums, where the numbers are no counts."""

import math
from collections.abc import Iterable

from agenttrace.evaluators.statistics import Z_95


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
