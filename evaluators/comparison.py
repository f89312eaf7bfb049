"""The rows of a comparison: runs on two sides, and what is said of each metric, task and fault."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agenttrace.evaluators.differences import Counts

SUCCESS = "task_completion_rate"
ERRORS = "error_finding_rate"
# A success less is worse, a flagged run more is worse. All of them block, corrected for being several.
RATES = (
    SUCCESS,
    "safety_violation_rate",
    ERRORS,
    "tool_hallucination_rate",
    "duplicate_mutation_rate",
    "budget_overrun_rate",
)
# More is worse, and never blocks: a better answer may cost more. A threshold of the configuration can block.
NUMBERS = {"cost_usd": "usd", "latency_ms": "ms", "total_tokens": "tokens"}


class Run(NamedTuple):
    """One run of the agent; `values` holds, by metric, a boolean or number, or None where it is not known."""

    task_id: str | None
    trial: int | None
    values: Mapping[str, float | None]


class SafetyFinding(NamedTuple):
    """One fault that must not be averaged away."""

    evaluator: str
    kind: str
    agent_name: str | None
    tool_name: str | None
    task_id: str | None
    trajectory_id: str | None
    message: str

    @property
    def fault(self) -> tuple[str, str, str | None, str | None]:
        """What makes two findings the same fault on both sides."""
        return self.evaluator, self.kind, self.agent_name, self.tool_name


@dataclass(frozen=True)
class Side:
    """One of the two that are compared; `name` is the database or label as given."""

    name: str
    runs: Sequence[Run]
    safety: Sequence[SafetyFinding] = ()


@dataclass(frozen=True)
class Group:
    """One metric on one side.

    Attributes:
        value: Rate or mean over tasks with runs on both sides; a task weighs the same on both. None where undefined.
        count: Runs that count; None for numbers.
        n: Runs with a value.
        unused: Compared runs without a value, or whose task has a value on the other side only.
    """

    value: float | None
    count: int | None
    n: int
    unused: int


class Decision(NamedTuple):
    """What a test says of one metric.

    Attributes:
        p_value: Chance of a change this large or larger, in the direction seen, for an unchanged agent; 1 for none.
        corrected: That of a change for the worse, corrected for the metrics tested; None where not tested.
        verdict: worse (beyond chance), better (beyond chance), chance, equal; too_few: worse, but no result of so few
            runs could be told from chance; shown: compared without a test; not_evaluable.
    """

    p_value: float | None
    corrected: float | None
    verdict: str


@dataclass(frozen=True)
class Metric:
    """One metric on both sides, and what its test says."""

    name: str
    unit: str
    blocking: bool
    base: Group
    head: Group
    decision: Decision

    @property
    def difference(self) -> float | None:
        """Head minus base."""
        return None if self.base.value is None or self.head.value is None else self.head.value - self.base.value

    @property
    def blocks(self) -> bool:
        """Whether this metric alone fails the comparison."""
        return self.blocking and self.decision.verdict == "worse"


class TaskChange(NamedTuple):
    """One metric of one task that differs; counts are None for numbers, whose values are means over the runs."""

    task_id: str
    metric: str
    base: Group
    head: Group
    difference: float

    @property
    def worsening(self) -> float:
        """How much worse the head is; negative where it is better."""
        return -self.difference if self.metric == SUCCESS else self.difference


class Fault(NamedTuple):
    """A kind of safety finding of the head; `state` is new, which blocks, or known: the base showed it too."""

    evaluator: str
    kind: str
    agent_name: str | None
    tool_name: str | None
    state: str
    base_runs: int
    head_runs: int
    tasks: Sequence[str]
    messages: Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """What was compared, and whether the head passed.

    Attributes:
        paired: Whether tasks are known on both sides; else all runs were compared as one group.
        passed: None where nothing was comparable, where the head cannot be judged for success or safety and the base
            can, or where it is worse beyond chance unless its runs without a verdict passed.
        metrics: Rates first.
        tasks: What changed in which task, rates first, worst first.
        safety: Faults of the head, new ones first.
        strata: By rate, the counts of each task compared.
        notes: What a reader must know before trusting the numbers.
    """

    base: Side
    head: Side
    paired: bool
    passed: bool | None
    metrics: Sequence[Metric]
    tasks: Sequence[TaskChange]
    safety: Sequence[Fault]
    only_in_base: Sequence[str]
    only_in_head: Sequence[str]
    strata: Mapping[str, Sequence[Counts]]
    notes: Sequence[str]
    power: str
    swing: Mapping[str, Any] | None
