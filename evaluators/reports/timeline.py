"""Runs with findings, told step by step, for a report."""

import json
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from agenttrace import show
from agenttrace.evaluators.results import RANK, Evaluation, Finding

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# A report has to open in a browser: peers' reports of 80 MB do not. The worst runs come first, and the cut is said.
MAX_RUNS = 40
MAX_STEPS = 60
MAX_FINDINGS_PER_RUN = 20
_SHORT_TEXT = 160
_PREVIEW = 100


class Block(NamedTuple):
    """One text of a step; `missing` characters of it are left out."""

    label: str
    text: str
    missing: int = 0

    @property
    def is_prose(self) -> bool:
        """Whether it is somebody's words, not data."""
        return self.label in ("thought", "says")

    @property
    def preview(self) -> str:
        """How it begins, on one line."""
        return " ".join(self.text[:_PREVIEW].split()) + " ..."

    @property
    def is_short(self) -> bool:
        """Whether it fits a line, and needs no unfolding."""
        return len(self.text) <= _SHORT_TEXT and "\n" not in self.text and not self.missing


class Entry(NamedTuple):
    """One step: what was done, how it went, and what is wrong with it; `gap` steps before it are left out."""

    anchor: str
    kind: str
    place: str
    title: str
    status: str
    facts: Sequence[str]
    blocks: Sequence[Block]
    findings: Sequence[Finding]
    is_related: bool
    gap: int


class Told(NamedTuple):
    """One run with its findings, worst first; `more_findings` are left out, and `more_steps` after the last entry."""

    anchor: str
    run_id: str
    worst: str
    name: str
    facts: Sequence[str]
    user_input: str | None
    final_response: str | None
    findings: Sequence[tuple[Finding, str | None]]
    more_findings: int
    entries: Sequence[Entry]
    more_steps: int


class Story(NamedTuple):
    """The runs that are told; `left_out` further runs have findings, too, and `elsewhere` findings have no run."""

    runs: Sequence[Told]
    left_out: int
    elsewhere: Sequence[Finding]


def tell(evaluation: Evaluation, connection: "DuckDBPyConnection") -> Story:
    """Reads the runs with findings, those with the worst and the most first."""
    by_run: dict[str, list[Finding]] = {}
    for finding in evaluation.findings:
        if finding.trajectory_id is not None:
            by_run.setdefault(finding.trajectory_id, []).append(finding)
    ranked = sorted(by_run, key=lambda run: (_weight(by_run[run]), run))
    chosen = ranked[:MAX_RUNS]
    faulty = [f"{run} {span_id}" for run in chosen for span_id in _span_ids(by_run[run])]
    heads = {row["trajectory_id"]: row for row in show.rows(connection, sql("report_runs.sql"), {"runs": chosen})}
    steps: dict[str, list[show.Row]] = {}
    parameters = {"runs": chosen, "faulty": faulty, "limit": MAX_STEPS}
    for step in show.rows(connection, sql("report_steps.sql"), parameters):
        steps.setdefault(step["trajectory_id"], []).append(step)
    told = [
        _told(f"run-{number}", heads.get(run, {}), run, by_run[run], steps.get(run, []))
        for number, run in enumerate(chosen, 1)
    ]
    elsewhere = [finding for finding in evaluation.findings if finding.trajectory_id is None]
    return Story(told, len(ranked) - len(chosen), elsewhere[:MAX_FINDINGS_PER_RUN])


def sql(name: str) -> str:
    """Returns one of the report's queries."""
    return files("agenttrace.evaluators.reports").joinpath(name).read_text(encoding="utf-8")


def _weight(findings: Iterable[Finding]) -> tuple[int, ...]:
    # Negative counts, worst severity first: more is earlier.
    ranks = [RANK[finding.severity] for finding in findings]
    return tuple(-ranks.count(rank) for rank in (3, 2, 1))


def _span_ids(findings: Iterable[Finding]) -> set[str]:
    return {
        span_id
        for finding in findings
        for span_id in (finding.span_id, *finding.related_span_ids)
        if span_id is not None
    }


def _told(anchor: str, head: show.Row, run: str, findings: list[Finding], steps: list[show.Row]) -> Told:
    shown = findings[:MAX_FINDINGS_PER_RUN]
    anchors = {step["span_id"]: f"{anchor}-step-{step['place']}" for step in steps}
    return Told(
        anchor=anchor,
        run_id=run,
        worst=max((finding.severity for finding in findings), key=RANK.__getitem__),
        name=head.get("agent_name") or head.get("service_name") or "unnamed agent",
        facts=list(_run_facts(head)) if head else ["no longer in the store"],
        user_input=head.get("user_input"),
        final_response=head.get("final_response"),
        findings=[(finding, anchors.get(finding.span_id or "")) for finding in shown],
        more_findings=len(findings) - len(shown),
        entries=list(_entries(anchors, findings, steps)),
        more_steps=steps[-1]["steps"] - steps[-1]["place"] if steps else 0,
    )


def _run_facts(head: show.Row) -> Iterator[str]:
    yield f"{show.moment(head['start_time'])} UTC"
    if head["task_id"] is not None:
        yield f"task {head['task_id']}" + ("" if head["trial"] is None else f" #{head['trial']}")
    for label in ("session", "user", "tenant"):
        if head[f"{label}_id"] is not None:
            yield f"{label} {head[f'{label}_id']}"
    yield f"{head['tool_call_count']:,} tool calls"
    yield f"{head['model_call_count']:,} model calls"
    yield f"{show.tokens(head['total_tokens'])} tokens"
    yield show.cost(head["cost_usd"], head["unpriced_model_calls"])
    yield show.duration(head["duration_ms"])
    if not head["complete"]:
        yield "not ended"


def _entries(anchors: dict[str, str], findings: list[Finding], steps: list[show.Row]) -> Iterator[Entry]:
    at_fault: dict[str | None, list[Finding]] = {}
    for finding in findings[:MAX_FINDINGS_PER_RUN]:
        at_fault.setdefault(finding.span_id, []).append(finding)
    related = {span_id for finding in findings for span_id in finding.related_span_ids}
    before = 0
    for step in steps:
        blocks = list(_blocks(step))
        faults = at_fault.get(step["span_id"], [])
        if step["kind"] == "agent" and step["place"] == 1 and not blocks and not faults:
            # The run's own span, of which the head has told everything.
            before = 1
            continue
        yield Entry(
            anchor=anchors[step["span_id"]],
            kind=step["kind"],
            place="" if step["step_index"] is None else str(step["step_index"]),
            title=_title(step),
            status=step["status"],
            facts=list(_facts(step)),
            blocks=blocks,
            findings=faults,
            is_related=step["span_id"] in related,
            gap=step["place"] - before - 1,
        )
        before = step["place"]


def _title(step: show.Row) -> str:
    if step["kind"] == "tool":
        name = step["tool_name"] or step["name"] or "?"
        whole = step["arguments"] is None or step["arguments_length"] <= _SHORT_TEXT
        return show.call_text(name, step["arguments"]) if whole else f"{name}(...)"
    if step["kind"] == "model":
        return step["model"] or step["name"] or "?"
    return (step["agent_name"] if step["kind"] == "agent" else None) or step["name"] or "?"


def _facts(step: show.Row) -> Iterator[str]:
    if step["kind"] == "tool" and step["mutability"] is not None:
        yield step["mutability"].replace("_", " ")
    if step["kind"] == "tool" and step["effect"] == "unknown":
        yield "effect unknown"
    if step["origin"] == "message":
        yield "seen only in messages"
    if step["input_tokens"] is not None or step["output_tokens"] is not None:
        yield f"{show.tokens(step['input_tokens'])} in, {show.tokens(step['output_tokens'])} out tokens"
    if step["cost_usd"] is not None:
        yield show.cost(step["cost_usd"], 0)
    if step["duration_ms"] is not None:
        yield show.duration(step["duration_ms"])


def _blocks(step: show.Row) -> Iterator[Block]:
    if step["thought"]:
        yield _block("thought", step, "thought")
    if text := _said(step["output_messages"]):
        yield Block("says", text[:2000], max(0, len(text) - 2000))
    for call in show.requested(step["requested_tool_calls"]):
        yield Block("asks for", call[:1000], max(0, len(call) - 1000))
    if step["arguments"] is not None and step["arguments_length"] > _SHORT_TEXT:
        yield _block("arguments", step, "arguments")
    if step["observation"] is not None:
        yield _block("observation", step, "observation")
    if step["error_message"] and step["error_source"] != "result":
        yield _block(step["error_type"] or "error", step, "error_message")


def _block(label: str, step: show.Row, column: str) -> Block:
    text: str = step[column]
    missing: int = step[f"{column}_length"] - len(text)
    return Block(label, text if missing else _readable(text), missing)


def _readable(text: str) -> str:
    """JSON on several lines, a JSON text without its quotes; anything else as it is."""
    try:
        value: Any = json.loads(text)
        if isinstance(value, str):
            return value
        long = isinstance(value, (dict, list)) and len(text) > _SHORT_TEXT
        return json.dumps(value, indent=2, ensure_ascii=False) if long else text
    except (ValueError, RecursionError):
        return text


def _said(messages: str | None) -> str:
    try:
        parts = [part for message in json.loads(messages or "[]") for part in message["parts"]]
        return "\n".join(part["content"] for part in parts if part["type"] == "text")
    except (ValueError, RecursionError, TypeError, KeyError):
        return ""
