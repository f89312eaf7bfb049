"""Runs and accepted sequences for the tests of tool sequences: written short, and drawn at random."""

import itertools
from typing import Any

from hypothesis import strategies as st

from agenttrace.evaluators.sequence_calls import Call, Equality
from agenttrace.evaluators.sequence_matching import Reference

MODES = ("exact", "any_order", "in_order", "subset", "superset")


def run_of(*turns: Any) -> list[list[Call]]:
    """Turns of calls; a call is a name or a (name, arguments), a list is a turn of several. Steps count from 1."""
    numbers = itertools.count(1)
    return [
        [
            Call(*(call if isinstance(call, tuple) else (call, {})), step=number, span_id=f"s{number}")
            for call in (turn if isinstance(turn, list) else [turn])
            for number in [next(numbers)]
        ]
        for turn in turns
    ]


def reference_of(*items: Any) -> Reference:
    def call(item: Any) -> Call:
        return Call(*item) if isinstance(item, tuple) else Call(item)

    return [[call(part) for part in item] if isinstance(item, list) else call(item) for item in items]


arguments = st.dictionaries(st.sampled_from("xy"), st.integers(0, 1), max_size=2)
calls = st.builds(Call, st.sampled_from("ab"), arguments)
groups = st.lists(calls, min_size=1, max_size=3)
runs = st.lists(groups, max_size=4)
wanted_calls = calls | st.builds(Call, st.sampled_from("ab"))
wanted_sequences = st.lists(wanted_calls | st.lists(wanted_calls, min_size=1, max_size=3), max_size=4)
modes_of_arguments = st.sampled_from(["exact", "ignore", "subset", "superset"]) | st.lists(st.sampled_from("xy"))
equalities = st.builds(lambda mode: Equality({"*": mode}), modes_of_arguments)
