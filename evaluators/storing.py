"""Puts an evaluation into the store, and reads that of a night from it."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from agenttrace.evaluators import prepare
from agenttrace.evaluators.results import RESOLVED, Evaluation, Fault, Finding, Measurement, Night, NotEvaluable
from agenttrace.spool import EvaluationRow, Spool, spool_folder
from agenttrace.store import open_store


class Seen(NamedTuple):
    """A run as a night has seen it.

    `judged` is False where it is not in the sample, `is_new` where a night had seen it before more of it arrived.
    """

    trajectory_id: str
    revision: int
    judged: bool
    is_new: bool


def write_evaluation(db: Path, evaluation: Evaluation, seen: Sequence[Seen] = (), faults: Sequence[Fault] = ()) -> None:
    """Puts an evaluation into the store's spool, in one segment: a run is in the store whole or not at all.

    Args:
        db: The store.
        evaluation: What was found.
        seen: The ledger of a night.
        faults: What is known of each fault after it.

    Raises:
        SpoolError: The spool is full.
        OSError: The disk is full or the folder cannot be written.
    """
    rows = evaluation.rows
    night = evaluation.night
    findings = evaluation.findings + [_last_finding(fault) for fault in (night.resolved if night else ())]
    details: dict[str, Any] = {"gate": evaluation.gate, "cases": evaluation.cases}
    if night is not None:
        details["night"] = night._replace(resolved=[])._asdict()
    ledger = {
        "trajectory_ids": [run.trajectory_id for run in seen],
        "revisions": [run.revision for run in seen],
        "judged": [run.judged for run in seen],
        "is_new": [run.is_new for run in seen],
    }
    row = EvaluationRow(
        run=_json({"night": None} | evaluation.run | {"details": details}),
        findings=_json(rows(findings)),
        measurements=_json(rows(evaluation.measurements)),
        not_evaluable=_json(rows(evaluation.not_evaluable)),
        judgements=_json(ledger),
        faults=_json([{"run_id": evaluation.run["run_id"], **fault._asdict()} for fault in faults]),
    )
    Spool(spool_folder(db)).write("evaluation", [row])


def read_night(db: Path, night: date, timezone: str) -> Evaluation | None:
    """Returns what was judged of a night of a time zone, as far as it is in the store; None where nothing was.

    Raises:
        StoreError: The store cannot be read.
    """
    with open_store(db) as con:
        runs = prepare.rows(con, "night_runs", night=night.isoformat(), timezone=timezone)
        if not runs:
            return None
        run_id = runs[0][0]
        findings = [_finding(row) for row in prepare.rows(con, "night_findings", run_id=run_id)]
        resolved = [Fault(*row) for row in prepare.rows(con, "night_resolved", run_id=run_id)]
        measurements = [
            Measurement(metric, orjson.loads(dimensions), *numbers)
            for metric, dimensions, *numbers in prepare.rows(con, "night_measurements", run_id=run_id)
        ]
        judged = [trajectory_id for (trajectory_id,) in prepare.rows(con, "night_judged", run_id=run_id)]
        unjudged = [NotEvaluable(*row) for row in prepare.rows(con, "night_not_evaluable", run_id=run_id)]
    run = _run(runs[0][:-1], night)
    details: dict[str, Any] = orjson.loads(runs[0][-1])
    facts: dict[str, Any] = details["night"]
    facts |= {"silent": [(name, number) for name, number in facts["silent"]], "resolved": resolved}
    return Evaluation(
        run=run,
        passed=run["passed"],
        findings=findings,
        measurements=measurements,
        not_evaluable=unjudged,
        cases=details["cases"],
        gate=details["gate"],
        night=Night(**facts),
        judged=judged,
    )


def _last_finding(fault: Fault) -> Finding:
    """Returns what a resolved fault leaves in the table of findings, where whoever compares nights looks for it."""
    return Finding(
        fault.finding_id,
        fault.fingerprint,
        fault.evaluator,
        fault.kind,
        fault.severity,
        RESOLVED,
        fault.trajectory_id,
        None,
        None,
        [],
        fault.tool_name,
        fault.message,
        {"last_seen": fault.last_seen},
    )


def _finding(row: Sequence[Any]) -> Finding:
    *columns, evidence = row
    return Finding(*columns, evidence=orjson.loads(evidence))


def _run(row: Sequence[Any], night: date) -> dict[str, Any]:
    run_id, started_us, finished_us, trajectories, passed, config_hash, versions = row
    started_at, finished_at = (datetime.fromtimestamp(us / 1e6, UTC).isoformat() for us in (started_us, finished_us))
    return {
        "run_id": run_id,
        "label": None,
        "started_at": started_at,
        "finished_at": finished_at,
        "since": None,
        "until": None,
        "trajectories": trajectories,
        "passed": passed,
        "config_hash": config_hash,
        "evaluator_versions": orjson.loads(versions),
        "night": night.isoformat(),
    }


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
