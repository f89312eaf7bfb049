"""An evaluation as text for people; the last line is the verdict."""

from collections.abc import Iterator

from agenttrace import terminal
from agenttrace.evaluators.reports import summary
from agenttrace.evaluators.results import Evaluation, Finding

# More are not read on a screen; the cut is said, and --format json and --report have the rest.
MAX_FINDINGS = 100
_MAX_CASES = 30
_MAX_REASONS = 30
_MESSAGE_WIDTH = 600
_NAME_WIDTH = 80


def render(evaluation: Evaluation) -> str:
    """Returns findings, open cases, thresholds, measurements, what could not be judged, and the verdict."""
    parts = (_findings, _resolved, _cases, _gate, _measurements, _unjudged, _night)
    sections = (part(evaluation) for part in parts)
    blocks = ["\n".join(lines) for section in sections if (lines := list(section))]
    return "\n\n".join([*blocks, summary.verdict_line(evaluation)])


def _findings(evaluation: Evaluation) -> Iterator[str]:
    for finding in evaluation.findings[:MAX_FINDINGS]:
        yield from _finding(finding)
    if (more := len(evaluation.findings) - MAX_FINDINGS) > 0:
        yield f"... and {more:,} more findings; --format json has all of them"


def _finding(finding: Finding) -> Iterator[str]:
    state = f"  {terminal.inert(finding.state)}" if finding.state else ""
    run = "" if finding.trajectory_id is None else f"  run {terminal.inert(finding.trajectory_id[:12])}"
    yield f"{finding.severity:7}  {terminal.inert(summary.rule(finding))}{run}{state}"
    yield f"         {terminal.cut(finding.message, _MESSAGE_WIDTH)}"


def _resolved(evaluation: Evaluation) -> Iterator[str]:
    resolved = evaluation.night.resolved if evaluation.night else []
    if resolved:
        yield "resolved: not seen for long enough"
    for fault in resolved[:MAX_FINDINGS]:
        yield f"  {terminal.cut(summary.resolved_text(fault), _MESSAGE_WIDTH)}"
    if (more := len(resolved) - MAX_FINDINGS) > 0:
        yield f"  ... and {more:,} more; --format json has all of them"


def _night(evaluation: Evaluation) -> Iterator[str]:
    for line in (*summary.alarms(evaluation), *summary.news(evaluation)):
        yield terminal.inert(line)


def _cases(evaluation: Evaluation) -> Iterator[str]:
    cases = summary.open_cases(evaluation)
    if cases:
        yield "cases that did not pass"
    for case in cases[:_MAX_CASES]:
        case_id = terminal.cut(case.case_id, _NAME_WIDTH)
        yield f"  {case.verdict:13}  {case_id}: {terminal.cut(case.why, _MESSAGE_WIDTH)}"
    if (more := len(cases) - _MAX_CASES) > 0:
        yield f"  ... and {more:,} more cases; --format json has all of them"


def _gate(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.gate:
        yield "thresholds"
    for gate in evaluation.gate:
        yield f"  {terminal.inert(summary.gate_text(gate))}"


def _measurements(evaluation: Evaluation) -> Iterator[str]:
    found = summary.distributions(evaluation)
    for names in dict.fromkeys(distribution.quantiles for distribution in found):
        rows = [
            (
                row.metric,
                terminal.cut(row.group, _NAME_WIDTH),
                summary.count_text(row),
                *(summary.value_text(value, row.unit) for value in row.values),
            )
            for row in found
            if row.quantiles == names
        ]
        yield terminal.table(("METRIC", "OF", "N", *names), rows, right=frozenset(range(3, 3 + len(names))))
    if others := summary.numbers(evaluation):
        rows = [
            (
                row.metric,
                terminal.cut(summary.group_text(row.dimensions), _NAME_WIDTH),
                summary.count_text(row),
                summary.value_text(row.value, row.unit),
                summary.interval_text(row),
            )
            for row in others
        ]
        yield terminal.table(("METRIC", "OF", "N", "VALUE", "95 % INTERVAL"), rows, right=frozenset({3}))


def _unjudged(evaluation: Evaluation) -> Iterator[str]:
    reasons = summary.unjudged(evaluation)
    if reasons:
        yield "not evaluable (neither passed nor failed)"
    for row in reasons[:_MAX_REASONS]:
        rule = terminal.inert(f"{row.evaluator}/{row.kind}")
        yield f"  {row.runs:,} x {rule}: {terminal.cut(row.reason, _MESSAGE_WIDTH)}"
    if (more := len(reasons) - _MAX_REASONS) > 0:
        yield f"  ... and {more:,} more reasons; --format json has all of them"
    if names := summary.without_rule(evaluation):
        yield f"no rule set: {terminal.inert(', '.join(names))} (agenttrace evaluators NAME shows what it reads)"
