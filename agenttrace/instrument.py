"""Decorators for tools, agents and model calls of any kind of function.

A decorated function returns, yields and raises what it did undecorated. Spans go to the globally configured tracer
provider; without one a call costs one look at it.
"""

import inspect
from collections.abc import Callable, Collection
from functools import partial, update_wrapper
from typing import Any, TypeVar, cast, overload

from opentelemetry.context import attach, detach, get_current
from opentelemetry.trace import set_span_in_context

from agenttrace.binding import Binding, make_binding
from agenttrace.encode import encode_flat
from agenttrace.guard import report
from agenttrace.iteration import IterationFunction
from agenttrace.kinds import RESULT, Agent, Kind, Model, Tool
from agenttrace.recording import INTERNAL, Attributes, Place, Recording, current_tracer, inherited_attributes
from agenttrace.redact import current_redaction
from agenttrace.semconv import TOOL_ARGUMENTS, TOOL_RESULT

F = TypeVar("F", bound="Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any]")
_Make = Callable[[str, Binding], Kind]


@overload
def tool(
    name: str | None = None,
    *,
    mutates: bool | None = None,
    idempotency_key: str | None = None,
    capture: Collection[str] | bool | None = None,
    ignore: Collection[str] = (),
) -> Callable[[F], F]: ...
@overload
def tool(name: F, /) -> F: ...
def tool(
    name: Any = None,
    *,
    mutates: bool | None = None,
    idempotency_key: str | None = None,
    capture: Collection[str] | bool | None = None,
    ignore: Collection[str] = (),
) -> Any:
    """Records each call of a function as a tool call: arguments by name, result, exception.

    Works bare, `@tool`, and with arguments, on functions, coroutines, generators, async generators, methods, static and
    class methods, partials and callable objects.

    Args:
        name: Name of the tool; the function's own without it.
        mutates: Whether a call changes the world. Such a call is on disk before it runs, if `configure` set up a store.
            None: not said.
        idempotency_key: Name of the argument that holds the idempotency key.
        capture: Names of the arguments to record, the others are hidden; False records neither arguments nor result.
        ignore: Names of arguments to hide; "return" leaves out the result.

    Raises:
        TypeError: This is no function, or an argument of this decorator has the wrong type.
        ValueError: A name is not that of a parameter.
    """
    names = [*(() if isinstance(capture, bool) else capture or ()), *ignore, *filter(None, [idempotency_key])]

    def make(default_name: str, binding: Binding) -> Kind:
        _check_names(default_name, names, binding)
        return Tool(
            name if isinstance(name, str) else default_name,
            binding,
            mutates=mutates,
            idempotency_key=idempotency_key,
            capture=capture,
            ignore=ignore,
        )

    if isinstance(capture, str) or isinstance(ignore, str):
        raise TypeError("@agenttrace.tool: capture and ignore take a list of names, not one text")
    return _decorate("tool", name, make)


@overload
def agent(name: str | None = None) -> Callable[[F], F]: ...
@overload
def agent(name: F, /) -> F: ...
def agent(name: Any = None) -> Any:
    """Records each call of a function as a run of an agent; the outermost is the trajectory.

    The first text among the arguments is the user input. A text result is the final response, another one its JSON.

    Args:
        name: Name of the agent; the function's own without it.

    Raises:
        TypeError: This is no function.
    """
    return _decorate("agent", name, lambda default, binding: Agent(_text_or(name, default), binding))


@overload
def model(name: str | None = None, *, provider: str | None = None) -> Callable[[F], F]: ...
@overload
def model(name: F, /) -> F: ...
def model(name: Any = None, *, provider: str | None = None) -> Any:
    """Records each call of a function as a model call.

    Messages and tools are read from the parameters `messages`, `tools` and the like, and answer and usage from a result
    of the OpenAI, Anthropic or Gemini shape; for others see `model_call`.

    Args:
        name: Model, as in "gpt-4o"; without it the argument `model` says it, or the response.
        provider: As in "openai".

    Raises:
        TypeError: This is no function.
    """
    stated = name if isinstance(name, str) else None
    return _decorate("model", name, lambda default, binding: Model(default, binding, model=stated, provider=provider))


def _text_or(name: object, default: str) -> str:
    return name if isinstance(name, str) else default


def _decorate(decorator: str, name: object, make: _Make) -> Any:
    def decorate(function: Any) -> Any:
        return _instrument(decorator, function, make)

    if name is None or isinstance(name, str):
        return decorate
    return decorate(name)


def _instrument(decorator: str, function: Any, make: _Make) -> Any:
    if isinstance(function, staticmethod):
        return staticmethod(_instrument(decorator, cast("Any", function).__func__, make))
    if isinstance(function, classmethod):
        inner = cast("Any", function).__func__
        return classmethod(_wrap(inner, make(_name_of(inner), make_binding(inner, has_receiver=True))))
    if not callable(function) or inspect.isclass(function):
        what = "a class" if inspect.isclass(function) else type(cast("object", function)).__qualname__
        raise TypeError(
            f"@agenttrace.{decorator} decorates functions, not {what}: put it on the method itself, below @property"
        )
    return _wrap(function, make(_name_of(function), make_binding(function)))


def _name_of(function: Any) -> str:
    while isinstance(function, partial):
        function = cast("Any", function).func
    return getattr(function, "__name__", type(function).__name__)


def _check_names(function: str, names: list[str], binding: Binding) -> None:
    for name in names:
        if name not in binding.names and name != RESULT and not binding.takes_any_name:
            known = ", ".join(binding.names) or "none"
            raise ValueError(f"@agenttrace.tool: {function} has no parameter {name!r}; its parameters are: {known}")


def _wrap(function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    # A callable object is what its __call__ is.
    body: Any = function
    while isinstance(body, partial):
        body = cast("Any", body).func
    if not (inspect.isroutine(body) or hasattr(body, "__code__")):
        body = type(body).__call__
    wrapper: Any
    # A generator under `types.coroutine` is awaited.
    is_awaited = getattr(getattr(body, "__code__", None), "co_flags", 0) & inspect.CO_ITERABLE_COROUTINE
    if is_awaited or inspect.iscoroutinefunction(body):
        wrapper = _wrap_coroutine(function, kind)
    elif inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        wrapper = IterationFunction(function, body, kind)
    elif isinstance(kind, Tool) and kind.is_plain:
        wrapper = _wrap_plain_tool(function, kind)
    else:
        wrapper = _wrap_function(function, kind)
    if inspect.isroutine(function):
        return update_wrapper(wrapper, function)
    # The attributes of a partial or a callable object are its own state, no part of a function.
    wrapper.__name__ = wrapper.__qualname__ = _name_of(function)
    return update_wrapper(wrapper, function, updated=())


def _wrap_function(function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recording = kind.start(args, kwargs)
        if recording is None:
            return function(*args, **kwargs)
        token = attach(recording.context)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            detach(token)
            recording.fail(error)
            raise
        detach(token)
        kind.finish(recording, result)
        return result

    return wrapper


def _wrap_plain_tool(function: Callable[..., Any], tool: Tool) -> Callable[..., Any]:
    """Does what `_wrap_function` does, in variables in place of a `Recording`.

    It is the commonest call, and that is a quarter of what decorating adds to the SDK's own work.
    """
    name, known, bind = tool.span_name, tool.attributes, tool.bind

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        within = get_current()
        span = entered = redact = None
        try:
            tracer = current_tracer()
            if tracer is not None:
                span = tracer.start_span(name, within, INTERNAL)
                redact = current_redaction()
                entered = set_span_in_context(span, within)
        except Exception as error:
            report("start a span", error)
        if span is None or entered is None:
            return function(*args, **kwargs)
        attributes: Attributes = {}
        is_recording = span.is_recording()
        if is_recording:
            try:
                attributes = known.copy()
                if within:
                    attributes.update(inherited_attributes(within))
                text = encode_flat(bind(args, kwargs), redact)
                if text is None:
                    attributes.update(tool.describe(args, kwargs, redact))
                else:
                    attributes[TOOL_ARGUMENTS] = text
            except BaseException as error:
                Recording(span, within, attributes).report("record arguments", error)
        token = attach(entered)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            detach(token)
            Recording(span, within, attributes).fail(error)
            raise
        detach(token)
        try:
            if is_recording:
                text = encode_flat(result, redact)
                if text is None:
                    attributes.update(tool.observe(result, redact))
                else:
                    attributes[TOOL_RESULT] = text
        except BaseException as error:
            Recording(span, within, attributes).report("record a result", error)
        try:
            span.set_attributes(attributes)
            span.end()
        except Exception as error:
            report("end a span", error)
        return result

    return wrapper


def _wrap_coroutine(function: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        recording = kind.start(args, kwargs)
        if recording is None:
            return await function(*args, **kwargs)
        place = Place(recording.context)
        try:
            result = await function(*args, **kwargs)
        except BaseException as error:
            place.leave()
            recording.fail(error)
            raise
        place.leave()
        kind.finish(recording, result)
        return result

    return wrapper
