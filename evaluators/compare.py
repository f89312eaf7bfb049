"""Whether the head is worse than the base by more than chance: what `agenttrace compare` decides, from runs in memory.

An unchanged agent passes at least 95 of 100 comparisons, all its metrics taken together (benchmarks/false_alarms.py
measures it). A fault of safety that the base did not show blocks whatever the numbers say.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from agenttrace.evaluators import differences, noise
from agenttrace.evaluators.comparison import (
    NUMBERS,
    RATES,
    SUCCESS,
    Comparison,
    Decision,
    Fault,
    Group,
    Metric,
    Run,
    SafetyFinding,
    Side,
    TaskChange,
)
from agenttrace.evaluators.differences import Counts, Numbers
from agenttrace.evaluators.metrics import SAFETY_RATE
from agenttrace.evaluators.statistics import ALPHA, pass_hat_k

_MAX_MESSAGES = 3
_NOT_EVALUABLE = Decision(None, None, "not_evaluable")
_SHOWN = Decision(None, None, "shown")

# A task with its runs on both sides.
Pairs = Sequence[tuple[str, Sequence[Run], Sequence[Run]]]


def compare(base: Side, head: Side) -> Comparison:
    """Compares two sides, task by task where tasks are known on both, else as two groups.

    Tasks of one side only are named and not compared; safety is judged over all runs.
    """
    base_tasks, head_tasks = _by_task(base.runs), _by_task(head.runs)
    common = sorted(base_tasks.keys() & head_tasks.keys())
    pairs = [(task, base_tasks[task], head_tasks[task]) for task in common]
    pairs = pairs or [("", _one_per_task(base.runs), _one_per_task(head.runs))]
    strata = {metric: _counts(metric, pairs) for metric in RATES}
    metrics = [*_rates(pairs, strata), *_numbers(pairs)]
    metrics[1:1] = _all_pass(strata[SUCCESS]) if common else []
    faults = _faults(base.safety, head.safety)
    tested = sum(metric.decision.corrected is not None for metric in metrics)
    missing = _missing_verdicts(pairs, tested)
    return Comparison(
        base=base,
        head=head,
        paired=bool(common),
        passed=_passed(metrics, faults, missing),
        metrics=[metric for metric in metrics if metric.base.n or metric.head.n],
        tasks=_changes(pairs) if common else [],
        safety=faults,
        only_in_base=sorted(base_tasks.keys() - head_tasks.keys()),
        only_in_head=sorted(head_tasks.keys() - base_tasks.keys()),
        strata=strata,
        notes=[*_notes(base, head, pairs if common else []), *missing],
        power=noise.power(strata[SUCCESS], tested),
        swing=noise.swing(base_tasks.values()),
    )


def decide(strata: Mapping[str, Sequence[Counts]]) -> dict[str, Decision]:
    """Tests each rate, and corrects for being several those that could come out worse than chance at all.

    Args:
        strata: By name of the metric the runs of each task that count: passed ones of `task_completion_rate`, flagged
            ones of any other.
    """
    two_sided = {metric: [c for c in counts if c.base_n and c.head_n] for metric, counts in strata.items()}
    counts = {metric: found for metric, found in two_sided.items() if found}
    worse = {metric: _worse(metric, found) for metric, found in counts.items()}
    testable = [metric for metric, found in counts.items() if _least(metric, found) <= ALPHA]
    corrected = dict(zip(testable, differences.holm([worse[metric] for metric in testable]), strict=True))
    return {
        metric: _decision(metric, counts[metric], worse[metric], corrected.get(metric))
        if metric in counts
        else _NOT_EVALUABLE
        for metric in strata
    }


def _decision(metric: str, counts: Sequence[Counts], worse: float, corrected: float | None) -> Decision:
    change = _worsening(metric, counts)
    if change == 0:
        return Decision(1.0, corrected, "equal")
    if change > 0:
        verdict = "too_few" if corrected is None else "worse" if corrected <= ALPHA else "chance"
        return Decision(worse, corrected, verdict)
    better = differences.more(counts) if metric == SUCCESS else differences.fewer(counts)
    return Decision(better, corrected, "better" if better <= ALPHA else "chance")


def _worse(metric: str, counts: Sequence[Counts]) -> float:
    """Returns the chance of a change for the worse as large as seen; 1 where there is none, which needs no test."""
    if _worsening(metric, counts) <= 0:
        return 1.0
    return differences.fewer(counts) if metric == SUCCESS else differences.more(counts)


def _least(metric: str, counts: Sequence[Counts]) -> float:
    return differences.fewest(counts if metric == SUCCESS else [group.turned for group in counts])


def _worsening(metric: str, counts: Sequence[Counts]) -> float:
    base, head = differences.rates(counts) or (0.0, 0.0)
    # Rounding of the weights must not turn equal rates into a change.
    return round(base - head if metric == SUCCESS else head - base, 12)


def _missing_verdicts(pairs: Pairs, tested: int) -> list[str]:
    """Says where runs of the head lack verdicts, and it is worse by more than chance if all such runs failed.

    Trials that crash are often not checked: what is left of them must not pass for the whole. Verdicts that lack as
    often on both sides make no difference; a task without any tells nothing.
    """
    known = _counts(SUCCESS, pairs)
    asked = [(c, len(base), len(head)) for c, (_, base, head) in zip(known, pairs, strict=True) if c.base_n or c.head_n]
    lacking = sum(runs - c.head_n for c, _, runs in asked)
    counts = [Counts(c.base, base_n, c.head, head_n) for c, base_n, head_n in asked]
    if not lacking or differences.fewer(counts) > ALPHA / max(tested, 1):
        return []
    return [f"{lacking} runs of the head have no verdict; if they failed, it is worse by more than chance: no pass."]


def _passed(metrics: Iterable[Metric], faults: Iterable[Fault], missing: Sequence[str]) -> bool | None:
    blocking = [metric for metric in metrics if metric.blocking]
    if any(metric.blocks for metric in blocking) or any(fault.state == "new" for fault in faults):
        return False
    compared = [metric for metric in blocking if metric.decision != _NOT_EVALUABLE]
    # What the base shows of success and safety, and the head does not, is no pass.
    vital = [metric for metric in blocking if metric.name in (SUCCESS, SAFETY_RATE)]
    lost = any(metric.base.n and metric not in compared for metric in vital)
    return None if lost or missing or not compared else True


def _by_task(runs: Iterable[Run]) -> dict[str, list[Run]]:
    tasks: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.task_id is not None:
            tasks[run.task_id].append(run)
    return tasks


def _one_per_task(runs: Sequence[Run]) -> list[Run]:
    """Returns the first run of each task, and all that name none: runs of one task are no independent ones."""
    named = _by_task(runs).values()
    firsts = [min(found, key=lambda run: (run.trial is None, run.trial or 0)) for found in named]
    return firsts + [run for run in runs if run.task_id is None]


def _known(metric: str, runs: Iterable[Run]) -> list[float]:
    known = (run.values.get(metric) for run in runs)
    return [value for value in known if value is not None and math.isfinite(value)]


def _counts(metric: str, pairs: Pairs) -> list[Counts]:
    known = [(_known(metric, base), _known(metric, head)) for _, base, head in pairs]
    return [Counts(int(sum(base)), len(base), int(sum(head)), len(head)) for base, head in known]


def _rates(pairs: Pairs, strata: Mapping[str, Sequence[Counts]]) -> Iterator[Metric]:
    for metric, decision in decide(strata).items():
        counts = strata[metric]
        if decision != _NOT_EVALUABLE:
            counts = [group for group in counts if group.base_n and group.head_n]
        values = differences.rates(counts) or (None, None)
        base = Group(values[0], sum(c.base for c in counts), n := sum(c.base_n for c in counts), _base(pairs) - n)
        head = Group(values[1], sum(c.head for c in counts), n := sum(c.head_n for c in counts), _head(pairs) - n)
        yield Metric(metric, "ratio", True, base, head, decision)


def _numbers(pairs: Pairs) -> Iterator[Metric]:
    for metric, unit in NUMBERS.items():
        known = [Numbers(_known(metric, base), _known(metric, head)) for _, base, head in pairs]
        groups = [group for group in known if group.base and group.head]
        values = differences.means(groups) or (None, None)
        shown = groups or known
        base = Group(values[0], None, n := sum(len(g.base) for g in shown), _base(pairs) - n)
        head = Group(values[1], None, n := sum(len(g.head) for g in shown), _head(pairs) - n)
        yield Metric(metric, unit, False, base, head, _of_numbers(groups, values))


def _of_numbers(groups: Sequence[Numbers], values: tuple[float | None, float | None]) -> Decision:
    base, head = values
    if base is None or head is None:
        return _NOT_EVALUABLE
    if _equal(base, head):
        return Decision(1.0, None, "equal")
    chance = differences.higher(groups) if head > base else differences.lower(groups)
    beyond = "worse" if head > base else "better"
    return Decision(chance, None, beyond if chance <= ALPHA else "chance")


def _equal(base: float, head: float) -> bool:
    # Means of equal numbers over 2 and over 3 runs differ by rounding.
    return math.isclose(base, head, rel_tol=1e-12)


def _all_pass(counts: Sequence[Counts]) -> Iterator[Metric]:
    """Returns pass^k with the largest k that all compared tasks allow on both sides: unlike k are unlike things."""
    tasks = [group for group in counts if group.base_n and group.head_n]
    k = min((min(group.base_n, group.head_n) for group in tasks), default=0)
    if k > 1:
        base = math.fsum(pass_hat_k(group.base, group.base_n, k) or 0 for group in tasks) / len(tasks)
        head = math.fsum(pass_hat_k(group.head, group.head_n, k) or 0 for group in tasks) / len(tasks)
        n = len(tasks)
        yield Metric(f"pass_hat_k.{k}", "ratio", False, Group(base, None, n, 0), Group(head, None, n, 0), _SHOWN)


def _base(pairs: Pairs) -> int:
    return sum(len(base) for _, base, _ in pairs)


def _head(pairs: Pairs) -> int:
    return sum(len(head) for _, _, head in pairs)


def _faults(base: Sequence[SafetyFinding], head: Sequence[SafetyFinding]) -> list[Fault]:
    before: dict[tuple[str, str, str | None, str | None], set[str | None]] = defaultdict(set)
    for finding in base:
        before[finding.fault].add(finding.trajectory_id)
    found: dict[tuple[str, str, str | None, str | None], list[SafetyFinding]] = defaultdict(list)
    for finding in head:
        found[finding.fault].append(finding)
    faults = [
        Fault(
            *fault,
            state="known" if fault in before else "new",
            base_runs=len(before.get(fault, ())),
            head_runs=len({finding.trajectory_id for finding in findings}),
            tasks=sorted({finding.task_id for finding in findings if finding.task_id is not None}),
            messages=sorted({finding.message for finding in findings})[:_MAX_MESSAGES],
        )
        for fault, findings in found.items()
    ]
    return sorted(faults, key=lambda fault: (fault.state != "new", -fault.head_runs, str(fault)))


def _changes(pairs: Pairs) -> list[TaskChange]:
    """Returns each metric of each task that differs, rates first, of each metric the worst first."""
    order = [*RATES, *NUMBERS]
    changes = chain.from_iterable(_task_changes(*pair) for pair in pairs)
    return sorted(changes, key=lambda change: (order.index(change.metric), -change.worsening, change.task_id))


def _task_changes(task: str, base: Sequence[Run], head: Sequence[Run]) -> Iterator[TaskChange]:
    for metric in (*RATES, *NUMBERS):
        before, after = _group(metric, base), _group(metric, head)
        if before.value is not None and after.value is not None and not _equal(before.value, after.value):
            yield TaskChange(task, metric, before, after, after.value - before.value)


def _group(metric: str, runs: Sequence[Run]) -> Group:
    known = _known(metric, runs)
    total = math.fsum(known)
    value = total / len(known) if known else None
    return Group(value, int(total) if metric in RATES else None, len(known), len(runs) - len(known))


def _notes(base: Side, head: Side, pairs: Pairs) -> Iterator[str]:
    if not pairs:
        yield "No task is known on both sides: the first run of each is compared as one group; harder tasks look worse."
        return
    if uneven := sum(len(before) != len(after) for _, before, after in pairs):
        yield f"{uneven} of {len(pairs)} tasks have unequal numbers of runs; each is weighed alike on both sides."
    for side in (base, head):
        if unnamed := sum(run.task_id is None for run in side.runs):
            yield f"{side.name}: {unnamed} of {len(side.runs)} runs name no task, and are not compared."
