"""The runs of fs_agent_bench as OTLP: an agent with its model and tool calls, and beside it the grader's model call.

The benchmark's price of a run is that of the agent and of the model that graded it, and its tool calls are those of
the model and the file-system actions that they caused. So one trace is one benchmark case: the agent, whose children
are its steps and the file system's spans, and beside it the grader. The trajectory has the published cost; what stands
below the agent is the agent's own.
"""

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agenttrace.collectors.files import import_files
from agenttrace.spans import OutcomeRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import refresh

DATA = Path(__file__).parent / "data" / "fs_agent_bench"
HISTORY = sorted((DATA / "history").glob("*.jsonl"))
START_NS = 1_771_000_000_000_000_000
MS = 1_000_000

Json = dict[str, Any]


def runs() -> list[Json]:
    """The 72 recorded runs."""
    with gzip.open(DATA / "runs.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def summary(path: Path) -> list[Json]:
    """One published summary: a row per run."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def task(row: Json) -> str:
    return f"{row['model']}/{row['taskId']}"


def load_summary(store: Path, rows: Iterable[Json]) -> None:
    """Makes a store of a published summary: of each run one span with its duration and cost, and its verdict."""
    found = list(rows)
    _load(store, (span for row in found for span in _summary_spans(row)), found)


def load_runs(store: Path, records: Iterable[Json]) -> None:
    """Makes a store of recorded runs with all their steps."""
    found = list(records)
    _load(store, (span for record in found for span in _run_spans(record)), [record["outcome"] for record in found])


def _load(store: Path, spans: Iterable[Json], outcomes: Iterable[Json]) -> None:
    document = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "fs_agent_bench"}, "spans": list(spans)}]}]}
    path = store.with_suffix(".json")
    path.write_text(json.dumps(document), encoding="utf-8")
    result = import_files([path], store)
    assert result.skipped == []
    verdicts = [
        OutcomeRow(task(row), row["runIndex"], None, "checker", row["success"], None, None, START_NS)
        for row in outcomes
    ]
    Spool(spool_folder(store)).write("outcomes", verdicts)
    refresh(store)


def _summary_spans(row: Json) -> Iterator[Json]:
    yield _agent(row, None, {"gen_ai.usage.cost": float(row["totalCostUsd"])}, row["agentError"])


def _run_spans(record: Json) -> Iterator[Json]:
    row, result = record["outcome"], record.get("result") or record["partialResult"]
    root = _span(row, "root", None, "benchmark case", 0, row["durationMs"], {})
    yield root
    yield (agent := _agent(row, root["spanId"], {}, row.get("agentError")))
    clock = 1
    for number, step in enumerate(result["steps"]):
        # One provider gives calls no ids.
        calls = [{"callId": f"call_{number}_{index}"} | call for index, call in enumerate(step["toolCalls"])]
        model = _model(row["model"], step, calls)
        yield _span(row, f"model {number}", agent["spanId"], "chat", clock, clock + 1, model)
        for call in calls:
            clock += 1
            name = f"execute_tool {call['toolName']}"
            yield _span(row, f"tool {clock}", agent["spanId"], name, clock, clock + 1, _tool(call))
        clock += 1
    for number, call in enumerate(row["toolTrace"]["calls"]):
        if call["source"] == "fs":
            yield _span(row, f"fs {number}", agent["spanId"], f"fs {call['action']}", clock, clock + 1, {})
    # How long the grader took is not published.
    yield _span(row, "grader", root["spanId"], "chat", row["durationMs"], row["durationMs"], _grader(row))


def _agent(row: Json, parent: str | None, attributes: Json, error: str | None) -> Json:
    own = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": row["model"],
        "agenttrace.task.id": task(row),
        "agenttrace.trial": row["runIndex"],
    }
    span = _span(row, "agent", parent, "invoke_agent", 0, row["durationMs"], own | attributes)
    return span | ({"status": {"code": 2, "message": error}} if error else {})


def _model(model: str, step: Json, calls: Iterable[Json]) -> Json:
    asked = [
        {"type": "tool_call", "id": call["callId"], "name": call["toolName"], "arguments": call["input"]}
        for call in calls
    ]
    said = [{"type": "text", "content": step["text"]}] if step.get("text") else []
    offered = [{"name": tool["name"]} for tool in json.loads((DATA / "tools.json").read_text(encoding="utf-8"))]
    return {
        "gen_ai.request.model": model,
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [*said, *asked]}]),
        "gen_ai.tool.definitions": json.dumps(offered),
    } | _usage(step["usage"], step["costUsd"])


def _grader(row: Json) -> Json:
    return {"gen_ai.request.model": row["grader"]["model"]} | _usage(row["graderUsage"], row["graderCostUsd"])


def _usage(usage: Json, cost: float) -> Json:
    tokens = {
        "gen_ai.usage.input_tokens": usage["promptTokens"],
        "gen_ai.usage.cache_read.input_tokens": usage.get("cachedTokens"),
        "gen_ai.usage.output_tokens": usage["responseTokens"] + usage.get("thinkingTokens", 0),
        "gen_ai.usage.reasoning.output_tokens": usage.get("thinkingTokens"),
    }
    # What a provider does not say is left out.
    stated = {key: value for key, value in tokens.items() if value is not None}
    return {"gen_ai.operation.name": "chat", "gen_ai.usage.cost": float(cost)} | stated


def _tool(call: Json) -> Json:
    failed = {"error.type": "ToolError"} if "error" in call else {}
    return failed | {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": call["toolName"],
        "gen_ai.tool.call.id": call["callId"],
        "gen_ai.tool.call.arguments": json.dumps(call["input"]),
        "gen_ai.tool.call.result": json.dumps(call["output"]),
    }


def _span(row: Json, part: str, parent: str | None, name: str, start: int, end: int, attributes: Json) -> Json:
    trace = _digest(task(row), str(row["runIndex"]))
    return {
        "traceId": trace,
        "spanId": _digest(trace, part)[:16],
        "parentSpanId": parent or "",
        "name": name,
        "startTimeUnixNano": str(START_NS + start * MS),
        "endTimeUnixNano": str(START_NS + end * MS),
        "attributes": [{"key": key, "value": _value(value)} for key, value in attributes.items()],
    }


def _value(value: str | float) -> Json:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"doubleValue": value} if isinstance(value, float) else {"intValue": str(value)}


def _digest(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:32]
