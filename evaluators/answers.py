"""Runs one evaluator's query and reads its rows."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import duckdb
import orjson

from agenttrace.errors import ConfigError
from agenttrace.evaluators import reading
from agenttrace.evaluators.catalog import FINDING_COLUMNS, Evaluator
from agenttrace.evaluators.results import RANK, Measurement

_ROW_COLUMNS = frozenset((*FINDING_COLUMNS, "tool_name", "related_span_ids", "evidence"))


def rows(con: duckdb.DuckDBPyConnection, evaluator: Evaluator, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs one query with its parameters bound.

    Raises:
        ConfigError: The query fails, reads what its header does not name, or its columns are not the header's.
    """
    if (problem := reading.problem(con, evaluator.query, evaluator.reads)) is not None:
        raise ConfigError(f"{evaluator.path}: the query {problem}")
    try:
        cursor = con.execute(evaluator.query, dict(values)) if values else con.execute(evaluator.query)
        names = [column[0] for column in cursor.description or []]
        rows = cursor.fetchall()
    except duckdb.Error as error:
        raise ConfigError(f"{evaluator.path}: the query failed: {str(error).splitlines()[0]}") from error
    if names != list(evaluator.columns):
        raise ConfigError(
            f"{evaluator.path}: the query returns {', '.join(names)}; "
            f"the header's columns are {', '.join(evaluator.columns)}"
        )
    return [dict(zip(names, row, strict=True)) for row in rows]


def check(evaluator: Evaluator, row: Mapping[str, Any]) -> None:
    """Looks at one finding.

    Raises:
        ConfigError: Its severity is over the header's, or it has no kind or no message.
    """
    severity = row["severity"]
    if severity not in RANK or RANK[severity] > RANK[cast(str, evaluator.severity)]:
        raise ConfigError(
            f"{evaluator.path}: a row has severity {severity!r}; the header's highest is {evaluator.severity!r}"
        )
    for column in ("kind", "message"):
        if not isinstance(row[column], str) or not row[column]:
            raise ConfigError(f"{evaluator.path}: a row has {column} {row[column]!r}; expected a text")


def evidence(row: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the evaluator's own that are not NULL, and the members of its column `evidence`."""
    found = {name: _plain(value) for name, value in row.items() if name not in _ROW_COLUMNS and value is not None}
    own = _plain_json(row.get("evidence"))
    return found | cast(dict[str, Any], own) if isinstance(own, dict) else found


def _plain_json(value: object) -> object:
    return orjson.loads(value) if isinstance(value, str) else value


def _plain(value: object) -> object:
    """A value that JSON can hold; times as ISO text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list):
        return [_plain(part) for part in cast(list[object], value)]
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in cast(dict[object, object], value).items()}
    return str(value)


def measurement(evaluator: Evaluator, row: Mapping[str, Any]) -> Measurement:
    """Returns one row as a measurement; a number that is not finite is undefined."""
    dimensions = _plain_json(row["dimensions"] or "{}")
    if not isinstance(dimensions, dict):
        raise ConfigError(f"{evaluator.path}: a row has dimensions {row['dimensions']!r}; expected a JSON object")
    stated = [row[name] for name in ("value", "low", "high")]
    numbers = [None if number is None or not math.isfinite(number) else float(number) for number in stated]
    return Measurement(
        str(row["metric"]),
        cast(dict[str, Any], dimensions),
        numbers[0],
        str(row["unit"]),
        int(row["n"]),
        int(row["n_not_evaluable"]),
        numbers[1],
        numbers[2],
    )
