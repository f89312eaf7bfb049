"""Runs on which checker, judge, human and evaluators disagree, and the human's word that settles it."""

import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb

from agenttrace import terminal
from agenttrace.config import Settings
from agenttrace.encode import clean_text
from agenttrace.evaluators import prepare
from agenttrace.evaluators.statistics import cohens_kappa
from agenttrace.redact import current_redaction
from agenttrace.show import moment, rows
from agenttrace.spans import OutcomeRow
from agenttrace.spool import Spool, spool_folder

Row = dict[str, Any]

_ID_LENGTH = 12
_DETAIL_WIDTH = 60


def make_relations(con: duckdb.DuckDBPyConnection, settings: Settings) -> None:
    """Makes `steps`, `trajectories`, `outcomes` and `current_findings` over all runs of the store."""
    prepare.select(con, prepare.Selection(None, None, include_open=True))
    prepare.relations(con, settings, {"outcomes"}, with_sessions=False)
    con.execute(_query("current_findings"))


def errors_of(con: duckdb.DuckDBPyConnection, trajectory_id: str) -> list[Row]:
    """Returns the findings of level error on one run: evaluator, kind, message, spans and tool; relations are made."""
    return rows(con, _query("errors"), {"trajectory_id": trajectory_id})


def overview(con: duckdb.DuckDBPyConnection) -> tuple[str, int]:
    """Returns the runs in question, newest first, and how far the channels agree; relations are made.

    Returns:
        The text, and how many runs are in question.
    """
    found = rows(con, _query("disagreements"))
    lines = [_listing(found), ""] if found else ["nothing to settle: no run on which the channels disagree"]
    return "\n".join([*lines, *_agreement(con)]), len(found)


def _listing(found: list[Row]) -> str:
    header = ("RUN", "STARTED (UTC)", "AGENT", "TASK", "CHECKER", "JUDGE", "EVALUATORS")
    cells = [
        (
            run["trajectory_id"][:_ID_LENGTH],
            moment(run["start_time"]),
            run["agent"] or "-",
            _task(run) or "-",
            _verdict(run["checker"]),
            _verdict(run["judge"]),
            _errors(run["errors"]) if run["errors"] else "-",
        )
        for run in found
    ]
    return terminal.table(header, cells, fit=terminal.width())


def _agreement(con: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Yields how many verdicts each channel has given, and how far each two of them agree."""
    counts = con.execute("SELECT source, count(*) FROM outcomes GROUP BY source ORDER BY source").fetchall()
    stored = con.execute("SELECT count(*) FROM stored_outcomes").fetchall()[0][0]
    if counts:
        yield "verdicts on runs: " + ", ".join(f"{count:,} by {source}" for source, count in counts)
    elif stored:
        yield f"none of the {stored:,} verdicts here names a run of this store: task_id and trial must be the run's own"
    else:
        yield "no verdicts yet: agenttrace.outcome(...) in a program, or agenttrace import outcomes.csv, records them"
    for first, second, *cells in con.execute(_query("agreements")).fetchall():
        kappa = cohens_kappa(*cells)
        shown = "kappa undefined: each gave one verdict throughout" if kappa is None else f"kappa {kappa:.2f}"
        yield f"{first} and {second} agree on {cells[0] + cells[3]:,} of {sum(cells):,} runs ({shown})"


def side_by_side(con: duckdb.DuckDBPyConnection, run: Row) -> str:
    """Returns all that was said of one run, in full; relations are made.

    Args:
        con: The store.
        run: Its row, as `show.find_run` gives it.
    """
    name = run["agent_name"] or run["service_name"] or "unnamed agent"
    lines = [f"run {run['trajectory_id']}  {terminal.inert(name)}  {moment(run['start_time'])} UTC"]
    lines += [terminal.inert(f"  task {task}") for task in [_task(run)] if task]
    lines += [terminal.inert(f"  user: {run['user_input']}")] if run["user_input"] is not None else []
    channels = rows(con, _query("channels"), {"trajectory_id": run["trajectory_id"]})
    for channel in channels:
        lines.append(f"{channel['source']}: {_word(channel)}  ({moment(channel['recorded_at'])} UTC)")
        lines += _indented(channel["detail"])
    if not channels:
        lines.append("no verdicts")
    errors = errors_of(con, run["trajectory_id"])
    lines.append(f"evaluators: {_errors(len(errors))}")
    for error in errors:
        lines += _indented(f"{error['evaluator']}/{error['kind']}: {error['message']}")
    return "\n".join(lines)


def settle(db: Path, run: Row, *, passed: bool, detail: str | None) -> None:
    """Writes a human's verdict on a run into the spool.

    Args:
        db: The DuckDB file.
        run: Row of the run, as `show.find_run` gives it.
        passed: The verdict.
        detail: Reason; secrets in it are hidden.

    Raises:
        SpoolError: The spool is full.
        OSError: The disk is full or the folder cannot be written.
    """
    shown = None if detail is None else clean_text(detail, redact=current_redaction())
    key = (run["task_id"], run["trial"], run["trajectory_id"])
    row = OutcomeRow(
        *key, source="human", passed=passed, score=None, detail=shown, recorded_at_unix_nano=time.time_ns()
    )
    Spool(spool_folder(db)).write("outcomes", [row])


def _verdict(channel: Row | None) -> str:
    if channel is None:
        return "-"
    detail = channel["detail"]
    return _word(channel) if detail is None else f"{_word(channel)}: {terminal.cut(detail, _DETAIL_WIDTH)}"


def _word(channel: Row) -> str:
    word = {True: "passed", False: "failed", None: "no verdict"}[channel["passed"]]
    return word if channel["score"] is None else f"{word}, score {channel['score']:g}"


def _errors(count: int) -> str:
    return f"{count:,} error{'' if count == 1 else 's'}" if count else "no errors"


def _indented(text: str | None) -> list[str]:
    return [] if text is None else [f"  {line}" for line in terminal.inert_lines(text).split("\n")]


def _task(run: Row) -> str:
    trial = "" if run["trial"] is None else f" #{run['trial']}"
    return "" if run["task_id"] is None else f"{run['task_id']}{trial}"


def _query(name: str) -> str:
    return (resources.files("agenttrace.evaluators.relations") / f"{name}.sql").read_text(encoding="utf-8")
