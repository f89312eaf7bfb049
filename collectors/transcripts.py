"""Chat transcripts -> spans: an agent span, below it one per assistant message and one per tool call that was answered.

Pure. Ids are hashes of the content, so that a transcript imported twice is stored once.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import orjson

from agenttrace import semconv
from agenttrace.collectors.chat_messages import STEP_NS, Call, Result, calls_of, normalised, text_of, times_of
from agenttrace.collectors.json_fields import Leniencies, Object, describe
from agenttrace.collectors.outcomes_csv import outcome_row, trial_of
from agenttrace.errors import DecodeError
from agenttrace.json_text import dump
from agenttrace.spans import OutcomeRow, SpanRow, hot_attributes

KEYS = ("messages", "traj")

# What the model was given is the whole conversation before its answer, so a run's spans grow with the square of its
# length. Beyond this many characters of repeated history a model call holds only what is new to it.
_MAX_HISTORY_CHARACTERS = 8 << 20


class Transcript(NamedTuple):
    """One run: its spans, root first, its verdict where the record holds one, and what of it was skipped."""

    spans: list[SpanRow]
    outcome: OutcomeRow | None
    problems: list[str]


def is_conversation(document: Any) -> bool:
    """Says whether a document is a list of messages itself, not a list of records that hold some."""
    if not isinstance(document, list) or not document:
        return False
    first = cast("list[Any]", document)[0]
    return isinstance(first, dict) and "role" in first


class _Identity(NamedTuple):
    """What a record says about its run beside the messages."""

    task_id: str | None
    trial: str | None
    session_id: str | None
    user_id: str | None
    tenant_id: str | None
    agent: str | None
    model: str | None


@dataclass
class TranscriptReader:
    """Reads the transcripts of one file.

    Attributes:
        recorded_at_unix_nano: When the file was written: the time of its verdicts.
        key: Where a record holds its messages; None for the first of KEYS that it has.
        task_id: Task of records that name none.
        trial: Trial of records that name none.
        leniencies: What was taken although it lacks something, and how often.
    """

    recorded_at_unix_nano: int
    key: str | None = None
    task_id: str | None = None
    trial: int | None = None
    leniencies: Leniencies = field(default_factory=Counter[str])
    _seen: Counter[str] = field(default_factory=Counter[str])

    def read(self, record: Any) -> Transcript:
        """Reads one record.

        Raises:
            DecodeError: It holds no list of messages, or is nested too deeply.
        """
        if is_conversation(record):
            record = {self.key or KEYS[0]: record}
        given = self._messages(record)
        try:
            return self._read(cast("Object", record), given)
        except (RecursionError, ValueError) as err:
            raise DecodeError("the messages are nested too deeply, or hold numbers that JSON lacks") from err

    def _messages(self, record: Any) -> list[Any]:
        keys = KEYS if self.key is None else (self.key,)
        members = cast("Object", record) if isinstance(record, dict) else {}
        found = next((key for key in keys if key in members), None)
        wanted = " or ".join(repr(key) for key in keys)
        if found is None:
            raise DecodeError(
                f"the document is {describe(cast('object', record))}; expected the key 'resourceSpans' or "
                f"'resourceLogs' (OTLP), 'data' (Jaeger), 'batches' (Tempo), or chat messages under {wanted} "
                "(--messages KEY names another)"
            )
        if not isinstance(members[found], list):
            raise DecodeError(f"{found!r} is {describe(members[found])}; expected a list of chat messages")
        return cast("list[Any]", members[found])

    def _read(self, record: Object, given: list[Any]) -> Transcript:
        problems: list[str] = []
        identity = self._identity(record)
        content = _canonical([given, *identity])
        self._seen[content] += 1
        trace_id = _hex_hash(f"{content} {self._seen[content]}", 32)
        trial = outcome = None
        try:
            trial = trial_of(identity.trial)
            outcome = self._outcome(record, trace_id, identity)
        except DecodeError as err:
            problems.append(str(err))
        kept, messages = normalised(given, problems, self.leniencies)
        spans = list(_spans(trace_id, record, identity, trial, messages, times_of(kept)))
        return Transcript(spans, outcome, problems)

    def _outcome(self, record: Object, trace_id: str, identity: _Identity) -> OutcomeRow | None:
        verdict = {key: _scalar(record.get(key)) for key in ("passed", "reward")}
        if not any(verdict.values()):
            return None
        named = {"task_id": identity.task_id, "trial": identity.trial, "trajectory_id": _trajectory_id(trace_id)}
        return outcome_row({**named, **verdict}, self.recorded_at_unix_nano)

    def _identity(self, record: Object) -> _Identity:
        def first(*keys: str) -> str | None:
            return next((text for key in keys if (text := _scalar(record.get(key)))), None)

        return _Identity(
            task_id=first("task_id") or self.task_id,
            trial=first("trial") or _scalar(self.trial),
            session_id=first("session_id", "conversation_id"),
            user_id=first("user_id"),
            tenant_id=first("tenant_id"),
            agent=first("agent", "agent_name"),
            model=first("model"),
        )


def _spans(
    trace_id: str, record: Object, identity: _Identity, trial: int | None, messages: list[Object], times: list[int]
) -> Iterator[SpanRow]:
    root_id = _root_id(trace_id)
    # A run without messages stands at the beginning of the order.
    begin, end = (times[0], times[-1]) if times else (STEP_NS, STEP_NS)
    turns = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    about = _about(record, identity, trial) | _told(messages, turns)
    yield _span(trace_id, root_id, None, semconv.INVOKE_AGENT, begin, end, about)
    calls: dict[int, list[Call]] = defaultdict(list)
    for call in calls_of(messages):
        calls[call.message].append(call)
    texts = [dump(message) for message in messages]
    for turn, input_text in zip(turns, _inputs(turns, texts), strict=True):
        attributes: Object = {
            semconv.OPERATION: semconv.CHAT,
            semconv.REQUEST_MODEL: identity.model,
            semconv.INPUT_MESSAGES: input_text,
            semconv.OUTPUT_MESSAGES: f"[{texts[turn]}]",
        }
        span_id = _hex_hash(f"{trace_id} {turn}", 16)
        yield _span(trace_id, span_id, root_id, semconv.CHAT, times[turn], times[turn], attributes)
        for position, call in enumerate(calls[turn], 1):
            if call.result is not None:
                yield _tool_span(trace_id, root_id, call, call.result, position, times)


def _about(record: Object, identity: _Identity, trial: int | None) -> Object:
    tools = next((record[key] for key in ("tools", "functions") if isinstance(record.get(key), list)), None)
    return {
        semconv.OPERATION: semconv.INVOKE_AGENT,
        semconv.AGENT_NAME: identity.agent,
        semconv.CONVERSATION_ID: identity.session_id,
        semconv.USER_ID: identity.user_id,
        semconv.TENANT_ID: identity.tenant_id,
        semconv.TASK_ID: identity.task_id,
        semconv.TRIAL: trial,
        semconv.TOOL_DEFINITIONS: None if tools is None else dump(tools),
    }


def _told(messages: list[Object], turns: list[int]) -> Object:
    """Says what the run began with, what it ended with, and what came after the last answer."""
    asked = [message for message in messages if message["role"] == "user"]
    # A text beside further requests is on the way to an answer.
    answers = [messages[turn] for turn in turns if not _asks(messages[turn])]
    last_messages = messages[turns[-1] + 1 :] if turns else messages
    return {
        semconv.USER_INPUT: next(filter(None, map(text_of, asked)), None),
        semconv.FINAL_RESPONSE: next(filter(None, map(text_of, reversed(answers))), None),
        semconv.LAST_MESSAGES: dump(last_messages) if last_messages else None,
    }


def _inputs(turns: list[int], texts: list[str]) -> Iterator[str]:
    """Yields what each assistant message was given, as a JSON list."""
    repeated = 0
    previous = 0
    for turn in turns:
        begin = 0 if repeated < _MAX_HISTORY_CHARACTERS else previous
        repeated += sum(map(len, texts[begin:previous]))
        yield f"[{','.join(texts[begin:turn])}]"
        previous = turn + 1


def _tool_span(trace_id: str, root_id: str, call: Call, result: Result, position: int, times: list[int]) -> SpanRow:
    attributes: Object = {
        semconv.OPERATION: semconv.EXECUTE_TOOL,
        semconv.TOOL_NAME: call.name or result.name,
        semconv.TOOL_CALL_ID: call.id,
        semconv.TOOL_ARGUMENTS: _json_or_text(call.arguments),
        semconv.TOOL_RESULT: _json_or_text(result.value),
        semconv.ERROR_TYPE: "tool_error" if result.failed else None,
    }
    # The calls of one message overlap, in the order in which they were requested.
    start = times[call.message] + min(position, STEP_NS - 1)
    span_id = _hex_hash(f"{trace_id} {call.message} {position}", 16)
    name = f"{semconv.EXECUTE_TOOL} {call.name or result.name or ''}".rstrip()
    row = _span(trace_id, span_id, root_id, name, start, times[result.message], attributes)
    return row._replace(status_code="error") if result.failed else row


def _span(
    trace_id: str,
    span_id: str,
    parent_span_id: str | None,
    name: str,
    start: int,
    end: int,
    attributes: Object,
) -> SpanRow:
    stated = {key: value for key, value in attributes.items() if value is not None}
    return SpanRow(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent_span_id,
        name=name,
        span_kind="internal",
        start_time_unix_nano=start,
        end_time_unix_nano=end,
        status_code="unset",
        status_message=None,
        service_name=None,
        scope_name=semconv.TRANSCRIPT_SCOPE_NAME,
        scope_version=None,
        **hot_attributes(stated)._asdict(),
        attributes=dump(stated),
        events="[]",
        links="[]",
        resource_attributes="{}",
        scope_attributes="{}",
        trace_state=None,
        flags=None,
        resource_schema_url=None,
        scope_schema_url=None,
        dropped_attributes_count=0,
        dropped_events_count=0,
        dropped_links_count=0,
        resource_dropped_attributes_count=0,
        scope_dropped_attributes_count=0,
    )


def _asks(message: Object) -> bool:
    return any(part["type"] == "tool_call" for part in message["parts"])


def _json_or_text(value: Any) -> str | None:
    if value is None or (isinstance(value, str) and value):
        return value
    return dump(value)


def _scalar(value: Any) -> str | None:
    """Returns a name, number or truth value as text; None for an absent one."""
    if value is None or isinstance(value, str):
        return value
    return dump(value)


def _canonical(value: Any) -> str:
    """Hashes a value; the order of keys makes no difference."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        text = json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(text).hexdigest()


def _hex_hash(text: str, length: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _root_id(trace_id: str) -> str:
    return _hex_hash(f"{trace_id} root", 16)


def _trajectory_id(trace_id: str) -> str:
    """The rebuild's id of the run (agenttrace/steps/03_tree.sql)."""
    return hashlib.md5(f"{trace_id}{_root_id(trace_id)}".encode(), usedforsecurity=False).hexdigest()[:16]
