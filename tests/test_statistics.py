"""Estimates against numbers worked by hand or published."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttrace.evaluators.statistics import (
    clustered_wilson,
    lower_tails,
    mean_interval,
    noticeable,
    pass_at_k,
    pass_hat_k,
    wilson,
    within_task_variance,
)


def test_wilson() -> None:
    # 8 of 10: centre (0.8 + 3.8415/20) / (1 + 0.38415) = 0.99207/1.38415 = 0.71674;
    # half 1.95996/1.38415 * sqrt(0.016 + 0.0096037) = 1.41601 * 0.160012 = 0.22658.
    assert wilson(8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    # None of 20: 0 to z^2/(n + z^2) = 3.8415/23.8415 = 0.16113.
    assert wilson(0, 20) == pytest.approx((0.0, 0.16113), abs=1e-5)
    assert wilson(20, 20) == pytest.approx((0.83887, 1.0), abs=1e-5)
    assert wilson(0, 0) is None
    with pytest.raises(ValueError, match="successes is 3; expected 0 to 2"):
        wilson(3, 2)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_ratio(case: tuple[int, int]) -> None:
    successes, n = case
    low, high = wilson(successes, n) or (1.0, 0.0)
    assert 0 <= low <= successes / n <= high <= 1


def test_clusters_widen_the_interval() -> None:
    # Ten tasks of four trials, five of them always pass, five never: n = 40 tells as little as 10.
    # Between clusters: 10/9 * 10 * (4*0.5)^2 / 40^2 = 0.027778; simple 0.25/40 = 0.00625; effect 4.4444, n 9.
    alike = [(4, 4)] * 5 + [(0, 4)] * 5
    assert clustered_wilson(alike) == pytest.approx(wilson(4.5, 9))
    low, high = wilson(20, 40) or (0.0, 0.0)
    wide_low, wide_high = clustered_wilson(alike) or (0.0, 0.0)
    assert wide_low < low < high < wide_high


def test_trials_that_differ_within_tasks_do_not_narrow() -> None:
    # Each task passes half: the variance between tasks is 0, the effect is taken as 1.
    assert clustered_wilson([(2, 4)] * 10) == pytest.approx(wilson(20, 40))


def test_single_observations_are_no_clusters() -> None:
    assert clustered_wilson([(1, 1)] * 8 + [(0, 1)] * 2) == pytest.approx(wilson(8, 10))


def test_one_task_is_one_observation() -> None:
    assert clustered_wilson([(10, 10)]) == pytest.approx(wilson(1, 1))
    assert clustered_wilson([]) is None
    assert clustered_wilson([(0, 0)]) is None


def test_pass_at_k() -> None:
    # 1 - C(4, 3)/C(10, 3) = 1 - 4/120
    assert pass_at_k(6, 10, 3) == pytest.approx(0.9667, abs=5e-5)
    assert pass_at_k(0, 10, 3) == 0
    assert pass_at_k(10, 10, 10) == 1
    assert pass_at_k(1, 2, 3) is None


def test_pass_hat_k() -> None:
    # C(8, k)/C(10, k): 8/10, 56/120, 56/252
    assert [pass_hat_k(8, 10, k) for k in (1, 3, 5)] == pytest.approx([0.8, 0.466667, 0.222222], abs=1e-6)
    assert pass_hat_k(2, 2, 3) is None
    assert pass_hat_k(2, 4, 3) == 0


@pytest.mark.parametrize("estimate", [pass_at_k, pass_hat_k])
def test_impossible_trials_are_refused(estimate: object) -> None:
    with pytest.raises(ValueError, match="k is 0"):
        estimate(1, 2, 0)  # type: ignore[operator]
    with pytest.raises(ValueError, match="successes is 3"):
        estimate(3, 2, 1)  # type: ignore[operator]


@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n), st.integers(1, n))))
def test_all_pass_is_rarer_than_one_passes(case: tuple[int, int, int]) -> None:
    successes, trials, k = case
    at, hat = pass_at_k(successes, trials, k), pass_hat_k(successes, trials, k)
    assert at is not None
    assert hat is not None
    assert 0 <= hat <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= at <= 1


def test_mean_interval() -> None:
    # Mean 0.5, variance 1/3: effective n is 4 * 0.25 / (1/3) = 3. Means and variances of whole trials are those of
    # `clustered_wilson`.
    assert mean_interval([0, 1, 0, 1]) == pytest.approx(wilson(1.5, 3))
    assert mean_interval([1.0] * 5 + [0.0] * 5) == pytest.approx(clustered_wilson([(4, 4)] * 5 + [(0, 4)] * 5))
    assert mean_interval([0.5]) is None


def test_equal_tasks_are_not_certain() -> None:
    # Five tasks that all passed all trials say no more than five observations.
    assert mean_interval([1.0] * 5) == pytest.approx(wilson(5, 5))
    assert mean_interval([0.0] * 5) == pytest.approx(wilson(0, 5))
    assert mean_interval([0.1] * 10) == pytest.approx(wilson(1, 10))


def at_most(count: int, n: int, ratio: float) -> float:
    """The chance that at most `count` of n succeed, summed term by term."""
    return math.fsum(math.comb(n, k) * ratio**k * (1 - ratio) ** (n - k) for k in range(count + 1))


def test_lower_tails_give_the_worked_numbers() -> None:
    tails = lower_tails(30, 0.9)
    assert [round(tails[count], 3) for count in (26, 25, 24, 23)] == [0.353, 0.175, 0.073, 0.026]
    # Six steps that each succeed nine times of ten all succeed about every second time.
    assert 1 - lower_tails(6, 0.9)[5] == pytest.approx(0.531441)
    with pytest.raises(ValueError, match=r"ratio is -1; expected 0 to 1"):
        lower_tails(2, -1)


def test_noticeable() -> None:
    # 23 of 30 or fewer come with chance 0.026, 24 or fewer with 0.073.
    assert noticeable(30, 0.9) == 23
    # 0.5^4 = 0.0625 is too much for none of 4, 0.5^5 = 0.031 is not for none of 5.
    assert (noticeable(4, 0.5), noticeable(5, 0.5)) == (None, 0)
    assert noticeable(30, 1.0) == 29
    assert noticeable(0, 0.9) is None
    # Neither over- nor underflow: at most 9,883 of 20,000 come with chance 0.0497, 9,884 with 0.0512 (scipy).
    assert noticeable(20_000, 0.5) == 9_883
    with pytest.raises(ValueError, match=r"ratio is 1\.5; expected 0 to 1"):
        noticeable(2, 1.5)


@given(st.integers(1, 200), st.floats(0.05, 1.0))
def test_noticeable_is_the_last_that_is_no_luck(n: int, ratio: float) -> None:
    count = noticeable(n, ratio)
    assert at_most(-1 if count is None else count, n, ratio) <= 0.05 + 1e-12
    assert count == n - 1 or at_most(0 if count is None else count + 1, n, ratio) > 0.05 - 1e-12


def test_within_task_variance() -> None:
    # 1 of 2: 2/1 * 1/4 = 0.5; 2 of 3: 3/2 * 2/9 = 1/3; 4 of 4: 0; a single trial tells nothing.
    assert within_task_variance([(1, 2), (2, 3), (4, 4), (1, 1)]) == pytest.approx((0.5 + 1 / 3 + 0) / 3)
    assert within_task_variance([(1, 1), (0, 1)]) is None


def test_within_task_variance_is_unbiased() -> None:
    # Over all verdicts of three trials with chance 0.3, the mean is 0.3 * 0.7.
    chances = [math.comb(3, c) * 0.3**c * 0.7 ** (3 - c) for c in range(4)]
    assert sum(p * (within_task_variance([(c, 3)]) or 0) for c, p in enumerate(chances)) == pytest.approx(0.21)
