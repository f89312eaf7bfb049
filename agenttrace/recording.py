"""One span of ours from start to end: the one place where something of a user's program becomes span attributes."""

import sys
import traceback
from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Any, Final, cast

from opentelemetry import baggage, context, trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_tracer_provider,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from agenttrace import semconv
from agenttrace.canonical import kept_apart
from agenttrace.encode import clean_text
from agenttrace.guard import guarded, is_programs_own, report, traceback_of
from agenttrace.redact import current_redaction
from agenttrace.values import type_name

Attributes = dict[str, AttributeValue]

_RUN: Final = context.create_key("agenttrace-run")
_OUTERMOST: Final = context.create_key("agenttrace-outermost-run")
_BAGGAGE: Final = {
    semconv.TASK_ID: semconv.TASK_ID,
    semconv.TRIAL: semconv.TRIAL,
    semconv.TENANT_ID: semconv.TENANT_ID,
    semconv.USER_ID: semconv.USER_ID,
    semconv.CONVERSATION_ID: semconv.CONVERSATION_ID,
    "session.id": semconv.CONVERSATION_ID,
}
_ERROR_BYTES: Final = 8 << 10
_FRAMES: Final = -30
_MAX_LINKED: Final = 200
INTERNAL: Final = SpanKind.INTERNAL


class _Tracer:
    """Our tracer of the global provider; None where there is none, so that a decorated call costs next to nothing."""

    provider: trace.TracerProvider | None = None
    tracer: Tracer | None = None


def current_tracer() -> Tracer | None:
    """Returns the tracer of the globally configured provider, or None without one."""
    provider = get_tracer_provider()
    if provider is not _Tracer.provider:
        is_noop = isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider))
        _Tracer.tracer = None if is_noop else provider.get_tracer(semconv.SCOPE_NAME)
        _Tracer.provider = provider
    return _Tracer.tracer


def is_tracing() -> bool:
    """Tells whether a call would be recorded by anybody."""
    try:
        return current_tracer() is not None
    except Exception as error:
        report("find the tracer provider", error)
        return False


def inherited_attributes(within: Context) -> Mapping[str, AttributeValue]:
    """Returns session, user, tenant, task, trial and agent of the enclosing run, else what W3C baggage says of them."""
    if not within:
        return {}
    stated = within.get(_RUN)
    return stated if stated is not None else _from_baggage(within)  # pyright: ignore[reportReturnType]


def outermost_run(within: Context) -> SpanContext | None:
    """Returns the span of the outermost enclosing run of this process; None outside of runs."""
    return within.get(_OUTERMOST)  # pyright: ignore[reportReturnType]


def _from_baggage(within: Context) -> Attributes:
    items = baggage.get_all(within)
    if not items:
        return {}
    found: Attributes = {}
    for name, key in _BAGGAGE.items():
        value = items.get(name)
        if type(value) is int or (key != semconv.TRIAL and type(value) is str):
            found[key] = value if key == semconv.TRIAL else kept_apart(str(value), current_redaction())
        elif type(value) is str and value.isdecimal() and len(value) < 10:
            found[key] = int(value)
    return found


class Recording:
    """A started span, and the context in which the call that it stands for runs."""

    __slots__ = ("attributes", "context", "is_recording", "redact", "span")

    def __init__(self, span: Span, within: Context, attributes: Attributes | None = None) -> None:
        self.span = span
        self.context = set_span_in_context(span, within)
        self.is_recording = span.is_recording()
        self.redact = current_redaction()
        self.attributes: Attributes = {} if attributes is None else attributes
        """What is set at the end: one call for all of them costs half of a call each."""

    @guarded("record attributes")
    def set(self, attributes: Mapping[str, AttributeValue]) -> None:
        """Sets attributes at once."""
        if attributes and self.is_recording:
            self.span.set_attributes(attributes)

    def report(self, doing: str, error: BaseException) -> None:
        """Reports a fault of ours; what is the program's own ends the span on its way out."""
        if is_programs_own(error):
            self.fail(error)
            raise error
        report(doing, error)

    def end(self) -> None:
        """Ends the span of a call that returned."""
        try:
            if self.attributes:
                self.span.set_attributes(self.attributes)
            self.span.end()
        except Exception as error:
            report("end a span", error)

    def fail(self, error: BaseException) -> None:
        """Ends the span of a call that raised."""
        if self.is_recording:
            self._describe(error)
        self.end()

    @guarded("record an exception", against=BaseException)
    def _describe(self, error: BaseException) -> None:
        names = [type_name(kind) for kind in _bases_of(type(error))]
        self.attributes |= _error_attributes(names)
        said = _message(error)
        message = clean_text(said, limit_bytes=_ERROR_BYTES, redact=self.redact)
        # A secret that the cut would halve must still be recognised, so the lines are cut after redaction.
        lines = _stack(error, f"{names[0]}: {said}\n")[-4 * _ERROR_BYTES :]
        described = {
            "exception.type": names[0],
            "exception.message": message,
            "exception.stacktrace": clean_text(lines, limit_bytes=16 * _ERROR_BYTES, redact=self.redact)[
                -2 * _ERROR_BYTES :
            ],
        }
        self.span.add_event("exception", described)
        self.span.set_status(Status(StatusCode.ERROR, message or names[0]))


def _error_attributes(names: list[str]) -> Attributes:
    attributes: Attributes = {semconv.ERROR_TYPE: names[0]}
    # Who reads the span knows the built-in exceptions and the well-known ones, not a user's subclass of them.
    bases = [name for name in names[1:] if name not in ("Exception", "BaseException", "object")]
    if bases and "." in names[0]:
        attributes[semconv.ERROR_BASES] = bases
    if semconv.CANCELLATION_EXCEPTIONS.intersection(names):
        attributes[semconv.CANCELLED] = True
    return attributes


# Of `type` itself, which no metaclass can replace.
_bases_of: Final = vars(type)["__mro__"].__get__


def _message(error: BaseException) -> str:
    try:
        return str.__str__(str(error))
    except BaseException as fault:
        if is_programs_own(fault):
            raise
        return "<unreadable message>"


def _stack(error: BaseException, last_line: str) -> str:
    """Returns the stack trace with the exceptions that led to this one, as far as they let themselves be read."""
    try:
        if _has_few_links(error):
            return "".join(traceback.format_exception(error, limit=_FRAMES))
    except BaseException as fault:
        if is_programs_own(fault):
            raise
    return "".join(traceback.format_tb(traceback_of(error), limit=_FRAMES)) + last_line


def _has_few_links(error: BaseException) -> bool:
    """Tells whether formatting takes bounded time: a loop of retries may leave thousands of contexts behind."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        if len(waiting) + len(seen) > _MAX_LINKED:
            return False
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            waiting += each.__cause__, each.__context__
            if isinstance(each, BaseExceptionGroup):
                waiting += cast("BaseExceptionGroup[BaseException]", each).exceptions[:_MAX_LINKED]
    return True


def start(
    name: str, attributes: Mapping[str, AttributeValue] | None = None, within: Context | None = None
) -> Recording | None:
    """Starts a span; None without a tracer provider.

    Args:
        name: Name of the span.
        attributes: Set at the start, for samplers and start records, beside what the enclosing run hands down. None:
            nothing is set yet.
        within: Context of the parent; the current one without it.
    """
    try:
        tracer = current_tracer()
        if tracer is None:
            return None
        if within is None:
            within = context.get_current()
        if attributes is not None:
            attributes = {**inherited_attributes(within), **attributes}
        return Recording(tracer.start_span(name, within, INTERNAL, attributes), within)
    except Exception as error:
        report("start a span", error)
        return None


def open_run(recording: Recording, attributes: Mapping[str, AttributeValue], *, within: Context) -> None:
    """Makes the call an agent's, whose attributes reach every span below; the outermost is on disk at its start."""
    try:
        inherited = inherited_attributes(within)
        recording.context = context.set_value(_RUN, {**inherited, **attributes}, recording.context)
        if semconv.AGENT_NAME not in inherited:
            recording.context = context.set_value(_OUTERMOST, recording.span.get_span_context(), recording.context)
            record_start(recording)
    except Exception as error:
        report("open a run", error)


def record_start(recording: Recording) -> None:
    """Puts a started span on disk in our own store, if there is one, before the call goes on."""
    if not recording.is_recording:
        return
    # Whoever made an exporter of ours has imported it; nobody else pays for the import.
    exporter: Any = sys.modules.get("agenttrace.exporter")
    if exporter is None:
        return
    try:
        exporter.record_start(recording.span)
    except Exception as error:
        recording.report("record the start of a call", error)
    except BaseException as error:
        # The call will not run, so its start must not stay there as one that was killed.
        recording.fail(error)
        raise


class Place:
    """Where a context was entered, to leave it only there.

    A coroutine or generator may be closed from elsewhere, in a context that never entered: OpenTelemetry logs an error
    then. A variable of ours says so beforehand.
    """

    __slots__ = ("_mark", "_token")

    _entered: ContextVar[None] = ContextVar("agenttrace_place")

    def __init__(self, entered: Context) -> None:
        self._mark: Token[None] = self._entered.set(None)
        self._token = context.attach(entered)

    def leave(self) -> None:
        """Restores the context that was current before, unless this is another place."""
        try:
            self._entered.reset(self._mark)
        except ValueError:
            return
        context.detach(self._token)
