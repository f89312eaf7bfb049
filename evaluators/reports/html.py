"""An evaluation as one HTML file that needs nothing else: no network, light and dark, phone and paper."""

import base64
import hashlib
from collections import Counter
from importlib.metadata import version
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from agenttrace import completeness, show, terminal
from agenttrace.evaluators.reports import charts, lines, summary, timeline
from agenttrace.evaluators.results import NO_RULE, Evaluation, Measurement

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_DRAWN = (
    ("cost_usd", "Cost of a run", "usd"),
    ("latency_ms", "Duration of a run", "ms"),
    ("total_tokens", "Tokens of a run", "tokens"),
)
# The last nights, as title and unit of a chart; rates come with their interval.
_TRENDS = {
    "findings": ("Findings", "findings"),
    "safety_violation_rate": ("Runs that break safety", "share"),
    "tool_hallucination_rate": ("Runs with a hallucination of tools", "share"),
    "duplicate_mutation_rate": ("Runs with a duplicate mutation", "share"),
    "budget_overrun_rate": ("Runs over a budget", "share"),
    "task_completion_rate": ("Tasks completed", "share"),
    "cost_usd": ("Cost of a run", "usd"),
    "latency_ms": ("Duration of a run", "ms"),
    "runs": ("Runs judged", "runs"),
}
# The lines of a chart in their order, and what colours them.
_MARKS = {"": "s0", "p50": "s0", "p95": "s1", "error": "error", "warning": "warning", "note": "note"}
_CURVES = {"pass_at_k": ("at least one (pass@k)", "s0"), "pass_hat_k": ("all of them (pass^k)", "s1")}
_NIGHTS = 30
_MAX_NAMES = 20
_MAX_CASES = 100
_MAX_GROUPS = 60
_MAX_REASONS = 60


def render(evaluation: Evaluation, connection: "DuckDBPyConnection") -> str:
    """Returns the page.

    Args:
        evaluation: What was found.
        connection: The store, open to read, where the runs are.
    """
    connection.execute(timeline.sql("report_scope.sql"), _scope(evaluation))
    style, script = (Markup(_file(name)) for name in ("report.css", "report.js"))  # noqa: S704
    trends = _trends(evaluation, connection)
    return (
        _environment()
        .from_string(_file("report.html.jinja"))
        .render(
            style=style,
            style_hash=_digest(style),
            script=script,
            script_hash=_digest(script),
            evaluation=evaluation,
            verdict=summary.verdict(evaluation),
            verdict_line=summary.verdict_line(evaluation),
            tiles=_tiles(evaluation, connection),
            story=timeline.tell(evaluation, connection),
            resolved=evaluation.night.resolved if evaluation.night else (),
            cases=summary.open_cases(evaluation)[:_MAX_CASES],
            more_cases=len(summary.open_cases(evaluation)[_MAX_CASES:]),
            trends=trends,
            nights=len(trends[0].labels) if trends else 0,
            charts=[(chart.title, charts.svg(chart)) for chart in _charts(connection)],
            success=_success(evaluation),
            groups=_groups(connection),
            distributions=summary.distributions(evaluation)[:_MAX_GROUPS],
            more_distributions=len(summary.distributions(evaluation)[_MAX_GROUPS:]),
            numbers=summary.numbers(evaluation)[:_MAX_GROUPS],
            unjudged=summary.unjudged(evaluation)[:_MAX_REASONS],
            more_unjudged=len(summary.unjudged(evaluation)[_MAX_REASONS:]),
            blind=Counter(row.evaluator for row in evaluation.not_evaluable if row.kind != NO_RULE).most_common(),
            without_rule=summary.without_rule(evaluation),
            gaps=[line for line in completeness.of_store(connection) if line.state != "ok"],
            lines=lines,
            show=show,
            summary=summary,
            release=version("agenttrace-otel"),
        )
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _file(name: str) -> str:
    return files("agenttrace.evaluators.reports").joinpath(name).read_text(encoding="utf-8")


def _environment() -> Environment:
    return Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_inert, trim_blocks=True, lstrip_blocks=True
    )


def _inert(value: Any) -> Any:
    # Marks that reorder text could make a page say what the trace does not; tags are the autoescaping's concern.
    return value if isinstance(value, Markup) or not isinstance(value, str) else terminal.inert_lines(value)


def _scope(evaluation: Evaluation) -> dict[str, Any]:
    return {"runs": evaluation.judged, "since": evaluation.run["since"], "until": evaluation.run["until"]}


def _tiles(evaluation: Evaluation, connection: "DuckDBPyConnection") -> list[tuple[str, str]]:
    totals = show.rows(connection, timeline.sql("report_totals.sql"))[0]
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


def _charts(connection: "DuckDBPyConnection") -> list[charts.Histogram]:
    spreads = {row["metric"]: row for row in show.rows(connection, timeline.sql("report_spread.sql"))}
    return [_histogram(connection, title, unit, spreads[metric]) for metric, title, unit in _DRAWN if metric in spreads]


def _histogram(connection: "DuckDBPyConnection", title: str, unit: str, spread: show.Row) -> charts.Histogram:
    upper = charts.axis_end(spread["highest"], spread["p95"])
    parameters = {"metric": spread["metric"], "upper": upper, "bins": charts.BINS}
    counts = [0] * charts.BINS
    beyond = 0
    for row in show.rows(connection, timeline.sql("report_bins.sql"), parameters):
        counts[row["bin"]] = row["n"]
        beyond += row["beyond"]
    return charts.Histogram(title, unit, upper, counts, beyond, [("p50", spread["p50"]), ("p95", spread["p95"])])


def _trends(evaluation: Evaluation, connection: "DuckDBPyConnection") -> list[lines.Chart]:
    """Returns what was measured in the last nights; a chart needs values of two of them."""
    if evaluation.night is None:
        return []
    found = show.rows(connection, timeline.sql("report_trends.sql"), {"night": evaluation.night.date, "most": _NIGHTS})
    nights = list(dict.fromkeys(row["night"] for row in found))
    points: dict[tuple[str, str], dict[str, lines.Point]] = {}
    for row in found:
        point = lines.Point(row["value"], row["low"], row["high"])
        points.setdefault((row["metric"], row["point"]), {})[row["night"]] = point
    charted: list[lines.Chart] = []
    for metric, (title, unit) in _TRENDS.items():
        drawn = [
            lines.Line(
                name or title, [by_night.get(night, lines.Point(None)) for night in nights], _MARKS.get(name, "s0")
            )
            for (found_metric, name), by_night in sorted(
                points.items(), key=lambda item: list(_MARKS).index(item[0][1])
            )
            if found_metric == metric and any(_is_drawn(metric, point) for point in by_night.values())
        ]
        if drawn and sum(point.value is not None for point in drawn[0].points) > 1:
            charted.append(lines.Chart(title, unit, [night[5:] for night in nights], drawn))
    return charted


def _is_drawn(metric: str, point: lines.Point) -> bool:
    """A severity that no night had is no line; a rate of 0 is one."""
    return bool(point.value) if metric == "findings" else point.value is not None


def _success(evaluation: Evaluation) -> lines.Chart | None:
    """Returns pass@k and pass^k over k; None where no task was tried twice."""
    curves: dict[str, list[Measurement]] = {}
    for measurement in evaluation.measurements:
        if measurement.metric in _CURVES and list(measurement.dimensions) == ["k"]:
            curves.setdefault(measurement.metric, []).append(measurement)
    drawn = [
        lines.Line(name, [lines.Point(m.value, m.low, m.high) for m in curves[metric]], mark)
        for metric, (name, mark) in _CURVES.items()
        if metric in curves
    ]
    labels = [str(m.dimensions["k"]) for m in next(iter(curves.values()), list[Measurement]())]
    return lines.Chart("Tasks passed in k trials", "share", labels, drawn) if len(labels) > 1 else None


def _groups(connection: "DuckDBPyConnection") -> list[tuple[str, list[show.Row]]]:
    """Returns agents, tasks and models with their percentiles, those that cost the most first."""
    found = show.rows(connection, timeline.sql("report_groups.sql"), {"most": _MAX_NAMES})
    return [(kind, list(rows)) for kind, rows in groupby(found, key=lambda row: str(row["kind"]))]
