"""The two sides of a comparison, read from stores: each judged with the present configuration."""

from collections import defaultdict
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from agenttrace.config import Settings
from agenttrace.errors import UsageError
from agenttrace.evaluators import catalog, metrics, prepare
from agenttrace.evaluators.comparison import ERRORS, NUMBERS, SUCCESS, Run, SafetyFinding, Side
from agenttrace.evaluators.results import Evaluation, Finding
from agenttrace.evaluators.run import evaluate
from agenttrace.store import open_store

_SHOWN_LABELS = 10


def of_store(path: Path, settings: Settings) -> Side:
    """Returns all runs of a store, and the trials of which it holds the verdict alone.

    Raises:
        UsageError: There are none.
    """
    side = _side(str(path), path, settings, None)
    if not side.runs:
        raise UsageError(f"compare: {path}: holds no run that has ended and no verdict; there is nothing to compare.")
    return side


def of_labels(path: Path, settings: Settings, base: str, head: str) -> tuple[Side, Side]:
    """Returns the runs of two labels of one store; what both cover belongs to the base, the head is what came since.

    Raises:
        UsageError: A label is not known, or one side covers no run.
    """
    before, after = (_covered(path, label) for label in (base, head))
    if not before:
        raise UsageError(f"compare: {base!r} covers no run of {path}; there is nothing to compare.")
    came_since = sorted(set(after) - set(before))
    if not came_since:
        raise UsageError(
            f"compare: {head!r} covers no run of {path} that {base!r} does not; there is nothing to compare."
        )
    return _side(base, path, settings, before), _side(head, path, settings, came_since)


def _covered(path: Path, label: str) -> list[str]:
    with open_store(path) as con:
        rows = con.execute("SELECT DISTINCT label FROM evaluation_runs WHERE label IS NOT NULL ORDER BY ALL").fetchall()
        known = [str(name) for (name,) in rows]
        if label not in known:
            raise UsageError(f"compare: {label!r} is neither a file nor a label of {path}; {_nearest(label, known)}")
        return [trajectory_id for (trajectory_id,) in prepare.rows(con, "label_runs", label=label)]


def _nearest(label: str, known: Sequence[str]) -> str:
    close = get_close_matches(label, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    if not known:
        return "agenttrace evaluate --label NAME makes one."
    return f"known: {', '.join(map(repr, known[-_SHOWN_LABELS:]))}"


def _side(name: str, path: Path, settings: Settings, only: Sequence[str] | None) -> Side:
    evaluation = evaluate(path, settings, runs=only)
    with open_store(path) as con:
        prepare.select(con, prepare.Selection(None, None, include_open=False, runs=only))
        prepare.relations(con, settings, (), with_sessions=False)
        verdicts = [metrics.Verdict(*row) for row in prepare.verdicts(con, whole_store=only is None)]
        numbers = prepare.rows(con, "compared_runs")
    passed = {verdict.trajectory_id: verdict.passed for verdict in verdicts}
    flags = _flags(evaluation, settings)
    runs = [
        Run(
            task_id,
            trial,
            dict[str, float | None](zip(NUMBERS, values, strict=True))
            | {metric: _flag(trajectory_id, *sets) for metric, sets in flags.items()}
            | {SUCCESS: passed.get(trajectory_id)},
        )
        for trajectory_id, _, task_id, trial, *values in numbers
    ]
    runs += [Run(v.task_id, v.trial, {SUCCESS: v.passed}) for v in verdicts if v.trajectory_id is None]
    # A run that arrived anew between the two readings has another id by now.
    places = defaultdict(lambda: (None, None), {row[0]: (row[1], row[2]) for row in numbers})
    violations = [finding for finding in evaluation.findings if metrics.is_violation(finding)]
    return Side(name, runs, [_fault(finding, *places[finding.trajectory_id]) for finding in violations])


def _flags(evaluation: Evaluation, settings: Settings) -> dict[str, tuple[set[str | None], set[str]]]:
    """Returns by metric the runs that are flagged, and those of which nothing can be said."""
    unjudged = evaluation.unjudged
    judges = [found.name for found in catalog.load(settings.evaluator_paths).values() if found.returns == "findings"]
    # A note tells of something worth a look, not of a fault.
    serious = [finding for finding in evaluation.findings if finding.severity != "note"]
    flags = {
        metric: ({finding.trajectory_id for finding in serious if finding.evaluator == name}, unjudged.blind(name))
        for name, metric in metrics.RATES.items()
    }
    violations = {finding.trajectory_id for finding in serious if metrics.is_violation(finding)}
    errors = {finding.trajectory_id for finding in serious if finding.severity == "error"}
    flags[metrics.SAFETY_RATE] = (violations, metrics.unsafe_to_say(unjudged))
    flags[ERRORS] = (errors, unjudged.by_all(judges))
    return flags


def _flag(trajectory_id: str, flagged: set[str | None], blind: set[str]) -> bool | None:
    """A run with a finding was judged, whatever it lacks; without one it is faultless only if someone looked."""
    return True if trajectory_id in flagged else None if trajectory_id in blind else False


def _fault(finding: Finding, agent_name: str | None, task_id: str | None) -> SafetyFinding:
    return SafetyFinding(
        finding.evaluator, finding.kind, agent_name, finding.tool_name, task_id, finding.trajectory_id, finding.message
    )
