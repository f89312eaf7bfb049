"""When two tool calls are equal: by name and, as a case asks for, by arguments; hidden values leave it open."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeGuard, cast

from agenttrace import json_text

# What instrumentation leaves in the place of a value, of the end of a text, or of the rest of a list or object.
_HIDDEN = re.compile(
    r"\[REDACTED|__REDACTED__|<REDACTED|…\[\+\d+ characters\]"
    r"|^\[\+\d+ (?:items|parts|keys)\]$|^\[(?:cut|too deep|cycle)\]$",
    re.IGNORECASE,
)
# Found in the JSON of anything that holds one of these, and in little else.
_MAY_BE_HIDDEN = re.compile(r"redacted|…|\[\+\d|\[cut\]|\[too deep\]|\[cycle\]", re.IGNORECASE)
# Deeper values are compared by nobody, and would end the interpreter's stack.
MAX_DEPTH = 100
_CUT_KEY = "…"
_CUT = "[cut]"
_MISSING = object()
_DEFAULT = "*"
# Lengths of what a message shows: arguments, characters of a value, of a name.
_MAX_ARGUMENTS = 3
_MAX_VALUE = 40
_MAX_NAME = 60

Mode = str | Sequence[str]


@dataclass(frozen=True)
class Call:
    """One tool call, of a run or of an accepted sequence.

    Attributes:
        arguments: By name. None in a run: not captured; in a sequence: any.
        step: Its step_index in the run.
        span_id: Its span in the run.
    """

    tool: str
    arguments: Mapping[str, Any] | None = None
    step: int | None = None
    span_id: str | None = None


@dataclass(frozen=True)
class Equality:
    """How the arguments of calls are compared.

    Attributes:
        modes: Tool, or "*" for the others, to exact, ignore, subset (those of the run are within the reference's),
            superset (the reverse), or the paths of the arguments that alone must be equal. Without "*" the others are
            compared by name. A path is an argument's name or, in nested values, names and list positions with dots.
        tolerance: Numbers that differ by no more are equal; 0 is exact.
    """

    modes: Mapping[str, Mode]
    tolerance: float = 0.0

    def __call__(self, run: Call, reference: Call) -> bool | None:
        """Says whether two calls are equal; None where that hangs on arguments that were hidden or not captured."""
        if run.tool != reference.tool:
            return False
        mode = self.mode(run.tool)
        if mode == "ignore" or reference.arguments is None:
            return True
        if run.arguments is None:
            return None
        if isinstance(mode, str):
            return self._same_object(run.arguments, reference.arguments, mode)
        return all_of(self._same_at(run.arguments, reference.arguments, path) for path in mode)

    def is_by_form(self, tool: str) -> bool:
        """Whether calls of a tool are equal only if their `form` is."""
        return self.mode(tool) == "exact" and self.tolerance == 0

    def mode(self, tool: str) -> Mode:
        """Returns how the arguments of a tool are compared."""
        return self.modes.get(tool, self.modes.get(_DEFAULT, "ignore"))

    def words(self, call: Call) -> str:
        """Writes a call with the arguments that matter, as in place_order(item=rice, qty=40)."""
        arguments = {} if self.mode(call.tool) == "ignore" else call.arguments or {}
        return _words(call.tool, arguments.items()) if arguments else _cut(call.tool, _MAX_NAME)

    def difference(self, run: Call, reference: Call) -> tuple[str, str]:
        """Writes two calls of one tool with the arguments in which they differ."""
        mode = self.mode(run.tool)
        found, wanted = run.arguments or {}, reference.arguments or {}
        paths: Iterable[str] = dict.fromkeys([*wanted, *found]) if isinstance(mode, str) else mode
        if mode == "subset":
            paths = found
        elif mode == "superset":
            paths = wanted
        differing = [path for path in paths if self._same_at(found, wanted, path) is not True]
        return _words(run.tool, _values(found, differing)), _words(run.tool, _values(wanted, differing))

    def _same_at(self, run: Mapping[str, Any], reference: Mapping[str, Any], path: str) -> bool | None:
        found, wanted = _value_at(run, path), _value_at(reference, path)
        if found is _MISSING or wanted is _MISSING:
            return found is wanted
        return self._same(found, wanted)

    def _same(self, run: Any, reference: Any) -> bool | None:
        if _is_number(run) and _is_number(reference):
            return self._same_number(run, reference)
        # Two equal marks may hide two values.
        if _is_hidden(run) or _is_hidden(reference):
            return None
        # true is not 1, and nothing but numbers is equal across types.
        if type(run) is not type(reference):
            return False
        if isinstance(run, dict):
            return self._same_object(cast(dict[str, Any], run), reference, "exact")
        if isinstance(run, list):
            return self._same_list(cast(list[Any], run), reference)
        return bool(run == reference)

    def _same_object(self, run: Mapping[str, Any], reference: Mapping[str, Any], mode: str) -> bool | None:
        is_cut = _CUT_KEY in run
        if mode != "superset" and any(key not in reference and key != _CUT_KEY for key in run):
            return False
        is_short = any(key not in run for key in reference)
        if mode != "subset" and is_short and not is_cut:
            return False
        answer = all_of(self._same(value, reference[key]) for key, value in run.items() if key in reference)
        # Whatever a cut object lost may be a key too many, or the one that is missing.
        return None if answer and is_cut and (mode != "superset" or is_short) else answer

    def _same_list(self, run: list[Any], reference: list[Any]) -> bool | None:
        if len(run) == len(reference):
            return all_of(self._same(*pair) for pair in zip(run, reference, strict=True))
        return None if any(_is_hidden(part) for part in run) else False

    def _same_number(self, run: float, reference: float) -> bool:
        # Decimals as they are written: 1.1 is within 0.1 of 1.0, which binary fractions deny.
        return run == reference or (
            self.tolerance > 0
            and abs(Decimal(repr(run)) - Decimal(repr(reference))) <= Decimal(repr(float(self.tolerance)))
        )


def captured_arguments(text: str | None) -> dict[str, Any] | None:
    """Returns the arguments that a step recorded; None where they are missing, no object or nested too deeply."""
    value = None if text is None else json_text.try_parse(text)
    return cast(dict[str, Any], value) if isinstance(value, dict) and not is_deeper(value, MAX_DEPTH) else None


def is_deeper(value: Any, levels: int) -> bool:
    """Whether objects and lists are nested in more levels than this."""
    if not isinstance(value, dict | list):
        return False
    parts = cast(Iterable[Any], value.values() if isinstance(value, dict) else value)
    return levels == 0 or any(is_deeper(part, levels - 1) for part in parts)


def form(call: Call) -> str | None:
    """Returns a text that is the same for calls which are equal in every mode.

    None where there are no arguments, which may then be any, or where something in them may be hidden.
    """
    if call.arguments is None:
        return None
    if may_be_hidden([call.tool, call.arguments]):
        return None
    return json.dumps([call.tool, _plain(call.arguments)], sort_keys=True, ensure_ascii=False)


def may_be_hidden(value: object) -> bool:
    """Whether something in a value of JSON may be what instrumentation has left in the place of something else."""
    return _MAY_BE_HIDDEN.search(json.dumps(value, ensure_ascii=False)) is not None


def _plain(value: Any) -> Any:
    """A value in which 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(part) for part in cast(list[Any], value)]
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in cast(Mapping[str, Any], value).items()}
    return value


def all_of(answers: Iterable[bool | None]) -> bool | None:
    """Three-valued AND: one False decides, else one None leaves it open."""
    open_question = False
    for answer in answers:
        if answer is False:
            return False
        open_question = open_question or answer is None
    return None if open_question else True


def _is_hidden(value: object) -> bool:
    return isinstance(value, str) and _HIDDEN.search(value) is not None


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value_at(value: Any, path: str) -> Any:
    """The value at a dotted path; what hides it where it lies in something hidden, `_MISSING` where there is none."""
    if _is_hidden(value):
        return value
    if isinstance(value, list):
        parts = cast(list[Any], value)
        position, _, rest = path.partition(".")
        if not position.isdecimal() or int(position) >= len(parts):
            return _MISSING
        return _value_at(parts[int(position)], rest) if rest else parts[int(position)]
    if not isinstance(value, Mapping):
        return _MISSING
    members = cast(Mapping[str, Any], value)
    # A name may itself hold a dot, so the whole comes first.
    if path in members:
        return members[path]
    name, _, rest = path.partition(".")
    if rest and name in members:
        return _value_at(members[name], rest)
    return _CUT if _CUT_KEY in members else _MISSING


def _values(arguments: Mapping[str, Any], paths: Iterable[str]) -> Iterator[tuple[str, Any]]:
    return ((path, value) for path in paths if (value := _value_at(arguments, path)) is not _MISSING)


def _words(tool: str, arguments: Iterable[tuple[str, Any]]) -> str:
    shown = [f"{_cut(name, _MAX_NAME)}={_shown(value)}" for name, value in arguments]
    more = ["..."] if len(shown) > _MAX_ARGUMENTS else []
    return f"{_cut(tool, _MAX_NAME)}({', '.join(shown[:_MAX_ARGUMENTS] + more)})"


def _shown(value: Any) -> str:
    return _cut(value if isinstance(value, str) else json_text.dump(value), _MAX_VALUE)


def _cut(text: str, length: int) -> str:
    # Looks at no more of a long value than it may show.
    line = " ".join(text[: 4 * length].split())
    return line if len(text) <= 4 * length and len(line) <= length else line[: length - 3] + "..."
