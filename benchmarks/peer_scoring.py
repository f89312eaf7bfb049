"""The same traces and the same expectations for agentevals and for agenttrace, as files.

Every run is asked for an order, should check the stock and then place it once; one in ten places it twice.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

START_NS = 1_790_000_000_000_000_000
FAULTY = 10
ANSWER = "The order is placed."

Json = dict[str, Any]


def asked(run: int) -> str:
    """What the user says; different in each run, since agentevals finds the case by it."""
    return f"Order {run} bags of rice, please."


def expected(run: int) -> list[Json]:
    """The tool calls that are right."""
    return [
        {"name": "check_stock", "arguments": {"item": "rice"}},
        {"name": "place_order", "arguments": {"item": "rice", "qty": run}},
    ]


def is_faulty(run: int) -> bool:
    """Whether the agent of this run orders twice."""
    return run % FAULTY == 0


def write(folder: Path, runs: int) -> None:
    """Writes traces.json (OTLP JSON), eval_set.json (agentevals), agent_benchmarks.jsonl and agenttrace.toml."""
    spans = [span for run in range(1, runs + 1) for span in _spans(run)]
    resource = {"attributes": [_attribute("service.name", "shop")]}
    document = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "shop"}, "spans": spans}]}]}
    (folder / "traces.json").write_text(json.dumps(document))
    cases = [_case(run) for run in range(1, runs + 1)]
    (folder / "eval_set.json").write_text(json.dumps({"eval_set_id": "orders", "eval_cases": cases}))
    lines = [_benchmark(run) for run in range(1, runs + 1)]
    (folder / "agent_benchmarks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "agenttrace.toml").write_text('[cases]\npath = "agent_benchmarks.jsonl"\n')


def _benchmark(run: int) -> Json:
    sequence = [{"tool": call["name"], "arguments": call["arguments"]} for call in expected(run)]
    return {"case_id": f"order-{run}", "acceptable_tool_sequences": [sequence], "arguments_mode": "exact"}


def _case(run: int) -> Json:
    calls = [{"name": call["name"], "args": call["arguments"]} for call in expected(run)]
    return {
        "eval_id": f"order-{run}",
        "conversation": [
            {
                "invocation_id": f"i-{run}",
                "user_content": {"role": "user", "parts": [{"text": asked(run)}]},
                "final_response": {"role": "model", "parts": [{"text": ANSWER}]},
                "intermediate_data": {"tool_uses": calls},
            }
        ],
    }


def _spans(run: int) -> Iterator[Json]:
    calls = [*expected(run), expected(run)[-1]] if is_faulty(run) else expected(run)
    history: list[Json] = [{"role": "user", "parts": [{"type": "text", "content": asked(run)}]}]
    steps: list[tuple[str, Json]] = []
    for number, call in enumerate(calls):
        request = {"type": "tool_call", "id": f"c{number}", "name": call["name"], "arguments": call["arguments"]}
        output = {"role": "assistant", "parts": [request]}
        steps.append(("chat", _model(history, output)))
        result = {"bags": 900} if call["name"] == "check_stock" else {"order_id": f"PO-{run}-{number}"}
        steps.append(("execute_tool", _tool(f"c{number}", call, result)))
        response = {"type": "tool_call_response", "id": f"c{number}", "response": result}
        history = [*history, output, {"role": "tool", "parts": [response]}]
    answer = {"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}
    steps.append(("chat", _model(history, answer)))
    root = {
        "gen_ai.agent.name": "shop",
        "agenttrace.task.id": f"order-{run}",
        "gen_ai.input.messages": json.dumps(history[:1]),
        "gen_ai.output.messages": json.dumps([answer]),
    }
    yield _span(run, 0, "invoke_agent", root, len(steps))
    for number, (operation, attributes) in enumerate(steps, start=1):
        yield _span(run, number, operation, attributes, 0)


def _model(history: list[Json], output: Json) -> Json:
    return {
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.usage.input_tokens": 100 * len(history),
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.input.messages": json.dumps(history),
        "gen_ai.output.messages": json.dumps([output]),
    }


def _tool(call_id: str, call: Json, result: Json) -> Json:
    return {
        "gen_ai.tool.name": call["name"],
        "gen_ai.tool.call.id": call_id,
        "gen_ai.tool.call.arguments": json.dumps(call["arguments"]),
        "gen_ai.tool.call.result": json.dumps(result),
    }


def _span(run: int, number: int, operation: str, attributes: Json, children: int) -> Json:
    start = START_NS + run * 1_000_000_000 + number * 10_000_000
    span = {
        "traceId": f"{run:032x}",
        "spanId": f"{number + 1:016x}",
        "name": operation,
        "kind": 1,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 5_000_000 + children * 10_000_000),
        "attributes": [
            _attribute("gen_ai.operation.name", operation),
            *map(_attribute, attributes, attributes.values()),
        ],
    }
    return span | ({"parentSpanId": f"{1:016x}"} if number else {})


def _attribute(key: str, value: str | int) -> Json:
    return {"key": key, "value": {"stringValue": value} if isinstance(value, str) else {"intValue": str(value)}}
