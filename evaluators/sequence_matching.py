"""Whether the calls of a run match an accepted sequence: maximum matching, five modes, parallel calls unordered."""

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from agenttrace.evaluators.sequence_calls import Call, Equality, form

Turns = Sequence[Sequence[Call]]
Reference = Sequence[Call | Sequence[Call]]


class Block(NamedTuple):
    """One place of an accepted sequence: a call, or the calls that one model turn requests."""

    calls: Sequence[int]
    is_turn: bool


@dataclass
class Matching:
    """A matching of reference calls to run calls that grows call by call, and never stops short of the maximum.

    Source:
        Berge, "Two theorems in graph theory", 1957: a matching without an augmenting path is a maximum one. A run call
        that a search without success has visited lies on no later augmenting path either (Kuhn, "The Hungarian method
        for the assignment problem", 1955), until edges are added.
    """

    run_of: dict[int, int] = field(default_factory=dict[int, int])
    reference_of: dict[int, int] = field(default_factory=dict[int, int])
    _edges: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    _closed: set[int] = field(default_factory=set[int])

    def connect(self, reference: int, runs: Iterable[int]) -> None:
        """Lets a reference call be matched to further run calls."""
        self._edges[reference].extend(runs)
        self._closed.clear()

    def add(self, reference: int) -> bool:
        """Matches one more reference call, if need be by giving others another partner; says whether it could."""
        reached_by: dict[int, int] = {}
        waiting = deque([reference])
        while waiting:
            current = waiting.popleft()
            for call in self._edges[current]:
                if call in reached_by or call in self._closed:
                    continue
                reached_by[call] = current
                if call not in self.reference_of:
                    self._hand_over(call, reached_by)
                    return True
                waiting.append(self.reference_of[call])
        self._closed.update(reached_by)
        return False

    def _hand_over(self, call: int | None, reached_by: dict[int, int]) -> None:
        while call is not None:
            owner = reached_by[call]
            self.reference_of[call] = owner
            freed = self.run_of.get(owner)
            self.run_of[owner] = call
            call = freed


class Comparison:
    """The calls of a run beside an accepted sequence; calls are numbered from 0 on both sides.

    Attributes:
        turns: Numbers of the run's calls, by model turn.
        blocks: Numbers of the reference's calls.
        open_calls: Numbers of the run's calls whose equality to a reference call cannot be told.
    """

    def __init__(self, run: Turns, reference: Reference, equality: Equality, *, doubt: bool) -> None:
        """Numbers the calls.

        Args:
            run: The calls of each model turn, in order.
            reference: Calls in order; a list among them is a group that one turn requests.
            equality: When two calls are equal.
            doubt: What counts where that cannot be told.
        """
        self.run = [call for turn in run for call in turn]
        self.turns = _numbered(run)
        groups = [[item] if isinstance(item, Call) else item for item in reference]
        self.reference = [call for group in groups for call in group]
        self.blocks = [
            Block(numbers, not isinstance(item, Call))
            for numbers, item in zip(_numbered(groups), reference, strict=True)
        ]
        self.open_calls: dict[int, None] = {}
        self._run_forms = [form(call) for call in self.run]
        self._reference_forms = [form(call) for call in self.reference]
        self._equality = equality
        self._doubt = doubt

    def equal(self, run: int, reference: int) -> bool:
        """Says whether a call of the run counts as equal to one of the reference."""
        call, wanted = self.run[run], self.reference[reference]
        if call.tool != wanted.tool:
            return False
        forms = self._run_forms[run], self._reference_forms[reference]
        if None not in forms and (forms[0] == forms[1] or self._equality.is_by_form(call.tool)):
            return forms[0] == forms[1]
        answer = self._equality(call, wanted)
        if answer is None:
            self.open_calls[run] = None
            return self._doubt
        return answer

    @cached_property
    def whole(self) -> Matching:
        """A maximum matching of all calls."""
        return self.maximum(range(len(self.run)), range(len(self.reference)))

    def maximum(self, run: Sequence[int], reference: Sequence[int]) -> Matching:
        """Returns a maximum matching of some calls, whatever their order."""
        # Calls of one form have the same partners, and agents in a loop make thousands of them.
        alike: dict[str, dict[str | int, list[int]]] = defaultdict(lambda: defaultdict(list))
        formless: list[int] = []
        for call in run:
            form_of_call = self._run_forms[call]
            alike[self.run[call].tool][call if form_of_call is None else form_of_call].append(call)
            if form_of_call is None:
                formless.append(call)
        matching = Matching()
        for wanted in reference:
            groups = alike.get(self.reference[wanted].tool, {})
            wanted_form = self._reference_forms[wanted]
            is_by_form = wanted_form is not None and self._equality.is_by_form(self.reference[wanted].tool)
            for key in (wanted_form, *formless) if is_by_form else groups:
                if key in groups and self.equal(groups[key][0], wanted):
                    matching.connect(wanted, groups[key])
        for wanted in reference:
            matching.add(wanted)
        return matching

    def accepts(self, mode: str) -> bool:
        """Says whether the run matches in a mode: exact, any_order, in_order, subset or superset."""
        if mode == "exact":
            return self._is_exact()
        if mode == "in_order":
            return self._is_in_order()
        matched = len(self.whole.run_of)
        needed = {
            "any_order": {len(self.run), len(self.reference)},
            "subset": {len(self.run)},
            "superset": {len(self.reference)},
        }
        return needed[mode] == {matched}

    def _is_exact(self) -> bool:
        """Turn by turn: a group of the reference is one turn; a turn of n calls takes the next n single calls."""
        position = 0
        for turn in self.turns:
            has_group = position < len(self.blocks) and self.blocks[position].is_turn
            blocks = self.blocks[position : position + (1 if has_group else len(turn))]
            wanted = [call for block in blocks for call in block.calls]
            if len(wanted) != len(turn) or (not has_group and any(block.is_turn for block in blocks)):
                return False
            if len(self.maximum(turn, wanted).run_of) != len(turn):
                return False
            position += len(blocks)
        return position == len(self.blocks)

    def _is_in_order(self) -> bool:
        """Every block in turns that are not before those of the block before it.

        Each block ends as early as it can; that leaves the most to the blocks after it, so no other choice of turns
        can succeed where this one fails.
        """
        matching = Matching()
        current = 0
        for block in self.blocks:
            pending = list(block.calls)
            turn = current
            while pending:
                if turn == len(self.turns):
                    return False
                for wanted in block.calls:
                    matching.connect(wanted, [call for call in self.turns[turn] if self.equal(call, wanted)])
                pending = [wanted for wanted in pending if not matching.add(wanted)]
                current = turn
                turn += 1
        return True


def _numbered(groups: Iterable[Sequence[Call]]) -> list[list[int]]:
    numbered: list[list[int]] = []
    start = 0
    for group in groups:
        numbered.append(list(range(start, start + len(group))))
        start += len(group)
    return numbered
