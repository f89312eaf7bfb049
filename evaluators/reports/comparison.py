"""A comparison as text for people, as JSON, and as Markdown."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from agenttrace import terminal
from agenttrace.evaluators.comparison import RATES, SUCCESS, Comparison, Fault, Group, Metric, Side, TaskChange
from agenttrace.evaluators.reports import summary
from agenttrace.markdown import code

# More are not read; the cut is said, and --format json has the rest.
_MAX_TASKS = 40
_MESSAGE_WIDTH = 600
_NAME_WIDTH = 80

_VERDICTS = {
    "worse": "worse",
    "better": "better",
    "chance": "within chance",
    "equal": "equal",
    "too_few": "too few runs to tell",
    "shown": "",
    "not_evaluable": "not evaluable",
}


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """Returns what `compare --format json` prints."""
    return {
        "passed": comparison.passed,
        "base": _side_dict(comparison.base),
        "head": _side_dict(comparison.head),
        "paired": comparison.paired,
        "metrics": [_metric_dict(metric) for metric in comparison.metrics],
        "tasks": [_task_dict(change) for change in comparison.tasks],
        "safety": [fault._asdict() for fault in comparison.safety],
        "only_in_base": comparison.only_in_base,
        "only_in_head": comparison.only_in_head,
        "notes": comparison.notes,
        "power": comparison.power,
        "swing": comparison.swing,
    }


def table(comparison: Comparison) -> str:
    """Returns safety, metrics, tasks, what was not compared, and the verdict; all of it inert."""
    blocks = [
        "\n".join(_safety_lines(comparison)),
        terminal.table(*_metric_table(comparison), right=frozenset({1, 2, 3})),
        "\n".join(_task_lines(comparison)),
        "\n".join(terminal.cut(line, _MESSAGE_WIDTH) for line in _remarks(comparison)),
        _verdict_line(comparison),
    ]
    return "\n\n".join(block for block in blocks if block)


def markdown(comparison: Comparison) -> str:
    """Returns the same for a pull request's comment."""
    header, rows = _metric_table(comparison)
    lines = [" | ".join(header), " | ".join("---" for _ in header)]
    lines += [" | ".join(code(cell, 120).replace("|", "\\|") for cell in row) for row in rows]
    blocks = [
        f"## agenttrace compare: {code(_verdict_line(comparison))}",
        "\n".join(f"- {code(line.strip())}" for line in _safety_lines(comparison)),
        "\n".join(f"| {line} |" for line in lines),
        "\n".join(f"- {code(line.strip())}" for line in _task_lines(comparison)),
        "\n".join(f"- {code(line)}" for line in _remarks(comparison)),
    ]
    return "\n\n".join(block for block in blocks if block)


def to_json(comparison: Comparison) -> str:
    """Returns one object; everything beyond ASCII is escaped, as in every JSON output."""
    return json.dumps(as_dict(comparison), indent=2, allow_nan=False)


RENDER: Mapping[str, Callable[[Comparison], str]] = {"table": table, "json": to_json, "markdown": markdown}


def chance(metric: Metric) -> str:
    """Says in words how often an unchanged agent shows such a change."""
    p_value = metric.decision.p_value
    if p_value is None or not metric.difference:
        return ""
    way = "rise" if metric.difference > 0 else "drop"
    often = "fewer than 1 in 10,000" if p_value < 0.0001 else f"{100 * p_value:.2g} in 100"
    return f"such a {way} by luck alone: {often}"


def _side_dict(side: Side) -> dict[str, Any]:
    return {"name": side.name, "runs": len(side.runs), "tasks": len({run.task_id for run in side.runs} - {None})}


def _metric_dict(metric: Metric) -> dict[str, Any]:
    return {
        "metric": metric.name,
        "unit": metric.unit,
        "gate": "hard" if metric.blocking else "soft",
        "base": vars(metric.base),
        "head": vars(metric.head),
        "difference": metric.difference,
        "p_value": metric.decision.p_value,
        "corrected_p_value": metric.decision.corrected,
        "verdict": metric.decision.verdict,
        "blocks": metric.blocks,
        "chance": chance(metric),
    }


def _task_dict(change: TaskChange) -> dict[str, Any]:
    return change._asdict() | {"base": vars(change.base), "head": vars(change.head)}


def _metric_table(comparison: Comparison) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = [
        (
            metric.name,
            _value(metric.base, metric.unit),
            _value(metric.head, metric.unit),
            _difference(metric),
            _p_value(metric),
            _VERDICTS[metric.decision.verdict] + (", BLOCKS" if metric.blocks else ""),
            chance(metric),
        )
        for metric in comparison.metrics
    ]
    return ("METRIC", "BASE", "HEAD", "DIFFERENCE", "P", "VERDICT", "CHANCE"), rows


def _value(group: Group, unit: str) -> str:
    left_out = f", {group.unused:,} not used" if group.unused else ""
    counted = f"n {group.n:,}" if group.count is None else f"{group.count:,} of {group.n:,}"
    return f"{summary.value_text(group.value, unit)} ({counted}{left_out})"


def _difference(metric: Metric) -> str:
    if metric.difference is None:
        return "-"
    if metric.unit == "ratio":
        return f"{metric.difference:+.4g}"
    sign = "-" if metric.difference < 0 else "+"
    return f"{sign}{summary.value_text(abs(metric.difference), metric.unit)}"


def _p_value(metric: Metric) -> str:
    p_value, corrected, verdict = metric.decision
    if p_value is None:
        return "-"
    # Only a change for the worse is corrected: nothing is decided on the others.
    plain = corrected is None or verdict not in ("worse", "chance")
    return f"{p_value:.3g}" if plain else f"{p_value:.3g} (corrected {corrected:.3g})"


def _safety_lines(comparison: Comparison) -> Iterator[str]:
    for fault in comparison.safety:
        level = "error" if fault.state == "new" else "note"
        tasks = f", tasks {', '.join(fault.tasks[:_MAX_TASKS])}" if fault.tasks else ""
        seen = "the base did not show it" if fault.state == "new" else f"the base showed it in {fault.base_runs:,} runs"
        line = f"{level:7}  {_fault_name(fault)}: in {fault.head_runs:,} runs of the head, {seen}{tasks}"
        yield terminal.cut(line, _MESSAGE_WIDTH)
        yield from (f"         {terminal.cut(message, _MESSAGE_WIDTH)}" for message in fault.messages)


def _fault_name(fault: Fault) -> str:
    parts = [f"{fault.evaluator}/{fault.kind}", *(part for part in (fault.agent_name, fault.tool_name) if part)]
    return " ".join(parts)


def _task_lines(comparison: Comparison) -> Iterator[str]:
    rates = [change for change in comparison.tasks if change.metric in RATES]
    for change in rates[:_MAX_TASKS]:
        name = "passed" if change.metric == SUCCESS else change.metric
        before, after = (f"{group.count}/{group.n}" for group in (change.base, change.head))
        yield f"  {terminal.cut(change.task_id, _NAME_WIDTH)}: {name} {before} -> {after}"
    if (more := len(rates) - _MAX_TASKS) > 0:
        yield f"  ... and {more:,} more changes of tasks; --format json has all of them"


def _remarks(comparison: Comparison) -> Iterator[str]:
    yield from comparison.notes
    for side, tasks in (("base", comparison.only_in_base), ("head", comparison.only_in_head)):
        if tasks:
            more = f" and {len(tasks) - _MAX_TASKS:,} more" if len(tasks) > _MAX_TASKS else ""
            yield f"only in the {side}, not compared: {', '.join(tasks[:_MAX_TASKS])}{more}"
    yield comparison.power
    if comparison.swing is not None:
        yield _swing_text(comparison.swing)


def _swing_text(swing: Mapping[str, Any]) -> str:
    spread = ""
    if swing["lowest"] is not None:
        spread = f" from {100 * swing['lowest']:.0f} % to {100 * swing['highest']:.0f} % by trial,"
    return (
        f"With nothing changed the base's success over {swing['tasks']:,} repeated tasks moves{spread} by a standard "
        f"deviation of {100 * swing['rate_sd']:.2g} points from one trial of them to the next."
    )


def _lacking(comparison: Comparison) -> str:
    blocking = [metric for metric in comparison.metrics if metric.blocking]
    lost = [metric.name for metric in blocking if metric.decision.verdict == "not_evaluable"]
    if len(lost) == len(blocking):
        return "no verdicts and no judged runs on both sides"
    return f"{', '.join(lost)} cannot be compared" if lost else "runs of the head lack verdicts"


def _verdict_line(comparison: Comparison) -> str:
    sides = f"{terminal.cut(comparison.base.name, _NAME_WIDTH)} -> {terminal.cut(comparison.head.name, _NAME_WIDTH)}"
    if comparison.passed is None:
        return f"NOT EVALUABLE: {sides}: {_lacking(comparison)}"
    if comparison.passed:
        return f"PASSED: {sides}: no new fault of safety, and nothing worse by more than chance"
    reasons = [f"{metric.name} is worse by more than chance" for metric in comparison.metrics if metric.blocks]
    reasons += [
        f"new: {terminal.cut(_fault_name(fault), _NAME_WIDTH)}" for fault in comparison.safety if fault.state == "new"
    ]
    return f"FAILED: {sides}: {', '.join(reasons)}"
