"""What an evaluation found: the rows of findings, measurements and not_evaluable, and the verdict over them."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

RANK = {"note": 1, "warning": 2, "error": 3}
# The kind of what an evaluator did not judge because nothing is set that it could hold the run against.
NO_RULE = "no_rule"
# Not having seen other runs of a session says nothing about the run itself.
ACROSS_RUNS = "across_runs"
# How a fault ends: it has not been seen for long enough, or it never was one.
RESOLVED, WITHDRAWN = "resolved", "withdrawn"


class Finding(NamedTuple):
    """One fault; the fields are the columns of `findings` without run_id."""

    finding_id: str
    fingerprint: str
    evaluator: str
    kind: str
    severity: str
    state: str | None
    trajectory_id: str | None
    trace_id: str | None
    span_id: str | None
    related_span_ids: list[str]
    tool_name: str | None
    message: str
    evidence: dict[str, Any]


class Measurement(NamedTuple):
    """One number; the fields are the columns of `measurements` without run_id. `value` None: undefined."""

    metric: str
    dimensions: dict[str, Any]
    value: float | None
    unit: str
    n: int
    n_not_evaluable: int
    low: float | None
    high: float | None


class NotEvaluable(NamedTuple):
    """What could not be judged, and why; the fields are the columns of `not_evaluable` without run_id."""

    evaluator: str
    kind: str
    trajectory_id: str | None
    reason: str


class Unjudged:
    """Runs by evaluator, kind and reason; one run may stand in several places."""

    def __init__(self) -> None:
        self._runs: defaultdict[tuple[str, str, str], set[str]] = defaultdict(set)

    def add(self, evaluator: str, kind: str, trajectory_id: str, reason: str) -> None:
        """Notes that an evaluator could not judge one kind of fault in one run."""
        self._runs[evaluator, kind, reason].add(trajectory_id)

    def lacking(self, evaluator: str) -> set[str]:
        """Returns the runs for which the evaluator has a rule, and not all of the evidence."""
        return self._of(evaluator, lambda kind: kind not in (NO_RULE, ACROSS_RUNS))

    def without_rule(self, evaluator: str) -> set[str]:
        """Returns the runs for which the evaluator has no rule."""
        return self.of_kind(evaluator, NO_RULE)

    def blind(self, evaluator: str) -> set[str]:
        """Returns the runs that the evaluator did not judge in full, for want of evidence or of a rule."""
        return self._of(evaluator, lambda kind: kind != ACROSS_RUNS)

    def of_kind(self, evaluator: str, kind: str) -> set[str]:
        """Returns the runs in which the evaluator could not judge one kind of fault."""
        return self._of(evaluator, lambda other: other == kind)

    def by_all(self, evaluators: Collection[str]) -> set[str]:
        """Returns the runs that none of the evaluators judged in full."""
        return set[str].intersection(*(self.blind(name) for name in evaluators)) if evaluators else set()

    def rows(self, runs: int, most: int) -> list[NotEvaluable]:
        """Returns the rows of `not_evaluable`, without thousands that say the same.

        Args:
            runs: Runs that were judged. Where an evaluator has no rule for any of them, one row says so.
            most: So many runs are named for one and the same reason; one more row counts the rest.
        """
        rows: list[NotEvaluable] = []
        for (evaluator, kind, reason), ids in sorted(self._runs.items()):
            if kind == NO_RULE and len(self.without_rule(evaluator)) == runs:
                count = f"{len(ids)} run{'' if len(ids) == 1 else 's'}"
                rows.append(NotEvaluable(evaluator, kind, None, f"{reason} ({count})"))
                continue
            rows += [NotEvaluable(evaluator, kind, trajectory_id, reason) for trajectory_id in sorted(ids)[:most]]
            if len(ids) > most:
                rows.append(NotEvaluable(evaluator, kind, None, f"{reason} ({len(ids) - most} more runs)"))
        return rows

    def _of(self, evaluator: str, wanted: Callable[[str], bool]) -> set[str]:
        found: set[str] = set()
        for (name, kind, _), ids in self._runs.items():
            if name == evaluator and wanted(kind):
                found |= ids
        return found


class Fault(NamedTuple):
    """What is known of a fault after a night; the fields are the columns of `faults` without run_id.

    The texts are those of the worst finding when it was seen last, in the night `last_seen`.
    """

    fingerprint: str
    state: str | None
    quiet_nights: int
    last_seen: str
    evaluator: str
    kind: str
    severity: str
    service_name: str | None
    agent_name: str | None
    task_id: str | None
    tool_name: str | None
    finding_id: str
    trajectory_id: str | None
    message: str


class Night(NamedTuple):
    """What a nightly evaluation says beside.

    Attributes:
        date: The night, by the date on which it begins, as in "2026-01-31".
        timezone: Whose noon it begins and ends at, as in "Europe/Berlin".
        previous: The night that was judged before; None: there was none, so nothing is new and nothing is known.
        arrived_until: When the last record arrived, UTC text; None: none ever has.
        seen: Runs that had ended, and had not been seen by a night as they were now.
        fresh: Those of them that no night had seen at all.
        sample: Share of them that is judged; None: all are.
        open: Runs that had not ended, and wait for a later night.
        withdrawn: Faults of earlier nights that their runs no longer have, now that more of them has arrived.
        silent: Agents that ran in each of the last nights, and not in this one, each with its runs per night.
        resolved: Faults that have not been seen for long enough.
    """

    date: str
    timezone: str
    previous: str | None
    arrived_until: str | None
    seen: int
    fresh: int
    sample: float | None
    open: int
    withdrawn: int
    silent: list[tuple[str, float]]
    resolved: list[Fault]


@dataclass(frozen=True)
class Evaluation:
    """One run of the evaluators.

    Attributes:
        run: The columns of `evaluation_runs`; times are UTC text.
        passed: False with findings at or over the level asked for, or with a hard gate that failed; None where
            nothing was evaluable, which is no pass.
        findings: Worst first, then by evaluator, kind and trajectory.
        cases: A verdict object for each benchmark case.
        gate: A verdict object for each threshold of the configuration.
        unjudged: All of what `not_evaluable` sums up.
        night: What only a nightly evaluation has to say.
        judged: Ids of the runs that were judged, where no period of time says which; None: the period does.
    """

    run: dict[str, Any]
    passed: bool | None
    findings: list[Finding] = field(default_factory=list[Finding])
    measurements: list[Measurement] = field(default_factory=list[Measurement])
    not_evaluable: list[NotEvaluable] = field(default_factory=list[NotEvaluable])
    cases: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    gate: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    unjudged: Unjudged = field(default_factory=Unjudged, compare=False, repr=False)
    night: Night | None = None
    judged: Sequence[str] | None = field(default=None, compare=False, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Returns what `evaluate --format json` prints, and for a night what `nightly --format json` adds."""
        night = (
            {}
            if self.night is None
            else {"night": {**self.night._asdict(), "resolved": [fault._asdict() for fault in self.night.resolved]}}
        )
        return night | {
            "run": self.run,
            "passed": self.passed,
            "cases": self.cases,
            "findings": self.rows(self.findings),
            "measurements": self.rows(self.measurements),
            "not_evaluable": self.rows(self.not_evaluable),
            "gate": self.gate,
        }

    def rows(self, records: "Iterable[Finding | Measurement | NotEvaluable]") -> list[dict[str, Any]]:
        """Returns records as rows of their table, with the id of this run."""
        return [{"run_id": self.run["run_id"], **record._asdict()} for record in records]


def finding_id(evaluator: str, kind: str, trajectory_id: str | None, span_ids: Iterable[str], nth: int) -> str:
    """Returns the id of one occurrence, the same on every run.

    `nth` counts findings that agree in all the rest, such as two unknown tools requested by one model call.
    """
    return _hash(evaluator, kind, trajectory_id, *sorted(span_ids), *([nth] if nth else []))


def fingerprint(
    evaluator: str, kind: str, service: str | None, agent: str | None, task: str | None, tool: str | None
) -> str:
    """Returns the id of the fault, by which nights are compared."""
    return _hash(evaluator, kind, service, agent, task, tool)


def _hash(*parts: object) -> str:
    # The length in front keeps ("a", "bc") and ("ab", "c") apart, and None apart from every text.
    text = "".join("-;" if part is None else f"{len(str(part))}:{part};" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
