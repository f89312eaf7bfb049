"""Arguments and results of tool calls, taken out of the envelopes of frameworks; flattened attributes.

Pure functions on JSON text, which the SQL of conventions and rebuild calls by the same names.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, cast

import orjson

from agenttrace.dialects import content_text, messages_of, tool_definitions_of
from agenttrace.json_text import Object, as_list, as_object, decoded, dump, try_parse

_MCP_RESULT = frozenset({"content", "structuredContent", "isError", "_meta", "meta"})
_MAX_DEPTH = 200
_MAX_INDEX_DIGITS = 9


def call_arguments(text: str) -> str:
    """Arguments without the envelope of a decorator or framework.

    {"args": [], "kwargs": {...}} of decorators (positional values stay under `_args` where no `names` say what they
    are), {"input_str", "inputs", ...} of LangChain's callbacks, {"tool_name", "arguments"} of an MCP request.
    """
    value = try_parse(text)
    if not isinstance(value, dict):
        return text
    envelope = cast(Object, value)
    if "input_str" in envelope and isinstance(envelope.get("inputs"), dict):
        return dump(envelope["inputs"])
    if set(envelope) == {"tool_name", "arguments"}:
        return dump(envelope["arguments"])
    kwargs = envelope.get("kwargs")
    if not isinstance(kwargs, dict) or set(envelope) - {"args", "kwargs", "names", "sanitize_inputs_outputs"}:
        return text
    args, names = envelope.get("args"), [str(name) for name in as_list(envelope.get("names"))]
    if not kwargs and len(as_list(args)) == 1 and set(first := as_object(as_list(args)[0])) <= set(names) and first:
        return dump(first)
    if 0 < len(as_list(args)) <= len(names):
        return dump({**dict(zip(names, as_list(args), strict=False)), **kwargs})
    return dump({**kwargs, "_args": args} if args else kwargs)


def result_value(text: str) -> str | None:
    """A tool's result without its envelope: LangChain's ToolMessage, LlamaIndex's ToolOutput, MCP's content."""
    value = try_parse(text)
    inner = _unwrapped(cast(Object, value)) if isinstance(value, dict) else value
    blocks = as_list(inner)
    if blocks and all(as_object(block).get("type") == "text" for block in blocks):
        inner = content_text(blocks)
    return decoded(text) if inner is value else decoded(dump(inner))


def result_failed(text: str) -> bool | None:
    """Whether the envelope of a result says that the call failed; None where it says nothing."""
    envelope = as_object(try_parse(text))
    output = as_object(envelope.get("output"))
    envelope = output if "lc" in output else envelope
    statuses = [as_object(envelope.get(key)).get("status") for key in ("data", "kwargs")]
    if "error" in statuses or envelope.get("is_error") is True or envelope.get("isError") is True:
        return True
    return None


def canonical_arguments(text: str) -> str:
    """Arguments in one form for comparing: keys in order, no white space, 1.0 as 1."""
    value = _canonical(try_parse(text), 0)
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:
        # An integer beyond 64 bits, or too many levels.
        return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def same_arguments(inner: str, outer: str) -> bool:
    """Whether two recordings of arguments, span in span, can be of one call: equal, or one holds the other.

    A decorator sees defaults and injected arguments that the framework around it does not, a server that captures
    nothing writes {}; a recursive call has other values.
    """
    one, two = _canonical(try_parse(inner), 0), _canonical(try_parse(outer), 0)
    if not isinstance(one, dict) or not isinstance(two, dict):
        return one == two or [one] == list(as_object(two).values()) or [two] == list(as_object(one).values())
    if not one or not two:
        return not one
    fewer, more = sorted((cast(Object, one), cast(Object, two)), key=len)
    return all(key in more and more[key] == value for key, value in fewer.items())


def unflatten(attributes: str, prefix: str) -> str | None:
    """The nested list behind flattened attributes.

    `llm.tools.0.tool.json_schema` with the prefix `llm.tools` is [{"tool": {"json_schema": ...}}].
    Indices sort as numbers (10 after 9); gaps close up.
    """
    nested = _nested(_below(as_object(try_parse(attributes)), prefix))
    return None if nested is None else dump(nested)


def flattened_call(attributes: str, inputs: str, outputs: str, tools: str) -> dict[str, str | None]:
    """Messages and offered tools of a model call behind flattened attributes with these prefixes, in one pass.

    Gives what `messages` and `tool_definitions` make of what `unflatten` gives: input, output, tools.
    """
    values = as_object(try_parse(attributes))
    read, written, offered = (_below(values, prefix) for prefix in (inputs, outputs, tools))
    is_text = all(isinstance(value, str) for _, value in offered)
    return {
        "input": messages_of(_nested(read)),
        "output": messages_of(_nested(written)),
        "tools": _offered(tuple(offered)) if is_text else tool_definitions_of(_nested(offered)),
    }


# The same tools are offered in every call of a run.
@lru_cache(maxsize=64)
def _offered(values: tuple[tuple[str, Any], ...]) -> str | None:
    return tool_definitions_of(_nested(values))


def _below(values: Object, prefix: str) -> list[tuple[str, Any]]:
    head = prefix + "."
    return [(key[len(head) :], value) for key, value in values.items() if key.startswith(head)]


def _nested(values: Iterable[tuple[str, Any]]) -> Any:
    tree: Object = {}
    for key, value in values:
        if key.count(".") < _MAX_DEPTH:
            _put(tree, key.split("."), value)
    return _listed(tree, 0) if tree else None


def _unwrapped(envelope: Object) -> Any:
    output = as_object(envelope.get("output"))
    if "lc" in output and set(envelope) <= {"output", "kwargs"}:
        envelope = output
    if envelope.get("type") == "tool" and "content" in as_object(envelope.get("data")):
        return envelope["data"]["content"]
    if "lc" in envelope and "content" in as_object(envelope.get("kwargs")):
        return envelope["kwargs"]["content"]
    if "raw_output" in envelope and "tool_name" in envelope:
        raw = envelope["raw_output"]
        return content_text(envelope.get("blocks")) if raw is None else raw
    blocks = as_list(envelope.get("content"))
    if set(envelope) <= _MCP_RESULT and blocks and all(as_object(block).get("type") == "text" for block in blocks):
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
