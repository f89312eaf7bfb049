"""Spans -> steps and trajectories, as a multiple of DuckDB's scan of the spans' attributes in the same run.

Run: `python benchmarks/rebuild.py [TRACES]`. Each trace is one agent with five model calls, whose input repeats the
history, and four tool calls.
"""

import json
import sys
import time
from collections.abc import Iterator
from importlib import resources
from typing import Any

import duckdb
import pyarrow as pa

from agenttrace.rebuild import rebuild
from agenttrace.spans import hot_attributes

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


def filled(convention: str, traces: int) -> duckdb.DuckDBPyConnection:
    """A store in memory whose traces are all dirty."""
    rows: list[Json] = []
    for trace in range(traces):
        for number, attributes in enumerate(attributes_of_trace(convention, trace)):
            start = START_NS + (trace * 20 + number) * MS
            rows.append(
                {
                    "trace_id": f"{trace + 1:032x}",
                    "span_id": f"{number + 1:016x}",
                    "parent_span_id": f"{1:016x}" if number else None,
                    "name": "span",
                    "span_kind": "internal",
                    "start_time_unix_nano": start,
                    "end_time_unix_nano": start + (MS // 2 if number else 20 * MS),
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
    con = duckdb.connect()
    con.execute((resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8"))
    con.execute("SET TimeZone = 'UTC'")
    con.register("incoming", pa.Table.from_pylist(rows))
    con.execute("INSERT INTO spans BY NAME SELECT *, now() AS received_at FROM incoming")
    con.execute("INSERT INTO dirty_traces SELECT DISTINCT trace_id FROM spans")
    return con


def processor_time(work: Any) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    """Prints one line per convention."""
    traces = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    scan = "SELECT count(attributes ->> '$.\"gen_ai.input.messages\"'), count(attributes ->> '$.x') FROM spans"
    for convention in CONVENTIONS:
        con = filled(convention, traces)
        base = min(processor_time(lambda con=con: con.execute(scan).fetchall()) for _ in range(3))
        taken = processor_time(lambda con=con: rebuild(con))
        (spans,) = con.execute("SELECT count(*) FROM steps").fetchone() or (0,)
        (linked,) = con.execute("SELECT count(*) FROM steps WHERE turn_span_id IS NOT NULL").fetchone() or (0,)
        assert linked == traces * (TURNS - 1)
        each = taken / spans * 1e6
        print(f"{convention:14} {spans:7} spans: {taken / base:6.1f} times the scan, {each:5.0f} us of processor each")


if __name__ == "__main__":
    main()
