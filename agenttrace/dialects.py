"""Message dialects and value envelopes of all producers, made into one form.

Pure functions on JSON text, which the SQL of conventions and rebuild calls by the same names. The target of `messages`
is [{role, name?, parts: [{type, ...}]}] with part types text, reasoning, tool_call, tool_call_response, media and
other, after the OpenTelemetry GenAI conventions (gen_ai.input.messages).
"""

import json
import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, cast

import duckdb
import orjson
from duckdb.func import SPECIAL

Object = dict[str, Any]

# Markers that producers leave where content was switched off or hidden: not captured, never a value.
_HIDDEN = frozenset({"", "<REDACTED>", "[REDACTED]", "__REDACTED__", "REDACTED", "readacted"})
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant"}
_CALL_IDS = ("toolCallId", "toolUseId", "tool_use_id", "call_id", "id")
# orjson turns integers beyond 64 bits into floats; those texts take the slower parser.
_LONG_INTEGER = re.compile(r"[1-9][0-9]{18}")
# An escape: a surrogate pair (12 characters), a lone surrogate (6), any other (2).
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
_LONE_SURROGATE_LENGTH = 6
_MCP_RESULT = frozenset({"content", "structuredContent", "isError", "_meta", "meta"})
_MAX_DEPTH = 200
_MAX_INDEX_DIGITS = 9


def register(con: duckdb.DuckDBPyConnection) -> None:
    """Makes the functions of this module callable from SQL on `con`, once; NULL in gives NULL out."""
    if con.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = 'unflatten'").fetchone():
        return
    functions: tuple[tuple[Callable[[str], Any], str], ...] = (
        (decoded, "JSON"),
        (json_of_text, "JSON"),
        (messages, "JSON"),
        # The same tools are offered in every call of a run.
        (lru_cache(maxsize=64)(tool_definitions), "JSON"),
        (call_arguments, "JSON"),
        (result_value, "JSON"),
        (captured, "VARCHAR"),
        (canonical_arguments, "VARCHAR"),
        (result_failed, "BOOLEAN"),
    )
    for function, returns in functions:
        con.create_function(function.__name__, _null_for_null(function), ["VARCHAR"], returns, null_handling=SPECIAL)
    pairs: tuple[tuple[Callable[[str, str], Any], str], ...] = ((unflatten, "JSON"), (same_arguments, "BOOLEAN"))
    for pair, returns in pairs:
        con.create_function(
            pair.__name__, _null_for_null_pair(pair), ["VARCHAR", "VARCHAR"], returns, null_handling=SPECIAL
        )


# DuckDB's default handling of NULL refuses a function that returns NULL. A value nested deeper than Python recurses is
# not captured.
def _null_for_null(function: Callable[[str], Any]) -> Callable[[str | None], Any]:
    def call(text: str | None) -> Any:
        try:
            return None if text is None else function(text)
        except RecursionError:
            return None

    return call


def _null_for_null_pair(function: Callable[[str, str], Any]) -> Callable[[str | None, str | None], Any]:
    return lambda text, other: None if text is None or other is None else function(text, other)


def parse(text: str) -> Any:
    """Parses strict JSON without loss; a lone surrogate, which no UTF-8 text can hold, becomes U+FFFD.

    Raises:
        ValueError: The text is not strict JSON (NaN, Infinity, 1e999 and trailing commas are not), or is nested too
            deeply.
    """
    if not _LONG_INTEGER.search(text):
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            if "\\u" not in text:
                raise
    try:
        return json.loads(_without_lone_surrogates(text), parse_constant=_refuse, parse_float=_finite)
    except RecursionError as err:
        raise ValueError("nested too deeply") from err


def dump(value: Any) -> str:
    """Writes JSON text without white space."""
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def decoded(text: str) -> str | None:
    """A JSON value; a JSON string that holds an object, a list or a string is parsed, twice at most.

    Some producers encode arguments twice.
    """
    for _ in range(2):
        if not text.startswith('"'):
            break
        inner = _try_parse(text)
        if not isinstance(inner, str) or not _holds_json(inner):
            break
        text = _without_lone_surrogates(inner)
    return None if text == "null" else text


def json_of_text(text: str) -> str | None:
    """The JSON object, list or string that a text holds, else the text as a JSON string; None where it was hidden."""
    if captured(text) is None or text.strip() == "null":
        return None
    return decoded(dump(text))


def captured(text: str) -> str | None:
    """The text, unless it is a marker for content that was switched off or hidden."""
    return None if text.strip() in _HIDDEN else text


def messages(text: str) -> str | None:
    """Messages of any dialect as [{role, name?, parts}]; None where the text is no list of messages."""
    value = _decoded_value(text)
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
    value = _decoded_value(text)
    if not isinstance(value, list):
        return None
    return dump([found for item in cast(list[Any], value) if (found := _tool_definition(_value(item)))])


def call_arguments(text: str) -> str:
    """Arguments without the envelope of a decorator or framework.

    {"args": [], "kwargs": {...}} of decorators (positional values stay under `_args`), {"input_str", "inputs", ...} of
    LangChain's callbacks, {"tool_name", "arguments"} of an MCP request.
    """
    value = _try_parse(text)
    if not isinstance(value, dict):
        return text
    envelope = cast(Object, value)
    if "input_str" in envelope and isinstance(envelope.get("inputs"), dict):
        return dump(envelope["inputs"])
    if set(envelope) == {"tool_name", "arguments"}:
        return dump(envelope["arguments"])
    kwargs = envelope.get("kwargs")
    if not isinstance(kwargs, dict) or set(envelope) - {"args", "kwargs", "sanitize_inputs_outputs"}:
        return text
    args = envelope.get("args")
    return dump({**kwargs, "_args": args} if args else kwargs)


def result_value(text: str) -> str | None:
    """A tool's result without its envelope: LangChain's ToolMessage, LlamaIndex's ToolOutput, MCP's content."""
    value = _try_parse(text)
    inner = _unwrapped(cast(Object, value)) if isinstance(value, dict) else value
    blocks = _list(inner)
    if blocks and all(_object(block).get("type") == "text" for block in blocks):
        inner = _content_text(blocks)
    return decoded(text) if inner is value else decoded(dump(inner))


def result_failed(text: str) -> bool | None:
    """Whether the envelope of a result says that the call failed; None where it says nothing."""
    envelope = _object(_try_parse(text))
    output = _object(envelope.get("output"))
    envelope = output if "lc" in output else envelope
    statuses = [_object(envelope.get(key)).get("status") for key in ("data", "kwargs")]
    if "error" in statuses or envelope.get("is_error") is True or envelope.get("isError") is True:
        return True
    return None


def canonical_arguments(text: str) -> str:
    """Arguments in one form for comparing: keys in order, no white space, 1.0 as 1."""
    value = _try_parse(text)
    return json.dumps(_canonical(value, 0), ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def same_arguments(inner: str, outer: str) -> bool:
    """Whether two recordings of arguments, span in span, can be of one call: equal, or one holds the other.

    A decorator sees defaults and injected arguments that the framework around it does not, a server that captures
    nothing writes {}; a recursive call has other values.
    """
    one, two = _canonical(_try_parse(inner), 0), _canonical(_try_parse(outer), 0)
    if not isinstance(one, dict) or not isinstance(two, dict):
        return one == two or [one] == list(_object(two).values()) or [two] == list(_object(one).values())
    if not one or not two:
        return not one
    fewer, more = sorted((cast(Object, one), cast(Object, two)), key=len)
    return all(key in more and more[key] == value for key, value in fewer.items())


def unflatten(attributes: str, prefix: str) -> str | None:
    """The nested list behind flattened attributes.

    `llm.tools.0.tool.json_schema` with the prefix `llm.tools` is [{"tool": {"json_schema": ...}}].
    Indices sort as numbers (10 after 9); gaps close up.
    """
    head = prefix + "."
    tree: Object = {}
    for key, value in _object(_try_parse(attributes)).items():
        path = key[len(head) :].split(".") if key.startswith(head) else []
        if 0 < len(path) <= _MAX_DEPTH:
            _put(tree, path, value)
    return dump(_listed(tree, 0)) if tree else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _without_lone_surrogates(text: str) -> str:
    if "\\u" not in text:
        return text
    return _ESCAPE.sub(lambda found: r"\ufffd" if len(found[0]) == _LONE_SURROGATE_LENGTH else found[0], text)


def _try_parse(text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return None


def _holds_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return False
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _decoded_value(text: str) -> Any:
    """What `decoded` gives, parsed: one pass less."""
    value = _try_parse(text)
    for _ in range(2):
        inner = _try_parse(value) if isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"') else None
        if inner is None:
            break
        value = inner
    return value


def _value(value: Any) -> Any:
    """A value of which a string that holds JSON is parsed."""
    if not isinstance(value, str):
        return value
    text = json_of_text(value)
    return None if text is None else _try_parse(text)


def _object(value: Any) -> Object:
    return cast(Object, value) if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []


def _message(message: Object) -> Object:
    """One message of any dialect."""
    for envelope in () if "parts" in message else ("message", "kwargs", "data"):
        # OpenInference: "message"; LangChain's serialised messages: "kwargs", or "data" beside the type.
        inner = _object(message.get(envelope))
        message = {"type": message.get("type"), **inner} if inner else message
    role = message.get("role") or message.get("type")
    role = _ROLES.get(str(role), role)
    blocks = _list(message.get("parts"))
    parts = [_part(_object(block)) for block in blocks] if blocks else _flat_parts(message, role)
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
        text = _content_text(content)
        failed = {"is_error": True} if message.get("status") == "error" else {}
        response = _value(content if text is None else text)
        return [
            {"type": "tool_call_response", "id": call_id, "name": message.get("name"), "response": response, **failed}
        ]
    calls = [_object(call) for call in _list(_value(message.get("tool_calls")))]
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
    parts = [_part(_object(item) or {"type": "text", "text": item}) for item in _list(content)]
    return [part for part in parts if part["type"] != "text" or part["content"]]


def _tool_call(call: Object) -> Object:
    function = _object(call.get("function"))
    given = [source[key] for source in (function, call) for key in ("arguments", "args", "input") if key in source]
    return {
        "type": "tool_call",
        "id": _captured_text(_first(call, _CALL_IDS)),
        "name": function.get("name") or _first(call, ("name", "toolName")),
        "arguments": _value(given[0]) if given else None,
    }


def _tool_response(block: Object) -> Object:
    response = _first(block, ("response", "result", "output", "content"))
    wrapped = _object(response)
    failed = block.get("is_error", block.get("isError", True if block.get("status") == "error" else None))
    if set(wrapped) == {"type", "value"}:
        # Vercel AI SDK 5 and later: {"type": "text" | "json" | "error-text" | "error-json", "value": ...}
        response, failed = wrapped["value"], str(wrapped["type"]).startswith("error") or failed
    blocks = _list(response)
    if blocks and all(isinstance(item, dict) for item in blocks):
        text = _content_text(blocks)
        response = _object(blocks[0]).get("json", response) if text is None else text
    found: Object = {
        "type": "tool_call_response",
        "id": _captured_text(_first(block, _CALL_IDS)),
        "name": _first(block, ("name", "toolName")),
        "response": _value(response),
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


def _content_text(content: Any) -> str | None:
    """Content as one text: a string, or the text parts of a list."""
    if isinstance(content, str):
        return captured(content)
    texts = [text for item in _list(content) if (text := _text_of_part(item)) is not None]
    return "".join(texts) if texts else None


def _text_of_part(item: Any) -> str | None:
    if isinstance(item, str):
        return item
    part = _object(item)
    part = _object(part.get("message_content")) or part
    if part.get("type") in ("reasoning", "thinking", "tool_use"):
        return None
    text = part.get("text", part.get("content"))
    return captured(text) if isinstance(text, str) else None


def _part(block: Object) -> Object:
    """One part of a message: OTel's, or a content block of OpenAI, Anthropic, Bedrock, Gemini or the Vercel AI SDK."""
    block = _object(block.get("message_content")) or block
    kind = block.get("type")
    if kind is None and (call := _first(block, ("toolUse", "functionCall", "function_call"))):
        return _tool_call(_object(call))
    if kind is None and (response := _first(block, ("toolResult", "functionResponse", "function_response"))):
        return _tool_response(_object(response))
    if kind in ("tool_call", "tool-call", "tool_use", "function_call"):
        return _tool_call(block)
    if kind in ("tool_call_response", "tool-result", "tool_result", "function_call_output"):
        return _tool_response(block)
    text = _first(block, ("content", "text", "thinking"))
    if kind in ("reasoning", "thinking"):
        return {"type": "reasoning", "content": text if isinstance(text, str) else _content_text(block.get("summary"))}
    if kind in ("text", "input_text", "output_text") or (kind is None and isinstance(text, str)):
        return {"type": "text", "content": captured(text) if isinstance(text, str) else None}
    return {"type": "other", "content": block}


def _tool_definition(tool: Any) -> Object | None:
    if isinstance(tool, str):
        return {"name": tool, "description": None, "parameters": None}
    definition = _object(tool)
    # OpenInference: {"tool": {"json_schema": "..."}}
    definition = _object(_value(_object(definition.get("tool")).get("json_schema"))) or definition
    definition = _object(definition.get("function")) or definition
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
        "parameters": _value(schemas[0]) if schemas else None,
    }
    # MCP's hints, by which a tool is read-only or idempotent.
    annotations = _object(definition.get("annotations"))
    return found | {"annotations": annotations} if annotations else found


def _unwrapped(envelope: Object) -> Any:
    output = _object(envelope.get("output"))
    if "lc" in output and set(envelope) <= {"output", "kwargs"}:
        envelope = output
    if envelope.get("type") == "tool" and "content" in _object(envelope.get("data")):
        return envelope["data"]["content"]
    if "lc" in envelope and "content" in _object(envelope.get("kwargs")):
        return envelope["kwargs"]["content"]
    if "raw_output" in envelope and "tool_name" in envelope:
        raw = envelope["raw_output"]
        return _content_text(envelope.get("blocks")) if raw is None else raw
    blocks = _list(envelope.get("content"))
    if set(envelope) <= _MCP_RESULT and blocks and all(_object(block).get("type") == "text" for block in blocks):
        return blocks
    return envelope


def _canonical(value: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _canonical(item, depth + 1) for key, item in cast(Object, value).items()}
    if isinstance(value, list):
        return [_canonical(item, depth + 1) for item in cast(list[Any], value)]
    return value


def _put(tree: Object, path: list[str], value: Any) -> None:
    for name in path[:-1]:
        branch = tree.setdefault(name, {})
        if not isinstance(branch, dict):
            return
        tree = cast(Object, branch)
    tree.setdefault(path[-1], value)


def _listed(tree: Any, depth: int) -> Any:
    if depth > _MAX_DEPTH or not isinstance(tree, dict):
        return tree  # pyright: ignore[reportUnknownVariableType] - a value of any type
    branches = {key: _listed(branch, depth + 1) for key, branch in cast(Object, tree).items()}
    if branches and all(key.isdecimal() and len(key) <= _MAX_INDEX_DIGITS for key in branches):
        return [branches[key] for key in sorted(branches, key=int)]
    return branches
