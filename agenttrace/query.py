"""`agenttrace sql` and `agenttrace schema`: one reading query over a store, and what its columns mean."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from agenttrace import terminal
from agenttrace.errors import UsageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

_VARIABLE = re.compile(r"getvariable\('([A-Za-z_]\w*)'\)")
_READING = ("SELECT", "EXPLAIN", "PRAGMA")
# Others run what a file or another query says: import_database, json_execute_serialized_sql.
_PRAGMAS = ("database_list", "database_size", "show_tables", "storage_info", "table_info", "version")


def relation(
    connection: "DuckDBPyConnection", query: str, parameters: Mapping[str, str] | None = None
) -> "DuckDBPyRelation":
    """Prepares one reading statement; column names that repeat get a number.

    Args:
        connection: The store, to read.
        query: The statement; a parameter stands in it as `$name`, or as `getvariable('name')`, which may be left out.
        parameters: Their values as texts, which DuckDB turns into what they are compared with.

    Raises:
        UsageError: No statement, several, one that writes, or one that DuckDB refuses; a parameter is not in the query,
            or lacks a value.
    """
    import duckdb

    from agenttrace.evaluators import reading

    try:
        statements = connection.extract_statements(query)
        if len(statements) != 1:
            count = "no statement" if not statements else f"{len(statements)} statements"
            raise UsageError(f"sql: {count} in the query; expected one.")
        kind = str(statements[0].type).rpartition(".")[2]
        if kind not in _READING:
            raise UsageError(
                f"sql: {kind} is refused: sql only reads. Open the file with any DuckDB client to change it."
            )
        if kind == "PRAGMA":
            problem = None if _pragma(query) in _PRAGMAS else f"is no PRAGMA of {', '.join(_PRAGMAS)}"
        else:
            problem = reading.change(connection, _explained(query) if kind == "EXPLAIN" else query)
        if problem:
            raise UsageError(f"sql: the query {problem}. Open the file with any DuckDB client to change it.")
        bound = _bound(connection, query, set(statements[0].named_parameters), parameters or {})
        return connection.sql(query, params=bound or None).project("*")
    except duckdb.Error as error:
        raise UsageError(f"sql: {explain(error)}") from error


def _bound(
    connection: "DuckDBPyConnection", query: str, named: set[str], parameters: Mapping[str, str]
) -> dict[str, str]:
    """Returns the values of `$name`, and sets the variables of the others."""
    variables = set(_VARIABLE.findall(query))
    for name, value in parameters.items():
        if name not in named | variables:
            known = ", ".join(sorted(named | variables)) or "none"
            raise UsageError(f"sql: --param {name}={value}: the query has no parameter {name}; it has: {known}")
        if name in variables:
            connection.execute(f"SET VARIABLE {name} = $value", {"value": value})
    if missing := sorted(named - set(parameters)):
        raise UsageError(f"sql: the query needs ${missing[0]}; give it with --param {missing[0]}=VALUE.")
    return {name: value for name, value in parameters.items() if name in named}


def _explained(query: str) -> str:
    """Returns the statement behind EXPLAIN, which runs it under ANALYZE."""
    text, places = query.encode(), _starts(query)[1:]
    if text[places[0] :].upper().startswith(b"ANALYZE"):
        del places[0]
    if text.startswith(b"(", places[0]):
        end = next(index for index, at in enumerate(places) if text.startswith(b")", at))
        places = places[end + 1 :] or places
    _check_plain(text[: places[0]])
    return text[places[0] :].decode()


def _pragma(query: str) -> str:
    """Returns the name behind PRAGMA."""
    text = query.encode()
    start, *later = [*_starts(query), len(text)][1:]
    name = text[start : later[0] if later else None]
    _check_plain(text[:start] + name)
    return name.decode().partition("(")[0].strip("; \n\t").lower()


def _check_plain(head: bytes) -> None:
    # A space beyond ASCII is a letter to the tokenizer and a space to the parser: they would see different statements.
    if not head.isascii():
        raise UsageError("sql: before the statement that EXPLAIN explains, and in a PRAGMA, only ASCII is allowed.")


def _starts(query: str) -> list[int]:
    """Returns where in the query's UTF-8 bytes its tokens start, comments left out."""
    import duckdb

    return [at for at, kind in duckdb.tokenize(query) if kind != duckdb.token_type.comment]


def explain(error: Exception) -> str:
    """Returns a DuckDB error as one or two lines, without its drawing of the query."""
    text = str(error).partition("\n\nLINE ")[0]
    if "disabled by configuration" in text or "disabled through configuration" in text:
        text += "\nsql reads nothing but the store. Other files: open the store with any DuckDB client."
    return "\n".join([line.strip() for line in text.splitlines() if line.strip()][:2])


def schema(table: str | None, store: Path | None = None) -> str:
    """Returns the tables of a store with their columns and meanings, or one table of them.

    Args:
        table: The table to describe; None is all.
        store: The store to look at; None is what this release creates.

    Raises:
        UsageError: No such table.
        StoreError: The store cannot be read.
    """
    with described_store(store) as connection:
        tables: dict[str, str | None] = dict(
            connection.execute("SELECT table_name, comment FROM duckdb_tables() ORDER BY table_oid").fetchall()
        )
        columns = connection.execute(
            "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() ORDER BY table_oid, column_index"
        ).fetchall()
    if table is not None and table not in tables:
        close = get_close_matches(table, tables, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(tables)}"
        raise UsageError(f"schema: no table {table!r}; {hint}")
    return "\n\n".join(
        terminal.inert(f"{name}: {comment or ''}").rstrip()
        + "\n"
        + _described([row[1:] for row in columns if row[0] == name])
        for name, comment in tables.items()
        if table in (None, name)
    )


def described_store(store: Path | None) -> "DuckDBPyConnection":
    """Opens a store, or an empty one of this release, whose columns have their comments."""
    import duckdb

    from agenttrace.store import open_store

    if store is not None:
        return open_store(store)
    memory = duckdb.connect()
    memory.execute(files("agenttrace").joinpath("schema.sql").read_text(encoding="utf-8"))
    return memory


def _described(columns: list[tuple[str, str, str | None]]) -> str:
    width = max(len(name) for name, _, _ in columns)
    lines = (f"  {name:{width}}  {kind:24}  {comment or ''}" for name, kind, comment in columns)
    return "\n".join(terminal.inert(line).rstrip() for line in lines)
