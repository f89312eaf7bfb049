"""Makes the Python readers of JSON callable from the SQL of conventions and rebuild."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import duckdb
from duckdb.func import SPECIAL

from agenttrace.dialects import messages, repr_messages, tool_definitions
from agenttrace.envelopes import (
    call_arguments,
    canonical_arguments,
    result_failed,
    result_value,
    same_arguments,
    unflatten,
)
from agenttrace.json_text import captured, decoded, json_of_text
from agenttrace.python_repr import json_of_repr


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Makes the readers callable from SQL on `con`, once; NULL in gives NULL out."""
    if con.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = 'unflatten'").fetchone():
        return
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
    pairs: tuple[tuple[Callable[[str, str], Any], str], ...] = ((unflatten, "JSON"), (same_arguments, "BOOLEAN"))
    for pair, returns in pairs:
        con.create_function(
            pair.__name__, _null_for_null_pair(pair), ["VARCHAR", "VARCHAR"], returns, null_handling=SPECIAL
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


def _null_for_null_pair(function: Callable[[str, str], Any]) -> Callable[[str | None, str | None], Any]:
    return lambda text, other: None if text is None or other is None else function(text, other)
