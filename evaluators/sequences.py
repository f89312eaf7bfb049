"""The relation `sequence_matches`: the calls of a run against each accepted sequence of its case."""

import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from itertools import groupby
from typing import Any, NamedTuple, cast

import duckdb
import pyarrow as pa

from agenttrace.errors import ConfigError
from agenttrace.evaluators import sequence_edits, tables
from agenttrace.evaluators.sequence_calls import Call, Equality, captured_arguments
from agenttrace.evaluators.sequence_matching import Comparison, Reference, Turns

# One row per judged run with a case and accepted sequence.
SCHEMA = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("case_id", pa.string()),
        ("sequence_index", pa.int64()),
        ("mode", pa.string()),
        ("accepted", pa.bool_()),
        ("closest", pa.bool_()),
        ("matched", pa.int64()),
        ("run_length", pa.int64()),
        ("reference_length", pa.int64()),
        ("precision", pa.float64()),
        ("recall", pa.float64()),
        ("f1", pa.float64()),
        ("edits", pa.string()),
        ("differing_span_ids", pa.list_(pa.string())),
        ("not_evaluable", pa.string()),
    ]
)
_DEFAULT_MODE = "exact"
_MAX_PAIRS = 1_000_000
"""Calls of a run times calls of a sequence: 1,000 of both take a second."""


class Match(NamedTuple):
    """How a run stands to one accepted sequence.

    Attributes:
        accepted: None where it cannot be told; then only the lengths are known.
        matched: Size of a maximum matching of equal calls, whatever their order.
        precision: Ratio 0 to 1, matched / run_length; None for a run without calls.
        recall: Ratio 0 to 1, matched / reference_length; None for an empty sequence.
        f1: Ratio 0 to 1.
        edit_count: Edits that would make the run match.
        edits: Those edits in words, at most five.
        differing: The run's calls that the edits concern.
        not_evaluable: Why it cannot be told.
    """

    accepted: bool | None
    matched: int | None
    run_length: int
    reference_length: int
    precision: float | None
    recall: float | None
    f1: float | None
    edit_count: int
    edits: str | None
    differing: list[Call]
    not_evaluable: str | None


def match(run: Turns, reference: Reference, mode: str, equality: Equality) -> Match:
    """Compares the calls of a run with one accepted sequence.

    Args:
        run: The calls of each model turn, in order; those of one turn are unordered among themselves.
        reference: The accepted calls; a list among them is a group that one turn requests.
        mode: exact (the same calls, turn by turn), any_order (the same calls), in_order (the reference's calls in
            their order, others may stand between), subset (every call of the run has its own partner in the
            reference), superset (every call of the reference has its own partner in the run).
        equality: When two calls are equal.
    """
    # What cannot be told counts as equal first: what fails even so has failed.
    comparison = Comparison(run, reference, equality, doubt=True)
    accepted = comparison.accepts(mode)
    if accepted and comparison.open_calls:
        strict = Comparison(run, reference, equality, doubt=False)
        if not strict.accepts(mode):
            return _open(comparison, _not_captured(comparison.run[next(iter(comparison.open_calls))]))
        comparison = strict
    script = [] if accepted else sequence_edits.edit_script(comparison, mode)
    run_length, reference_length = len(comparison.run), len(comparison.reference)
    matched = len(comparison.whole.run_of)
    return Match(
        accepted,
        matched,
        run_length,
        reference_length,
        *ratios(matched, run_length, reference_length),
        sequence_edits.length(script),
        sequence_edits.words(script, comparison, equality),
        [comparison.run[edit.run] for edit in script if edit.run is not None],
        None,
    )


def ratios(matched: int, run_length: int, reference_length: int) -> tuple[float | None, float | None, float]:
    """Returns precision, recall and F1.

    A ratio over nothing is None, except that a run without calls matches an empty sequence wholly: 1, 1, 1.

    Source:
        F1 = 2 matched / (run_length + reference_length), the harmonic mean of the two (van Rijsbergen, "Information
        Retrieval", 1979).
    """
    if not run_length and not reference_length:
        return 1.0, 1.0, 1.0
    return (
        matched / run_length if run_length else None,
        matched / reference_length if reference_length else None,
        2 * matched / (run_length + reference_length),
    )


def table(con: duckdb.DuckDBPyConnection, cases: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> pa.Table:
    """Returns the relation `sequence_matches`.

    Args:
        con: A connection with the relations `steps` and `trajectories`.
        cases: Rows of `cases.read`.
        params: `[evaluators.tool_sequence]` of the configuration.

    Raises:
        ConfigError: The tolerance is below 0.
    """
    tolerance = float(params.get("numeric_tolerance", 0.0))
    if not tolerance >= 0:
        raise ConfigError(f"evaluators.tool_sequence.numeric_tolerance is {tolerance:g}; expected 0 or more")
    judged = {case["case_id"]: case for case in cases if case["acceptable_tool_sequences"] is not None}
    if not judged:
        return SCHEMA.empty_table()
    query = (resources.files("agenttrace.evaluators.relations") / "case_calls.sql").read_text(encoding="utf-8")
    calls = con.execute(query, {"case_ids": list(judged)}).fetchall()
    rows: list[tuple[Any, ...]] = []
    for (trajectory_id, case_id, unseen), run in groupby(calls, key=lambda row: row[:3]):
        rows += _rows(trajectory_id, judged[case_id], unseen, turns(row[3:] for row in run), tolerance)
    return tables.table(rows, SCHEMA)


def turns(calls: Iterable[Sequence[Any]]) -> list[list[Call]]:
    """Groups executed calls by the model turn that requested them; a call of no known turn is a group of its own.

    Args:
        calls: Rows of span_id, step_index, tool_name, arguments as JSON text, turn_span_id, in order; a row without a
            span_id is no call.
    """
    groups: dict[tuple[str, bool], list[Call]] = {}
    for span_id, step_index, tool, arguments, turn_span_id in calls:
        if span_id is not None:
            turn = (span_id, False) if turn_span_id is None else (turn_span_id, True)
            groups.setdefault(turn, []).append(Call(tool, captured_arguments(arguments), step_index, span_id))
    return list(groups.values())


def references(text: str) -> list[Reference]:
    """Reads `acceptable_tool_sequences`, which `cases.read` has validated."""
    return [[_item(item) for item in sequence] for sequence in json.loads(text)]


def equality(arguments_mode: str | None, tolerance: float) -> Equality:
    """Reads `arguments_mode`: one for all tools, or JSON text by tool; None compares names alone."""
    if arguments_mode is not None and arguments_mode.startswith("{"):
        return Equality(json.loads(arguments_mode), tolerance)
    return Equality({"*": arguments_mode or "ignore"}, tolerance)


def _item(item: Any) -> Call | list[Call]:
    if isinstance(item, list):
        return [_call(part) for part in cast(list[Any], item)]
    return _call(item)


def _call(item: Any) -> Call:
    return Call(item) if isinstance(item, str) else Call(item["tool"], item.get("arguments"))


def _rows(
    trajectory_id: str, case: Mapping[str, Any], unseen: str | None, run: Turns, tolerance: float
) -> list[tuple[Any, ...]]:
    mode = case["sequence_mode"] or _DEFAULT_MODE
    equal = equality(case["arguments_mode"], tolerance)
    found: list[Match] = []
    for reference in references(case["acceptable_tool_sequences"]):
        reason = unseen or _too_many(run, reference)
        found.append(
            match(run, reference, mode, equal)
            if reason is None
            else _open(Comparison(run, reference, equal, doubt=True), reason)
        )
    closest = min(range(len(found)), key=lambda index: _distance(found[index], index))
    return [
        (
            trajectory_id,
            case["case_id"],
            index,
            mode,
            result.accepted,
            index == closest,
            *result[1:7],
            result.edits,
            [call.span_id for call in result.differing],
            result.not_evaluable,
        )
        for index, result in enumerate(found)
    ]


def _distance(result: Match, index: int) -> tuple[bool, bool, int, float, int]:
    """The lowest is the closest: an accepted one; one that may be accepted, for then nothing is known; the nearest."""
    return (not result.accepted, result.accepted is not None, result.edit_count, -(result.f1 or 0.0), index)


def _too_many(run: Turns, reference: Reference) -> str | None:
    calls, wanted = sum(map(len, run)), sum(1 if isinstance(item, Call) else len(item) for item in reference)
    if calls * wanted <= _MAX_PAIRS:
        return None
    return f"{calls} calls and an accepted sequence of {wanted} are too many to compare"


def _open(comparison: Comparison, reason: str) -> Match:
    lengths = len(comparison.run), len(comparison.reference)
    return Match(None, None, *lengths, None, None, None, 0, None, [], reason)


def _not_captured(call: Call) -> str:
    found = "were not captured" if call.arguments is None else "hold values that were redacted or cut"
    return f"the arguments of {call.tool[:80]} (step {call.step}) {found}"
