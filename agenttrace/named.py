"""Named queries: each a file of `queries/`, whose first comment says what it answers and what it may be given.

They read tables of the store alone, so that any DuckDB client runs them as they are. A parameter is a variable, and may
be left out: `SET VARIABLE since = '2026-11-01'` in the DuckDB shell is `--param since=2026-11-01` here.
"""

from importlib.resources import files
from typing import NamedTuple

from agenttrace import terminal
from agenttrace.commands import nearest
from agenttrace.errors import UsageError


class Named(NamedTuple):
    """A query with its name, the question that it answers, and what its parameters mean."""

    name: str
    question: str
    parameters: dict[str, str]
    query: str


def known() -> dict[str, Named]:
    """Returns the named queries, by name."""
    found = (file for file in files("agenttrace").joinpath("queries").iterdir() if file.name.endswith(".sql"))
    return {
        query.name: query
        for query in sorted(_read(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in found)
    }


def find(name: str) -> Named:
    """Returns one.

    Raises:
        UsageError: There is none of that name.
    """
    queries = known()
    if name not in queries:
        raise UsageError(f"sql: no named query {name!r}; {nearest(name, queries)}")
    return queries[name]


def listing() -> str:
    """Returns all of them as text."""
    lines: list[str] = []
    for query in known().values():
        lines.append(f"{query.name}: {query.question}")
        lines += [f"    --param {name}=...  {meaning}" for name, meaning in query.parameters.items()]
    return "\n".join(terminal.inert(line) for line in lines)


def _read(name: str, text: str) -> Named:
    head, _, query = text.partition("\n\n")
    question, *given = [line.removeprefix("-- ") for line in head.splitlines()]
    parameters = dict(line.split(": ", 1) for line in given)
    return Named(name, question, parameters, query)
