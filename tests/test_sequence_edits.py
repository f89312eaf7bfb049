"""The shortest way to an accepted sequence, and its words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_sequences import MODES, calls, equalities, reference_of, run_of, runs, wanted_calls, wanted_sequences

from agenttrace.evaluators.sequence_calls import Call, Equality, Mode
from agenttrace.evaluators.sequence_edits import edit_script, length, words
from agenttrace.evaluators.sequence_matching import Comparison, Reference, Turns


def edits(mode: str, run: Turns, reference: Reference, arguments: Mode = "exact") -> str:
    equality = Equality({"*": arguments})
    comparison = Comparison(run, reference, equality, doubt=False)
    return words(edit_script(comparison, mode), comparison, equality)


def test_edits_in_words() -> None:
    run = run_of("look_up", ("place_order", {"item": "rice", "qty": 4}), "send_email")
    wanted = reference_of("look_up", ("check_stock", {"item": "rice"}), ("place_order", {"item": "rice", "qty": 40}))
    assert edits("exact", run, wanted) == (
        "missing check_stock(item=rice) before step 2; step 2 place_order(qty=4) instead of place_order(qty=40); "
        "step 3 send_email was not expected"
    )
    assert edits("in_order", run, wanted) == (
        "missing check_stock(item=rice) before step 2; step 2 place_order(qty=4) instead of place_order(qty=40)"
    )
    assert edits("any_order", run, wanted) == (
        "step 2 place_order(qty=4) instead of place_order(qty=40); missing check_stock(item=rice); "
        "step 3 send_email was not expected"
    )
    assert edits("superset", run, wanted) == (
        "step 2 place_order(qty=4) instead of place_order(qty=40); missing check_stock(item=rice)"
    )
    assert edits("subset", run, wanted) == (
        "step 2 place_order(qty=4) instead of place_order(qty=40); step 3 send_email was not expected"
    )


PAIR = ("p", {"a": 1, "b": 2})


@pytest.mark.parametrize(
    ("run", "reference", "arguments", "expected"),
    [
        (run_of("a"), reference_of("a", "b"), "exact", "missing b at the end"),
        (run_of("a", "x", "b"), reference_of("a", "y", "b"), "exact", "step 2 x instead of y"),
        (run_of("b", "c"), reference_of("a", "b", "c"), "exact", "missing a before step 1"),
        (run_of(["c", "a"]), reference_of("a", "b", "c"), "exact", "missing b"),
        (run_of("b", "a"), reference_of("a", "b"), "exact", "missing a before step 1; step 2 a was not expected"),
        (run_of("a"), reference_of(["a", "b"]), "exact", "missing b in the turn of step 1"),
        (run_of("x"), reference_of(["a", "b"], "x"), "exact", "missing a before step 1; missing b before step 1"),
        (run_of(PAIR), reference_of(("p", {})), "exact", "step 1 p(a=1, b=2) instead of p()"),
        (run_of(PAIR), reference_of(("p", {"a": 2})), "superset", "step 1 p(a=1) instead of p(a=2)"),
        (run_of(("p", {"a": 1})), reference_of(PAIR), "exact", "step 1 p() instead of p(b=2)"),
        (run_of(("p", {"a": 2})), reference_of(PAIR), "subset", "step 1 p(a=2) instead of p(a=1)"),
        (run_of(("p", {"x": {"y": 1}})), reference_of(("p", {"x": {}})), ["x.y"], "step 1 p(x.y=1) instead of p()"),
        (run_of(PAIR), reference_of(), "ignore", "step 1 p was not expected"),
        (
            run_of(*"abcdefg"),
            reference_of(),
            "exact",
            "; ".join(f"step {step} {name} was not expected" for step, name in enumerate("abcde", 1)) + "; and 2 more",
        ),
    ],
)
def test_edits(run: Turns, reference: Reference, arguments: Mode, expected: str) -> None:
    assert edits("exact", run, reference, arguments) == expected


def test_words_of_hostile_calls_are_short_and_one_line() -> None:
    call = ("p" * 500, {f"k{n}" * 90: "a\nb\x85" * 5_000 for n in range(9)})
    text = edits("exact", run_of(call), reference_of("q"))
    assert "\n" not in text
    assert len(text) < 500


@given(runs, wanted_sequences, equalities, st.sampled_from(MODES))
def test_edit_scripts_lead_to_the_reference(run: Turns, reference: Reference, equality: Equality, mode: str) -> None:
    comparison = Comparison(run, reference, equality, doubt=False)
    script = [] if comparison.accepts(mode) else edit_script(comparison, mode)
    assert bool(script) is not comparison.accepts(mode)
    assert (words(script, comparison, equality) == "") is comparison.accepts(mode)
    count = {kind: sum(edit.kind == kind for edit in script) for kind in ("missing", "unexpected", "arguments")}
    touched = [edit.run for edit in script if edit.run is not None]
    wanted = [edit.reference for edit in script if edit.reference is not None]
    assert len(set(touched)) == len(touched)
    assert len(set(wanted)) == len(wanted)
    if mode in ("exact", "any_order"):
        assert len(comparison.run) - count["unexpected"] + count["missing"] == len(comparison.reference)


@given(runs, wanted_sequences, equalities)
def test_exact_is_no_edit_at_all(run: Turns, reference: Reference, equality: Equality) -> None:
    comparison = Comparison(run, reference, equality, doubt=False)
    assert comparison.accepts("exact") == (edit_script(comparison, "exact") == [])


@given(st.lists(calls, max_size=6), st.lists(wanted_calls, max_size=6), equalities)
def test_edit_scripts_of_single_calls_are_shortest(run: list[Call], reference: list[Call], equality: Equality) -> None:
    comparison = Comparison([[call] for call in run], reference, equality, doubt=False)

    def fewest(i: int, j: int) -> int:
        """By plain recursion: a call too many, one too few, other arguments."""
        if i == len(run) or j == len(reference):
            return len(run) - i + len(reference) - j
        if equality(run[i], reference[j]):
            return fewest(i + 1, j + 1)
        pair = 1 if run[i].tool == reference[j].tool else 2
        return min(fewest(i + 1, j) + 1, fewest(i, j + 1) + 1, fewest(i + 1, j + 1) + pair)

    assert length(edit_script(comparison, "exact")) == fewest(0, 0)
