"""Outcomes as CSV -> rows: task_id, trial, passed or reward, source; trajectory_id, score and detail where given.

A row whose cells say neither, or whose `passed` is 'error', is a trial that could not run.
"""

import csv
import math
from collections.abc import Iterable, Iterator, Mapping

from agenttrace.errors import DecodeError
from agenttrace.spans import OutcomeRow

SOURCES = ("checker", "judge", "human")

_KEYS = ("task_id", "trajectory_id")
_VERDICTS = ("passed", "reward", "score")
_YES = ("true", "1", "1.0", "yes", "pass", "passed")
_NO = ("false", "0", "0.0", "no", "fail", "failed")
_DID_NOT_RUN = ("error", "could not run")
_MAX_TRIAL = 2**31 - 1
_SHOWN_CHARACTERS = 40

# A reward of 1 is success; a mean of float rewards may miss it by a rounding. Source: tau-bench, run.py (1e-6).
_REWARD_ROUNDING = 1e-6


def is_outcomes_header(line: str) -> bool:
    """Says whether a line names the columns of outcomes."""
    try:
        names = [name for cells in csv.reader([line]) for name in _names(cells)]
    except csv.Error:
        return False
    return any(key in names for key in _KEYS) and any(verdict in names for verdict in _VERDICTS)


def read_outcomes(
    lines: Iterable[str], *, recorded_at_unix_nano: int, task_id: str | None = None, trial: int | None = None
) -> Iterator[tuple[int, OutcomeRow | DecodeError]]:
    """Yields line number and row of each outcome, or what is wrong with it.

    Args:
        lines: Text of the file, header first.
        recorded_at_unix_nano: When the file was written, the same on every reading: equal rows are stored once.
        task_id: Task of rows that name none.
        trial: Trial of rows that name none.
    """
    defaults = {"task_id": task_id, "trial": None if trial is None else str(trial)}
    # Without `strict` a quote that is never closed makes the rest of the file one cell.
    reader = csv.reader(lines, strict=True)
    names: list[str] = []
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as err:
            yield reader.line_num, DecodeError(f"not CSV: {err}")
            continue
        if cells is None:
            return
        if not names:
            names = _names(cells)
        elif any(cell.strip() for cell in cells):
            # Missing cells at the end are empty; too many are not ours to guess at.
            record = dict(zip(names, (cell.strip() for cell in cells), strict=False))
            try:
                if len(cells) > len(names):
                    raise DecodeError(f"{len(cells)} cells; the header has {len(names)}")
                given = {name: cell for name, cell in record.items() if cell}
                yield reader.line_num, outcome_row({**defaults, **given}, recorded_at_unix_nano)
            except DecodeError as err:
                yield reader.line_num, err


def _names(cells: Iterable[str]) -> list[str]:
    return [cell.strip().lower() for cell in cells]


def outcome_row(record: Mapping[str, str | None], recorded_at_unix_nano: int) -> OutcomeRow:
    """Makes the row of one outcome from its columns as text; `passed` and `score` are both NULL if it did not run.

    Raises:
        DecodeError: A value is none of its kind, or the record names no run.
    """
    passed, score = _passed(record.get("passed")), _score(record.get("reward") or record.get("score"))
    if (record.get("passed") or "").lower() in _DID_NOT_RUN:
        score = None
    elif passed is None and score is not None and record.get("reward"):
        passed = score >= 1 - _REWARD_ROUNDING
    if not any(record.get(key) for key in _KEYS):
        raise DecodeError("names no run; expected a task_id or a trajectory_id")
    source = record.get("source") or "checker"
    if source not in SOURCES:
        raise DecodeError(f"source is {_cut(source)}; expected {', '.join(SOURCES[:-1])} or {SOURCES[-1]}")
    return OutcomeRow(
        task_id=record.get("task_id"),
        trial=trial_of(record.get("trial")),
        trajectory_id=record.get("trajectory_id"),
        source=source,
        passed=passed,
        score=score,
        detail=record.get("detail"),
        recorded_at_unix_nano=recorded_at_unix_nano,
    )


def _passed(text: str | None) -> bool | None:
    if not text or text.lower() in _DID_NOT_RUN:
        return None
    if text.lower() in _YES:
        return True
    if text.lower() in _NO:
        return False
    raise DecodeError(f"passed is {_cut(text)}; expected true, false, or error if it could not run")


def _score(text: str | None) -> float | None:
    if not text:
        return None
    score = _float(text)
    if not math.isfinite(score):
        raise DecodeError(f"reward is {_cut(text)}; expected a number")
    return score


def trial_of(text: str | None) -> int | None:
    """Reads the number of a trial; None where there is none.

    Raises:
        DecodeError: It is no whole number.
    """
    if not text:
        return None
    # A table with gaps holds 3 as 3.0.
    trial = _float(text)
    if not trial.is_integer() or not 0 <= trial <= _MAX_TRIAL:
        raise DecodeError(f"trial is {_cut(text)}; expected a whole number")
    return int(trial)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _cut(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "...")
