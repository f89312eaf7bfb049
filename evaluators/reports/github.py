"""An evaluation as GitHub workflow commands: each finding becomes an annotation of the job."""

from agenttrace import terminal
from agenttrace.evaluators.reports import summary
from agenttrace.evaluators.results import Evaluation

# GitHub keeps ten annotations of each level per step; the log keeps these.
MAX_FINDINGS = 200

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}


def render(evaluation: Evaluation) -> str:
    """Returns one command a line; the last line is the verdict, as plain text."""
    lines = [
        f"::{_COMMANDS[finding.severity]} title={_property(summary.occurrence(finding))}::{_data(finding.message)}"
        for finding in evaluation.findings[:MAX_FINDINGS]
    ]
    if (more := len(evaluation.findings) - MAX_FINDINGS) > 0:
        lines.append(f"::notice::{more} more findings are not annotated.")
    # A hard threshold without a value fails the job as well.
    lines += [
        f"::{'error' if gate['gate'] == 'hard' else 'warning'} title=threshold::{_data(summary.gate_text(gate))}"
        for gate in evaluation.gate
        if gate["passed"] is False or (gate["passed"] is None and gate["gate"] == "hard")
    ]
    level = "warning" if evaluation.run["trajectories"] else "error"
    lines += [f"::{level} title=arrival::{_data(line)}" for line in summary.alarms(evaluation)]
    return "\n".join([*lines, *map(terminal.inert, summary.news(evaluation)), summary.verdict_line(evaluation)])


def _data(text: str) -> str:
    # An escaped text has no line feed left, so no second command can begin inside it.
    return terminal.cut(text, 1000).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
