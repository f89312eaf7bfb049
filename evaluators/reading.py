"""What a query may do: read, in one SELECT, and that of an evaluator only the relations that its header names."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import duckdb

# A CTE may delete, insert, update and copy, in what is a SELECT by its kind.
_READING_NODES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
# Others read files, or relations under a name that is only known when they run.
_TABLE_FUNCTIONS = frozenset({"json_each", "json_tree", "unnest", "range", "generate_series"})
# What they run is not in the syntax tree. `query` runs nothing but a SELECT, and refuses COPY within it.
_RUNNING_FUNCTIONS = frozenset({"json_execute_serialized_sql"})

_Part = dict[str, Any]
_Names = frozenset[str]

# An evaluation in parts asks for each part, and a look takes as long as a small part.
_problems: dict[tuple[str, _Names], str | None] = {}


def problem(con: duckdb.DuckDBPyConnection, query: str, reads: Iterable[str]) -> str | None:
    """Says what is wrong with a query, by DuckDB's own parser; it is not run.

    Args:
        con: Any connection; to start a DuckDB for each query would take longer than most evaluators do.
        query: The text below the header.
        reads: The relations that the header names.

    Returns:
        None where it only reads these.
    """
    declared = frozenset(name.lower() for name in reads)
    if (query, declared) not in _problems:
        found = _first(con, query, lambda part, ctes: _change_of(part) or _stranger_of(part, ctes | declared))
        _problems[query, declared] = found
    return _problems[query, declared]


def change(con: duckdb.DuckDBPyConnection, query: str) -> str | None:
    """Says why a query is more than one SELECT that only reads, from whatever it likes; it is not run."""
    return _first(con, query, lambda part, _: _change_of(part))


def _first(con: duckdb.DuckDBPyConnection, query: str, look: Callable[[_Part, _Names], str | None]) -> str | None:
    (text,) = con.execute("SELECT json_serialize_sql($query)", {"query": query}).fetchall()[0]
    try:
        tree: _Part = json.loads(text)
    except RecursionError:
        return "is nested too deeply"
    if tree["error"]:
        syntax = f": {tree['error_message']}" if tree["error_type"] == "parser" else ""
        return f"is not one SELECT{syntax}"
    if len(tree["statements"]) != 1:
        return f"holds {len(tree['statements'])} statements; expected one SELECT"
    found = (look(part, ctes) for part, ctes in _parts(tree["statements"]))
    return next((text for text in found if text is not None), None)


def _change_of(part: _Part) -> str | None:
    kind = str(part.get("type"))
    if kind == "TABLE_FUNCTION" and str(part["function"]["function_name"]).lower() in _RUNNING_FUNCTIONS:
        return f"calls {part['function']['function_name']}, which runs another query; it may not"
    return "changes data; expected one SELECT" if kind.endswith("_NODE") and kind not in _READING_NODES else None


def _stranger_of(part: _Part, known: _Names) -> str | None:
    kind = part.get("type")
    if kind == "BASE_TABLE":
        path = ".".join(name for name in (part["catalog_name"], part["schema_name"], part["table_name"]) if name)
        # A CTE may have dots in its name; what has a schema before its name is none.
        is_known = not part["catalog_name"] and not part["schema_name"] and path.lower() in known
        return None if is_known else f"reads {path}, which `reads` in its header does not name"
    if kind == "TABLE_FUNCTION":
        name = str(part["function"]["function_name"])
        return None if name.lower() in _TABLE_FUNCTIONS else f"calls the table function {name}; it may not"
    if kind == "SHOW_REF":
        return "asks which relations there are; it may not"
    return None


def _parts(statements: object) -> Iterator[tuple[_Part, _Names]]:
    """Yields each object of a syntax tree, with the names of the CTEs that it sees."""
    # A stack instead of recursion: a query may nest deeper than Python does.
    pending: list[tuple[object, _Names]] = [(statements, frozenset())]
    while pending:
        value, ctes = pending.pop()
        if isinstance(value, list):
            pending += [(inner, ctes) for inner in cast(list[object], value)]
        elif isinstance(value, dict):
            part = cast(_Part, value)
            for entry in part["cte_map"]["map"] if "cte_map" in part else ():
                pending.append((entry["value"], ctes))
                ctes |= {str(entry["key"]).lower()}
            yield part, ctes
            # Only the step of a recursive one sees itself; elsewhere within it its name is that of a relation.
            own = {str(part["cte_name"]).lower()} if part.get("type") == "RECURSIVE_CTE_NODE" else set[str]()
            pending += [
                (inner, ctes | own if key == "right" else ctes) for key, inner in part.items() if key != "cte_map"
            ]
