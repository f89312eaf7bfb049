"""The shortest way from the calls of a run to an accepted sequence, in words."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from agenttrace.evaluators.sequence_calls import Equality
from agenttrace.evaluators.sequence_matching import Block, Comparison, Matching

Kind = Literal["missing", "unexpected", "arguments", "replaced", "order"]

# What counts as a fault: in order, calls beside the reference's are fine; a subset need not hold all of it.
_FAULTS: dict[str, frozenset[Kind]] = {
    "exact": frozenset({"missing", "unexpected", "arguments", "replaced"}),
    "any_order": frozenset({"missing", "unexpected", "arguments"}),
    "in_order": frozenset({"missing", "arguments"}),
    "subset": frozenset({"unexpected", "arguments"}),
    "superset": frozenset({"missing", "arguments"}),
}
# Another tool in the place of one is two edits, a call too many and one too few; of scripts of equal length, one that
# keeps the tool goes first.
_WEIGHT: dict[Kind, int] = {
    "arguments": 1_000_000,
    "missing": 1_000_001,
    "unexpected": 1_000_001,
    "replaced": 2_000_001,
    "order": 1_000_000,
}
# Beyond this many cells of the table, about a second, the script is told without order.
_MAX_CELLS = 1_000_000
_MAX_SHOWN = 5
_ALONE, _SKIPPED = 0, -1


@dataclass(frozen=True)
class Edit:
    """One difference.

    Attributes:
        kind: missing; unexpected; arguments, the same tool with others; replaced, another tool; order, where the calls
            differ in nothing else.
        run: Number of the run's call.
        reference: Number of the reference's call.
        place: Where a missing call belongs, in words.
    """

    kind: Kind
    run: int | None = None
    reference: int | None = None
    place: str = ""


def edit_script(comparison: Comparison, mode: str) -> list[Edit]:
    """Returns the fewest edits that make the run match, in the order of the run; at least one where it does not.

    The calls of one turn are set against at most twice as many of the reference. Very long runs are compared without
    order.

    Source:
        Wagner and Fischer, "The string-to-string correction problem", 1974, with a turn of parallel calls as one
        unordered symbol.
    """
    faults = _FAULTS[mode]
    if mode in ("exact", "in_order") and (script := _Alignment(comparison, faults).script()) is not None:
        return script
    every_call = range(len(comparison.run)), range(len(comparison.reference))
    return _paired(comparison, comparison.whole, *every_call, faults - {"replaced"}) or [Edit("order")]


def length(edits: Sequence[Edit]) -> int:
    """Counts the edits of a script; another tool in the place of one is two."""
    return sum(_WEIGHT[edit.kind] // _WEIGHT["order"] for edit in edits)


def words(edits: Sequence[Edit], comparison: Comparison, equality: Equality) -> str:
    """Writes a script as a part of a sentence; no more than five edits of it."""
    parts = [_words(edit, comparison, equality) for edit in edits[:_MAX_SHOWN]]
    if len(edits) > _MAX_SHOWN:
        parts.append(f"and {len(edits) - _MAX_SHOWN} more")
    return "; ".join(parts)


def _words(edit: Edit, comparison: Comparison, equality: Equality) -> str:
    run = None if edit.run is None else comparison.run[edit.run]
    reference = None if edit.reference is None else comparison.reference[edit.reference]
    if run is None:
        return f"missing {equality.words(reference)}{edit.place}" if reference else "the calls are in another order"
    step = "" if run.step is None else f"step {run.step} "
    if reference is None:
        return f"{step}{equality.words(run)} was not expected"
    if edit.kind == "arguments":
        found, wanted = equality.difference(run, reference)
    else:
        found, wanted = equality.words(run), equality.words(reference)
    return f"{step}{found} instead of {wanted}"


def _paired(
    comparison: Comparison, matching: Matching, run: Sequence[int], reference: Sequence[int], faults: frozenset[Kind]
) -> list[Edit]:
    """Edits between two unordered sets of calls: equal ones are partners, then those of one tool, then any."""
    unexpected = [call for call in run if call not in matching.reference_of]
    missing_by_tool: dict[str, list[int]] = defaultdict(list)
    for call in reference:
        if call not in matching.run_of:
            missing_by_tool[comparison.reference[call].tool].append(call)
    edits: list[Edit] = []
    others: list[int] = []
    for call in unexpected:
        same_tool = missing_by_tool[comparison.run[call].tool]
        if same_tool:
            edits.append(Edit("arguments", call, same_tool.pop(0)))
        else:
            others.append(call)
    missing = sorted(call for calls in missing_by_tool.values() for call in calls)
    swapped = min(len(others), len(missing)) if "replaced" in faults else 0
    edits += [Edit("replaced", *pair) for pair in zip(others[:swapped], missing[:swapped], strict=True)]
    edits += [Edit("missing", None, call) for call in missing[swapped:]]
    edits += [Edit("unexpected", call) for call in others[swapped:]]
    return [edit for edit in edits if edit.kind in faults]


class _Alignment:
    """The cheapest way through a table of turns of the run (rows) and blocks of the reference (columns)."""

    def __init__(self, comparison: Comparison, faults: frozenset[Kind]) -> None:
        self._comparison = comparison
        self._faults = faults
        turns, blocks = comparison.turns, comparison.blocks
        shorter = min(len(turns), len(blocks))
        # Equal ends belong to some shortest script, and most runs differ in few places.
        head = next((n for n in range(shorter) if not self._is_same(turns[n], blocks[n])), shorter)
        tail = next(
            (n for n in range(shorter - head) if not self._is_same(turns[-1 - n], blocks[-1 - n])), shorter - head
        )
        self._turns = turns[head : len(turns) - tail]
        self._blocks = blocks[head : len(blocks) - tail]
        self._after = comparison.run[turns[len(turns) - tail][0]].step if tail else None

    def script(self) -> list[Edit] | None:
        """Returns the edits in order; None where the table would be too large."""
        if self._cells() > _MAX_CELLS:
            return None
        choices = self._choices()
        edits: list[list[Edit]] = []
        row, column = len(self._turns), len(self._blocks)
        while row or column:
            choice = choices[row][column]
            if choice == _SKIPPED:
                column -= 1
                edits.append(self._missing(self._blocks[column], row))
            elif choice == _ALONE:
                row -= 1
                edits.append(self._edits(self._turns[row], []))
            else:
                row, column = row - 1, column - choice
                edits.append(self._edits(self._turns[row], self._blocks[column : column + choice]))
        return [edit for part in reversed(edits) for edit in part]

    def _choices(self) -> list[list[int]]:
        """For each cell, how the cheapest way enters it: alone, skipped, or the number of blocks that a turn takes."""
        skipped = [len(block.calls) * _WEIGHT["missing"] for block in self._blocks]
        costs = [0]
        for cost in skipped:
            costs.append(costs[-1] + cost)
        choices = [[_SKIPPED] * len(costs)]
        for turn in self._turns:
            alone = len(turn) * _WEIGHT["unexpected"] if "unexpected" in self._faults else 0
            before, costs = costs, [costs[0] + alone]
            entered = [_ALONE]
            for column, taken in enumerate(self._taken(turn, before), start=1):
                best, choice = taken
                if before[column] + alone < best:
                    best, choice = before[column] + alone, _ALONE
                if costs[-1] + skipped[column - 1] < best:
                    best, choice = costs[-1] + skipped[column - 1], _SKIPPED
                costs.append(best)
                entered.append(choice)
            choices.append(entered)
        return choices

    def _taken(self, turn: Sequence[int], before: Sequence[int]) -> Iterator[tuple[int, int]]:
        """For each column but the first, the cost where a turn takes the blocks before it, and how many those are."""
        if len(turn) == 1:
            for column, cost in enumerate(self._costs_of(turn[0])):
                yield before[column] + cost, 1
            return
        for column in range(1, len(before)):
            yield min((before[column - n] + cost, n) for n, cost in self._costs_of_turn(turn, column))

    def _costs_of(self, call: int) -> list[int]:
        """The cost of setting one call against each block."""
        return [
            self._call_cost(call, block.calls[0])
            if len(block.calls) == 1
            else sum(_WEIGHT[edit.kind] for edit in self._edits([call], [block]))
            for block in self._blocks
        ]

    def _costs_of_turn(self, turn: Sequence[int], column: int) -> Iterator[tuple[int, int]]:
        """The numbers of blocks before a column that a turn may take, with what that costs."""
        for n in range(1, self._most(turn, column) + 1):
            blocks = self._blocks[column - n : column]
            if n > 1 and any(block.is_turn for block in blocks):
                return
            yield n, sum(_WEIGHT[edit.kind] for edit in self._edits(turn, blocks))

    def _most(self, turn: Sequence[int], column: int) -> int:
        return min(column, 2 * len(turn))

    def _call_cost(self, run: int, reference: int) -> int:
        if self._comparison.equal(run, reference):
            return 0
        if self._comparison.run[run].tool == self._comparison.reference[reference].tool:
            return _WEIGHT["arguments"]
        return _WEIGHT["replaced"] if "replaced" in self._faults else _WEIGHT["missing"]

    def _edits(self, turn: Sequence[int], blocks: Sequence[Block]) -> list[Edit]:
        wanted = [call for block in blocks for call in block.calls]
        edits = _paired(self._comparison, self._comparison.maximum(turn, wanted), turn, wanted, self._faults)
        if not any(block.is_turn for block in blocks):
            return edits
        place = f" in the turn of step {self._comparison.run[turn[0]].step}"
        return [replace(edit, place=place) if edit.kind == "missing" else edit for edit in edits]

    def _missing(self, block: Block, row: int) -> list[Edit]:
        step = self._comparison.run[self._turns[row][0]].step if row < len(self._turns) else self._after
        place = " at the end" if step is None else f" before step {step}"
        return [Edit("missing", None, call, place) for call in block.calls]

    def _is_same(self, turn: Sequence[int], block: Block) -> bool:
        return len(turn) == len(block.calls) == 1 and self._comparison.equal(turn[0], block.calls[0])

    def _cells(self) -> int:
        """The work of the table: comparisons of calls."""
        width = len(self._blocks)
        return sum(width * (1 if len(turn) == 1 else len(turn) * self._most(turn, width) ** 2) for turn in self._turns)
