"""`agenttrace sql`: where its query comes from, and on which store it runs."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from agenttrace import named, prompt, query, rows, terminal
from agenttrace.commands import interruptible, ready
from agenttrace.errors import UsageError
from agenttrace.store import open_store


def show_named(name: str | None) -> None:
    """Prints the list of named queries, or one of them, to be pasted anywhere.

    Raises:
        UsageError: There is none of that name.
    """
    terminal.out(named.listing() if name is None else named.find(name).query.rstrip())


def ask(
    text: str | None,
    file: Path | None,
    params: Sequence[str],
    form: str,
    output: Path | None,
    db: Path | None,
    config: Path | None,
) -> None:
    """Runs a query, or reads some from a prompt where none is given on a terminal.

    Raises:
        UsageError: There is no query, or it is wrong, or a parameter is.
        StoreError: The store cannot be read.
    """
    parameters = dict(map(_parameter, params))
    if text is not None and file is not None:
        raise UsageError("sql: give the query or --file, not both.")
    if text is None and file is None and sys.stdin.isatty():
        if parameters or output or form != "table":
            raise UsageError("sql: no query; give one, name one (--list), or pipe it in.")
        _prompt(db, config)
        return
    asked = _text(text, file)
    path, _ = ready(db, config)
    with open_store(path, locked=True) as connection, interruptible():
        rows.write(query.relation(connection, asked, parameters), form, output)


def _text(text: str | None, file: Path | None) -> str:
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"sql: --file {file}: is no UTF-8 text, from byte {error.start} on.") from error
    if text is None:
        return sys.stdin.read()
    # A word alone is no statement.
    return named.find(text).query if text.isidentifier() else text


def _parameter(given: str) -> tuple[str, str]:
    name, equals, value = given.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"sql: --param {given!r}; expected NAME=VALUE")
    return name, value


def _prompt(db: Path | None, config: Path | None) -> None:
    path, _ = ready(db, config)
    with open_store(path) as connection:
        columns = "SELECT table_name FROM duckdb_tables() UNION SELECT column_name FROM duckdb_columns() ORDER BY ALL"
        words = [word for (word,) in connection.execute(columns).fetchall()] + list(named.known())
    terminal.note("A statement ends with ; and Ctrl-D ends this. agenttrace schema shows the tables.")
    prompt.read_statements(partial(_answer, db, config), words)


def _answer(db: Path | None, config: Path | None, statement: str) -> None:
    path, _ = ready(db, config)
    asked = _text(statement.strip(), None)
    with open_store(path, locked=True) as connection:
        prompt.interruptible(connection, lambda: rows.write(query.relation(connection, asked), "table", None))
