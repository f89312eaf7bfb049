"""An evaluation as Markdown, for a pull request's comment or a job summary."""

from collections.abc import Iterator, Sequence

from agenttrace.evaluators.reports import summary
from agenttrace.evaluators.results import Evaluation
from agenttrace.markdown import code, table

# A comment on GitHub holds 65,536 characters.
MAX_FINDINGS = 50
_CASE_WIDTH = 80
_MAX_ROWS = 40


def render(evaluation: Evaluation) -> str:
    """Returns verdict, findings, cases that did not pass, thresholds, measurements and what could not be judged."""
    blocks = [
        f"## agenttrace: {summary.verdict_line(evaluation)}",
        *_night(evaluation),
        *_findings(evaluation),
        *_resolved(evaluation),
        *_cases(evaluation),
        *_gate(evaluation),
        *_measurements(evaluation),
        *_unjudged(evaluation),
    ]
    return "\n\n".join(blocks)


def _night(evaluation: Evaluation) -> Iterator[str]:
    if alarms := summary.alarms(evaluation):
        yield "\n".join(f"- **alarm**: {code(line)}" for line in alarms)
    if news := summary.news(evaluation):
        yield "\n".join(f"- {code(line)}" for line in news)


def _resolved(evaluation: Evaluation) -> Iterator[str]:
    resolved = evaluation.night.resolved if evaluation.night else []
    if resolved:
        yield "### Resolved"
        yield "\n".join(f"- {code(summary.resolved_text(each))}" for each in resolved[:MAX_FINDINGS])
    if (more := len(resolved) - MAX_FINDINGS) > 0:
        yield f"... and {more:,} more."


def _findings(evaluation: Evaluation) -> Iterator[str]:
    shown = evaluation.findings[:MAX_FINDINGS]
    for severity in summary.SEVERITIES:
        found = [finding for finding in shown if finding.severity == severity]
        if found:
            yield f"### {severity.capitalize()}s"
            yield "\n".join(
                f"- {code(summary.occurrence(finding))} in run {code((finding.trajectory_id or '-')[:12])}: "
                f"{code(finding.message)}"
                for finding in found
            )
    if (more := len(evaluation.findings) - len(shown)) > 0:
        yield f"... and {more:,} more findings."


def _cases(evaluation: Evaluation) -> Iterator[str]:
    cases = summary.open_cases(evaluation)
    if cases:
        yield "### Cases that did not pass"
        yield "\n".join(
            f"- {case.verdict}: {code(case.case_id, _CASE_WIDTH)}: {code(case.why, _CASE_WIDTH * 2)}"
            for case in cases[:_MAX_ROWS]
        )
    if (more := len(cases) - _MAX_ROWS) > 0:
        yield f"... and {more:,} more cases."


def _gate(evaluation: Evaluation) -> Iterator[str]:
    if evaluation.gate:
        yield "### Thresholds"
        yield "\n".join(f"- {code(summary.gate_text(gate))}" for gate in evaluation.gate)


def _measurements(evaluation: Evaluation) -> Iterator[str]:
    found = summary.distributions(evaluation)
    others = summary.numbers(evaluation)
    if found or others:
        yield "### Measurements"
    for names in dict.fromkeys(distribution.quantiles for distribution in found):
        rows = [
            (
                row.metric,
                row.group,
                summary.count_text(row),
                *(summary.value_text(value, row.unit) for value in row.values),
            )
            for row in found
            if row.quantiles == names
        ]
        yield _table(("metric", "of", "n", *names), rows)
    if others:
        rows = [
            (
                row.metric,
                summary.group_text(row.dimensions),
                summary.count_text(row),
                summary.value_text(row.value, row.unit),
                summary.interval_text(row),
            )
            for row in others
        ]
        yield _table(("metric", "of", "n", "value", "95 % interval"), rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = table(header, rows[:_MAX_ROWS])
    return text if len(rows) <= _MAX_ROWS else f"{text}\n\n... and {len(rows) - _MAX_ROWS:,} more rows."


def _unjudged(evaluation: Evaluation) -> Iterator[str]:
    reasons = summary.unjudged(evaluation)
    if reasons:
        yield "### Not evaluable: neither passed nor failed"
        yield "\n".join(
            f"- {row.runs:,} x {code(f'{row.evaluator}/{row.kind}')}: {code(row.reason)}" for row in reasons[:_MAX_ROWS]
        )
    if (more := len(reasons) - _MAX_ROWS) > 0:
        yield f"... and {more:,} more reasons."
    if names := summary.without_rule(evaluation):
        yield f"No rule set: {', '.join(code(name) for name in names)}"
