"""Message dialects of all producers, made into one form.

Pure functions on JSON text, which the SQL of conventions and rebuild calls by the same names. The target of `messages`
is [{role, name?, parts: [{type, ...}]}] with part types text, reasoning, tool_call, tool_call_response, media and
other, after the OpenTelemetry GenAI conventions (gen_ai.input.messages).
"""

import re
from typing import Any, cast

from agenttrace.json_text import Object, as_list, as_object, captured, decoded_value, dump, parsed_value, try_parse
from agenttrace.python_repr import json_of_repr

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant"}
_CALL_IDS = ("toolCallId", "toolUseId", "tool_use_id", "call_id", "id", "tool_call_id")
_CALL_NAMES = ("name", "toolName", "tool_name")
_CALL_ARGUMENTS = ("arguments", "args", "input", "tool_kwargs")
_TEXTS = ("content", "text", "thinking")
_KINDS = {
    **dict.fromkeys(("tool_call", "tool-call", "tool_use", "function_call"), "call"),
    **dict.fromkeys(("tool_call_response", "tool-result", "tool_result", "function_call_output"), "response"),
    **dict.fromkeys(("reasoning", "thinking"), "reasoning"),
    **dict.fromkeys(("text", "input_text", "output_text"), "text"),
}
_ENUM_MEMBER = re.compile(r"<\w+\.\w+: '(\w+)'>")


def messages(text: str) -> str | None:
    """Messages of any dialect as [{role, name?, parts}]; None where the text is no list of messages."""
    return messages_of(decoded_value(text))


def messages_of(value: Any) -> str | None:
    """What `messages` gives, from a parsed value."""
    if isinstance(value, dict):
        value = cast(Object, value).get("messages", [value])
    if not isinstance(value, list):
        return None
    items = cast(list[Any], value)
    if len(items) == 1 and isinstance(items[0], list):
        # LangChain's callbacks take a batch of conversations; a model call has one.
        items = cast(list[Any], items[0])
    objects = [cast(Object, item) for item in items if isinstance(item, dict)]
    found = [_message(item) for item in objects]
    if not any(message["parts"] for message in found) and any(_is_hidden(item.get("content")) for item in objects):
        return None
    return dump(found) if found else None


def repr_messages(text: str) -> str | None:
    """What `messages` gives, where a text may be the repr of an object of OpenAI: a message, a call, reasoning."""
    value = decoded_value(text)
    if not isinstance(value, list):
        return messages(text)
    found: list[Object] = []
    for item in (as_object(item) for item in cast(list[Any], value)):
        parts = as_list(item.get("parts"))
        found.append(item | {"parts": [part for block in parts for part in _repr_parts(as_object(block))]})
    return messages(dump(found))


def _repr_parts(block: Object) -> list[Object]:
    text = block.get("content")
    if block.get("type") == "text" and isinstance(text, str) and text.startswith(("{'", "Response")):
        value = as_object(try_parse(json_of_repr(text) or ""))
        if value.get("tool_calls") or value.get("type") in ("function_call", "reasoning", "message"):
            return _flat_parts(value, "assistant")
    return [block]


def tool_definitions(text: str) -> str | None:
    """Offered tools as [{name, description, parameters}], from bare ones or {"type": "function", "function": {...}}."""
    return tool_definitions_of(decoded_value(text))


def tool_definitions_of(value: Any) -> str | None:
    """What `tool_definitions` gives, from a parsed value."""
    value = _haystack_tools(value)
    if not isinstance(value, list):
        return None
    items = cast(list[Any], value)
    found = [definition for item in items if (definition := _tool_definition(parsed_value(item)))]
    # Definitions of a form that nobody here reads are not known; they do not say that no tool was offered.
    return dump(found) if found or not items else None


def _message(message: Object) -> Object:
    """One message of any dialect."""
    for envelope in () if "parts" in message else ("message", "kwargs", "data"):
        # OpenInference: "message"; LangChain's serialised messages: "kwargs", or "data" beside the type.
        inner = as_object(message.get(envelope))
        message = {"type": message.get("type"), **inner} if inner else message
    if "_role" in message:
        # Haystack's message object as a repr.
        message = {key.removeprefix("_"): value for key, value in message.items()}
    elif "blocks" in message:
        # LlamaIndex's message: blocks, and what the provider wants beside them.
        content = message["blocks"] or message.get("content")
        message = {**as_object(message.get("additional_kwargs")), **message, "content": content}
    # Gemini's content object, where OpenAI's messages have a text.
    content = as_object(message.get("content"))
    message = message | content if "parts" in content else message
    role = message.get("role") or message.get("type")
    enum_member = _ENUM_MEMBER.fullmatch(role) if isinstance(role, str) and role.startswith("<") else None
    role = enum_member[1] if enum_member else _ROLES.get(str(role), role)
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
    if isinstance(content, str) and (blocks := _encoded_blocks(content)):
        content = blocks
    if isinstance(content, str):
        text = captured(content)
        return [] if text is None else [{"type": "text", "content": text}]
    parts = [_part(as_object(item) or {"type": "text", "text": item}) for item in as_list(content)]
    return [part for part in parts if part["type"] != "text" or part["content"]]


def _encoded_blocks(text: str) -> list[Any]:
    """Anthropic's blocks with tool calls or results, of which OpenLLMetry's indexed keys hold the JSON text."""
    if not text.startswith("[{") or '"tool_' not in text:
        return []
    blocks = as_list(try_parse(text))
    kinds = {as_object(block).get("type") for block in blocks}
    return blocks if kinds & {"tool_use", "tool_result"} and kinds <= {"tool_use", "tool_result", "text"} else []


def _tool_call(call: Object) -> Object:
    function = as_object(call.get("function"))
    given = [source[key] for source in (function, call) for key in _CALL_ARGUMENTS if key in source]
    return {
        "type": "tool_call",
        "id": _captured_text(_first(call, _CALL_IDS)),
        "name": function.get("name") or _first(call, _CALL_NAMES),
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


def _is_hidden(content: Any) -> bool:
    return isinstance(content, str) and content.strip() != "" and captured(content) is None


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
    kind = block.get("type", block.get("block_type"))
    if kind is None:
        return _part_without_kind(block)
    meaning = _KINDS.get(kind) if isinstance(kind, str) else None
    if meaning == "call":
        return _tool_call(block)
    if meaning == "response":
        return _tool_response(block)
    text = _first(block, _TEXTS)
    if meaning == "reasoning":
        return _reasoning(block, text)
    if meaning == "text":
        return {"type": "text", "content": captured(text) if isinstance(text, str) else None}
    return {"type": "other", "content": block}


def _part_without_kind(block: Object) -> Object:
    if part := _haystack_part(block):
        return part
    if call := _first(block, ("toolUse", "functionCall", "function_call")):
        return _tool_call(as_object(call))
    if response := _first(block, ("toolResult", "functionResponse", "function_response")):
        return _tool_response(as_object(response))
    text = _first(block, _TEXTS)
    # Gemini marks a thought by a flag.
    if block.get("thought") is True:
        return _reasoning(block, text)
    return {"type": "text", "content": captured(text)} if isinstance(text, str) else {"type": "other", "content": block}


def _reasoning(block: Object, text: Any) -> Object:
    return {"type": "reasoning", "content": text if isinstance(text, str) else content_text(block.get("summary"))}


def _haystack_part(block: Object) -> Object | None:
    """One part of a message of Haystack: {"tool_call": {...}}, or the fields of its object where that was a repr."""
    call = as_object(block.get("tool_call")) or block
    if "tool_name" in call and "arguments" in call:
        return _tool_call(call)
    answer = as_object(block.get("tool_call_result")) or block
    origin = as_object(answer.get("origin"))
    if "result" in answer and "tool_name" in origin:
        return _tool_response(
            {
                "id": origin.get("id"),
                "name": origin["tool_name"],
                "result": answer["result"],
                "is_error": answer.get("error") is True,
            }
        )
    text = (as_object(block.get("reasoning")) or block).get("reasoning_text")
    return {"type": "reasoning", "content": text} if isinstance(text, str) else None


def _haystack_tools(value: Any) -> Any:
    """The tools of Haystack's toolsets; anything else as it is."""
    tools = as_list(value) or [value]
    if not any("data" in as_object(tool) for tool in tools):
        return value
    data = [as_object(as_object(tool).get("data")) or tool for tool in tools]
    return [tool for item in data for tool in as_list(_haystack_tools(as_object(item).get("tools"))) or [item]]


def _tool_definition(tool: Any) -> Object | None:
    if isinstance(tool, str):
        return {"name": tool, "description": None, "parameters": None}
    definition = as_object(tool)
    # OpenInference: {"tool": {"json_schema": "..."}}, which is the whole definition or the parameters beside a name.
    flattened = as_object(definition.get("tool"))
    schema = as_object(parsed_value(flattened.get("json_schema")))
    definition = schema or definition
    definition = as_object(definition.get("function")) or definition
    if flattened.get("name") and not definition.get("name"):
        definition = {**flattened, "parameters": schema}
    if not definition.get("name"):
        return None
    schemas = [
        definition[key]
        for key in ("parameters", "input_schema", "inputSchema", "parameters_json_schema", "parametersJsonSchema")
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
