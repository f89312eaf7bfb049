"""Tools, agents and models: which attributes their calls start and end with."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from opentelemetry.context import Context, get_current

from agenttrace import messages, semconv
from agenttrace.binding import Arguments, Binding
from agenttrace.canonical import arguments_hash, kept_apart
from agenttrace.chunks import Chunks
from agenttrace.encode import Encoded, clean_text, encode, encode_flat
from agenttrace.recording import Attributes, Recording, inherited_attributes, open_run, record_start, start
from agenttrace.redact import HIDDEN, Redaction
from agenttrace.responses import Response, read_response, response_attributes
from agenttrace.semconv import TOOL_ARGUMENTS, TOOL_RESULT

RESULT = "return"
"""Stands for the result among the names of `ignore`; no parameter can be called that."""


class Kind(ABC):
    """One decorated function. Subclasses say what is recorded of its arguments and its result."""

    records_result = True

    def __init__(self, name: str, operation: str, binding: Binding) -> None:
        self.span_name = f"{operation} {name}"
        self.attributes: Attributes = {semconv.OPERATION: operation}
        self.bind = binding.bind

    def start(self, args: tuple[Any, ...], kwargs: dict[str, Any], within: Context | None = None) -> Recording | None:
        """Starts the span of a call; None where nothing is traced."""
        recording = start(self.span_name, self.attributes, within)
        if recording is not None and recording.is_recording:
            try:
                recording.span.set_attributes(self.describe(args, kwargs, recording.redact))
            except BaseException as error:
                recording.report("record arguments", error)
        return recording

    def chunks(self, recording: Recording | None) -> Chunks | None:
        """Returns what collects the chunks of a generator, or None where its result is not recorded."""
        if recording is None or not recording.is_recording or not self.records_result:
            return None
        return Chunks(recording.redact)

    def finish(self, recording: Recording, result: object) -> None:
        """Ends the span of a call that returned."""
        if recording.is_recording and self.records_result:
            try:
                recording.attributes.update(self.observe(result, recording.redact))
            except BaseException as error:
                recording.report("record a result", error)
        recording.end()

    def finish_iteration(self, recording: Recording, chunks: Chunks | None, error: BaseException | None) -> None:
        """Ends the span of a generator."""
        if chunks is not None:
            try:
                recording.attributes.update(self.observe_chunks(chunks, recording.redact))
            except BaseException as fault:
                recording.report("record chunks", fault)
        if error is None:
            recording.end()
        else:
            recording.fail(error)

    @abstractmethod
    def describe(self, args: tuple[Any, ...], kwargs: dict[str, Any], redact: Redaction | None) -> Attributes:
        """Returns the attributes of the arguments."""
        ...

    @abstractmethod
    def observe(self, result: object, redact: Redaction | None) -> Attributes:
        """Returns the attributes of a result."""
        ...

    @abstractmethod
    def observe_chunks(self, chunks: Chunks, redact: Redaction | None) -> Attributes:
        """Returns the attributes of what a generator yielded."""
        ...


class Tool(Kind):
    """A tool: its arguments and its result, less what its declaration leaves out."""

    def __init__(
        self,
        name: str,
        binding: Binding,
        *,
        mutates: bool | None = None,
        idempotency_key: str | None = None,
        capture: Collection[str] | bool | None = None,
        ignore: Iterable[str] = (),
    ) -> None:
        super().__init__(name, semconv.EXECUTE_TOOL, binding)
        self.attributes |= tool_attributes(name, mutates)
        self._mutates = mutates is True
        self._idempotency_key = idempotency_key
        self._captured = None if capture is None or isinstance(capture, bool) else frozenset(capture)
        self._ignored = frozenset(ignore)
        self._captures_arguments = capture is not False
        self._is_whole = capture in (None, True) and not self._ignored and idempotency_key is None
        self.records_result = capture is not False and RESULT not in self._ignored
        self.is_plain = self._is_whole and not self._mutates
        """Nothing is left out, and nothing has to be on disk before the call."""

    def start(self, args: tuple[Any, ...], kwargs: dict[str, Any], within: Context | None = None) -> Recording | None:
        """Starts the span; a call that mutates is on disk before it runs."""
        if self._mutates:
            recording = super().start(args, kwargs, within)
            if recording is not None:
                record_start(recording)
            return recording
        # No start record, so all attributes can wait for the end: setting them twice is a tenth of a call.
        if within is None:
            within = get_current()
        recording = start(self.span_name, None, within)
        if recording is not None and recording.is_recording:
            try:
                attributes = recording.attributes = self.attributes.copy()
                if within:
                    attributes.update(inherited_attributes(within))
                text = encode_flat(self.bind(args, kwargs), recording.redact) if self._is_whole else None
                if text is None:
                    attributes.update(self.describe(args, kwargs, recording.redact))
                else:
                    attributes[TOOL_ARGUMENTS] = text
            except BaseException as error:
                recording.report("record arguments", error)
        return recording

    def finish(self, recording: Recording, result: object) -> None:
        """Ends the span of a call that returned."""
        text = encode_flat(result, recording.redact) if recording.is_recording and self.records_result else None
        if text is None:
            super().finish(recording, result)
        else:
            recording.attributes[TOOL_RESULT] = text
            recording.end()

    def describe(self, args: tuple[Any, ...], kwargs: dict[str, Any], redact: Redaction | None) -> Attributes:
        """Returns the arguments under their names."""
        arguments = self.bind(args, kwargs)
        if not self._captures_arguments:
            hash_only = arguments_hash(arguments, without=self._idempotency_key)
            return {semconv.ARGUMENTS_HASH: hash_only} if hash_only is not None else {}
        hidden = self._hidden(arguments) if self._captured is not None or self._ignored else ()
        return argument_attributes(arguments, hidden, self._idempotency_key, redact)

    def _hidden(self, arguments: Arguments) -> Collection[str]:
        captured = self._captured
        return [name for name in arguments if name in self._ignored or (captured is not None and name not in captured)]

    def observe(self, result: object, redact: Redaction | None) -> Attributes:
        """Returns the observation."""
        return result_attributes(encode(result, redact=redact))

    def observe_chunks(self, chunks: Chunks, redact: Redaction | None) -> Attributes:
        """Returns the observation: text chunks joined, others a list."""
        return result_attributes(chunks.encoded())


class Agent(Kind):
    """An agent: the first text among its arguments is the user input, its result the final response."""

    def __init__(self, name: str, binding: Binding) -> None:
        super().__init__(name, semconv.INVOKE_AGENT, binding)
        self._name = name
        self.attributes |= {semconv.AGENT_NAME: name}
        self._defaults = binding.bind((), {})

    def start(self, args: tuple[Any, ...], kwargs: dict[str, Any], within: Context | None = None) -> Recording | None:
        """Starts the span; the outermost is on disk before the agent runs."""
        if within is None:
            within = get_current()
        recording = super().start(args, kwargs, within)
        if recording is not None:
            open_run(recording, {semconv.AGENT_NAME: self._name}, within=within)
        return recording

    def describe(self, args: tuple[Any, ...], kwargs: dict[str, Any], redact: Redaction | None) -> Attributes:
        """Returns the user input: the first text in the order of the parameters that the caller passed."""
        arguments = self.bind(args, kwargs)
        passed = (
            value
            for name, value in arguments.items()
            if issubclass(type(value), str) and (name in kwargs or value is not self._defaults.get(name))
        )
        text = next(passed, None)
        return {} if text is None else {semconv.USER_INPUT: clean_text(text, redact=redact)}

    def observe(self, result: object, redact: Redaction | None) -> Attributes:
        """Returns the final response; an agent that returns None gave none."""
        return {} if result is None else {semconv.FINAL_RESPONSE: clean_text(result, redact=redact)}

    def observe_chunks(self, chunks: Chunks, redact: Redaction | None) -> Attributes:
        """Returns the final response: text chunks joined, others as JSON."""
        if not chunks.count:
            return {}
        text = chunks.text
        return {semconv.FINAL_RESPONSE: chunks.encoded().text} if text is None else self.observe(text, redact)


class Model(Kind):
    """A model call: messages and tools by the usual parameter names, answer and usage from what was returned."""

    def __init__(self, name: str, binding: Binding, *, model: str | None, provider: str | None) -> None:
        super().__init__(model or name, semconv.CHAT, binding)
        self._model = model
        if provider is not None:
            self.attributes[semconv.PROVIDER] = provider

    def describe(self, args: tuple[Any, ...], kwargs: dict[str, Any], redact: Redaction | None) -> Attributes:
        """Returns model, messages and offered tools."""
        arguments = self.bind(args, kwargs)
        model = self._model or arguments.get("model")
        attributes: Attributes = {semconv.REQUEST_MODEL: model} if type(model) is str else {}
        given = _first_of(arguments, messages.MESSAGE_PARAMETERS)
        if given is None:
            given = next(
                (arguments[name] for name in arguments if name != "model" and type(arguments[name]) in (str, list)),
                None,
            )
        system = _first_of(arguments, messages.SYSTEM_PARAMETERS)
        tools = _first_of(arguments, messages.TOOL_PARAMETERS)
        return attributes | messages.request_attributes(given, tools, system=system, redact=redact)

    def observe(self, result: object, redact: Redaction | None) -> Attributes:
        """Returns answer and usage."""
        return response_attributes(read_response(result, redact), redact)

    def observe_chunks(self, chunks: Chunks, redact: Redaction | None) -> Attributes:
        """Returns the answer: text chunks joined, others as JSON."""
        text = chunks.encoded().text if chunks.text is None else chunks.text
        response = Response(output=text, time_to_first_chunk_s=chunks.time_to_first_s)
        return response_attributes(response, redact)


def _first_of(arguments: Arguments, names: Iterable[str]) -> object:
    return next((arguments[name] for name in names if arguments.get(name) is not None), None)


def tool_attributes(name: str, mutates: bool | None) -> Attributes:
    """Returns what is known of a tool before its arguments are."""
    attributes: Attributes = {semconv.TOOL_NAME: name, semconv.TOOL_TYPE: "function"}
    if mutates is not None:
        attributes[semconv.MUTATES] = mutates
    return attributes


def argument_attributes(
    arguments: Mapping[str, object], hidden: Collection[str], idempotency_key: str | None, redact: Redaction | None
) -> Attributes:
    """Returns the arguments as JSON, and a hash of the originals where something was hidden or cut.

    Args:
        arguments: The arguments by name.
        hidden: Names of arguments whose values are not shown.
        idempotency_key: Name of the argument that holds the idempotency key.
        redact: Hides secrets.
    """
    shown = {name: HIDDEN if name in hidden else value for name, value in arguments.items()} if hidden else arguments
    encoded = encode(shown, redact=redact)
    attributes: Attributes = {TOOL_ARGUMENTS: encoded.text}
    if encoded.cut:
        attributes[semconv.ARGUMENTS_BYTES] = encoded.original_bytes
    if encoded.cut or encoded.redacted or hidden:
        hashed = arguments_hash(arguments, without=idempotency_key)
        if hashed is not None:
            attributes[semconv.ARGUMENTS_HASH] = hashed
    key = arguments.get(idempotency_key) if idempotency_key is not None else None
    if key is not None:
        attributes[semconv.IDEMPOTENCY_KEY] = kept_apart(key, redact)
    return attributes


def result_attributes(encoded: Encoded) -> Attributes:
    """Returns the attributes of an observation."""
    attributes: Attributes = {TOOL_RESULT: encoded.text}
    if encoded.cut:
        attributes[semconv.RESULT_BYTES] = encoded.original_bytes
    return attributes
