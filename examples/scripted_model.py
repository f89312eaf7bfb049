"""A model provider on loopback whose answers are written beforehand: no key, no network, the same run every time.

Speaks OpenAI's Chat Completions and Responses, Anthropic's Messages and Gemini's generateContent, whole or streamed.
The n-th request gets the n-th turn of the script, a JSON list:

    [{"calls": [{"name": "get_invoice", "arguments": {"invoice_id": "INV-7"}}], "usage": [120, 14]},
     {"text": "It is paid.", "usage": [180, 9, 64]}]

`usage` counts input, output and cached input tokens. After the last turn it answers with status 400.

    python examples/scripted_model.py SCRIPT.json [PORT]     # prints its address
"""

import json
import secrets
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

Json = dict[str, Any]


class Turn:
    """One answer of the model: a text, tool calls, or both."""

    def __init__(self, number: int, turn: Json) -> None:
        self.text: str | None = turn.get("text")
        self.calls = [
            {"id": call.get("id") or f"call_{secrets.token_hex(8)}", **call, "json": json.dumps(call["arguments"])}
            for call in turn.get("calls", [])
        ]
        self.input, self.output, self.cached = (*turn.get("usage", (10, 5)), 0)[:3]
        self.id = f"{number:02d}{secrets.token_hex(10)}"


def chat_completion(turn: Turn, request: Json) -> Json:
    """Answers as OpenAI's Chat Completions."""
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["json"]}}
        for call in turn.calls
    ]
    message: Json = {"role": "assistant", "content": turn.text} | ({"tool_calls": calls} if calls else {})
    return {
        "id": f"chatcmpl-{turn.id}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {
            "prompt_tokens": turn.input,
            "completion_tokens": turn.output,
            "total_tokens": turn.input + turn.output,
            "prompt_tokens_details": {"cached_tokens": turn.cached},
        },
    }


def chat_chunks(whole: Json, request: Json) -> Iterator[Json]:
    """Streams what `chat_completion` answers; usage comes last, where it was asked for."""
    usage = whole.pop("usage")
    choice = whole["choices"][0]
    message = choice["message"]
    calls = [{"index": i, **call} for i, call in enumerate(message.pop("tool_calls", []))]
    chunk = whole | {"object": "chat.completion.chunk"}
    # A chunk per call, as the provider sends them: some clients read the first call of a chunk alone.
    deltas: list[Json] = [message, *({"tool_calls": [call]} for call in calls)]
    for delta, finish in [*((delta, None) for delta in deltas), ({}, choice["finish_reason"])]:
        yield chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    if request.get("stream_options", {}).get("include_usage"):
        yield chunk | {"choices": [], "usage": usage}


def response(turn: Turn, request: Json) -> Json:
    """Answers as OpenAI's Responses."""
    items: list[Json] = [
        {
            "type": "function_call",
            "id": f"fc_{call['id']}",
            "call_id": call["id"],
            "name": call["name"],
            "arguments": call["json"],
            "status": "completed",
        }
        for call in turn.calls
    ]
    if turn.text is not None:
        content = [{"type": "output_text", "text": turn.text, "annotations": []}]
        message = {"type": "message", "id": f"msg_{turn.id}", "role": "assistant", "status": "completed"}
        items.insert(0, message | {"content": content})
    return {
        "id": f"resp_{turn.id}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "completed",
        "model": request["model"],
        "output": items,
        "tools": request.get("tools", []),
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "usage": {
            "input_tokens": turn.input,
            "input_tokens_details": {"cached_tokens": turn.cached},
            "output_tokens": turn.output,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": turn.input + turn.output,
        },
    }


def response_events(whole: Json, request: Json) -> Iterator[Json]:
    """Streams what `response` answers."""
    yield {
        "type": "response.created",
        "sequence_number": 0,
        "response": whole | {"status": "in_progress", "output": []},
    }
    number = 0
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        steps: list[Json] = [{"type": "response.output_item.added", "output_index": index, "item": item}]
        if item["type"] == "function_call":
            arguments = {**place, "arguments": item["arguments"], "name": item["name"]}
            steps.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
            steps.append({"type": "response.function_call_arguments.done", **arguments})
        else:
            part = {**place, "content_index": 0}
            text = item["content"][0]["text"]
            steps.append({"type": "response.content_part.added", **part, "part": item["content"][0] | {"text": ""}})
            steps.append({"type": "response.output_text.delta", **part, "delta": text, "logprobs": []})
            steps.append({"type": "response.output_text.done", **part, "text": text, "logprobs": []})
            steps.append({"type": "response.content_part.done", **part, "part": item["content"][0]})
        steps.append({"type": "response.output_item.done", "output_index": index, "item": item})
        for step in steps:
            number += 1
            yield step | {"sequence_number": number}
    yield {"type": "response.completed", "sequence_number": number + 1, "response": whole}


def message(turn: Turn, request: Json) -> Json:
    """Answers as Anthropic's Messages, whose input tokens leave out the cached ones."""
    content: list[Json] = [{"type": "text", "text": turn.text}] if turn.text is not None else []
    content += [
        {"type": "tool_use", "id": f"toolu_{call['id']}", "name": call["name"], "input": call["arguments"]}
        for call in turn.calls
    ]
    return {
        "id": f"msg_{turn.id}",
        "type": "message",
        "role": "assistant",
        "model": request["model"],
        "content": content,
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": turn.input - turn.cached,
            "output_tokens": turn.output,
            "cache_read_input_tokens": turn.cached,
            "cache_creation_input_tokens": 0,
        },
    }


def message_events(whole: Json, request: Json) -> Iterator[Json]:
    """Streams what `message` answers."""
    usage = whole["usage"]
    yield {"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            start, delta = block | {"text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": usage["output_tokens"]}}
    yield {"type": "message_stop"}


def generated_content(turn: Turn, request: Json) -> Json:
    """Answers as Gemini's generateContent."""
    parts: list[Json] = [{"text": turn.text}] if turn.text is not None else []
    parts += [{"functionCall": {"name": call["name"], "args": call["arguments"]}} for call in turn.calls]
    return {
        "responseId": turn.id,
        "modelVersion": request["model"],
        "candidates": [{"index": 0, "content": {"role": "model", "parts": parts}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": turn.input,
            "candidatesTokenCount": turn.output,
            "cachedContentTokenCount": turn.cached,
            "totalTokenCount": turn.input + turn.output,
        },
    }


def content_chunks(whole: Json, request: Json) -> Iterator[Json]:
    """Streams what `generated_content` answers, in one chunk."""
    yield whole


ANSWERS = {
    "/chat/completions": (chat_completion, chat_chunks),
    "/responses": (response, response_events),
    "/messages": (message, message_events),
    ":generateContent": (generated_content, content_chunks),
    ":streamGenerateContent": (generated_content, content_chunks),
}


class ScriptedModel(ThreadingHTTPServer):
    """The provider, listening on a port of 127.0.0.1; 0 takes a free one."""

    def __init__(self, script: list[Json], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self._turns = iter([Turn(number, turn) for number, turn in enumerate(script)])
        self._lock = Lock()

    @property
    def address(self) -> str:
        """Address without a path: providers' base URLs end in /v1 or in nothing."""
        return f"http://127.0.0.1:{self.server_port}"

    def next_turn(self) -> Turn | None:
        """Gives the next turn of the script, None after the last."""
        with self._lock:
            return next(self._turns, None)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedModel

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        request.setdefault("model", path.rpartition("/")[2].partition(":")[0])
        answer, events = next((pair for end, pair in ANSWERS.items() if path.endswith(end)), (None, None))
        if answer is None or events is None:
            self._send(404, "application/json", json.dumps({"error": {"message": f"no answer to {path}"}}))
            return
        turn = self.server.next_turn()
        if turn is None:
            self._send(400, "application/json", json.dumps({"error": {"message": "the script has ended"}}))
            return
        whole = answer(turn, request)
        if not (request.get("stream") or path.endswith(":streamGenerateContent")):
            self._send(200, "application/json", json.dumps(whole))
            return
        lines = [
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
            if "type" in event
            else f"data: {json.dumps(event)}\n\n"
            for event in events(whole, request)
        ]
        if path.endswith("/chat/completions"):
            lines.append("data: [DONE]\n\n")
        self._send(200, "text/event-stream", "".join(lines))

    def do_GET(self) -> None:
        self._send(200, "application/json", json.dumps({"object": "list", "data": []}))

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps quiet."""

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ScriptedModel(
        json.loads(Path(sys.argv[1]).read_text("utf-8")), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    )
    print(server.address, flush=True)
    server.serve_forever()
