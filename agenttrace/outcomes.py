"""Verdicts on runs, given by the program that knows whether the goal was reached."""

import time
from typing import Literal

from opentelemetry import context

from agenttrace import semconv
from agenttrace.encode import clean_text
from agenttrace.guard import report, warn_once
from agenttrace.recording import inherited_attributes
from agenttrace.redact import current_redaction
from agenttrace.spans import OutcomeRow


def outcome(
    passed: bool | None = None,
    *,
    score: float | None = None,
    detail: str | None = None,
    source: Literal["checker", "judge", "human"] = "checker",
    task_id: str | None = None,
    trial: int | None = None,
    trajectory_id: str | None = None,
) -> None:
    """Writes a verdict on a run to our own store.

    Args:
        passed: Whether the goal was reached.
        score: Graded result.
        detail: Reason.
        source: Who says so.
        task_id: Task of the run; inside a run its own.
        trial: Attempt; inside a run its own.
        trajectory_id: The run itself, where its id is known.
    """
    try:
        _record_outcome(passed, score, detail, source, (task_id, trial, trajectory_id))
    except BaseException as error:
        report("record an outcome", error)


def _record_outcome(
    passed: bool | None,
    score: float | None,
    detail: str | None,
    source: str,
    key: tuple[str | None, int | None, str | None],
) -> None:
    task_id, trial, trajectory_id = key
    stated = inherited_attributes(context.get_current())
    if task_id is None and trajectory_id is None:
        inherited_task, inherited_trial = stated.get(semconv.TASK_ID), stated.get(semconv.TRIAL)
        task_id = inherited_task if isinstance(inherited_task, str) else None
        trial = inherited_trial if trial is None and isinstance(inherited_trial, int) else trial
    if task_id is None and trajectory_id is None:
        warn_once(
            "outcome", "agenttrace.outcome was called without a task_id outside a run that has one: not recorded."
        )
        return
    from agenttrace.configure import record_outcome

    shown = None if detail is None else clean_text(detail, redact=current_redaction())
    record_outcome(OutcomeRow(task_id, trial, trajectory_id, source, passed, score, shown, time.time_ns()))
