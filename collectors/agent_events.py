"""Log records of coding agents that are steps of a run -> span rows; pure.

Claude Code and Codex report each prompt, model call and tool call as one log record, mostly without a trace or span
id. Such a record becomes a row of its own, whose ids are hashes of what it says: the same record twice is one row,
in any order and any request. The conventions of these agents make steps of the rows.
"""

import hashlib
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from agenttrace.json_text import dump
from agenttrace.spans import LogRow, SpanRow, hot_attributes

_DAY_MS = 86_400_000


class _Agent(NamedTuple):
    """How one agent's records are told and grouped."""

    prefix: str
    is_step: Callable[[str, Mapping[str, Any]], bool]
    # Attributes that together name the trace; the first must be there.
    trace_keys: tuple[str, ...]
    # Codex gives a trace id to some records of a conversation and none to others.
    keeps_trace_id: bool


def _is_claude_code_step(name: str, attributes: Mapping[str, Any]) -> bool:
    if name == "claude_code.tool_decision":
        return attributes.get("decision") == "reject"
    return name in {
        "claude_code.user_prompt",
        "claude_code.api_request",
        "claude_code.api_error",
        "claude_code.tool_result",
        "claude_code.assistant_response",
    }


def _is_codex_step(name: str, attributes: Mapping[str, Any]) -> bool:
    if name == "codex.sse_event":
        # One record per piece of a stream says nothing; the one with the tokens ends a model call.
        return "input_token_count" in attributes or bool(attributes.get("error.message"))
    if name == "codex.tool_decision":
        # Other decisions approve, or amend a policy and let the call go on.
        return str(attributes.get("decision")).startswith(("denied", "abort", "timed_out"))
    return name in {"codex.user_prompt", "codex.api_request", "codex.websocket_request", "codex.tool_result"}


_AGENTS = (
    _Agent("claude_code.", _is_claude_code_step, ("session.id", "prompt.id"), keeps_trace_id=True),
    _Agent("codex.", _is_codex_step, ("conversation.id",), keeps_trace_id=False),
)


def step_row(log: LogRow, attributes: Mapping[str, Any]) -> SpanRow | None:
    """Makes the row of a log record that is a step of a coding agent; None for any other record.

    Args:
        log: The record; its ids are "" where it has none.
        attributes: Its attributes.
    """
    name = _name(log, attributes)
    agent = next((agent for agent in _AGENTS if name.startswith(agent.prefix)), None)
    if agent is None or not agent.is_step(name, attributes):
        return None
    trace_id = log.trace_id if agent.keeps_trace_id and log.span_id else ""
    parent_span_id = log.span_id if trace_id else None
    if not trace_id:
        keys = [attributes.get(key) for key in agent.trace_keys]
        if not keys[0]:
            return None
        trace_id = _hash([agent.prefix, *keys], 32)
    ended = log.time_unix_nano or log.observed_time_unix_nano or 0
    said = [name, ended, sorted(attributes.items(), key=itemgetter(0)), log.body]
    return SpanRow(
        trace_id,
        _hash(said, 16),
        parent_span_id,
        name,
        "internal",
        max(ended - _duration_ns(attributes.get("duration_ms")), 0),
        ended,
        "unset",
        None,
        log.service_name,
        log.scope_name,
        log.scope_version,
        *hot_attributes(attributes),
        log.attributes,
        "[]",
        "[]",
        log.resource_attributes,
        log.scope_attributes,
        None,
        log.flags,
        log.resource_schema_url,
        log.scope_schema_url,
        log.dropped_attributes_count,
        0,
        0,
        log.resource_dropped_attributes_count,
        log.scope_dropped_attributes_count,
    )


def _name(log: LogRow, attributes: Mapping[str, Any]) -> str:
    """The name of an event with its agent's prefix; "" where it has none."""
    # Codex's logging library puts a place in the source where the name belongs.
    stated = attributes.get("event.name")
    name = stated if isinstance(stated, str) else log.event_name or ""
    # Claude Code leaves the prefix to the scope and the body.
    if name and (log.scope_name == "com.anthropic.claude_code.events" or log.body == f'"claude_code.{name}"'):
        return f"claude_code.{name.removeprefix('claude_code.')}"
    return name


def _duration_ns(value: Any) -> int:
    """A duration in milliseconds, which may be a text; nothing that a clock could not measure."""
    try:
        duration = float(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return int(duration * 1_000_000) if 0 <= duration <= _DAY_MS else 0


def _hash(value: Any, digits: int) -> str:
    return hashlib.sha256(dump(value).encode("utf-8", "surrogatepass")).hexdigest()[:digits]
