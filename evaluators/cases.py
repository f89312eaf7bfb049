"""Benchmark cases: one JSON object a line, keyed by the task that a run attempts."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from agenttrace.errors import ConfigError

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
_OUTCOME = ("must_include", "must_not_include")
_KEYS = [name for name in SCHEMA.names if name not in _OUTCOME] + ["expected_outcome"]


def read(path: Path | None) -> list[dict[str, Any]]:
    """Reads a file of cases.

    Args:
        path: JSON lines; None is no cases.

    Returns:
        One dictionary per case, with the columns of `SCHEMA`; JSON values as JSON text.

    Raises:
        ConfigError: A line is no JSON object, has no case_id or a second one of the same, or an unknown key; the text
            names file and line.
    """
    if path is None:
        return []
    rows: dict[str, dict[str, Any]] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row = _row(f"{path}, line {number}", line)
            if row["case_id"] in rows:
                raise ConfigError(f"{path}, line {number}: a second case {row['case_id']!r}; each case_id stands once")
            rows[row["case_id"]] = row
    return list(rows.values())


def table(path: Path | None) -> pa.Table:
    """Returns the relation `cases`; empty without a file."""
    return pa.Table.from_pylist(read(path), schema=SCHEMA)


def _row(place: str, line: str) -> dict[str, Any]:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: not a JSON object: {error}") from error
    if not isinstance(case, dict):
        raise ConfigError(f"{place}: not a JSON object; a case is one object a line")
    values = cast(dict[str, Any], case)
    if not isinstance(values.get("case_id"), str):
        raise ConfigError(f"{place}: case_id is {values.get('case_id')!r}; expected the task_id of its runs, a text")
    for key in values:
        if key not in _KEYS:
            close = get_close_matches(key, _KEYS, n=1)
            raise ConfigError(
                f"{place}: unknown key {key!r}; "
                + (f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(_KEYS)}")
            )
    outcome: Any = values.get("expected_outcome") or {}
    if not isinstance(outcome, dict):
        raise ConfigError(
            f"{place}: expected_outcome is {outcome!r}; expected an object with must_include and must_not_include"
        )
    expected = cast(dict[str, Any], outcome)
    row = {name: values.get(name) for name in SCHEMA.names} | {name: expected.get(name) for name in _OUTCOME}
    row |= {name: None if row[name] is None else json.dumps(row[name], sort_keys=True) for name in _JSON}
    try:
        pa.Table.from_pylist([row], schema=SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ConfigError(f"{place}: a value has the wrong type: {error}") from error
    return row
