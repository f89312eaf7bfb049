"""Benchmark cases: one JSON object a line, keyed by the task that a run attempts."""

import json
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast

import duckdb
import pyarrow as pa
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from agenttrace import json_text
from agenttrace.errors import ConfigError
from agenttrace.evaluators.sequence_calls import MAX_DEPTH, is_deeper

SCHEMA = pa.schema(
    [
        ("case_id", pa.string()),
        ("tenant_id", pa.string()),
        ("user_input", pa.string()),
        ("mock_env", pa.string()),
        ("acceptable_tool_sequences", pa.string()),
        ("sequence_mode", pa.string()),
        ("arguments_mode", pa.string()),
        ("forbidden_tools", pa.list_(pa.string())),
        ("expected_arguments", pa.string()),
        ("max_allowed_steps", pa.int64()),
        ("optimal_steps", pa.int64()),
        ("must_include", pa.list_(pa.string())),
        ("must_not_include", pa.list_(pa.string())),
        ("outcome_sql", pa.string()),
    ]
)
_JSON = ("mock_env", "acceptable_tool_sequences", "expected_arguments")
_ALIASES = {"strict": "exact", "unordered": "any_order"}


def _one_expression(text: str) -> str:
    if (problem := _problem_of_expression(text)) is not None:
        raise ValueError(problem)
    return text


@lru_cache(maxsize=1024)
def _problem_of_expression(text: str) -> str | None:
    """Says why a text is not one SQL expression, by DuckDB's own parser; nothing is run."""
    # A list of expressions or a comment alone cannot stand in a cast; a text that closes the cast and goes on leaves
    # another tree than a plain SELECT of one cast.
    query = "SELECT json_serialize_sql('SELECT ' || unnest($selected))"
    with duckdb.connect() as con:
        rows = con.execute(query, {"selected": [f"CAST({text}\n AS BOOLEAN)", "1"]}).fetchall()
    trees = [json.loads(tree) for (tree,) in rows]
    if trees[0]["error"]:
        return str(trees[0]["error_message"]).splitlines()[0]
    selected, plain = (tree["statements"][0]["node"] for tree in trees)
    classes = [part["class"] for part in selected.pop("select_list", [])]
    del plain["select_list"]
    return None if classes == ["CAST"] and selected == plain else "more than an expression"


class _Part(BaseModel):
    """An object whose keys are all known; "5" is not a number, and true is none either."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


Text = Annotated[str, Field(pattern=r"\S")]
# Beyond this a limit is a mistake, and the columns hold 64 bits.
Steps = Annotated[int, Field(le=1_000_000_000)]


class Limits(_Part):
    """Bounds of one argument."""

    min: float | None = None
    max: float | None = None
    requires_approval_above: float | None = None

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self


class ExpectedCall(_Part):
    """One call of an accepted sequence; without arguments it stands for any."""

    tool: Text
    arguments: dict[str, Any] | None = None


class ExpectedOutcome(_Part):
    """Texts that the final response must hold, and must not."""

    must_include: list[Text] | None = None
    must_not_include: list[Text] | None = None


def _shape(value: Any) -> str | None:
    """Which of several shapes a value was meant to have, so that an error speaks of that one alone."""
    return _SHAPES.get(value.__class__)


_SHAPES: dict[type, str] = {str: "<text>", dict: "<object>", list: "<list>"}


def _one_of(expected: str) -> Discriminator:
    return Discriminator(_shape, custom_error_type="shape", custom_error_message=expected)


def _value_shape(value: object) -> str:
    keys = cast(dict[str, Any], value).keys() if isinstance(value, dict) else set[str]()
    return "<limits>" if keys and keys <= Limits.model_fields.keys() else "<value>"


ArgumentsMode = Literal["exact", "ignore", "subset", "superset"]
_Name = Annotated[Text, Tag("<text>")]
_Call = Annotated[ExpectedCall, Tag("<object>")]
_Mode = Annotated[ArgumentsMode, Tag("<text>")]
GroupedCall = Annotated[_Name | _Call, _one_of("a tool's name or an object with tool and arguments")]
_Group = Annotated[list[GroupedCall], Field(min_length=1), Tag("<list>")]
SequenceItem = Annotated[
    _Name | _Call | _Group, _one_of("a tool's name, an object with tool and arguments, or a list of parallel calls")
]
ToolMode = Annotated[
    _Mode | Annotated[list[Text], Tag("<list>")],
    _one_of("exact, ignore, subset, superset, or a list of argument paths"),
]
AnyArgumentsMode = Annotated[
    _Mode | Annotated[dict[Text, ToolMode], Tag("<object>")],
    _one_of("exact, ignore, subset, superset, or an object of them by tool"),
]
ExpectedValue = Annotated[
    Annotated[Limits, Tag("<limits>")] | Annotated[Any, Tag("<value>")], Discriminator(_value_shape)
]


class Case(_Part):
    """One line of a file of benchmark cases.

    Attributes:
        case_id: The task_id of its runs.
        mock_env: What a scenario harness gives its tools to answer from.
        acceptable_tool_sequences: Each a list of calls; a list within it is a group of calls that one model turn
            requests. An empty sequence accepts a run without a call.
        sequence_mode: How a run is compared with them; None is exact.
        arguments_mode: When two calls of one tool are equal; or by tool, "*" for those that are not named, a mode or
            the dotted paths of the arguments that alone must be equal. None is ignore.
        expected_arguments: Tool to argument to its value, or to limits: an object of the keys of `Limits` alone.
        max_allowed_steps: Most executed tool calls.
        optimal_steps: Executed tool calls of the shortest way.
        outcome_sql: One SQL expression that says whether the task was done.
    """

    case_id: Text
    tenant_id: Text | None = None
    user_input: str | None = None
    mock_env: dict[str, Any] | None = None
    acceptable_tool_sequences: Annotated[list[list[SequenceItem]], Field(min_length=1)] | None = None
    sequence_mode: Literal["exact", "any_order", "in_order", "subset", "superset", "strict", "unordered"] | None = None
    arguments_mode: AnyArgumentsMode | None = None
    forbidden_tools: list[Text] | None = None
    expected_arguments: dict[Text, dict[Text, ExpectedValue]] | None = None
    max_allowed_steps: Annotated[Steps, Field(ge=0)] | None = None
    optimal_steps: Annotated[Steps, Field(ge=1)] | None = None
    expected_outcome: ExpectedOutcome | None = None
    outcome_sql: Annotated[Text, AfterValidator(_one_expression)] | None = None


def read(path: Path | None) -> list[dict[str, Any]]:
    """Reads a file of cases.

    Args:
        path: JSON lines; None is no cases.

    Returns:
        One dictionary per case, with the columns of `SCHEMA`; JSON values as JSON text, aliases of modes resolved. An
        `arguments_mode` by tool is JSON text, too.

    Raises:
        ConfigError: A line is no JSON object, lacks its case_id, repeats another's, or holds an unknown key or a wrong
            value; the text names file, line and key.
    """
    if path is None:
        return []
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    rows: list[dict[str, Any]] = []
    lines_of: dict[str, int] = {}
    # Not splitlines(): a JSON string may hold U+2028 as it is.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            row = _row(f"{path}, line {number}", line)
            first = lines_of.setdefault(row["case_id"], number)
            if first != number:
                raise ConfigError(
                    f"{path}, line {number}: case_id: {_shown(row['case_id'])}, as in line {first}; "
                    "expected each case_id once"
                )
            rows.append(row)
    return rows


def table(path: Path | None) -> pa.Table:
    """Returns the relation `cases`; empty without a file."""
    return pa.Table.from_pylist(read(path), schema=SCHEMA)


def _row(place: str, line: str) -> dict[str, Any]:
    try:
        values = json_text.parse(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not a JSON object: {error}") from error
    if is_deeper(values, MAX_DEPTH):
        raise ConfigError(f"{place}: not a JSON object: nested in more than {MAX_DEPTH} levels")
    if not isinstance(values, dict):
        raise ConfigError(f"{place}: not a JSON object, but {_shown(values)}; expected one case, an object, a line")
    try:
        case = Case.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"{place}: {_explained(error)}") from error
    return _columns(cast(dict[str, Any], values), case)


def _columns(values: dict[str, Any], case: Case) -> dict[str, Any]:
    outcome = case.expected_outcome or ExpectedOutcome()
    row = {name: values.get(name) for name in SCHEMA.names} | outcome.model_dump()
    row |= {name: json.dumps(row[name], sort_keys=True) for name in _JSON if row[name] is not None}
    row["sequence_mode"] = _ALIASES.get(str(case.sequence_mode), case.sequence_mode)
    if isinstance(case.arguments_mode, dict):
        row["arguments_mode"] = json.dumps(case.arguments_mode, sort_keys=True)
    return row


def _explained(error: ValidationError) -> str:
    # A misspelt key is also a missing one; the unknown key tells more.
    details = sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != "extra_forbidden")
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return f"{_dotted(details[0]['loc'])}: {_reason(details[0])}{more}"


def _reason(detail: ErrorDetails) -> str:
    # Values of a case are the user's own rules, no trace content: they may be shown.
    found, kind = _shown(detail["input"]), detail["type"]
    if kind == "extra_forbidden":
        return f"unknown key; {_nearest(str(detail['loc'][-1]), _known_keys(detail['loc'][:-1]))}"
    if kind == "value_error":
        return f"{found}: {detail.get('ctx', {}).get('error')}; expected {_EXPECTED[str(detail['loc'][0])]}"
    if kind == "missing":
        found = "nothing"
    expected = _EXPECTED.get(kind) or detail["msg"].removeprefix("Input should be ")
    return f"{found}; expected {expected.format_map(detail.get('ctx', {})) if kind in _EXPECTED else expected}"


# What a value should have been, by the type of the error, or by the key where a validator of ours refused it.
_EXPECTED = {
    "outcome_sql": "one SQL expression",
    "expected_arguments": "min up to max",
    "missing": "a value",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "too_short": "at least one item",
    "string_pattern_mismatch": "a text that is not blank",
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


def _known_keys(place: tuple[int | str, ...]) -> list[str]:
    if not place:
        return list(Case.model_fields)
    return list((ExpectedOutcome if place == ("expected_outcome",) else ExpectedCall).model_fields)


def _dotted(place: tuple[int | str, ...]) -> str:
    """Writes a place as in acceptable_tool_sequences[0][2].tool; shapes and marks in it are pydantic's own."""
    text = ""
    for part in place:
        if isinstance(part, int):
            text += f"[{part}]"
        elif part != "[key]" and not (part.startswith("<") and part.endswith(">")):
            text += f".{part if part.isprintable() else _shown(part)}"
    return text.removeprefix(".")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _nearest(key: str, known: list[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"
