"""`agenttrace doctor`: says what is wrong with a set-up, and what to do about it."""

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agenttrace.completeness import (
    HOW_TO_RECORD,
    Fact,
    Line,
    age,
    completeness,
    facts,
    nothing_recorded,
    old_spool,
    set_aside,
)
from agenttrace.config import Settings, load
from agenttrace.errors import AgentTraceError, ConfigError

if TYPE_CHECKING:
    from agenttrace.collectors.counts import Counts
    from agenttrace.compact import Totals

OTLP_HTTP_PORT = 4318
_PROBE_S = 0.3
_LEAST_ATTRIBUTES = 128


def examine(db: Path | None, config: Path | None, *, port: int = OTLP_HTTP_PORT) -> Iterator[Line]:
    """Looks at configuration, environment, receiver, spool and store.

    Args:
        db: What --db said; None looks where every command does.
        config: What --config said.
        port: Where a receiver for OTLP over HTTP would listen.
    """
    yield Line(
        "ok", f"agenttrace {version('agenttrace-otel')}, duckdb {version('duckdb')}, Python {sys.version.split()[0]}"
    )
    settings, line = _configuration(config)
    yield line
    yield from _environment(os.environ)
    path, origin = _place(db)
    yield from _receiver(path, port)
    yield from _store(path, origin, settings)


def _configuration(config: Path | None) -> tuple[Settings | None, Line]:
    try:
        settings = load(config)
    except ConfigError as error:
        return None, Line("fail", str(error), "correct the file, or name another one with --config")
    if settings.source is None:
        return settings, Line("ok", "no configuration file; the defaults apply")
    return settings, Line("ok", f"configuration: {settings.source}")


def _environment(variables: Mapping[str, str]) -> Iterator[Line]:
    if variables.get("OTEL_SDK_DISABLED", "").lower() == "true":
        yield Line("fail", "OTEL_SDK_DISABLED is true: the OpenTelemetry SDK records nothing", "unset it")
    sampler = variables.get("OTEL_TRACES_SAMPLER", "parentbased_always_on")
    if sampler not in ("always_on", "parentbased_always_on"):
        yield Line(
            "warn",
            f"OTEL_TRACES_SAMPLER is {sampler}: traces may be missing or have holes; a verdict needs all of a trace",
            "set it to parentbased_always_on where agents run",
        )
    for name in ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"):
        if variables.get(name):
            yield Line(
                "warn",
                f"{name} is {variables[name]}: longer arguments and messages arrive cut, and are no JSON any more",
                "unset it; agenttrace limits values itself, and keeps them valid",
            )
    for name in ("OTEL_ATTRIBUTE_COUNT_LIMIT", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"):
        value = variables.get(name, "")
        if value.isdecimal() and int(value) < _LEAST_ATTRIBUTES:
            yield Line("warn", f"{name} is {value}: further attributes of a span are dropped", "unset it")
    if variables.get("AGENTTRACE_REDACT", "").lower() == "off":
        yield Line("note", "AGENTTRACE_REDACT is off: secrets and personal data are stored as they are")


def _place(db: Path | None) -> tuple[Path, str]:
    from agenttrace.store import default_db

    origin = "--db" if db else "AGENTTRACE_DB" if os.environ.get("AGENTTRACE_DB") else "the current folder"
    return default_db(db), origin


def _receiver(path: Path, port: int) -> Iterator[Line]:
    from agenttrace.collectors.counts import read_counts

    counts = read_counts(path)
    urls = [] if counts is None or counts.stopped else counts.urls
    address, port = ("127.0.0.1", port) if not urls else _address(urls[0])
    try:
        with socket.create_connection((address, port), timeout=_PROBE_S):
            yield Line("ok", f"something listens on {address}:{port} (OTLP over HTTP)")
    except OSError:
        yield Line(
            "note",
            f"nothing listens on {address}:{port}; only agents that send OTLP need that",
            "agenttrace collect starts a receiver",
        )
    if counts is not None:
        yield from _received(counts)


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    host = parts.hostname or "127.0.0.1"
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), parts.port or OTLP_HTTP_PORT  # noqa: S104


def _received(counts: "Counts") -> Iterator[Line]:
    begun = age(max(0.0, time.time() - counts.started_at))
    yield Line(
        "ok",
        f"the last receiver, begun {begun} ago, took {counts.spans:,} spans and {counts.logs:,} log records"
        + (f"; {counts.logs_without_span:,} more belong to no span and were not kept" * bool(counts.logs_without_span)),
    )
    if counts.rejected_spans or counts.rejected_logs:
        yield Line(
            "warn",
            f"it skipped {counts.rejected_spans:,} spans and {counts.rejected_logs:,} log records: no valid OTLP",
            "its log names the first of them; the sender is at fault",
        )
    for reason, count in counts.refused.most_common():
        yield Line("warn", f"it refused {count:,} requests with {reason}", _REFUSALS.get(reason))
    for leniency, count in counts.leniencies.most_common():
        yield Line("note", f"it took {count:,} times what OTLP forbids: {leniency}")


_NOT_OTLP = "the requests are no valid OTLP, or were torn on the way: look at what sends them"
_UNAUTHORIZED = "the sender's bearer token is missing or wrong: OTEL_EXPORTER_OTLP_HEADERS='authorization=Bearer%20...'"
_PUSHED_BACK = "nothing to do where it was a moment: senders try again. Else the disk or the spool is full, or slow"
_OURS = "the receiver's log says more; please report it"
_REFUSALS = {
    "400": _NOT_OTLP,
    "401": _UNAUTHORIZED,
    "403": "web pages have sent them; where they may, start the receiver with a token",
    "404": "the sender uses another path; traces go to /v1/traces",
    "405": "something other than an exporter asks there; spans come by POST",
    "408": "the sender or the network between is too slow: smaller batches",
    "413": "requests are too large: smaller batches, or --max-body and --max-inflated",
    "415": "the sender's content type is neither application/x-protobuf nor application/json; gRPC does not go here",
    "503": _PUSHED_BACK,
    "CANCELLED": "the message was larger than --max-inflated, took too long, or the sender left: smaller batches",
    "INVALID_ARGUMENT": _NOT_OTLP,
    "UNAUTHENTICATED": _UNAUTHORIZED,
    "UNAVAILABLE": _PUSHED_BACK,
    "internal error": _OURS,
}


def _lost(folder: Path) -> Iterator[Line]:
    from agenttrace.losses import LOSSES_FILE, read_losses

    if (lost := read_losses(folder)) is not None:
        causes = ", ".join(f"{cause} ({count:,})" for cause, count in lost.spans.most_common())
        last = age(max(0.0, time.time() - lost.last_at))
        cure = _LOSSES.get(lost.spans.most_common(1)[0][0], "the log of the program says more")
        yield Line(
            "warn",
            f"programs could not record {lost.spans.total():,} spans, the last {last} ago: {causes}",
            f"{cure}; delete {folder / LOSSES_FILE} once that is settled",
        )


_LOSSES = {
    "SpoolFullError": "the spool was full: let a scheduler run agenttrace list, or keep agenttrace collect running",
    "ENOSPC": "the disk was full: make room",
    "EACCES": "let those programs write into the folder of the store",
    "EROFS": "put the store on a disk that can be written, with AGENTTRACE_DB",
    "queue_full": "spans ended faster than the disk took them: a faster disk, or spans='agent' in configure()",
    "already_shutdown": "spans ended after agenttrace.shutdown(): call it last",
    "not_convertible": "please report it with the log of the program",
}


def _store(path: Path, origin: str, settings: Settings | None) -> Iterator[Line]:
    from agenttrace.compact import read_totals
    from agenttrace.store import open_store

    yield from _spool(path)
    try:
        taken_in = [] if settings is None else list(_take_in(path, settings))
        with open_store(path) as connection:
            found, totals = facts(connection), read_totals(connection)
    except AgentTraceError as error:
        yield Line("fail", f"store (from {origin}): {error}", HOW_TO_RECORD if not path.exists() else None)
        return
    yield Line("ok", f"store: {path.resolve()} (from {origin}), {path.stat().st_size / 1e6:,.1f} MB")
    yield from taken_in
    if (line := set_aside(path)) is not None:
        yield line
    yield from _compaction(totals)
    yield from _contents(path, found)


def _take_in(path: Path, settings: Settings) -> Iterator[Line]:
    from agenttrace.store import refresh

    refreshed = refresh(path, settings=settings)
    if (old := old_spool(path, refreshed)) is not None:
        yield old
    elif refreshed.busy:
        yield Line(
            "warn",
            f"{refreshed.holder or 'another process'} held the store: {refreshed.pending} segments are not yet in it",
            "run the command again; a program that keeps the file open must let go of it",
        )
    elif refreshed.pending and not refreshed.problem:
        yield Line(
            "warn",
            f"{refreshed.pending} segments stay in the spool, the oldest for {age(refreshed.oldest_s)}",
            "this command's warnings say why: another release, another user, or too little memory",
        )
    if refreshed.problem:
        yield Line("warn", refreshed.problem, "run a command as a user who may write the file: the spool waits for it")


def _spool(path: Path) -> Iterator[Line]:
    from agenttrace.spool import CAP_BYTES, Spool, spool_folder

    folder = spool_folder(path)
    pending = Spool(folder).pending()
    if pending.segments:
        yield Line(
            "ok",
            f"spool: {pending.segments} segments were waiting ({pending.bytes / 1e6:,.1f} MB, the oldest "
            f"{age(pending.oldest_s)} old); they are taken in now unless a line below says otherwise",
        )
    if pending.bytes > CAP_BYTES * 0.8:
        yield Line(
            "warn",
            f"{folder} is nearly full: from {CAP_BYTES / 1e9:.1f} GB on new spans are refused",
            "run agenttrace list",
        )
    yield from _lost(folder)


def _compaction(totals: "Totals") -> Iterator[Line]:
    if totals.compacted_at:
        repeated = f" ({totals.duplicate_spans:,} more were delivered again)" if totals.duplicate_spans else ""
        last = f"the last {age(max(0.0, time.time() - totals.compacted_at))} ago, {age(totals.lag_s)} after arrival"
        yield Line("ok", f"taken in so far: {totals.spans:,} ended spans{repeated}; {last}")


def _contents(path: Path, found: Mapping[str, Fact]) -> Iterator[Line]:
    spans = found["spans"]
    if not spans.n:
        yield nothing_recorded(path)
        return
    yield Line("ok", f"spans: {spans.n:,}; traces: {spans.total:,}; the last one received {spans.detail} UTC")
    if found["not_rebuilt"].n:
        yield Line("warn", f"{found['not_rebuilt'].n:,} traces are not yet among the runs", "run agenttrace list")
    yield Line("ok" if found["runs"].n else "warn", f"runs of agents: {found['runs'].n:,}")
    yield from completeness(found)
    judged = found["evaluations"]
    yield (
        Line("ok", f"evaluations: {judged.n:,}; the last one at {judged.detail} UTC")
        if judged.n
        else Line("note", "nothing has been judged yet", "agenttrace evaluate")
    )
