"""Makes the Python readers of JSON callable from the SQL of conventions and rebuild."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

import duckdb
from duckdb.func import SPECIAL

from agenttrace.dialects import messages, repr_messages, tool_definitions
from agenttrace.envelopes import (
    call_arguments,
    canonical_arguments,
    flattened_call,
    result_failed,
    result_value,
    same_arguments,
    unflatten,
)
from agenttrace.json_text import captured, decoded, json_of_text
from agenttrace.python_repr import json_of_repr


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Makes the readers callable from SQL on `con`, once; NULL in gives NULL out."""
    try:
        con.execute("SELECT captured(NULL)").fetchall()
    except duckdb.CatalogException:
        _register(con)


def _register(con: duckdb.DuckDBPyConnection) -> None:
    functions: tuple[tuple[Callable[[str], Any], str], ...] = (
        (decoded, "JSON"),
        (json_of_text, "JSON"),
        (json_of_repr, "JSON"),
        (messages, "JSON"),
        (repr_messages, "JSON"),
        # The same tools are offered in every call of a run.
        (lru_cache(maxsize=64)(tool_definitions), "JSON"),
        (call_arguments, "JSON"),
        (result_value, "JSON"),
        (captured, "VARCHAR"),
        (canonical_arguments, "VARCHAR"),
        (result_failed, "BOOLEAN"),
    )
    for function, returns in functions:
        con.create_function(function.__name__, _null_for_null(function), ["VARCHAR"], returns, null_handling=SPECIAL)
    of_several: tuple[tuple[Callable[..., Any], int, str], ...] = (
        (unflatten, 2, "JSON"),
        (same_arguments, 2, "BOOLEAN"),
        (flattened_call, 4, "STRUCT(input JSON, output JSON, tools JSON)"),
    )
    for function, count, returns in of_several:
        con.create_function(
            function.__name__,
            _null_for_any_null(function),
            ["VARCHAR" for _ in range(count)],
            returns,
            null_handling=SPECIAL,
        )


# DuckDB's default handling of NULL refuses a function that returns NULL. A value nested deeper than Python recurses is
# not captured.
def _null_for_null(function: Callable[[str], Any]) -> Callable[[str | None], Any]:
    def call(text: str | None) -> Any:
        try:
            return None if text is None else function(text)
        except RecursionError:
            return None

    return call


def _null_for_any_null(function: Callable[..., Any]) -> Callable[..., Any]:
    # DuckDB asks for the number of parameters.
    @wraps(function)
    def call(*texts: str | None) -> Any:
        try:
            return None if None in texts else function(*texts)
        except RecursionError:
            return None

    return call
