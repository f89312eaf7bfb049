"""What a recording lacks, and which verdicts that costs; why a store has nothing to show."""

import os
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from agenttrace.store import Refreshed

# Below this share a gap is the odd call without arguments; above it, something is not switched on.
_TOLERATED = 0.05

# Commands hold a store for seconds, a receiver tries again every few: only a program that keeps it open takes longer.
_OLD_SPOOL_S = 300.0
_AGES = ((172_800, 86_400, "days"), (7_200, 3_600, "h"), (120, 60, "min"))

HOW_TO_RECORD = (
    "call agenttrace.configure() in the agent's program before it runs, or send OTLP to `agenttrace collect`, "
    "or read a file with `agenttrace import`"
)

State = Literal["ok", "note", "warn", "fail"]


class Line(NamedTuple):
    """One thing looked at: `fail` stops the set-up from working, `warn` costs verdicts, `note` is worth knowing."""

    state: State
    fact: str
    advice: str | None = None


class Fact(NamedTuple):
    """One row of doctor.sql: `n` of `total` are concerned; `detail` names them."""

    n: int
    total: int
    detail: str | None


def facts(connection: "DuckDBPyConnection") -> dict[str, Fact]:
    """Returns what the store says about the set-up that filled it, by name; doctor.sql says what each one counts."""
    rows = connection.execute(files("agenttrace").joinpath("doctor.sql").read_text(encoding="utf-8")).fetchall()
    return {name: Fact(n, total, detail) for name, n, total, detail in rows}


def age(seconds: float) -> str:
    """Returns a length of time for people: 119 s, 119 min, 47 h, 2 days."""
    for least, unit, name in _AGES:
        if seconds >= least:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s"


def is_old(refreshed: "Refreshed") -> bool:
    """Tells whether what could not be brought into the store has waited for longer than is usual."""
    return refreshed.pending > 0 and refreshed.oldest_s > _OLD_SPOOL_S


def left_out(path: Path, refreshed: "Refreshed") -> str | None:
    """Returns what an answer lacks, because it could not be brought into the store; None: nothing."""
    holder = f"{refreshed.holder or 'another process'} holds the file"
    if refreshed.not_rebuilt and not refreshed.busy:
        came = f"{refreshed.not_rebuilt:,} traces that came in meanwhile"
        return f"{path}: not in this answer: {came}; run the command again."
    if not refreshed.pending:
        return f"{path}: {holder}; what arrived last may be missing in this answer." if refreshed.busy else None
    way_out = "end it, or have it close the file" if is_old(refreshed) else "run the command again"
    reason = f", because {holder}; {way_out}" if refreshed.busy else ""
    return (
        f"{path}: not in this answer: {refreshed.pending} segments of the spool, the oldest "
        f"{age(refreshed.oldest_s)} old{reason}."
    )


def old_spool(path: Path, refreshed: "Refreshed") -> Line | None:
    """Returns what is to be said of a spool that grows old; None: it does not."""
    if not is_old(refreshed):
        return None
    cause = f", because {refreshed.holder or 'another process'} holds the file" if refreshed.busy else ""
    fact = f"{path}: {refreshed.pending} segments wait to come into the store, the oldest for {age(refreshed.oldest_s)}"
    way_out = "end it, or have it close the file" if refreshed.busy else "warnings in the log say why"
    return Line("warn", f"{fact}{cause}", f"{way_out}; nothing is lost while the spool has room")


def set_aside(path: Path) -> Line | None:
    """Returns what a store lacks because its segments are set aside; None: none is."""
    from agenttrace.spool import Spool, spool_folder

    spool = Spool(spool_folder(path))
    if not (bad := spool.set_aside_paths()):
        return None
    return Line(
        "warn",
        f"{len(bad)} segments that could not be read are set aside, {spool.set_aside_bytes():,} bytes: {bad[0]}",
        "what they hold is in no answer. Report them, or delete them; the next release tries them again",
    )


def nothing_recorded(path: Path) -> Line:
    """Returns why a store has nothing to show, as far as can be told from outside of the agent's program."""
    from agenttrace.nearby import nearby_stores

    others = [os.path.relpath(other) for other in nearby_stores(path) if other.resolve() != path.resolve()]
    elsewhere = f"\nAnother store is near: {', '.join(others[:5])}; name it with --db." if others else ""
    return Line("warn", f"{path}: no spans have arrived", f"{HOW_TO_RECORD}.{elsewhere}")


def nothing_to_judge(path: Path) -> str:
    """Returns why a command found no run in a store."""
    from agenttrace.store import open_store

    with open_store(path) as connection:
        found = facts(connection)
    if not found["spans"].n:
        line = nothing_recorded(path)
        return f"{line.fact}.\nTo record: {line.advice}"
    if not found["runs"].n:
        spans = found["spans"].n
        return f"{path}: {spans:,} spans, but no run of an agent among them. agenttrace doctor says more."
    runs, unended = found["runs"].n, found["open_runs"].n
    reasons = [f"{unended:,} have not ended (--include-open judges them too)"] if unended else []
    if unended < runs:
        reasons.append(f"{'the others' if unended else 'all'} lie outside of --since and --until")
    return f"{path}: none of {runs:,} runs is to be judged: {', '.join(reasons)}."


def id_conflicts(count: int) -> Line | None:
    """Returns what is to be said of spans with the ids of other spans; None: there are none."""
    if not count:
        return None
    return Line(
        "warn",
        f"{count:,} spans have the ids of other spans: they are in the table spans, but in no run",
        "where a program seeds `random`, the SDK's ids repeat: let agenttrace.configure() make the TracerProvider, or "
        "give yours id_generator=agenttrace.ids.OwnIds()",
    )


def too_large(count: int) -> Line | None:
    """Returns what is to be said of traces that do not fit into memory; None: all do."""
    if not count:
        return None
    return Line(
        "warn",
        f"{count:,} traces do not fit into memory: they are in no run, or without the attributes of long spans",
        "calls without arguments or results are not evaluable; have the SDK cut values, with "
        "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
    )


def lasting(path: Path, refreshed: "Refreshed") -> Iterator[Line]:
    """Returns what every answer from a store lacks until somebody sees to it."""
    conflicts, large = (refreshed.totals.id_conflicts, refreshed.totals.too_large) if refreshed.totals else (0, 0)
    for line in (set_aside(path), id_conflicts(conflicts), too_large(large)):
        if line is not None:
            yield line._replace(fact=f"{path}: {line.fact}")


def of_store(connection: "DuckDBPyConnection") -> Iterator[Line]:
    """Returns what a report on a store has to say of what it lacks."""
    row = connection.execute("SELECT path FROM duckdb_databases() WHERE database_name = current_database()").fetchone()
    if row and row[0] and (line := set_aside(Path(row[0]))) is not None:
        yield line
    yield from completeness(facts(connection))


def completeness(found: Mapping[str, Fact]) -> Iterator[Line]:
    """Returns what the recording lacks, and which verdicts that costs."""
    for name, look in _GAPS.items():
        fact = found[name]
        if fact.n:
            yield look(fact)
    for line in (id_conflicts(found["id_conflicts"].n), too_large(found["too_large"].n)):
        if line is not None:
            yield line


def _gap(text: str, advice: str) -> Callable[[Fact], Line]:
    def look(fact: Fact) -> Line:
        state: State = "warn" if fact.n > _TOLERATED * fact.total else "note"
        return Line(state, text.format(n=f"{fact.n:,}", total=f"{fact.total:,}", detail=fact.detail), advice)

    return look


def _known(text: str, advice: str) -> Callable[[Fact], Line]:
    def look(fact: Fact) -> Line:
        return Line("note", text.format(n=f"{fact.n:,}", total=f"{fact.total:,}", detail=fact.detail), advice)

    return look


_CAPTURE = (
    "switch content on in the instrumentation (for many: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true); "
    "without it such calls are not evaluable"
)

_GAPS: dict[str, Callable[[Fact], Line]] = {
    "no_model_or_tool": _gap(
        "{n} of {total} runs hold neither a model call nor a tool call",
        "their spans follow no convention that agenttrace reads; the scopes below say who wrote them",
    ),
    "unmapped": _known(
        "{n} of {total} spans follow no known convention: {detail}",
        "nothing to do for spans of web servers and databases; an agent framework among them needs a mapping",
    ),
    "no_tool_spans": _gap(
        "only model calls are instrumented: in {n} of {total} runs the model asks for tools, but no tool has a span",
        "decorate the tools with @agenttrace.tool, or switch on the tool spans of the framework's instrumentation",
    ),
    "no_model_calls": _gap(
        "{n} of {total} runs with tool calls record no model call: what was offered and requested is unknown",
        "use agenttrace.model_call, or the instrumentation of the model's client",
    ),
    "no_arguments": _gap("{n} of {total} tool calls came without their arguments", _CAPTURE),
    "no_observations": _gap("{n} of {total} tool calls came without their result", _CAPTURE),
    "no_messages": _gap("{n} of {total} model calls came without their messages", _CAPTURE),
    "no_offered_tools": _gap(
        "{n} of {total} model calls do not say which tools were offered: unknown tools can't be told from known ones",
        "record tool definitions (agenttrace.model_call(tools=...), or the instrumentation's own switch)",
    ),
    "no_usage": _gap(
        "{n} of {total} model calls report no tokens: they have no cost, and budgets on both can't be judged",
        "record the usage; streaming clients often have to ask for it (stream_options include_usage)",
    ),
    "unpriced": _gap(
        "{n} of {total} model calls have no price: {detail}",
        "name your own price file in the configuration: [prices] path",
    ),
    "no_session": _gap(
        "{n} of {total} runs that change something have no session id: a repeat in another run goes unseen",
        "set session_id (agenttrace.run(session_id=...), gen_ai.conversation.id or session.id)",
    ),
    "open_runs": _known(
        "{n} of {total} runs have not ended yet; they are judged once they end, or 10 minutes after their last span",
        "a program that ends without agenttrace.shutdown() may lose its last second of spans",
    ),
    "unfinished_steps": _known(
        "{n} of {total} steps have started and never ended",
        "a killed process leaves them; what they did to the world is unknown",
    ),
    "dropped": _gap(
        "{n} attributes, events and links were dropped by the SDK before they got here",
        "raise its span limits (OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT, OTEL_SPAN_EVENT_COUNT_LIMIT)",
    ),
    "missing_parents": _known(
        "in {n} of {total} traces a span's parent is missing",
        "its program may still run, or sample, or send elsewhere",
    ),
}
