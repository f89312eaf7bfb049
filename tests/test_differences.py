"""Tests of a difference: against published numbers, and against counting every deal of the runs to the two sides."""

import math
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttrace.evaluators import differences
from agenttrace.evaluators.differences import Counts, Numbers, fewer, fewest, higher, holm, lower, means, more, rates

strata = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 3)).flatmap(
        lambda n: st.builds(Counts, st.integers(0, n[0]), st.just(n[0]), st.integers(0, n[1]), st.just(n[1]))
    ),
    min_size=1,
    max_size=3,
)
numbers = st.lists(
    st.builds(
        Numbers,
        st.lists(st.integers(0, 3).map(float), min_size=1, max_size=3),
        st.lists(st.integers(0, 3).map(float), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=3,
)


def test_one_task_is_fishers_test() -> None:
    # The lady tasting tea: 3 of 4 cups right by luck or better, 17/70 (Fisher 1935).
    assert more([Counts(1, 4, 3, 4)]) == pytest.approx(17 / 70)
    assert more([Counts(0, 4, 4, 4)]) == pytest.approx(1 / 70)
    # Fisher's convicted twins, as in the help of R's fisher.test: 10 of 13 alike, 2 of 17 not; p = 0.0004652.
    assert fewer([Counts(10, 13, 2, 17)]) == pytest.approx(0.0004652, abs=5e-8)


def test_one_run_per_task_is_mcnemars_test() -> None:
    # Nine tasks were lost, two won, thirty kept: what differs is a coin's toss. At most 2 of 11: 67/2048.
    lost, won, kept = Counts(1, 1, 0, 1), Counts(0, 1, 1, 1), Counts(1, 1, 1, 1)
    assert fewer([lost] * 9 + [won] * 2 + [kept] * 30) == pytest.approx(67 / 2048)
    assert fewer([lost] * 100) == pytest.approx(0.5**100)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_mcnemars_test_is_binomial_over_pairs_that_differ(lost: int, won: int, kept: int) -> None:
    pairs = [Counts(1, 1, 0, 1)] * lost + [Counts(0, 1, 1, 1)] * won + [Counts(1, 1, 1, 1)] * kept
    tosses = lost + won
    assert fewer(pairs) == pytest.approx(sum(math.comb(tosses, count) for count in range(won + 1)) / 2**tosses)


def test_an_exact_test_over_strata_of_a_textbook() -> None:
    # Promotions in three months (Gastwirth 1988, in Agresti 2013, section 7.3.5): 4 of 20, 4 of 17 and 2 of 15 white
    # employees, none of 7, 7 and 8 black ones. C(20,4)/C(27,4) * C(17,4)/C(24,4) * C(15,2)/C(23,2) = 0.026.
    months = [Counts(4, 20, 0, 7), Counts(4, 17, 0, 7), Counts(2, 15, 0, 8)]
    assert fewer(months) == pytest.approx(0.026, abs=5e-4)


@settings(max_examples=40)
@given(strata)
def test_chances_are_those_of_all_deals(groups: list[Counts]) -> None:
    seen = sum(group.head for group in groups)
    heads = [sum(deals) for deals in product(*(_deals(group) for group in groups))]
    assert fewer(groups) == pytest.approx(sum(head <= seen for head in heads) / len(heads))
    assert more(groups) == pytest.approx(sum(head >= seen for head in heads) / len(heads))
    assert fewest(groups) == pytest.approx(sum(head == min(heads) for head in heads) / len(heads))


def _deals(group: Counts) -> list[int]:
    total = group.base + group.head
    runs = [1] * total + [0] * (group.base_n + group.head_n - total)
    return [sum(deal) for deal in combinations(runs, group.head_n)]


def test_large_suites_are_quick_and_keep_their_tails() -> None:
    assert fewer([Counts(5, 10, 5, 10)] * 5_000) == pytest.approx(0.5, abs=0.01)
    assert fewer([Counts(9_000, 10_000, 8_900, 10_000)]) == pytest.approx(0.01119, abs=1e-5)


@given(strata)
def test_rates_move_with_the_test(groups: list[Counts]) -> None:
    base, head = rates(groups) or (0.0, 0.0)
    total = sum((g.base + g.head) * g.head_n / (g.base_n + g.head_n) for g in groups)
    weight = sum(g.base_n * g.head_n / (g.base_n + g.head_n) for g in groups)
    assert (head - base) * weight == pytest.approx(sum(g.head for g in groups) - total, abs=1e-9)


def test_rates_weigh_a_task_alike_on_both_sides() -> None:
    # Pooled, the head falls from 10/11 to 2/11; in each task nothing has changed.
    assert rates([Counts(10, 10, 1, 1), Counts(0, 1, 0, 10)]) == pytest.approx((0.5, 0.5))
    assert rates([Counts(1, 2, 0, 2), Counts(1, 1, 1, 1)]) == pytest.approx((2 / 3, 1 / 3))
    assert rates([Counts(1, 1, 0, 0)]) is None


def test_means() -> None:
    assert means([Numbers([1.0, 3.0], [5.0, 5.0]), Numbers([7.0], [])]) == (2.0, 5.0)
    assert means([Numbers([1.0], [])]) is None


def test_ranks_of_one_group() -> None:
    # Of the C(6, 3) = 20 deals one puts the three highest into the head.
    assert higher([Numbers([1, 2, 3], [4, 5, 6])]) == 1 / 20
    assert lower([Numbers([1, 2, 3], [4, 5, 6])]) == 1
    assert higher([Numbers([1, 1], [1, 1])]) == 1
    assert higher([Numbers([1], [])]) == 1


def test_ranks_of_pairs_are_a_sign_test() -> None:
    rises, falls = Numbers([1], [2]), Numbers([2], [1])
    assert higher([rises] * 9 + [falls] * 2) == pytest.approx(67 / 2048)


@given(numbers)
def test_ranks_are_those_of_all_deals(groups: list[Numbers]) -> None:
    ranks = [(_ranks(group), len(group.head)) for group in groups]
    each = [[sum(deal) / (len(own) + 1) for deal in combinations(own, head_n)] for own, head_n in ranks]
    sums = [sum(deals) for deals in product(*each)]
    seen = sum(sum(_ranks(g)[len(g.base) :]) / (len(g.base) + len(g.head) + 1) for g in groups)
    assert higher(groups) == pytest.approx(sum(value >= seen - 1e-9 for value in sums) / len(sums))


def _ranks(group: Numbers) -> list[float]:
    values = [*group.base, *group.head]
    return [sum(other < value for other in values) + (values.count(value) + 1) / 2 for value in values]


def test_many_ranks_are_near_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two groups with ties, 400 deals each: counted and approximated agree to a percent.
    groups = [Numbers([1, 2, 2, 3], [2, 3, 4, 5]), Numbers([1, 1, 2, 6], [3, 4, 4, 7])]
    exact = higher(groups)
    monkeypatch.setattr(differences, "_COUNTED_DEALS", 0)
    assert higher(groups) == pytest.approx(exact, abs=0.01)
    assert higher([Numbers([1, 1], [1, 1])]) == 1


def test_many_pairs_keep_the_chance_of_the_sign_test() -> None:
    # 12 of 17 rise by luck in 7.17 of 100, not in 4.48 as without the correction for continuity; 20 of 30 in 4.94.
    rises, falls, equal = Numbers([1], [2]), Numbers([2], [1]), Numbers([1, 1], [1, 1])
    assert higher([rises] * 12 + [falls] * 5 + [equal]) == pytest.approx(0.0717, abs=0.002)
    assert higher([rises] * 20 + [falls] * 10) == pytest.approx(0.0494, abs=0.002)


def test_holm() -> None:
    # 3 * 0.01; then 2 * 0.03; 0.04 alone would be less than what came before it.
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([]) == []
