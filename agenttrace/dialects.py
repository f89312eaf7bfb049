"""Message dialects of all producers, made into one form.

Pure functions on JSON text, which the SQL of conventions and rebuild calls by the same names. The target of `messages`
is [{role, name?, parts: [{type, ...}]}] with part types text, reasoning, tool_call, tool_call_response, media and
other, after the OpenTelemetry GenAI conventions (gen_ai.input.messages).
"""

from typing import Any, cast

from agenttrace.json_text import Object, as_list, as_object, captured, decoded_value, dump, parsed_value

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant"}
_CALL_IDS = ("toolCallId", "toolUseId", "tool_use_id", "call_id", "id")


def messages(text: str) -> str | None:
    """Messages of any dialect as [{role, name?, parts}]; None where the text is no list of messages."""
    value = decoded_value(text)
    if isinstance(value, dict):
        value = cast(Object, value).get("messages", [value])
    if not isinstance(value, list):
        return None
    items = cast(list[Any], value)
    if len(items) == 1 and isinstance(items[0], list):
        # LangChain's callbacks take a batch of conversations; a model call has one.
        items = cast(list[Any], items[0])
    found = [_message(cast(Object, item)) for item in items if isinstance(item, dict)]
    return dump(found) if found else None


def tool_definitions(text: str) -> str | None:
    """Offered tools as [{name, description, parameters}], from bare ones or {"type": "function", "function": {...}}."""
    value = decoded_value(text)
    if not isinstance(value, list):
        return None
    return dump([found for item in cast(list[Any], value) if (found := _tool_definition(parsed_value(item)))])


def _message(message: Object) -> Object:
    """One message of any dialect."""
    for envelope in () if "parts" in message else ("message", "kwargs", "data"):
        # OpenInference: "message"; LangChain's serialised messages: "kwargs", or "data" beside the type.
        inner = as_object(message.get(envelope))
        message = {"type": message.get("type"), **inner} if inner else message
    role = message.get("role") or message.get("type")
    role = _ROLES.get(str(role), role)
    blocks = as_list(message.get("parts"))
    parts = [_part(as_object(block)) for block in blocks] if blocks else _flat_parts(message, role)
    return {"role": role, "name": message.get("name"), "parts": parts}


def _flat_parts(message: Object, role: Any) -> list[Object]:
    """Parts of a message in OpenAI's form (content, tool_calls, tool_call_id), or of an item of the Responses API."""
    if message.get("type") in ("function_call", "function_call_output", "reasoning"):
        return [_part(message)]
    content = message.get("content", message.get("contents"))
    call_id = message.get("tool_call_id") or (message.get("id") if role in ("tool", "function") else None)
    parts = _content_parts(content)
    if call_id is not None or role in ("tool", "function"):
        if any(part["type"] == "tool_call_response" for part in parts):
            return parts
        text = content_text(content)
        failed = {"is_error": True} if message.get("status") == "error" else {}
        response = parsed_value(content if text is None else text)
        return [
            {"type": "tool_call_response", "id": call_id, "name": message.get("name"), "response": response, **failed}
        ]
    calls = [as_object(call) for call in as_list(parsed_value(message.get("tool_calls")))]
    if calls:
        # The same call may stand in the content again.
        parts = [part for part in parts if part["type"] != "tool_call"]
    # OpenInference leaves out arguments that are empty.
    parts.extend(_tool_call({"arguments": {}, **call["tool_call"]} if "tool_call" in call else call) for call in calls)
    if name := message.get("function_call_name"):
        parts.append(_tool_call({"name": name, "arguments": message.get("function_call_arguments_json")}))
    return parts


def _content_parts(content: Any) -> list[Object]:
    """Content as parts: a text, or a list of texts and blocks."""
    if isinstance(content, str):
        text = captured(content)
        return [] if text is None else [{"type": "text", "content": text}]
    parts = [_part(as_object(item) or {"type": "text", "text": item}) for item in as_list(content)]
    return [part for part in parts if part["type"] != "text" or part["content"]]


def _tool_call(call: Object) -> Object:
    function = as_object(call.get("function"))
    given = [source[key] for source in (function, call) for key in ("arguments", "args", "input") if key in source]
    return {
        "type": "tool_call",
        "id": _captured_text(_first(call, _CALL_IDS)),
        "name": function.get("name") or _first(call, ("name", "toolName")),
        "arguments": parsed_value(given[0]) if given else None,
    }


def _tool_response(block: Object) -> Object:
    response = _first(block, ("response", "result", "output", "content"))
    wrapped = as_object(response)
    failed = block.get("is_error", block.get("isError", True if block.get("status") == "error" else None))
    if set(wrapped) == {"type", "value"}:
        # Vercel AI SDK 5 and later: {"type": "text" | "json" | "error-text" | "error-json", "value": ...}
        response, failed = wrapped["value"], str(wrapped["type"]).startswith("error") or failed
    blocks = as_list(response)
    if blocks and all(isinstance(item, dict) for item in blocks):
        text = content_text(blocks)
        response = as_object(blocks[0]).get("json", response) if text is None else text
    found: Object = {
        "type": "tool_call_response",
        "id": _captured_text(_first(block, _CALL_IDS)),
        "name": _first(block, ("name", "toolName")),
        "response": parsed_value(response),
    }
    return found if failed is None else found | {"is_error": bool(failed)}


def _first(source: Object, keys: tuple[str, ...]) -> Any:
    for key in keys:
        value = source.get(key)
        if value is not None:
            return value
    return None


def _captured_text(value: Any) -> str | None:
    return captured(value) if isinstance(value, str) else None


def content_text(content: Any) -> str | None:
    """Content as one text: a string, or the text parts of a list."""
    if isinstance(content, str):
        return captured(content)
    texts = [text for item in as_list(content) if (text := _text_of_part(item)) is not None]
    return "".join(texts) if texts else None


def _text_of_part(item: Any) -> str | None:
    if isinstance(item, str):
        return item
    part = as_object(item)
    part = as_object(part.get("message_content")) or part
    if part.get("type") in ("reasoning", "thinking", "tool_use"):
        return None
    text = part.get("text", part.get("content"))
    return captured(text) if isinstance(text, str) else None


def _part(block: Object) -> Object:
    """One part of a message: OTel's, or a content block of OpenAI, Anthropic, Bedrock, Gemini or the Vercel AI SDK."""
    block = as_object(block.get("message_content")) or block
    kind = block.get("type")
    if kind is None and (call := _first(block, ("toolUse", "functionCall", "function_call"))):
        return _tool_call(as_object(call))
    if kind is None and (response := _first(block, ("toolResult", "functionResponse", "function_response"))):
        return _tool_response(as_object(response))
    if kind in ("tool_call", "tool-call", "tool_use", "function_call"):
        return _tool_call(block)
    if kind in ("tool_call_response", "tool-result", "tool_result", "function_call_output"):
        return _tool_response(block)
    text = _first(block, ("content", "text", "thinking"))
    if kind in ("reasoning", "thinking"):
        return {"type": "reasoning", "content": text if isinstance(text, str) else content_text(block.get("summary"))}
    if kind in ("text", "input_text", "output_text") or (kind is None and isinstance(text, str)):
        return {"type": "text", "content": captured(text) if isinstance(text, str) else None}
    return {"type": "other", "content": block}


def _tool_definition(tool: Any) -> Object | None:
    if isinstance(tool, str):
        return {"name": tool, "description": None, "parameters": None}
    definition = as_object(tool)
    # OpenInference: {"tool": {"json_schema": "..."}}
    definition = as_object(parsed_value(as_object(definition.get("tool")).get("json_schema"))) or definition
    definition = as_object(definition.get("function")) or definition
    if not definition.get("name"):
        return None
    schemas = [
        definition[key]
        for key in ("parameters", "input_schema", "inputSchema", "parameters_json_schema")
        if definition.get(key) is not None
    ]
    found: Object = {
        "name": definition["name"],
        "description": definition.get("description"),
        "parameters": parsed_value(schemas[0]) if schemas else None,
    }
    # MCP's hints, by which a tool is read-only or idempotent.
    annotations = as_object(definition.get("annotations"))
    return found | {"annotations": annotations} if annotations else found
