"""An evaluation as one HTML file that needs nothing else: no network, no script, light and dark, phone and paper."""

import base64
import hashlib
from collections import Counter
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from agenttrace import completeness, show, terminal
from agenttrace.evaluators.reports import charts, summary, timeline
from agenttrace.evaluators.results import Evaluation

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DRAWN = (
    ("cost_usd", "Cost of a run", "usd"),
    ("latency_ms", "Duration of a run", "ms"),
    ("total_tokens", "Tokens of a run", "tokens"),
)
_MAX_CASES = 100
_MAX_GROUPS = 60
_MAX_REASONS = 60


class Rule(NamedTuple):
    """One rule that fired: how often, in how many runs, and where the report tells the first of them."""

    severity: str
    name: str
    findings: int
    runs: int
    anchor: str | None


def render(evaluation: Evaluation, connection: "DuckDBPyConnection") -> str:
    """Returns the page.

    Args:
        evaluation: What was found.
        connection: The store, open to read, where the runs are.
    """
    story = timeline.tell(evaluation, connection)
    style = Markup(_file("report.css"))  # noqa: S704
    return (
        _environment()
        .from_string(_file("report.html.jinja"))
        .render(
            style=style,
            style_hash=base64.b64encode(hashlib.sha256(style.encode()).digest()).decode(),
            evaluation=evaluation,
            verdict=summary.verdict(evaluation),
            verdict_line=summary.verdict_line(evaluation),
            severities=summary.severities(evaluation),
            tiles=_tiles(evaluation, connection),
            rules=_rules(evaluation, story),
            story=story,
            cases=summary.open_cases(evaluation)[:_MAX_CASES],
            more_cases=len(summary.open_cases(evaluation)[_MAX_CASES:]),
            charts=[(chart.title, charts.svg(chart)) for chart in _charts(evaluation, connection)],
            distributions=summary.distributions(evaluation)[:_MAX_GROUPS],
            more_distributions=len(summary.distributions(evaluation)[_MAX_GROUPS:]),
            numbers=summary.numbers(evaluation)[:_MAX_GROUPS],
            unjudged=summary.unjudged(evaluation)[:_MAX_REASONS],
            more_unjudged=len(summary.unjudged(evaluation)[_MAX_REASONS:]),
            without_rule=summary.without_rule(evaluation),
            gaps=[line for line in completeness.of_store(connection) if line.state != "ok"],
            summary=summary,
            release=version("agenttrace-otel"),
        )
    )


def _file(name: str) -> str:
    return files("agenttrace.evaluators.reports").joinpath(name).read_text(encoding="utf-8")


def _environment() -> Environment:
    return Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_inert, trim_blocks=True, lstrip_blocks=True
    )


def _inert(value: Any) -> Any:
    # Marks that reorder text could make a page say what the trace does not; tags are the autoescaping's concern.
    return value if isinstance(value, Markup) or not isinstance(value, str) else terminal.inert_lines(value)


def _window(evaluation: Evaluation) -> dict[str, Any]:
    return {"since": evaluation.run["since"], "until": evaluation.run["until"]}


def _tiles(evaluation: Evaluation, connection: "DuckDBPyConnection") -> list[tuple[str, str]]:
    totals = show.rows(connection, timeline.sql("report_totals.sql"), _window(evaluation))[0]
    span = f"{show.moment(totals['first_start'])} to {show.moment(totals['last_start'])} UTC"
    return [
        ("runs judged", f"{evaluation.run['trajectories']:,}"),
        ("tool calls", f"{totals['tool_calls']:,}"),
        ("model calls", f"{totals['model_calls']:,}"),
        ("failed steps", f"{totals['errors']:,}"),
        ("tokens", show.tokens(totals["tokens"])),
        ("cost", show.cost(totals["cost_usd"], totals["unpriced"])),
        ("agents", ", ".join(totals["agents"] or ["-"])),
        ("started", span),
    ]


def _rules(evaluation: Evaluation, story: timeline.Story) -> list[Rule]:
    places = {run.run_id: run.anchor for run in story.runs}
    counted = Counter((finding.severity, summary.rule(finding)) for finding in evaluation.findings)
    runs: dict[tuple[str, str], dict[str | None, None]] = {}
    for finding in evaluation.findings:
        runs.setdefault((finding.severity, summary.rule(finding)), {})[finding.trajectory_id] = None
    rules = [
        Rule(*key, count, len(runs[key]), next((places[run] for run in runs[key] if run in places), None))
        for key, count in counted.items()
    ]
    return sorted(rules, key=lambda rule: (summary.SEVERITIES.index(rule.severity), -rule.findings, rule.name))


def _charts(evaluation: Evaluation, connection: "DuckDBPyConnection") -> list[charts.Histogram]:
    window = _window(evaluation)
    spreads = {row["metric"]: row for row in show.rows(connection, timeline.sql("report_spread.sql"), window)}
    return [
        _histogram(connection, title, unit, spreads[metric], window)
        for metric, title, unit in _DRAWN
        if metric in spreads
    ]


def _histogram(
    connection: "DuckDBPyConnection", title: str, unit: str, spread: show.Row, window: dict[str, Any]
) -> charts.Histogram:
    upper = charts.axis_end(spread["highest"], spread["p95"])
    parameters = {**window, "metric": spread["metric"], "upper": upper, "bins": charts.BINS}
    counts = [0] * charts.BINS
    beyond = 0
    for row in show.rows(connection, timeline.sql("report_bins.sql"), parameters):
        counts[row["bin"]] = row["n"]
        beyond += row["beyond"]
    return charts.Histogram(title, unit, upper, counts, beyond, [("p50", spread["p50"]), ("p95", spread["p95"])])
