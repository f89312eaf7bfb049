"""What every report says in its own words: the verdict, the counts, the distributions, what could not be judged."""

import json
from collections import Counter
from typing import Any, NamedTuple

from agenttrace import show
from agenttrace.evaluators.results import NO_RULE, Evaluation, Fault, Finding, Measurement, Night

SEVERITIES = ("error", "warning", "note")
# Of pass@k and pass^k these are shown; --format json has every k, and thresholds may name it.
_SHOWN_K = (1, 3, 5)
_MAX_SILENT = 20
_QUANTILES = ("p50", "p90", "p95", "p99", "max")


class Distribution(NamedTuple):
    """The quantiles of one metric in one group; `values` are in the order of `quantiles`."""

    metric: str
    group: str
    unit: str
    n: int
    n_not_evaluable: int
    quantiles: tuple[str, ...]
    values: tuple[float | None, ...]


class Unjudged(NamedTuple):
    """One reason for which an evaluator could not judge, and in how many runs."""

    evaluator: str
    kind: str
    reason: str
    runs: int


class OpenCase(NamedTuple):
    """A benchmark case that did not pass; `verdict` is "failed" or "not evaluable"."""

    case_id: str
    verdict: str
    why: str


def verdict(evaluation: Evaluation) -> str:
    """Returns PASSED, FAILED or NOT EVALUABLE; the last one never reads as a pass."""
    return {True: "PASSED", False: "FAILED", None: "NOT EVALUABLE"}[evaluation.passed]


def verdict_line(evaluation: Evaluation) -> str:
    """Returns the verdict with what it rests on, in one line."""
    night = evaluation.night
    text = f"{verdict(evaluation)}: {f'night of {night.date}, ' if night else ''}"
    if night is not None and not evaluation.run["trajectories"]:
        return text + _nothing(night)
    counts = severities(evaluation)
    found = [count(number, severity) for severity, number in counts.items() if number]
    text += f"{count(evaluation.run['trajectories'], 'run')}, {', '.join(found) or 'no findings'}"
    if lacking := sum(row.kind != NO_RULE for row in evaluation.not_evaluable):
        text += f", {count(lacking, 'verdict')} not possible"
    if evaluation.cases:
        text += f", {case_count(evaluation)}"
    if failed := [gate for gate in evaluation.gate if gate["passed"] is False]:
        text += f", {count(len(failed), 'threshold')} missed"
    return text


def _nothing(night: Night) -> str:
    """Returns why a night judged nothing; a store that nothing comes into any more must not look well."""
    if night.seen:
        return f"none of {count(night.seen, 'run')} is in the sample"
    waiting = f"{count(night.open, 'run')} not ended yet" if night.open else ""
    return ", ".join(filter(None, (waiting, _since(night)))) or "nothing has ever arrived"


def _since(night: Night) -> str:
    return f"nothing has arrived since {night.arrived_until[:16].replace('T', ' ')} UTC" if night.arrived_until else ""


def alarms(evaluation: Evaluation) -> list[str]:
    """Returns what is wrong with the arrival of runs: nothing came, or an agent has fallen silent."""
    night = evaluation.night
    if night is None:
        return []
    lines = [
        f"agent {name} has not run, which ran {runs:.3g} times a night" for name, runs in night.silent[:_MAX_SILENT]
    ]
    if more := len(night.silent[_MAX_SILENT:]):
        lines.append(f"{count(more, 'more agent')} that ran every night have not run")
    if night.seen and not night.fresh:
        lines.insert(0, f"no new run has come: more has arrived of {count(night.seen, 'run')} of earlier nights alone")
    if not night.seen:
        lines.insert(0, f"{_nothing(night)}; agenttrace doctor says what is wrong with the set-up")
    return lines


def news(evaluation: Evaluation) -> list[str]:
    """Returns how a night compares with those before: faults by state, and what else a reader has to know of it."""
    night = evaluation.night
    if night is None:
        return []
    faults = {(finding.state, finding.fingerprint) for finding in evaluation.findings}
    counts = Counter(state for state, _ in faults)
    parts = [
        count(counts["new"], "new fault"),
        *(f"{counts[state]:,} {state}" for state in ("back", "known")),
        f"{len(night.resolved):,} resolved",
    ]
    lines = [
        f"since the night of {night.previous}: {', '.join(parts)}"
        if night.previous
        else "the first night: no other to compare with"
    ]
    if night.sample is not None:
        lines.append(
            f"a sample of {night.sample:.3g}: {evaluation.run['trajectories']:,} of {count(night.seen, 'run')}"
        )
    if night.open:
        lines.append(f"{count(night.open, 'run')} not ended yet, to be judged in a later night")
    if night.withdrawn:
        lines.append(f"{count(night.withdrawn, 'fault')} of earlier nights withdrawn: more of their runs has arrived")
    return lines


def resolved_text(fault: Fault) -> str:
    """Returns a resolved fault with whose it was."""
    named = (("agent", fault.agent_name), ("task", fault.task_id), ("service", fault.service_name))
    place = ", ".join(f"{label} {name}" for label, name in named if name is not None)
    return f"{fault.evaluator}/{fault.kind} ({place}, last seen {fault.last_seen}): {fault.message}"


def occurrence(finding: Finding) -> str:
    """Returns the rule that fired, with the state of the fault where nights are compared."""
    return f"{finding.state} {rule(finding)}" if finding.state else rule(finding)


def severities(evaluation: Evaluation) -> dict[str, int]:
    """Returns the number of findings of each severity, worst first."""
    counted = Counter(finding.severity for finding in evaluation.findings)
    return {severity: counted[severity] for severity in SEVERITIES}


def case_count(evaluation: Evaluation) -> str:
    """Returns how many of the benchmark cases passed."""
    passed = sum(case["passed"] is True for case in evaluation.cases)
    return f"{passed:,} of {count(len(evaluation.cases), 'case')} passed"


def open_cases(evaluation: Evaluation) -> list[OpenCase]:
    """Returns the benchmark cases that did not pass: failed ones first, then those that nobody could judge."""
    rules = {finding.finding_id: rule(finding) for finding in evaluation.findings}
    failed = [
        OpenCase(case["case_id"], "failed", _failures(case, rules))
        for case in evaluation.cases
        if case["passed"] is False
    ]
    unknown = [
        OpenCase(case["case_id"], "not evaluable", case["reason"])
        for case in evaluation.cases
        if case["passed"] is None
    ]
    return failed + unknown


def _failures(case: dict[str, Any], rules: dict[str, str]) -> str:
    broken = sorted({rules[finding_id] for finding_id in case["findings"]})
    return f"{case['failed_runs']:,} of {count(case['runs'], 'run')}: {', '.join(broken)}"


def distributions(evaluation: Evaluation) -> list[Distribution]:
    """Returns one row per metric and group for the measurements that are quantiles, in their own order."""
    groups: dict[tuple[str, str, str], dict[str, Measurement]] = {}
    for measurement in evaluation.measurements:
        if quantile := measurement.dimensions.get("quantile"):
            key = (measurement.metric, group_text(measurement.dimensions), measurement.unit)
            groups.setdefault(key, {})[str(quantile)] = measurement
    return [_distribution(*key, by_quantile) for key, by_quantile in groups.items()]


def _distribution(metric: str, group: str, unit: str, found: dict[str, Measurement]) -> Distribution:
    names = tuple(sorted(found, key=lambda name: (_QUANTILES.index(name) if name in _QUANTILES else 9, name)))
    first = found[names[0]]
    values = tuple(found[name].value for name in names)
    return Distribution(metric, group, unit, first.n, first.n_not_evaluable, names, values)


def numbers(evaluation: Evaluation) -> list[Measurement]:
    """Returns the measurements to show that are no quantiles; of pass@k and pass^k those of a few k.

    One of nothing, as the recovery from errors where there was no error, is left out.
    """
    largest = max((m.dimensions["k"] for m in evaluation.measurements if "k" in m.dimensions), default=0)
    # With few trials the last k is what people compare: pass^4 of four trials.
    shown = {*_SHOWN_K, largest} if largest < max(_SHOWN_K) else {*_SHOWN_K}
    return [
        measurement
        for measurement in evaluation.measurements
        if "quantile" not in measurement.dimensions
        and measurement.dimensions.get("k", 1) in shown
        and (measurement.n or measurement.n_not_evaluable)
    ]


def group_text(dimensions: dict[str, Any]) -> str:
    """Returns `agent restock, day 2026-01-31`; "all runs" for no group."""
    parts = [f"{key} {_plain(value)}" for key, value in dimensions.items() if key != "quantile"]
    return ", ".join(parts) or "all runs"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def count_text(row: Measurement | Distribution) -> str:
    """Returns how many were counted, and how many could not be."""
    return f"{row.n:,}" + (f" (+{row.n_not_evaluable:,} unknown)" if row.n_not_evaluable else "")


def interval_text(row: Measurement) -> str:
    """Returns the 95 % interval; empty where there is none."""
    return "" if row.low is None or row.high is None else f"{row.low:.4g} to {row.high:.4g}"


def value_text(value: float | None, unit: str) -> str:
    """Returns a measured value with its unit; "-" where it is undefined."""
    if value is None:
        return "-"
    if unit == "usd":
        return show.cost(value, 0)
    if unit == "ms":
        return show.duration(value)
    if unit == "tokens":
        return f"{value:,.0f}"
    return f"{value:.4g}" if unit == "ratio" else f"{value:.4g} {unit}"


def unjudged(evaluation: Evaluation) -> list[Unjudged]:
    """Returns what could not be judged for want of evidence, the commonest reason first."""
    counted = Counter((row.evaluator, row.kind, row.reason) for row in evaluation.not_evaluable if row.kind != NO_RULE)
    return [Unjudged(*key, runs) for key, runs in counted.most_common()]


def without_rule(evaluation: Evaluation) -> list[str]:
    """Returns the evaluators that had nothing to hold a run against; one that had for others says so."""
    rows = [row for row in evaluation.not_evaluable if row.kind == NO_RULE]
    some = {row.evaluator for row in rows if row.trajectory_id is not None}
    return [name + (" (some runs)" if name in some else "") for name in sorted({row.evaluator for row in rows})]


def gate_text(gate: dict[str, Any]) -> str:
    """Returns one threshold with its value, bounds and verdict."""
    bounds = [f"{name} {gate[name]:g}" for name in ("min", "max") if gate[name] is not None]
    state = {True: "met", False: f"missed: {gate['reason']}", None: f"not evaluable ({gate['reason']})"}[gate["passed"]]
    value = "-" if gate["value"] is None else f"{gate['value']:.6g}"
    return f"{gate['threshold']}: {value} ({', '.join(bounds)}, {gate['gate']}, n {gate['n']:,}): {state}"


def rule(finding: Finding | Fault) -> str:
    """Returns the name of the rule that fired: `duplicate_mutations/confirmed`."""
    return f"{finding.evaluator}/{finding.kind}"


def count(number: int, noun: str) -> str:
    """Returns a number with its noun, in the plural but for one."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
