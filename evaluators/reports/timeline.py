"""Faults, each with runs that have it, told step by step, for a report."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from agenttrace import show
from agenttrace.evaluators.results import RANK, Evaluation, Finding

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# A report has to open in a browser: peers' reports of 80 MB do not. The worst runs come first, and the cut is said.
MAX_FAULTS = 200
MAX_RUNS = 60
_MAX_RUNS_PER_FAULT = 3
_MAX_LISTED = 30
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
    """One step: what was done, how it went, and what is wrong with it; `gap` steps before it are left out.

    `bar` is when it began and how long it took, in percent of the run; None where that is not known.
    """

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
    bar: tuple[float, float] | None


class Told(NamedTuple):
    """One run with its findings, worst first; `more_findings` are left out, and `more_steps` after the last entry.

    Several entries in one row are calls that ran side by side.
    """

    anchor: str
    run_id: str
    worst: str
    name: str
    facts: Sequence[str]
    user_input: str | None
    final_response: str | None
    findings: Sequence[tuple[Finding, str | None]]
    more_findings: int
    rows: Sequence[Sequence[Entry]]
    more_steps: int


class Occurrence(NamedTuple):
    """A run with a fault that is not told here; `anchor` leads to where it is told, if it is."""

    run_id: str
    anchor: str | None
    message: str


class Fault(NamedTuple):
    """One fault: all findings of one fingerprint. Some of its runs are told, `more` neither told nor listed."""

    anchor: str
    severity: str
    state: str | None
    rule: str
    tool: str | None
    place: str
    findings: int
    runs: int
    message: str
    told: Sequence[Told]
    listed: Sequence[Occurrence]
    more: int


class Story(NamedTuple):
    """The faults, worst first; `left_out` further ones are not told."""

    faults: Sequence[Fault]
    left_out: int

    @property
    def severities(self) -> Mapping[str, int]:
        """How many of them have each severity, worst first."""
        return Counter(fault.severity for fault in self.faults)

    @property
    def states(self) -> Mapping[str, int]:
        """How many of them have each state, where nights are compared."""
        return Counter(fault.state for fault in self.faults if fault.state)


def tell(evaluation: Evaluation, connection: "DuckDBPyConnection") -> Story:
    """Reads the runs of the worst faults; each run is told once, with the first of its faults."""
    by_fault: dict[str, list[Finding]] = {}
    by_run: dict[str, list[Finding]] = {}
    for finding in evaluation.findings:
        by_fault.setdefault(finding.fingerprint, []).append(finding)
        by_run.setdefault(finding.trajectory_id or "", []).append(finding)
    ranked = sorted(by_fault.values(), key=_weight)
    faults = ranked[:MAX_FAULTS]
    chosen = _choose(faults, by_run)
    first = [findings[0].trajectory_id for findings in faults]
    runs = [run for told in chosen for run in told]
    heads = {row["trajectory_id"]: row for row in show.rows(connection, sql("report_runs.sql"), {"runs": runs + first})}
    faulty = [f"{run} {span_id}" for run in runs for span_id in _span_ids(by_run[run])]
    steps: dict[str, list[show.Row]] = {}
    for step in show.rows(connection, sql("report_steps.sql"), {"runs": runs, "faulty": faulty, "limit": MAX_STEPS}):
        steps.setdefault(step["trajectory_id"], []).append(step)
    anchors = {run: f"run-{number}" for number, run in enumerate(runs, 1)}
    told = {run: _told(anchors[run], heads.get(run, {}), run, by_run[run], steps.get(run, [])) for run in runs}
    return Story(
        [
            _fault(f"fault-{number}", findings, heads, [told[run] for run in mine], anchors)
            for number, (findings, mine) in enumerate(zip(faults, chosen, strict=True), 1)
        ],
        len(ranked) - len(faults),
    )


def _choose(faults: Sequence[Sequence[Finding]], by_run: Mapping[str, Sequence[Finding]]) -> list[list[str]]:
    """Returns which runs are told with each fault: those with the most findings."""
    taken: set[str] = set()
    chosen: list[list[str]] = []
    for findings in faults:
        runs = {finding.trajectory_id for finding in findings if finding.trajectory_id is not None} - taken
        room = min(_MAX_RUNS_PER_FAULT, MAX_RUNS - len(taken))
        chosen.append(sorted(runs, key=lambda run: (_counts(by_run[run]), run))[:room])
        taken.update(chosen[-1])
    return chosen


def _fault(
    anchor: str,
    findings: Sequence[Finding],
    heads: Mapping[str, show.Row],
    told: Sequence[Told],
    anchors: Mapping[str, str],
) -> Fault:
    first = findings[0]
    head = heads.get(first.trajectory_id or "", {})
    shown = {run.run_id for run in told}
    messages = {finding.trajectory_id: finding.message for finding in reversed(findings) if finding.trajectory_id}
    others = [run for run in messages if run not in shown]
    # Those that are told elsewhere first: there is more to see of them.
    others.sort(key=lambda run: (run not in anchors, run))
    return Fault(
        anchor=anchor,
        severity=first.severity,
        state=first.state,
        rule=f"{first.evaluator}/{first.kind}",
        tool=first.tool_name,
        place=", ".join(_place(head)),
        findings=len(findings),
        runs=len(messages),
        message=first.message,
        told=told,
        listed=[Occurrence(run, anchors.get(run), messages[run]) for run in others[:_MAX_LISTED]],
        more=len(others[_MAX_LISTED:]),
    )


def _place(head: show.Row) -> Iterator[str]:
    for label, column in (("agent", "agent_name"), ("task", "task_id"), ("service", "service_name")):
        if head.get(column) is not None:
            yield f"{label} {head[column]}"


def sql(name: str) -> str:
    """Returns one of the report's queries."""
    return files("agenttrace.evaluators.reports").joinpath(name).read_text(encoding="utf-8")


def _weight(findings: Sequence[Finding]) -> tuple[Any, ...]:
    """Worst first, of equal ones those that are news, then the commonest."""
    first = findings[0]
    news = ("new", "back").index(first.state) if first.state in ("new", "back") else 2
    return (*_counts([first]), news, -len(findings), first.evaluator, first.kind, first.fingerprint)


def _counts(findings: Iterable[Finding]) -> tuple[int, ...]:
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
        rows=list(_rows(head, anchors, findings, steps)),
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


def _rows(
    head: show.Row, anchors: dict[str, str], findings: list[Finding], steps: list[show.Row]
) -> Iterator[Sequence[Entry]]:
    """Puts calls that ran side by side into one row."""
    row: list[Entry] = []
    last: show.Row = {}
    end = 0.0
    for step, entry in _entries(head, anchors, findings, steps):
        if row and not (_is_beside(step, last) and not entry.gap and step["began_us"] < end):
            yield row
            row, end = [], 0.0
        row.append(entry)
        last = step
        if step["began_us"] is not None:
            end = max(end, step["began_us"] + 1000 * (step["duration_ms"] or 0))
    if row:
        yield row


def _is_beside(step: show.Row, last: show.Row) -> bool:
    """Tells whether two calls of tools may be parallel: asked for together, or made by the same caller."""
    if step["kind"] != "tool" or last["kind"] != "tool" or step["began_us"] is None:
        return False
    place = "parent_span_id" if step["turn_span_id"] is None else "turn_span_id"
    return step[place] is not None and step[place] == last[place]


def _entries(
    head: show.Row, anchors: dict[str, str], findings: list[Finding], steps: list[show.Row]
) -> Iterator[tuple[show.Row, Entry]]:
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
        yield (
            step,
            Entry(
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
                bar=_bar(head, step),
            ),
        )
        before = step["place"]


def _bar(head: show.Row, step: show.Row) -> tuple[float, float] | None:
    if not head or not head["duration_ms"] or None in (head["began_us"], step["began_us"], step["duration_ms"]):
        return None
    whole_us = head["duration_ms"] * 1000
    begin = min(max((step["began_us"] - head["began_us"]) / whole_us, 0.0), 1.0)
    return round(100 * begin, 2), round(100 * min(step["duration_ms"] * 1000 / whole_us, 1.0 - begin), 2)


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
