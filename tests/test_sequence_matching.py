"""The five modes, their laws, and the maximum matching below them."""

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_sequences import MODES, calls, equalities, reference_of, run_of, runs, wanted_calls, wanted_sequences

from agenttrace.evaluators.sequence_calls import Call, Equality, Mode
from agenttrace.evaluators.sequence_matching import Comparison, Matching, Reference, Turns


def accepted(mode: str, run: Turns, reference: Reference, arguments: Mode = "exact") -> bool:
    return Comparison(run, reference, Equality({"*": arguments}), doubt=False).accepts(mode)


@pytest.mark.parametrize(
    ("run", "reference", "accepting"),
    [
        (run_of("a", "b"), reference_of("a", "b"), "exact any_order in_order subset superset"),
        (run_of("b", "a"), reference_of("a", "b"), "any_order subset superset"),
        (run_of("a", "x", "b"), reference_of("a", "b"), "in_order superset"),
        (run_of("a"), reference_of("a", "b"), "subset"),
        # Each call has a partner of its own: one call does not stand for two.
        (run_of("a"), reference_of("a", "a"), "subset"),
        (run_of("a", "a"), reference_of("a"), "in_order superset"),
        (run_of("a", "a"), reference_of("a", "a"), "exact any_order in_order subset superset"),
        # Parallel calls of the run have no order among themselves.
        (run_of(["b", "a"], "c"), reference_of("a", "b", "c"), "exact any_order in_order subset superset"),
        (run_of("c", ["b", "a"]), reference_of("a", "b", "c"), "any_order subset superset"),
        # A group of the reference is one turn in mode exact, and only unordered in mode in_order.
        (run_of(["b", "a"]), reference_of(["a", "b"]), "exact any_order in_order subset superset"),
        (run_of("b", "a"), reference_of(["a", "b"]), "any_order in_order subset superset"),
        (run_of("b", "x", "a", "c"), reference_of(["a", "b"], "c"), "in_order superset"),
        (run_of("b", "c", "a"), reference_of(["a", "b"], "c"), "any_order subset superset"),
        (run_of(["a", "b", "c"]), reference_of(["a", "b"], "c"), "any_order in_order subset superset"),
        (run_of(["c", "a"], "b"), reference_of("c", ["a", "b"]), "any_order in_order subset superset"),
        # Nothing expected, nothing called.
        (run_of(), reference_of(), "exact any_order in_order subset superset"),
        (run_of("a"), reference_of(), "in_order superset"),
        (run_of(), reference_of("a"), "subset"),
    ],
)
def test_modes(run: Turns, reference: Reference, accepting: str) -> None:
    assert [mode for mode in MODES if accepted(mode, run, reference)] == accepting.split()


def test_equal_values_are_equal_in_every_spelling() -> None:
    run = run_of(("p", {"x": [1.0, {"y": 2}], "z": 0}), ("p", None))
    assert accepted("in_order", run, reference_of(("p", {"z": 0.0, "x": [1, {"y": 2.0}]}))) is True
    assert accepted("in_order", run, reference_of(("p", {"z": False, "x": [1, {"y": 2.0}]}))) is False


@pytest.mark.parametrize(
    "turns", [[("p", {"x": 1, "y": 1}), ("p", {"x": 1})], [("p", {"x": 1}), ("p", {"x": 1, "y": 1})]]
)
@pytest.mark.parametrize("wanted", [[("p", {"x": 1}), ("p", {"y": 1})], [("p", {"y": 1}), ("p", {"x": 1})]])
@pytest.mark.parametrize("mode", ["any_order", "subset", "superset"])
def test_the_first_partner_is_not_taken_greedily(turns: list[Any], wanted: list[Any], mode: str) -> None:
    """p(x, y) can stand for both, p(x) for one only; whoever comes first must give way."""
    assert accepted(mode, run_of(*turns), reference_of(*wanted), "superset") is True
    assert accepted("exact", run_of(turns), reference_of(*wanted), "superset") is True
    assert accepted("in_order", run_of(turns), reference_of(*wanted), "superset") is True


def test_a_group_in_order_may_be_shared_out_again() -> None:
    """The first turn can serve either call of the group, the second only one: the first choice is taken back."""
    run = run_of(("p", {"x": 1, "y": 1}), ("p", {"x": 1}))
    assert accepted("in_order", run, reference_of([("p", {"x": 1}), ("p", {"y": 1})]), "superset") is True
    assert accepted("in_order", run, reference_of([("p", {"y": 1}), ("p", {"y": 1})]), "superset") is False


@given(st.lists(st.lists(st.integers(0, 4), unique=True), max_size=5))
def test_matching_is_maximum(edges: list[list[int]]) -> None:
    matching = Matching()
    for reference, partners in enumerate(edges):
        matching.connect(reference, partners)
    added = sum([matching.add(reference) for reference in range(len(edges))])
    best = max(
        sum(partner in partners for partner, partners in zip(order, edges, strict=False))
        for order in itertools.permutations(range(5))
    )
    assert added == best == len(matching.run_of) == len(matching.reference_of)
    assert all(partner in edges[reference] for reference, partner in matching.run_of.items())


def verdicts(run: Turns, reference: Reference, equality: Equality) -> dict[str, bool]:
    return {mode: Comparison(run, reference, equality, doubt=False).accepts(mode) for mode in MODES}


@given(runs, wanted_sequences, equalities)
def test_stricter_modes_imply_looser_ones(run: Turns, reference: Reference, equality: Equality) -> None:
    found = verdicts(run, reference, equality)
    assert not found["exact"] or (found["in_order"] and found["any_order"])
    assert not found["in_order"] or found["superset"]
    assert found["any_order"] == (found["subset"] and found["superset"])


@given(runs, wanted_sequences, equalities, st.randoms(use_true_random=False))
def test_order_among_parallel_calls_makes_no_difference(
    run: Turns, reference: Reference, equality: Equality, chance: Any
) -> None:
    def shuffled(group: Sequence[Call]) -> list[Call]:
        return chance.sample(list(group), len(group))

    turned = [shuffled(turn) for turn in run]
    wanted = [item if isinstance(item, Call) else shuffled(item) for item in reference]
    assert verdicts(turned, wanted, equality) == verdicts(run, reference, equality)


@given(runs, wanted_sequences, equalities, st.randoms(use_true_random=False))
def test_order_of_the_run_makes_no_difference_to_unordered_modes(
    run: Turns, reference: Reference, equality: Equality, chance: Any
) -> None:
    turned = chance.sample(run, len(run))
    before, after = verdicts(run, reference, equality), verdicts(turned, reference, equality)
    assert all(before[mode] == after[mode] for mode in ("any_order", "subset", "superset"))


def in_order_by_trial(run: Turns, reference: Reference, equality: Equality) -> bool:
    """Every way of giving the reference's calls different partners, the slow way."""
    places = [(turn, call) for turn, group in enumerate(run) for call in group]
    blocks = [[item] if isinstance(item, Call) else item for item in reference]
    wanted = [(block, call) for block, group in enumerate(blocks) for call in group]

    def fits(order: Sequence[tuple[int, Call]]) -> bool:
        pairs = list(zip(order, wanted, strict=True))
        return all(equality(call, other) for (_, call), (_, other) in pairs) and all(
            first[0][0] <= second[0][0]
            for first, second in itertools.combinations(pairs, 2)
            if first[1][0] < second[1][0]
        )

    return any(fits(order) for order in itertools.permutations(places, len(wanted)))


small_runs = st.lists(st.lists(calls, min_size=1, max_size=2), max_size=3)
small_sequences = st.lists(wanted_calls | st.lists(wanted_calls, min_size=1, max_size=2), max_size=2)


@given(small_runs, small_sequences, equalities)
def test_in_order_finds_every_way(run: Turns, reference: Reference, equality: Equality) -> None:
    found = Comparison(run, reference, equality, doubt=False).accepts("in_order")
    assert found == in_order_by_trial(run, reference, equality)
