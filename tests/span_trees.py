"""Small span trees for tests of the rebuild: written as they nest, turned into rows of `spans`, rebuilt in one pass."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa

from agenttrace.config import Settings
from agenttrace.rebuild import rebuild
from agenttrace.spans import LogRow, SpanRow, hot_attributes

START_NS = 1_700_000_000_000_000_000
MS = 1_000_000
NOT_GIVEN = object()

Json = dict[str, Any]


@dataclass
class Node:
    """One span; times are milliseconds since the trace began, None goes on from the sibling before."""

    name: str
    attributes: Json
    children: tuple["Node", ...] = ()
    at: float | None = None
    until: float | None = None
    ended: bool = True
    fields: Json = field(default_factory=dict[str, Any])


@dataclass
class Run:
    """What one trace has become."""

    rows: list[SpanRow]
    steps: list[Json]
    trajectories: list[Json]

    @property
    def trajectory(self) -> Json:
        (found,) = self.trajectories
        return found

    @property
    def counted(self) -> list[Json]:
        """Tool and model steps in order, without duplicates."""
        found = [step for step in self.steps if step["step_index"] is not None]
        return sorted(found, key=lambda step: (step["trajectory_id"], step["step_index"]))

    @property
    def tools(self) -> list[Json]:
        return [step for step in self.counted if step["kind"] == "tool"]

    @property
    def tool(self) -> Json:
        (found,) = self.tools
        return found

    def span_id(self, name: str) -> str:
        (found,) = (row.span_id for row in self.rows if row.name == name)
        return found


def span(name: str, *children: Node, attributes: Json | None = None, **more: Any) -> Node:
    """Any span; keywords are fields of Node or columns of `spans`."""
    own = {key: more.pop(key) for key in ("at", "until", "ended") if key in more}
    return Node(name, attributes or {}, children, **own, fields=more)


def agent(name: str, *children: Node, attributes: Json | None = None, **more: Any) -> Node:
    base = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return span(f"invoke_agent {name}", *children, attributes=base | (attributes or {}), **more)


def chat(
    *children: Node,
    reads: Sequence[Json] | None = None,
    asks: Sequence[Json] = (),
    says: str | None = None,
    offers: Sequence[Any] | None = None,
    tokens: tuple[int, int] | None = (10, 5),
    model: str = "gpt-4o",
    attributes: Json | None = None,
    **more: Any,
) -> Node:
    """A model call that reads messages, says something and asks for tools."""
    base: Json = {"gen_ai.operation.name": "chat", "gen_ai.request.model": model, "gen_ai.provider.name": "openai"}
    if tokens:
        base |= {"gen_ai.usage.input_tokens": tokens[0], "gen_ai.usage.output_tokens": tokens[1]}
    if reads is not None:
        base["gen_ai.input.messages"] = json.dumps(reads)
    if asks or says is not None:
        base["gen_ai.output.messages"] = json.dumps(
            [message("assistant", *([] if says is None else [text(says)]), *asks)]
        )
    if offers is not None:
        base["gen_ai.tool.definitions"] = json.dumps([{"name": o} if isinstance(o, str) else o for o in offers])
    return span(f"chat {model}", *children, attributes=base | (attributes or {}), **more)


def tool(
    name: str,
    arguments: Any = NOT_GIVEN,
    *children: Node,
    result: Any = NOT_GIVEN,
    id: str | None = None,
    raises: tuple[str, str] | None = None,
    attributes: Json | None = None,
    **more: Any,
) -> Node:
    """An execution; `raises` is (exception type, message)."""
    base: Json = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if id is not None:
        base["gen_ai.tool.call.id"] = id
    if arguments is not NOT_GIVEN:
        base["gen_ai.tool.call.arguments"] = arguments if isinstance(arguments, str) else json.dumps(arguments)
    if result is not NOT_GIVEN:
        base["gen_ai.tool.call.result"] = result if isinstance(result, str) else json.dumps(result)
    if raises:
        base["error.type"] = raises[0]
        more = {"status_code": "error", "status_message": raises[1]} | more
    return span(f"execute_tool {name}", *children, attributes=base | (attributes or {}), **more)


def message(role: str, *parts: Json) -> Json:
    return {"role": role, "parts": list(parts)}


def text(content: str) -> Json:
    return {"type": "text", "content": content}


def user(content: str) -> Json:
    return message("user", text(content))


def call(name: str, arguments: Any = None, id: str | None = None) -> Json:
    return {"type": "tool_call", "id": id, "name": name, "arguments": {} if arguments is None else arguments}


def asked(*calls: Json) -> Json:
    return message("assistant", *calls)


def answer(id: str | None, response: Any, **more: Any) -> Json:
    return message("tool", {"type": "tool_call_response", "id": id, "response": response, **more})


def span_rows(trace_id: str, *roots: Node) -> list[SpanRow]:
    """Rows of a trace, parents first; ids count up, time goes on by 10 ms at each start and end."""
    rows: list[SpanRow] = []
    clock = 0.0
    stack: list[tuple[Node, str | None, int | None]] = [(root, None, None) for root in reversed(roots)]
    while stack:
        node, parent, index = stack.pop()
        clock += 10
        if index is not None:
            end = clock if node.until is None else node.until
            rows[index] = rows[index]._replace(end_time_unix_nano=START_NS + int(end * MS) if node.ended else None)
            continue
        clock = clock if node.at is None else node.at
        row = make_row(
            trace_id, f"{len(rows) + 1:016x}", parent, node.name, node.attributes, START_NS + int(clock * MS)
        )
        stack.append((node, parent, len(rows)))
        rows.append(row._replace(**node.fields))
        stack += [(child, row.span_id, None) for child in reversed(node.children)]
    return rows


def make_row(trace_id: str, span_id: str, parent: str | None, name: str, attributes: Json, start: int) -> SpanRow:
    return SpanRow(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent,
        name=name,
        span_kind="internal",
        start_time_unix_nano=start,
        end_time_unix_nano=start + MS,
        status_code="unset",
        status_message=None,
        service_name="shop",
        scope_name="test",
        scope_version=None,
        **hot_attributes(attributes)._asdict(),
        attributes=json.dumps(attributes),
        events="[]",
        links="[]",
        resource_attributes="{}",
        scope_attributes="{}",
        trace_state=None,
        flags=1,
        resource_schema_url=None,
        scope_schema_url=None,
        dropped_attributes_count=0,
        dropped_events_count=0,
        dropped_links_count=0,
        resource_dropped_attributes_count=0,
        scope_dropped_attributes_count=0,
    )


def make_log(
    trace_id: str, span_id: str, event_name: str, *, body: Any = None, attributes: Json | None = None, at: int = 0
) -> LogRow:
    return LogRow(
        trace_id=trace_id,
        span_id=span_id,
        event_name=event_name,
        time_unix_nano=START_NS + at,
        observed_time_unix_nano=START_NS + at,
        severity_number=9,
        severity_text=None,
        body=None if body is None else json.dumps(body),
        attributes=json.dumps(attributes or {}),
        service_name="shop",
        scope_name="test",
        scope_version=None,
        resource_attributes="{}",
        scope_attributes="{}",
        flags=1,
        resource_schema_url=None,
        scope_schema_url=None,
        dropped_attributes_count=0,
        resource_dropped_attributes_count=0,
        scope_dropped_attributes_count=0,
    )


@cache
def _schema() -> str:
    """The schema without the comments of its columns, which take most of the time and change no row."""
    schema = (resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8")
    statements = [statement.query for statement in duckdb.extract_statements(schema)]
    return ";".join(query for query in statements if not query.lstrip().startswith("COMMENT ON"))


def open_memory() -> duckdb.DuckDBPyConnection:
    """An empty store in memory."""
    con = duckdb.connect()
    con.execute(_schema())
    con.execute("SET TimeZone = 'UTC'")
    return con


def insert(
    con: duckdb.DuckDBPyConnection, rows: Iterable[SpanRow], logs: Iterable[LogRow] = (), *, received: str = "now()"
) -> None:
    """Writes spans and log records as the compactor does, and marks their traces."""
    for table, kind, found in (("spans", SpanRow, list(rows)), ("log_records", LogRow, list(logs))):
        if not found:
            continue
        types = dict(
            con.execute(f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}'").fetchall()
        )
        numbers = {name for name, data_type in types.items() if data_type == "BIGINT"}
        columns = zip(kind._fields, zip(*found, strict=True), strict=True)
        arrays = {name: pa.array(values, pa.int64() if name in numbers else pa.string()) for name, values in columns}
        con.register("incoming_rows", pa.table(arrays))
        con.execute(f"INSERT INTO {table} BY NAME SELECT *, {received} AS received_at FROM incoming_rows")
        con.execute("INSERT INTO dirty_traces SELECT DISTINCT trace_id FROM incoming_rows")
        con.unregister("incoming_rows")


def records(con: duckdb.DuckDBPyConnection, sql: str) -> list[Json]:
    found = con.execute(sql)
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def runs(con: duckdb.DuckDBPyConnection, rows: Sequence[SpanRow]) -> dict[str, Run]:
    """The traces of a store by their ids."""
    found = {row.trace_id: Run([], [], []) for row in rows}
    for row in rows:
        found[row.trace_id].rows.append(row)
    for step in records(con, "SELECT * FROM steps ORDER BY trace_id, span_id"):
        found[step["trace_id"]].steps.append(step)
    for trajectory in records(con, "SELECT * FROM trajectories ORDER BY trace_id, start_time, trajectory_id"):
        found[trajectory["trace_id"]].trajectories.append(trajectory)
    return found


def rebuilt(*roots: Node, settings: Settings | None = None) -> Run:
    """One trace, rebuilt on its own."""
    con = open_memory()
    rows = span_rows("1" * 32, *roots)
    insert(con, rows)
    rebuild(con, settings=settings)
    return runs(con, rows)["1" * 32]


class Forest:
    """The traces of a test module, rebuilt together: a rebuild costs the same for one trace as for a hundred."""

    def __init__(self) -> None:
        self._trees: dict[str, tuple[Node, ...]] = {}
        self._runs: dict[str, Run] | None = None

    def of(self, *roots: Node) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Gives a test the trace that it judges, as its fixture `run`."""

        def register(test: Callable[..., None]) -> Callable[..., None]:
            self._trees[test.__name__] = roots
            return test

        return register

    def run(self, test: str) -> Run:
        if self._runs is None:
            con = open_memory()
            rows = [
                row
                for number, roots in enumerate(self._trees.values())
                for row in span_rows(f"{number + 1:032x}", *roots)
            ]
            insert(con, rows)
            rebuild(con)
            self._runs = runs(con, rows)
        return self._runs[f"{list(self._trees).index(test) + 1:032x}"]
