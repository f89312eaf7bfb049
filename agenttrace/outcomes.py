"""Verdicts on runs, given by the program that knows whether the goal was reached."""

import hashlib
import math
import sys
import time
from typing import Any, Final, Literal, NamedTuple, get_args

from opentelemetry import context

from agenttrace import semconv
from agenttrace.encode import clean_text
from agenttrace.guard import report, warn_once
from agenttrace.recording import inherited_attributes, outermost_run
from agenttrace.redact import current_redaction
from agenttrace.spans import OutcomeRow
from agenttrace.values import type_name

Source = Literal["checker", "judge", "human"]

_MAX_TRIAL: Final = 2**31 - 1
_UNRECORDED: Final = "agenttrace.outcome: %s: not recorded."


class _Misuse(Exception):
    """A wrong call, told in a log line and never raised to the program."""


class _Key(NamedTuple):
    """Which run a verdict is about."""

    task_id: str | None
    trial: int | None
    trajectory_id: str | None


def outcome(
    passed: bool | None = None,
    *,
    score: float | None = None,
    detail: str | None = None,
    source: Source = "checker",
    task_id: str | None = None,
    trial: int | None = None,
    trajectory_id: str | None = None,
) -> None:
    """Writes a verdict on a run to our own store; of one source, the last verdict on a run counts.

    Inside a run it is about that run, unless it names another. A verdict may come before its run reaches the store.

    Args:
        passed: Whether the goal was reached; None: it could not be told.
        score: Graded result.
        detail: Reason.
        source: Who says so.
        task_id: Task of the run; inside a run its own.
        trial: Attempt; inside a run its own.
        trajectory_id: The run itself, where its id is known.
    """
    try:
        row = _outcome_row(passed, score, detail, source, (task_id, trial, trajectory_id))
    except _Misuse as misuse:
        warn_once(f"outcome {misuse}", _UNRECORDED, misuse)
    except BaseException as error:
        report("record an outcome", error)
    else:
        exporter: Any = sys.modules.get("agenttrace.exporter")
        if exporter is None or exporter.record_outcome(row) is False:
            nobody = "no store of this process took it (agenttrace.configure() opens one)"
            warn_once(f"outcome {nobody}", _UNRECORDED, nobody)


def trajectory_id_of(trace_id: str, agent_span_id: str) -> str:
    """Returns the id of the run whose outermost agent is this span, as `steps/03_tree.sql` computes it.

    Args:
        trace_id: 32 lower-case hex characters.
        agent_span_id: 16 lower-case hex characters.
    """
    return hashlib.md5(f"{trace_id}{agent_span_id}".encode(), usedforsecurity=False).hexdigest()[:16]


def _outcome_row(
    passed: object, score: object, detail: object, source: object, given: tuple[Any, Any, Any]
) -> OutcomeRow:
    if source not in get_args(Source):
        raise _Misuse("source is none of checker, judge and human")
    redact = current_redaction()
    key = _run_of(
        _Key(
            None if given[0] is None else clean_text(given[0], redact=redact),
            _as_trial(given[1]),
            None if given[2] is None else clean_text(given[2]),
        )
    )
    shown = None if detail is None else clean_text(detail, redact=redact)
    return OutcomeRow(*key, str(source), _as_verdict(passed), _as_score(score), shown, time.time_ns())


def _run_of(given: _Key) -> _Key:
    """Completes a key by what is known of the enclosing run, if it is about that one.

    Raises:
        _Misuse: There is none, and the key names no run.
    """
    within = context.get_current()
    stated = inherited_attributes(within)
    task_id, trial = stated.get(semconv.TASK_ID), stated.get(semconv.TRIAL)
    own = _Key(
        task_id if isinstance(task_id, str) else None,
        trial if isinstance(trial, int) else None,
        _current_trajectory(within),
    )
    if given.trajectory_id is not None:
        return given
    if given.task_id is None and own.task_id is None:
        if given.trial is not None:
            warn_once("outcome trial", "agenttrace.outcome: a trial without a task_id names no run.")
        if own.trajectory_id is None:
            raise _Misuse("called without a task_id or trajectory_id outside a run")
        return own
    # Two runs may attempt one task without a number, or with the same: the trajectory tells which one is meant.
    if given.task_id in (None, own.task_id) and given.trial in (None, own.trial):
        return own
    return given._replace(task_id=given.task_id or own.task_id)


def _current_trajectory(within: context.Context) -> str | None:
    span = outermost_run(within)
    return None if span is None else trajectory_id_of(f"{span.trace_id:032x}", f"{span.span_id:016x}")


def _as_verdict(passed: object) -> bool | None:
    """Takes True, False and what equals them as a number, such as the scalars of numpy; no other truth."""
    value = _plain(passed)
    if value is None or (isinstance(value, (int, float)) and value in (0, 1)):
        return None if value is None else bool(value)
    raise _Misuse(f"passed is a {type_name(type(passed))} that is neither True nor False")


def _as_score(score: object) -> float | None:
    """Returns a finite number; a score that is none does not take the verdict beside it away."""
    if score is None:
        return None
    try:
        number = float(_plain(score))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isfinite(number):
        return number
    warn_once("outcome score", "agenttrace.outcome: the score is no finite number: recorded without it.")
    return None


def _as_trial(trial: object) -> int | None:
    number = _plain(trial)
    if number is None:
        return None
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= _MAX_TRIAL:
        return number
    raise _Misuse(f"trial is no whole number from 0 to {_MAX_TRIAL}")


def _plain(value: object) -> Any:
    """Returns the Python value of a scalar of numpy or the like, and anything else as it is."""
    item: Any = getattr(value, "item", None)
    return item() if callable(item) and not isinstance(value, (bool, int, float, str)) else value
