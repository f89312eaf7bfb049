"""configure(): one call that brings the spans of this process to the store, or to an OTLP receiver."""

import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from re import Pattern
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from opentelemetry import trace

from agenttrace import lifecycle
from agenttrace.errors import ConfigError
from agenttrace.guard import guarded, warn_once
from agenttrace.places import default_db, real_path
from agenttrace.redact import configure_redaction

# The SDK costs more to import than all the rest: whoever only decorates must not pay for it.
if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits
    from opentelemetry.sdk.trace.export import SpanExporter

    from agenttrace.batch import SpanBatcher

__all__ = ["FlushResult", "configure", "flush", "shutdown"]

# A path may have "://" further on.
_URL = re.compile(r"[^/\\]*://")
_EXIT_S = 2.0
_COMPLETE_SAMPLERS = ("AlwaysOnSampler", "ParentBased{root:AlwaysOnSampler", "TraceIdRatioBased{1.0}")
# Indexed attributes of whole conversations go far beyond the SDK's 128; something must stop a loop, though.
_OWN_LIMIT = 10_000


class FlushResult(NamedTuple):
    """What became of the spans of this process since `configure`.

    `waiting` counts what is not in the store yet: spans of this process that queue or are on their way, and rows in the
    spool, whoever wrote them.
    """

    written: int
    waiting: int
    dropped: int


class _Destination(NamedTuple):
    kind: str
    address: str
    provider: int


_batchers: "dict[_Destination, SpanBatcher]" = {}
_retired: "dict[_Destination, SpanBatcher]" = {}
_changing = threading.RLock()


def configure(
    target: str | Path | None = None,
    *,
    spans: Literal["all", "agent"] = "all",
    flush_interval: float = 1.0,
    threads: bool = True,
    service_name: str | None = None,
    redact_patterns: Iterable[str | Pattern[str]] = (),
    redact: Callable[[str], str] | None = None,
) -> None:
    """Brings the spans of this process to a store or a receiver.

    Call it once, after a TracerProvider of your own is set: spans go there, and from there to the target as well; else
    one is made here. Called again with the same target it changes redaction alone; another target gets the spans too.

    Args:
        target: A path; `http://host:4318` or `grpc://host:4317` for OTLP, with TLS `https://` or `grpcs://`; None:
            AGENTTRACE_DB, else agenttrace.duckdb in the current folder.
        spans: "all" keeps every span of the program; "agent" those of a known convention and their ancestors. Only for
            a path.
        flush_interval: Seconds of ended spans that a killed process may lose.
        threads: Hand the current span to threads and thread pools.
        service_name: Resource attribute service.name of a TracerProvider that is made here.
        redact_patterns: Regular expressions of what to hide besides the defaults.
        redact: Called with each text after the patterns; returns what may be recorded.

    Raises:
        ConfigError: The target is of no known kind, or the interval is none.
    """
    kind, address = target_of(target)
    if not 0 < flush_interval <= threading.TIMEOUT_MAX:
        raise ConfigError(f"configure: flush_interval is {flush_interval!r}; expected seconds, such as 1.0.")
    patterns = list(redact_patterns)
    if patterns or redact is not None:
        configure_redaction(patterns, function=redact)
    with _changing:
        try:
            import_module("agenttrace.batch")
            provider = _provider(service_name)
        except ValueError as err:
            # The SDK reads its limits when it is loaded and when a provider is made.
            raise ConfigError(f"configure: an OTEL_* variable is wrong: {err}. Correct it, or unset it.") from err
        if provider is not None:
            _attach(provider, _Destination(kind, address, id(provider)), spans, flush_interval)
    if threads:
        from agenttrace.threads import instrument_threads

        instrument_threads()
    lifecycle.install(_finish, _save)


def flush(timeout: float = 10.0) -> FlushResult:
    """Writes what has ended so far, and moves it into the store where nobody else holds the file.

    Args:
        timeout: Seconds to wait at most.
    """
    return _each(_flush, timeout)


def shutdown() -> FlushResult:
    """Flushes, and ends the recording that `configure` began; `configure` may begin it anew."""
    result = _each(lambda batcher, _left_s: batcher.shutdown(), _EXIT_S)
    with _changing:
        _retired.update(_batchers)
        _batchers.clear()
    return result


def flush_stores(timeout: float = 10.0) -> FlushResult:
    """Flushes what goes to stores, and waits for no backend; else as `flush`."""
    return _each(_flush, timeout, kind="store")


def _flush(batcher: "SpanBatcher", left_s: float) -> object:
    return batcher.force_flush(int(left_s * 1000))


def _each(action: "Callable[[SpanBatcher, float], object]", timeout_s: float, kind: str | None = None) -> FlushResult:
    deadline = time.monotonic() + timeout_s
    written = waiting = dropped = 0
    for batcher in [batcher for destination, batcher in list(_batchers.items()) if kind in (None, destination.kind)]:
        action(batcher, max(0.0, deadline - time.monotonic()))
        result = batcher.result()
        written, waiting, dropped = written + result.written, waiting + result.waiting, dropped + result.dropped
    return FlushResult(written, waiting, dropped)


def target_of(target: str | Path | None) -> tuple[str, str]:
    """Returns the kind of a target, store, http, grpc or grpcs, and its address.

    Raises:
        ConfigError: It is of no known kind.
    """
    text = str(target) if target is not None else ""
    if not _URL.match(text):
        # Not where a link leads by now: it may lead elsewhere later.
        path = default_db(target)
        with suppress(FileNotFoundError):
            path = path.absolute()
        if path.is_dir():
            raise ConfigError(f"{path}: is a folder; expected a file, such as agenttrace.duckdb in it.")
        return "store", str(path)
    with suppress(ValueError):  # A port that is no number, half an IPv6 address.
        url = urlsplit(text)
        port = url.port
        if url.scheme in ("http", "https") and url.hostname:
            return "http", text if url.path.strip("/") else f"{text.rstrip('/')}/v1/traces"
        if url.scheme in ("grpc", "grpcs") and url.hostname:
            return url.scheme, f"{url.hostname}:{port or 4317}"
    raise ConfigError(f"configure: target is {text!r}; expected a path, http://host:4318 or grpc://host:4317.")


def _provider(service_name: str | None) -> Any:
    """Returns the TracerProvider of the program, else a new one; None where the program's takes no processors."""
    current = trace.get_tracer_provider()
    if hasattr(current, "add_span_processor"):
        return current
    if not isinstance(current, trace.ProxyTracerProvider):
        warn_once(
            "provider",
            "configure: the program's TracerProvider, a %s, takes no span processor; nothing is recorded.",
            type(current).__qualname__,
        )
        return None
    from opentelemetry.sdk.trace import TracerProvider

    from agenttrace.ids import OwnIds

    provider = TracerProvider(resource=_resource(service_name), span_limits=_own_limits(), id_generator=OwnIds())
    trace.set_tracer_provider(provider)
    return provider


def _resource(service_name: str | None) -> "Resource":
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    attributes = {SERVICE_NAME: service_name} if service_name else {}
    try:
        return Resource.create(attributes)
    except (RuntimeError, OSError) as err:
        # The SDK looks for more in threads of its own, and there may be none left.
        warn_once("resource", "Spans say little of this process: %s.", err)
        return Resource(attributes)


def _own_limits() -> "SpanLimits":
    from opentelemetry.sdk.trace import SpanLimits

    def limit(variable: str) -> int | None:
        return None if variable in os.environ or "OTEL_ATTRIBUTE_COUNT_LIMIT" in os.environ else _OWN_LIMIT

    return SpanLimits(
        max_span_attributes=limit("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"),
        max_events=limit("OTEL_SPAN_EVENT_COUNT_LIMIT"),
        max_links=limit("OTEL_SPAN_LINK_COUNT_LIMIT"),
        max_event_attributes=limit("OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT"),
        max_link_attributes=limit("OTEL_LINK_ATTRIBUTE_COUNT_LIMIT"),
    )


def _attach(provider: Any, destination: _Destination, spans: Literal["all", "agent"], flush_interval: float) -> None:
    if _same(destination, _batchers) is not None:
        return
    from agenttrace.batch import SpanBatcher

    batcher = SpanBatcher(lambda: _exporter(destination, spans), flush_interval=flush_interval)
    if destination.kind == "store":
        # Start records and outcomes look for it before the first span ends.
        batcher.exporter()
    if (before := _same(destination, _retired)) is not None:
        _retired.pop(before).is_replaced = True
    provider.add_span_processor(batcher)
    _batchers[destination] = batcher
    _warn_of_gaps(provider)


def _same(wanted: _Destination, among: Iterable[_Destination]) -> _Destination | None:
    """Finds the same place by the same or, as through a link, by another name."""
    if wanted.kind != "store":
        return next((other for other in among if other == wanted), None)
    real = real_path(Path(wanted.address))
    for other in among:
        is_here = other.address == wanted.address or real_path(Path(other.address)) == real
        if is_here and other.kind == "store" and other.provider == wanted.provider:
            return other
    return None


def _exporter(destination: _Destination, spans: Literal["all", "agent"]) -> "SpanExporter":
    if destination.kind == "store":
        from agenttrace.exporter import DuckDBSpanExporter

        return DuckDBSpanExporter(destination.address, spans=spans)
    if destination.kind == "http":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=destination.address)
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter

    return GrpcSpanExporter(endpoint=destination.address, insecure=destination.kind == "grpc")


@guarded("look at the sampler and limits")
def _warn_of_gaps(provider: Any) -> None:
    """Warns of what keeps verdicts from seeing whole traces."""
    sampler = getattr(provider, "sampler", None)
    if sampler is not None and not str(sampler.get_description()).startswith(_COMPLETE_SAMPLERS):
        warn_once("sampler", "The sampler %s drops spans; verdicts need whole traces.", sampler.get_description())
    limits = getattr(provider, "_span_limits", None)
    length = getattr(limits, "max_span_attribute_length", None)
    if length is not None:
        warn_once("length", "Span limits cut attributes at %d characters; verdicts need them whole.", length)


def _finish() -> None:
    """Bounds all that happens at exit; the provider's own shutdown comes after this, and shares the time."""
    deadline = time.monotonic() + _EXIT_S
    for batcher in list(_batchers.values()):
        batcher.deadline = deadline
        batcher.drain(_EXIT_S)


def _save() -> None:
    deadline = time.monotonic() + _EXIT_S
    for batcher in list(_batchers.values()):
        batcher.drain(deadline - time.monotonic())
