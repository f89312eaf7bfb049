"""`agenttrace list` and `agenttrace show`: runs as a table, one run as a tree with its findings."""

import json
from collections.abc import Iterator
from datetime import datetime
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from agenttrace import markdown, terminal
from agenttrace.errors import UsageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Row = dict[str, Any]

# A run of ten thousand steps is read with `agenttrace sql`, not on a screen.
MAX_STEPS = 500
# Off a terminal nothing needs to fit; a step still stays one line that can be read.
_LINE_WIDTH = 200
# What a user asked, an answer and a message go over several lines.
_TEXT_WIDTH = 400
_BLOCK_WIDTH = 120
_DEEPEST = 12
_ID_LENGTH = 12


def rows(connection: "DuckDBPyConnection", sql: str, parameters: object = None) -> list[Row]:
    """Returns the rows of a query as dicts."""
    cursor = connection.execute(sql, parameters)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class Filter(NamedTuple):
    """Which runs to list; None is any. Names are patterns, such as `restock-*`.

    Attributes:
        finding: Evaluator of a finding that stands, of the last evaluation of the run.
        since: Runs that start at or after this.
        until: Runs that start before this.
        min_cost: In US dollars, of what has a price.
    """

    agent: str | None = None
    task: str | None = None
    session: str | None = None
    user: str | None = None
    model: str | None = None
    finding: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_cost: float | None = None


ANY_RUN = Filter()


def list_runs(connection: "DuckDBPyConnection", limit: int, only: Filter = ANY_RUN) -> tuple[str, int]:
    """Returns a table of the latest runs that pass a filter, newest first, and how many there are."""
    _make_current_findings(connection)
    found = rows(connection, _sql("list.sql"), {"limit": limit, **only._asdict()})
    total = found[0]["total"] if found else 0
    header = (
        "RUN",
        "STARTED (UTC)",
        "AGENT",
        "TASK",
        "TOOLS",
        "ERRORS",
        "TOKENS",
        "COST",
        "TIME",
        "STATE",
        "USER INPUT",
    )
    cells = [
        (
            run["trajectory_id"][:_ID_LENGTH],
            moment(run["start_time"]),
            run["agent_name"] or run["service_name"] or "-",
            _task(run) or "-",
            str(run["tool_call_count"]),
            str(run["error_count"]),
            tokens(run["total_tokens"]),
            cost(run["cost_usd"], run["unpriced_model_calls"]),
            duration(run["duration_ms"]),
            "complete" if run["complete"] else "open",
            terminal.cut(run["user_input"] or "-", 60),
        )
        for run in found
    ]
    return terminal.table(header, cells, fit=terminal.width(), right=frozenset(range(4, 9))), total


def find_run(connection: "DuckDBPyConnection", prefix: str | None, *, command: str = "show") -> Row:
    """Returns the trajectory whose id, or whose trace's id, begins with `prefix`; the latest one for None.

    Messages begin with `command`.

    Raises:
        UsageError: No run, or several, have such an id.
    """
    wanted = None if prefix is None else prefix.strip().lower()
    found = rows(connection, _sql("find.sql"), {"prefix": wanted})
    exact = [run for run in found if wanted in (run["trajectory_id"], run["trace_id"])]
    found = exact or found
    if prefix is None and not found:
        raise UsageError(f"{command}: this store holds no runs. agenttrace doctor says why.")
    if not found:
        raise UsageError(f"{command}: no run's id begins with {prefix!r}. agenttrace list shows the runs.")
    if prefix is not None and len(found) > 1:
        some = ", ".join(run["trajectory_id"][:_ID_LENGTH] for run in found[:5])
        more = f" and {len(found) - 5:,} more" if len(found) > 5 else ""
        raise UsageError(f"{command}: {prefix!r} is how the ids of several runs or their traces begin: {some}{more}.")
    return found[0]


def show_run(connection: "DuckDBPyConnection", run: Row, *, width: int | None = None) -> str:
    """Returns one run as text: head, tree of steps with the findings where they happened, answer.

    Args:
        connection: The store.
        run: As `find_run` gives it.
        width: Columns that every line fits into; None is those of the terminal, if there is one.
    """
    _make_current_findings(connection)
    key = {"trajectory_id": run["trajectory_id"]}
    steps = rows(connection, _sql("steps.sql"), {**key, "limit": MAX_STEPS + 1})
    findings = rows(connection, _sql("run_findings.sql"), key)
    judged = connection.execute("SELECT count(*) FROM evaluation_runs").fetchall()[0][0]
    fit = width or terminal.width()
    width = fit or _LINE_WIDTH
    lines = [*_head(run, width), "", *_tree(steps[:MAX_STEPS], findings, width)]
    if len(steps) > MAX_STEPS:
        lines.append(f"... only the first {MAX_STEPS} steps are shown; agenttrace sql reads the rest from steps")
    if run["final_response"] is not None:
        lines += ["", terminal.cut(f"answer: {run['final_response']}", _TEXT_WIDTH)]
    lines += ["", *_findings(findings, judged)]
    return "\n".join(lines if fit is None else (part for line in lines for part in terminal.wrapped(line, fit)))


def show_json(connection: "DuckDBPyConnection", run: Row) -> str:
    """Returns one run as a JSON object of `trajectory`, `steps` and `findings`, with the columns of the tables."""
    _make_current_findings(connection)
    key = {"trajectory_id": run["trajectory_id"]}
    queries = {
        "trajectory": "SELECT to_json(t) FROM trajectories AS t WHERE trajectory_id = $trajectory_id",
        "steps": "SELECT to_json(s) FROM steps AS s WHERE trajectory_id = $trajectory_id AND duplicate_of IS NULL"
        " ORDER BY start_time NULLS LAST, step_index NULLS FIRST, span_id",
        "findings": "SELECT to_json(f) FROM current_findings AS f WHERE trajectory_id = $trajectory_id"
        " ORDER BY list_position(['error', 'warning', 'note'], severity), evaluator, finding_id",
    }
    found = {
        name: [json.loads(text, parse_constant=lambda _: None) for (text,) in connection.execute(query, key).fetchall()]
        for name, query in queries.items()
    }
    return json.dumps({**found, "trajectory": found["trajectory"][0]}, indent=2)


def show_markdown(connection: "DuckDBPyConnection", run: Row) -> str:
    """Returns one run as a block of Markdown in which nothing works, for an issue or a pull request."""
    return markdown.block(show_run(connection, run, width=_BLOCK_WIDTH))


def _head(run: Row, width: int) -> Iterator[str]:
    name = run["agent_name"] or run["service_name"] or "unnamed agent"
    state = "complete" if run["complete"] else "open: its root span has not ended yet"
    yield terminal.cut(f"run {run['trajectory_id']}  {name}  {moment(run['start_time'])} UTC  {state}", width)
    named = [(label, run[f"{label}_id"]) for label in ("session", "user", "tenant")]
    facts = [f"{label} {value}" for label, value in named if value is not None]
    if task := _task(run):
        facts.append(f"task {task}")
    if facts:
        yield terminal.cut("  " + " · ".join(facts), width)
    counts = (
        count(run["tool_call_count"], "tool call"),
        count(run["model_call_count"], "model call"),
        count(run["error_count"], "error"),
        f"{tokens(run['total_tokens'])} tokens",
        cost(run["cost_usd"], run["unpriced_model_calls"]),
        duration(run["duration_ms"]),
    )
    yield "  " + " · ".join(counts)
    if run["user_input"] is not None:
        yield terminal.cut(f"  user: {run['user_input']}", _TEXT_WIDTH)


def _tree(steps: list[Row], findings: list[Row], width: int) -> Iterator[str]:
    marks: dict[str | None, list[Row]] = {}
    for finding in findings:
        marks.setdefault(finding["span_id"], []).append(finding)
    children = _children(steps)
    # A stack instead of recursion: a trace may nest deeper than Python does.
    pending = [(step, "", "") for step in reversed(children.pop(None, []))]
    while pending:
        step, branch, below = pending.pop()
        inner = children.pop(step["span_id"], [])
        bar = below + ("│  " if inner else "   ")
        yield terminal.cut(branch + step_text(step), width)
        for detail in _details(step):
            yield terminal.cut(bar + detail, width)
        for finding in marks.get(step["span_id"], []):
            yield terminal.cut(f"{bar}{finding['severity'].upper()} {finding['evaluator']}/{finding['kind']}", width)
        deeper = len(below) < min(3 * _DEEPEST, width // 2)
        for position, child in reversed(list(enumerate(inner, 1))):
            last = position == len(inner)
            own = below + ("   " if last else "│  ") if deeper else below
            pending.append((child, below + ("└─ " if last else "├─ "), own))


def _children(steps: list[Row]) -> dict[str | None, list[Row]]:
    """Steps by parent; None holds those without one here, and one step of each cycle."""
    known = {step["span_id"]: step for step in steps}
    children: dict[str | None, list[Row]] = {}
    for step in steps:
        parent = step["parent_span_id"]
        at_home = parent in known and not _is_above(step["span_id"], parent, known)
        children.setdefault(parent if at_home else None, []).append(step)
    return children


def _is_above(span_id: str, parent: str | None, known: dict[str, Row]) -> bool:
    """Whether going up from `parent` comes back to `span_id`, the smallest id of that cycle."""
    seen: set[str] = set()
    while parent in known and parent not in seen:
        seen.add(parent)
        parent = known[parent]["parent_span_id"]
    return parent in seen and span_id in seen and span_id == min(_cycle(parent, known))


def _cycle(start: str, known: dict[str, Row]) -> set[str]:
    members: set[str] = set()
    while start not in members:
        members.add(start)
        start = known[start]["parent_span_id"]
    return members


def step_text(step: Row) -> str:
    """Returns one step as one line: index, what was called with what, state, time, tokens and cost."""
    index = "" if step["step_index"] is None else f"{step['step_index']} "
    facts: list[str] = []
    if step["status"] != "ok":
        facts.append(step["status"].upper())
    if step["kind"] == "tool" and step["mutability"] == "read_only":
        facts.append("read_only")
    elif step["kind"] == "tool" and step["effect"] is not None:
        facts.append(f"{step['mutability'] or 'unknown mutability'}, effect {step['effect']}")
    if step["duration_ms"] is not None:
        facts.append(duration(step["duration_ms"]))
    if step["kind"] == "model" and step["output_tokens"] is not None:
        facts.append(f"{tokens(step['input_tokens'])} -> {tokens(step['output_tokens'])} tokens")
    if step["cost_usd"] is not None:
        facts.append(cost(step["cost_usd"], 0))
    return f"{index}{step['kind']} {_called(step)}  {'  '.join(facts)}".rstrip()


def _called(step: Row) -> str:
    if step["kind"] == "tool":
        return call_text(step["tool_name"] or step["name"] or "?", step["arguments"])
    if step["kind"] == "model":
        return step["model"] or step["name"] or "?"
    return (step["agent_name"] if step["kind"] == "agent" else None) or step["name"] or "?"


def call_text(name: str, arguments: str | None) -> str:
    """Returns a call as it would stand in code: `place_order(item="rice", qty=40)`; `(...)` where not captured."""
    if arguments is None:
        return f"{name}(...)"
    try:
        pairs: dict[str, Any] = dict(json.loads(arguments).items())
    except (ValueError, RecursionError, AttributeError):
        return f"{name}({arguments})"
    return f"{name}({', '.join(f'{key}={json.dumps(value, ensure_ascii=False)}' for key, value in pairs.items())})"


def _details(step: Row) -> Iterator[str]:
    if step["thought"]:
        yield f"thought: {step['thought']}"
    for call in requested(step["requested_tool_calls"]):
        yield f"asks for {call}"
    if step["observation"] is not None:
        yield f"-> {step['observation']}"
    if step["error_message"] and step["error_source"] != "result":
        yield f"{step['error_type'] or 'error'}: {step['error_message']}"


def requested(calls: str | None) -> Iterator[str]:
    """Yields the calls that a model asked for, as they would stand in code."""
    try:
        for call in json.loads(calls or "[]"):
            arguments = call.get("arguments")
            yield call_text(str(call["name"]), None if arguments is None else json.dumps(arguments))
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        yield "calls that cannot be read"


def _findings(findings: list[Row], judged: int) -> Iterator[str]:
    if not judged:
        yield "not judged yet: agenttrace evaluate does that"
    elif not findings:
        yield "no findings"
    for finding in findings:
        place = "" if finding["step_index"] is None else f" at step {finding['step_index']}"
        yield f"{finding['severity']}  {terminal.inert(finding['evaluator'])}/{terminal.inert(finding['kind'])}{place}"
        yield terminal.cut(f"  {finding['message']}", _TEXT_WIDTH)


def _task(run: Row) -> str:
    trial = "" if run["trial"] is None else f" #{run['trial']}"
    return "" if run["task_id"] is None else f"{run['task_id']}{trial}"


def count(number: int, noun: str) -> str:
    """Returns a number with its noun: `1 run`, `2,000 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def moment(time: datetime | None) -> str:
    """Returns a UTC time to the second; "-" for None."""
    return "-" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def duration(milliseconds: float | None) -> str:
    """Returns a duration in the unit that reads best; "-" for None."""
    if milliseconds is None:
        return "-"
    if milliseconds < 1_000:
        return f"{milliseconds:.3g} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1_000:.3g} s"
    minutes = milliseconds / 60_000
    return f"{minutes:.3g} min" if minutes < 120 else f"{minutes / 60:,.3g} h"


def tokens(number: int | None) -> str:
    """Returns a number of tokens; "-" where none was reported."""
    return "-" if number is None else f"{number:,}"


def cost(usd: float | None, unpriced: int) -> str:
    """Returns US dollars, and says what they leave out: a sum without the unpriced calls is a lower bound."""
    known = "-" if usd is None else f"${usd:,.2f}" if usd >= 100 else f"${usd:.4f}"
    return known if not unpriced else f"{known} + {unpriced} unpriced"


def _make_current_findings(connection: "DuckDBPyConnection") -> None:
    connection.execute(files("agenttrace.evaluators.relations").joinpath("current_findings.sql").read_text("utf-8"))


def _sql(name: str) -> str:
    return files("agenttrace").joinpath(f"show_{name}").read_text(encoding="utf-8")
