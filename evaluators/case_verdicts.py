"""One verdict per benchmark case, over all of its runs."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from agenttrace.evaluators.results import Finding, Unjudged

_PASSED, _FAILED, _NOT_EVALUABLE = "passed", "failed", "not_evaluable"


def verdicts(
    case_ids: Iterable[str],
    runs: Mapping[str, Sequence[str]],
    checks: Collection[str],
    evaluators: Collection[str],
    findings: Iterable[Finding],
    unjudged: Unjudged,
) -> list[dict[str, Any]]:
    """Returns a verdict object for each case.

    A run fails with an error of any evaluator. Else it is not evaluable where one of the case's own checks lacks
    evidence, or where the case has no check of its own and no evaluator judged the run.

    Args:
        case_ids: Cases, in the order of the verdicts.
        runs: Judged runs of each case.
        checks: Evaluators that read what cases say, and can fail a run by it.
        evaluators: Evaluators that can fail a run at all.
        findings: Faults of all runs.
        unjudged: What could not be judged.

    Returns:
        Objects of case_id, runs, passed_runs, failed_runs, not_evaluable_runs, passed (None: no run could be judged),
        reason (of that None), checks (evaluator to its runs that passed, failed, were not evaluable; those with a rule
        for the case only) and findings (ids of the errors).
    """
    errors: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.severity == "error" and finding.trajectory_id is not None:
            errors[finding.trajectory_id].append(finding)
    judge = _Judge(errors, checks, evaluators, unjudged)
    return [_verdict(case_id, runs.get(case_id, ()), judge) for case_id in case_ids]


class _Judge:
    """Says of one run what each check of its case found, and what follows for the run."""

    def __init__(
        self,
        errors: Mapping[str, Sequence[Finding]],
        checks: Collection[str],
        evaluators: Collection[str],
        unjudged: Unjudged,
    ) -> None:
        self.errors = errors
        self._lacking = {name: unjudged.lacking(name) for name in checks}
        self._without_rule = {name: unjudged.without_rule(name) for name in checks}
        self._by_nobody = unjudged.by_all(evaluators)

    def checks(self, run: str) -> dict[str, str]:
        failed = {finding.evaluator for finding in self.errors.get(run, ())}
        return {
            name: _FAILED if name in failed else _NOT_EVALUABLE if run in lacking else _PASSED
            for name, lacking in self._lacking.items()
            if run not in self._without_rule[name]
        }

    def run(self, run: str, checks: Mapping[str, str]) -> str:
        if run in self.errors:
            return _FAILED
        blind = _NOT_EVALUABLE in checks.values() if checks else run in self._by_nobody
        return _NOT_EVALUABLE if blind else _PASSED


def _verdict(case_id: str, runs: Sequence[str], judge: _Judge) -> dict[str, Any]:
    states: Counter[str] = Counter()
    checks: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        found = judge.checks(run)
        states[judge.run(run, found)] += 1
        for name, state in found.items():
            checks[name][state] += 1
    passed = False if states[_FAILED] else True if states[_PASSED] else None
    return {
        "case_id": case_id,
        "runs": len(runs),
        **{f"{state}_runs": states[state] for state in (_PASSED, _FAILED, _NOT_EVALUABLE)},
        "passed": passed,
        "reason": None if passed is not None else _reason(case_id, len(runs), checks),
        "checks": {
            name: {state: checks[name][state] for state in (_PASSED, _FAILED, _NOT_EVALUABLE)}
            for name in sorted(checks)
        },
        "findings": [finding.finding_id for run in runs for finding in judge.errors.get(run, ())],
    }


def _reason(case_id: str, runs: int, checks: Mapping[str, Counter[str]]) -> str:
    if not runs:
        return f"no run with task_id {case_id!r}"
    blind = [name for name, states in sorted(checks.items()) if states[_NOT_EVALUABLE]]
    return "no run could be judged: " + (
        f"evidence is missing for {', '.join(blind)}" if blind else "no evaluator had evidence and a rule"
    )
