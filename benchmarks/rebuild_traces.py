"""Stores for the benchmark of the rebuild: traces made here, and the recordings of the tests, multiplied."""

import json
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from agenttrace.collectors.files import import_files
from agenttrace.spans import hot_attributes
from agenttrace.store import refresh

RECORDINGS = Path(__file__).parent.parent / "tests" / "traces"
# Copies of a recording stand so far apart that no call of one is another's.
APART_NS = 3_600_000_000_000

TURNS = 5
START_NS = 1_790_000_000_000_000_000
MS = 1_000_000

Json = dict[str, Any]


def model_gen_ai(history: list[Json], call: Json, tools: list[Json]) -> Json:
    output = [{"role": "assistant", "parts": [{"type": "tool_call", **call}]}]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.input.messages": json.dumps(history),
        "gen_ai.output.messages": json.dumps(output),
        "gen_ai.tool.definitions": json.dumps(tools),
    }


def model_openinference(history: list[Json], call: Json, tools: list[Json]) -> Json:
    found: Json = {
        "openinference.span.kind": "LLM",
        "llm.model_name": "gpt-4o",
        "llm.token_count.prompt": 100,
        "llm.token_count.completion": 20,
    }
    for number, message in enumerate(history):
        head = f"llm.input_messages.{number}.message"
        part = message["parts"][0]
        found[f"{head}.role"] = message["role"]
        if part["type"] == "tool_call_response":
            found |= {f"{head}.tool_call_id": part["id"], f"{head}.content": json.dumps(part["response"])}
        elif part["type"] == "text":
            found[f"{head}.content"] = part["content"]
    head = "llm.output_messages.0.message"
    found |= {
        f"{head}.role": "assistant",
        f"{head}.tool_calls.0.tool_call.id": call["id"],
        f"{head}.tool_calls.0.tool_call.function.name": call["name"],
        f"{head}.tool_calls.0.tool_call.function.arguments": json.dumps(call["arguments"]),
    }
    for number, tool in enumerate(tools):
        found[f"llm.tools.{number}.tool.json_schema"] = json.dumps(tool)
    return found


def tool_gen_ai(call: Json, result: Json) -> Json:
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call["name"],
        "gen_ai.tool.call.id": call["id"],
        "gen_ai.tool.call.arguments": json.dumps(call["arguments"]),
        "gen_ai.tool.call.result": json.dumps(result),
    }


def tool_openinference(call: Json, result: Json) -> Json:
    return {
        "openinference.span.kind": "TOOL",
        "tool.name": call["name"],
        "tool.id": call["id"],
        "input.value": json.dumps(call["arguments"]),
        "output.value": json.dumps(result),
    }


CONVENTIONS: dict[str, tuple[Any, Any, Json]] = {
    "gen_ai": (model_gen_ai, tool_gen_ai, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "restock"}),
    "openinference": (
        model_openinference,
        tool_openinference,
        {"openinference.span.kind": "AGENT", "agent.name": "restock"},
    ),
}


def attributes_of_trace(convention: str, trace: int) -> Iterator[Json]:
    model, tool, agent = CONVENTIONS[convention]
    tools = [
        {"name": f"tool_{n}", "description": "Does a thing. " * 4, "parameters": {"type": "object"}} for n in range(4)
    ]
    history: list[Json] = [
        {"role": "user", "parts": [{"type": "text", "content": f"restock item {trace} " + "rice " * 40}]}
    ]
    yield agent
    for turn in range(TURNS):
        call: Json = {
            "id": f"call_{trace}_{turn}",
            "name": f"tool_{turn % 4}",
            "arguments": {"item": "rice", "qty": turn},
        }
        result = {"order": f"o-{trace}-{turn}", "note": "delivered " * 10}
        yield model(history, call, tools)
        if turn < TURNS - 1:
            yield tool(call, result)
            answer = {"type": "tool_call_response", "id": call["id"], "response": result}
            history = [
                *history,
                {"role": "assistant", "parts": [{"type": "tool_call", **call}]},
                {"role": "tool", "parts": [answer]},
            ]


def empty() -> duckdb.DuckDBPyConnection:
    """A store in memory."""
    con = duckdb.connect()
    con.execute((resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8"))
    con.execute("SET TimeZone = 'UTC'")
    return con


def mark(con: duckdb.DuckDBPyConnection) -> None:
    """Makes all traces of a store new ones."""
    for table in ("steps", "trajectories", "dirty_traces"):
        con.execute(f"DELETE FROM {table}")
    con.execute("INSERT INTO dirty_traces SELECT DISTINCT trace_id FROM spans")


def rows_of(convention: str, traces: int, *, in_one_trace: bool = False) -> list[Json]:
    """Rows of `spans`: so many runs, each a trace of its own or all below one agent."""
    rows: list[Json] = []
    for trace in range(traces):
        for number, attributes in enumerate(attributes_of_trace(convention, trace)):
            start = START_NS + (trace * 20 + number) * MS
            run = trace if in_one_trace else 0
            is_root = not number and not run
            if in_one_trace and not number and run:
                continue
            rows.append(
                {
                    "trace_id": f"{1 if in_one_trace else trace + 1:032x}",
                    "span_id": f"{run * 100 + number + 1:016x}",
                    "parent_span_id": None if is_root else f"{1:016x}",
                    "name": "span",
                    "span_kind": "internal",
                    "start_time_unix_nano": start,
                    "end_time_unix_nano": start + (20 * MS * (traces if in_one_trace else 1) if is_root else MS // 2),
                    "status_code": "unset",
                    "scope_name": "benchmark",
                    **hot_attributes(attributes)._asdict(),
                    "attributes": json.dumps(attributes),
                    **dict.fromkeys(("events", "links"), "[]"),
                    **dict.fromkeys(("resource_attributes", "scope_attributes"), "{}"),
                    **{f"{of}dropped_attributes_count": 0 for of in ("", "resource_", "scope_")},
                    **dict.fromkeys(("dropped_events_count", "dropped_links_count"), 0),
                }
            )
    return rows


def made(convention: str, traces: int, *, in_one_trace: bool = False) -> duckdb.DuckDBPyConnection:
    """A store of traces made here."""
    con = empty()
    con.register("incoming", pa.Table.from_pylist(rows_of(convention, traces, in_one_trace=in_one_trace)))
    con.execute("INSERT INTO spans BY NAME SELECT *, now() AS received_at FROM incoming")
    con.unregister("incoming")
    return con


def recorded() -> duckdb.DuckDBPyConnection:
    """All recordings of the tests, as steps too."""
    files = sorted(path for path in RECORDINGS.glob("*/*.jsonl") if path.stat().st_size)
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "recorded.duckdb"
        import_files(files, db)
        refresh(db)
        con = empty()
        con.execute(f"ATTACH '{db}' AS recorded (READ_ONLY)")
        for table in ("spans", "log_records", "steps"):
            con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM recorded.{table}")
        con.execute("DETACH recorded")
    return con


def multiplied(source: duckdb.DuckDBPyConnection, convention: str, spans: int) -> duckdb.DuckDBPyConnection:
    """A store of the recordings that hold steps of a convention, as often as makes so many spans."""
    source.execute(
        "CREATE OR REPLACE TEMP TABLE chosen AS SELECT DISTINCT trace_id FROM steps WHERE convention = $name",
        {"name": convention},
    )
    [(count,)] = source.execute("SELECT count(*) FROM spans SEMI JOIN chosen USING (trace_id)").fetchall()
    copies = -(-spans // count)
    con = empty()
    for table, times in (
        ("spans", ("start_time_unix_nano", "end_time_unix_nano")),
        ("log_records", ("time_unix_nano", "observed_time_unix_nano")),
    ):
        moved = ", ".join(f"{name} + copy * {APART_NS} AS {name}" for name in times)
        con.register(
            "incoming",
            source.sql(
                f"SELECT * EXCLUDE (copy) REPLACE (md5(trace_id || copy) AS trace_id, {moved})"
                f" FROM {table} SEMI JOIN chosen USING (trace_id), range({copies}) AS copies(copy)"
            ).to_arrow_table(),
        )
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
        con.unregister("incoming")
    return con
