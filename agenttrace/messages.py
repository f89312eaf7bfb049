"""Chat messages and tool definitions as programs hold them -> the parts form of the GenAI conventions.

What comes in is encoded first, so everything here works on plain data that is already redacted and bounded. (What other
producers write into spans is the business of dialects.py, which needs the store.)
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import orjson

from agenttrace import semconv
from agenttrace.encode import MESSAGES_LIMIT_BYTES, encode
from agenttrace.recording import Attributes
from agenttrace.redact import Redactor

MESSAGE_PARAMETERS: Final = ("messages", "input", "contents", "prompt", "history")
SYSTEM_PARAMETERS: Final = ("system", "instructions", "system_prompt")
TOOL_PARAMETERS: Final = ("tools", "functions")

Part = dict[str, Any]


def plain(value: object, redact: Redactor | None) -> Any:
    """Returns a value as plain, bounded and redacted data."""
    return orjson.loads(encode(value, limit_bytes=MESSAGES_LIMIT_BYTES, redact=redact).text)


def to_json(value: object) -> str:
    """Returns plain data as JSON text."""
    return orjson.dumps(value).decode()


def request_attributes(
    messages: object, tools: object, *, system: object = None, redact: Redactor | None
) -> Attributes:
    """Returns the input messages and offered tools of a model call; absent ones are left out."""
    attributes: Attributes = {}
    given: list[Any] = [] if system is None else [{"role": "system", "content": plain(system, redact)}]
    if messages is not None:
        given += _listed(plain(messages, redact))
    if given:
        attributes[semconv.INPUT_MESSAGES] = to_json([to_message(each) for each in given])
    if tools is not None:
        offered = (
            [_by_declaration(each) for each in cast("list[object]", tools)] if type(tools) in (list, tuple) else tools
        )
        attributes[semconv.TOOL_DEFINITIONS] = to_json(_definitions(plain(offered, redact)))
    return attributes


def output_message(output: object, tool_calls: object, thought: object, redact: Redactor | None) -> Part:
    """Returns what a model answered as one assistant message."""
    said = plain(output, redact)
    parts: list[Part] = [] if thought is None else [{"type": "reasoning", "content": plain(thought, redact)}]
    parts += [] if said is None else to_message(said, "assistant")["parts"]
    parts += [] if tool_calls is None else [_tool_call(call) for call in _listed(plain(tool_calls, redact))]
    return {"role": "assistant", "parts": parts}


def _listed(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _by_declaration(tool: object) -> object:
    """A function offered as a tool is known by its name and docstring."""
    name = getattr(tool, "__name__", None) if callable(tool) else None
    return {"name": name, "description": getattr(tool, "__doc__", None)} if isinstance(name, str) else tool


def _definitions(tools: Any) -> list[Part]:
    return [_definition(each) for each in _listed(tools)]


def _definition(tool: Any) -> Part:
    if not isinstance(tool, dict):
        return {"type": "function", "name": tool if isinstance(tool, str) else to_json(tool)}
    given = cast("Part", tool)
    inner = cast("Part", given["function"] if isinstance(given.get("function"), dict) else given)
    parameters = inner.get("parameters") or inner.get("input_schema") or inner.get("inputSchema")
    described = {"description": inner.get("description"), "parameters": parameters}
    return {
        "type": "function",
        "name": inner.get("name"),
        **{key: value for key, value in described.items() if value is not None},
    }


def to_message(message: Any, role: str = "user") -> Part:
    """Returns one message, or an item of the OpenAI responses API, as {role, parts}."""
    if not isinstance(message, dict):
        return {"role": role, "parts": _parts(message)}
    item = cast("Part", message)
    kind = str(item.get("type"))
    said_by = item.get("role") or _ROLES.get(kind, role)
    if isinstance(item.get("parts"), list):
        return {"role": said_by, "parts": [_part(each) for each in item["parts"]]}
    if kind in _PARTS and "role" not in item:
        return {"role": said_by, "parts": [_part(item)]}
    if said_by in ("tool", "function") and not _holds_results(item.get("content")):
        answer = {"type": "tool_call_response", "id": item.get("tool_call_id"), "response": item.get("content")}
        return {"role": "tool", "parts": [_named(answer, item.get("name"))]}
    if not _MESSAGE_KEYS.intersection(item):
        return {"role": said_by, "parts": [_part(item)] if "text" in item else [_text(item)]}
    calls = item.get("tool_calls")
    requested = [_tool_call(call) for call in cast("list[Any]", calls)] if isinstance(calls, list) else []
    return {"role": said_by, "parts": _parts(item.get("content")) + requested}


_MESSAGE_KEYS: Final = frozenset({"role", "content", "tool_calls"})
_ROLES: Final = {"function_call": "assistant", "reasoning": "assistant", "function_call_output": "tool"}


def _holds_results(content: Any) -> bool:
    return isinstance(content, list) and any(
        isinstance(each, dict) and cast("Part", each).get("type") in ("tool_result", "tool_call_response")
        for each in cast("list[Any]", content)
    )


def _parts(content: Any) -> list[Part]:
    if content is None:
        return []
    return [_part(each) for each in cast("list[Any]", content)] if isinstance(content, list) else [_part(content)]


def _part(part: Any) -> Part:
    if not isinstance(part, dict):
        return _text(part)
    known = cast("Part", part)
    reader = _PARTS.get(str(known.get("type")))
    if reader is not None:
        return reader(known)
    if isinstance(known.get("text"), str):
        return {"type": "reasoning" if known.get("thought") is True else "text", "content": known["text"]}
    for key, read in (("function_call", _tool_call), ("function_response", _response)):
        if isinstance(known.get(key), dict):
            return read(known[key])
    return {"type": "other", "content": known}


def _text(value: Any) -> Part:
    return {"type": "text", "content": value if isinstance(value, str) else to_json(value)}


def _tool_call(call: Any) -> Part:
    if not isinstance(call, dict):
        name = call if isinstance(call, str) else to_json(call)
        return {"type": "tool_call", "id": None, "name": name, "arguments": {}}
    given = cast("Part", call)
    inner = cast("Part", given["function"] if isinstance(given.get("function"), dict) else given)
    no_arguments: Part = {}
    arguments = next((inner[key] for key in ("arguments", "input", "args") if key in inner), no_arguments)
    return {
        "type": "tool_call",
        # A responses item has an id of its own beside the call's.
        "id": given.get("call_id") or given.get("id"),
        "name": inner.get("name"),
        "arguments": _parsed(arguments),
    }


def _parsed(arguments: Any) -> Any:
    """Arguments that are JSON text become data; other text stays."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        return arguments


def _response(part: Part) -> Part:
    response = next((part[key] for key in ("response", "content", "output", "result") if key in part), None)
    call_id = next((part[key] for key in ("tool_use_id", "call_id", "tool_call_id", "id") if part.get(key)), None)
    shown: Part = {"type": "tool_call_response", "id": call_id, "response": response}
    if part.get("is_error") is not None:
        shown["is_error"] = part["is_error"]
    return _named(shown, part.get("name"))


def _named(part: Part, name: Any) -> Part:
    return part if name is None else {**part, "name": name}


def _spoken(part: Part) -> Part:
    return _text(next((part[key] for key in ("text", "content", "refusal") if part.get(key) is not None), ""))


def _reasoned(part: Part) -> Part:
    said = next((part[key] for key in ("thinking", "content", "text", "summary") if part.get(key)), "")
    if isinstance(said, list) and all(isinstance(each, dict) for each in cast("list[Any]", said)):
        said = "\n".join(_spoken(each)["content"] for each in cast("list[Part]", said))
    return {"type": "reasoning", "content": said}


def _media(part: Part) -> Part:
    return {"type": "media", "content": part}


_PARTS: Final[Mapping[str, Callable[[Part], Part]]] = {
    **dict.fromkeys(("text", "input_text", "output_text", "refusal"), _spoken),
    **dict.fromkeys(("thinking", "reasoning", "redacted_thinking"), _reasoned),
    **dict.fromkeys(("tool_use", "tool_call", "function_call"), _tool_call),
    **dict.fromkeys(("tool_result", "tool_call_response", "function_call_output"), _response),
    **dict.fromkeys(("image", "image_url", "input_image", "input_audio", "audio", "file", "document", "media"), _media),
}
