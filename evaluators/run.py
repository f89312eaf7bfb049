"""Runs the evaluators over the store: binds parameters, collects findings and measurements, says whether it passed."""

import math
import secrets
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import duckdb
import orjson

from agenttrace.config import Settings
from agenttrace.errors import ConfigError, UsageError
from agenttrace.evaluators import answers, cases, catalog, gate, metrics, prepare
from agenttrace.evaluators.catalog import Evaluator
from agenttrace.evaluators.results import (
    RANK,
    Evaluation,
    Finding,
    Measurement,
    NotEvaluable,
    finding_id,
    fingerprint,
)
from agenttrace.spool import EvaluationRow, Spool, spool_folder
from agenttrace.store import open_store

# A slice of this many steps keeps evaluators within about 1 GB; fewer, larger slices are faster.
_SLICE_STEPS = 1_000_000
# Beyond this many runs with one and the same reason, the rest is one row that says how many.
_MAX_SAME_REASON = 10_000


def evaluate(
    db: Path,
    settings: Settings,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    only: Collection[str] | None = None,
    label: str | None = None,
    include_open: bool = False,
    fail_on: str = "error",
) -> Evaluation:
    """Judges the runs in a store; nothing is written.

    The store is opened read-only, slice by slice, and never held for longer than a slice takes.

    Args:
        db: The DuckDB file.
        settings: Tools, budgets, cases, parameters and thresholds.
        since: Only runs that start at or after this.
        until: Only runs that start before this.
        only: Names of evaluators; None or empty is all.
        label: Name of this evaluation.
        include_open: Judge runs that may still go on, too.
        fail_on: The lowest severity that makes `passed` False: error, warning, note or never.

    Raises:
        ConfigError: An evaluator, a parameter, a case or a threshold is wrong, or an evaluator's query fails.
        UsageError: `only` names no evaluator.
        StoreError: The store cannot be read.
    """
    evaluators = _wanted(settings, only)
    job = _Job(db, settings, evaluators, since, until, include_open)
    job.judge()
    verdicts = gate.verdicts(settings.thresholds, job.measurements)
    passed = job.passed(fail_on, verdicts)
    run: dict[str, Any] = {
        "run_id": secrets.token_hex(8),
        "label": label,
        "started_at": job.started_at.isoformat(),
        "finished_at": datetime.now(UTC).isoformat(),
        "since": since.isoformat() if since else None,
        "until": until.isoformat() if until else None,
        "trajectories": job.runs,
        "passed": passed,
        "config_hash": settings.hash(),
        "evaluator_versions": {evaluator.name: evaluator.version for evaluator in evaluators},
    }
    return Evaluation(
        run=run,
        passed=passed,
        findings=job.findings,
        measurements=job.measurements,
        not_evaluable=job.not_evaluable(),
        cases=job.cases(),
        gate=verdicts,
    )


def write_evaluation(db: Path, evaluation: Evaluation) -> None:
    """Puts an evaluation into the store's spool, in one segment: a run is in the store whole or not at all.

    Raises:
        SpoolError: The spool is full.
        OSError: The disk is full or the folder cannot be written.
    """
    rows = evaluation.rows
    row = EvaluationRow(
        run=_json(evaluation.run),
        findings=_json(rows(evaluation.findings)),
        measurements=_json(rows(evaluation.measurements)),
        not_evaluable=_json(rows(evaluation.not_evaluable)),
    )
    Spool(spool_folder(db)).write("evaluation", [row])


class _Job:
    """One evaluation while it runs."""

    def __init__(
        self,
        db: Path,
        settings: Settings,
        evaluators: list[Evaluator],
        since: datetime | None,
        until: datetime | None,
        include_open: bool,
    ) -> None:
        self.started_at = datetime.now(UTC)
        self.runs = 0
        self.findings: list[Finding] = []
        self.measurements: list[Measurement] = []
        self._db = db
        self._settings = settings
        self._evaluators = evaluators
        self._whole_store = since is None and until is None
        self._selection = prepare.Selection(since, until, include_open)
        self._blind: list[NotEvaluable] = []
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._tasks: dict[str, str | None] = {}
        self._case_runs: dict[str, int] = {}
        shared = settings.tools.model_dump()
        self._values = {e.name: e.values(settings.evaluators.get(e.name, {}), shared) for e in evaluators}

    def judge(self) -> None:
        """Runs everything; findings come out worst first, in an order that depends on nothing but their content."""
        local = [evaluator for evaluator in self._evaluators if evaluator.scope != "summary"]
        summary = [evaluator for evaluator in self._evaluators if evaluator.scope == "summary"]
        with open_store(self._db) as con:
            slices = max(1, math.ceil(_count(con, "steps") / _SLICE_STEPS))
        for index in range(slices):
            with open_store(self._db) as con:
                self._judge_slice(con, local, replace(self._selection, slices=slices), index)
        self.findings.sort(key=_order)
        with open_store(self._db) as con:
            self._summarise(con, summary)
        self._compare(summary)

    def passed(self, fail_on: str, verdicts: Iterable[Mapping[str, Any]]) -> bool | None:
        """Says whether the evaluation passed; None is no pass: nothing, or nothing of a hard gate, was evaluable."""
        hard = [verdict["passed"] for verdict in verdicts if verdict["gate"] == "hard"]
        bad = fail_on != "never" and any(RANK[finding.severity] >= RANK[fail_on] for finding in self.findings)
        if bad or False in hard:
            return False
        if None in hard or not self._anything_evaluable():
            return None
        return True

    def not_evaluable(self) -> list[NotEvaluable]:
        """Returns what could not be judged, without thousands of rows that say the same."""
        kept: list[NotEvaluable] = []
        counts: Counter[tuple[str, str, str]] = Counter()
        for row in sorted(set(self._blind), key=lambda row: tuple(part or "" for part in row)):
            key = (row.evaluator, row.kind, row.reason)
            counts[key] += 1
            if counts[key] <= _MAX_SAME_REASON:
                kept.append(row)
        for (evaluator, kind, reason), count in counts.items():
            if count > _MAX_SAME_REASON:
                kept.append(NotEvaluable(evaluator, kind, None, f"{reason} ({count - _MAX_SAME_REASON} more runs)"))
        return kept

    def cases(self) -> list[dict[str, Any]]:
        """Returns one verdict per benchmark case: failed with an error in any run, None where none could be judged."""
        errors: dict[str | None, set[str]] = defaultdict(set)
        for finding in self.findings:
            if finding.severity == "error" and finding.trajectory_id is not None:
                errors[self._tasks.get(finding.trajectory_id)].add(finding.trajectory_id)
        unjudged = Counter(self._tasks.get(trajectory_id) for trajectory_id in self._unjudged() if trajectory_id)
        return [
            {
                "case_id": case["case_id"],
                "runs": (runs := self._case_runs.get(case["case_id"], 0)),
                "failed_runs": (failed := len(errors[case["case_id"]])),
                "passed": None if not failed and runs <= unjudged[case["case_id"]] else not failed,
            }
            for case in cases.read(self._settings.cases.path)
        ]

    def _judge_slice(
        self, con: duckdb.DuckDBPyConnection, evaluators: list[Evaluator], selection: prepare.Selection, index: int
    ) -> None:
        count = prepare.select(con, selection, index)
        self.runs += count
        if count == 0:
            return
        prepare.relations(con, self._settings, {name for evaluator in evaluators for name in evaluator.reads})
        prepare.lock_down(con)
        for evaluator in evaluators:
            rows = answers.rows(con, evaluator, self._values[evaluator.name])
            if evaluator.returns == "measurements":
                self.measurements += [answers.measurement(evaluator, row) for row in rows]
            else:
                self._take(con, evaluator, rows)

    def _take(self, con: duckdb.DuckDBPyConnection, evaluator: Evaluator, rows: list[dict[str, Any]]) -> None:
        """Keeps the rows about judged runs; those about other runs of their sessions are not this evaluation's."""
        ids = sorted({row["trajectory_id"] for row in rows if row["trajectory_id"] is not None})
        places = {
            place[0]: place[1:]
            for place in con.execute(
                "SELECT trajectory_id, service_name, agent_name, task_id FROM trajectories"
                " SEMI JOIN judged USING (trajectory_id) WHERE trajectory_id IN (SELECT unnest($ids::VARCHAR[]))",
                {"ids": ids},
            ).fetchall()
        }
        for row in rows:
            place = places.get(row["trajectory_id"])
            if place is not None:
                self._tasks[row["trajectory_id"]] = place[2]
                self._keep(evaluator, row, place)

    def _keep(
        self, evaluator: Evaluator, row: dict[str, Any], place: tuple[str | None, str | None, str | None]
    ) -> None:
        evidence = answers.evidence(row)
        kind = row["kind"]
        if kind == "not_evaluable":
            concerned = str(evidence.get("kind") or kind)
            self._blind.append(NotEvaluable(evaluator.name, concerned, row["trajectory_id"], row["message"]))
            return
        answers.check(evaluator, row)
        related = list(row.get("related_span_ids") or [])
        spans = [span_id for span_id in (row["span_id"], *related) if span_id is not None]
        same = (evaluator.name, kind, row["trajectory_id"], *sorted(spans))
        tool = row.get("tool_name")
        self.findings.append(
            Finding(
                finding_id=finding_id(evaluator.name, kind, row["trajectory_id"], spans, self._seen[same]),
                fingerprint=fingerprint(evaluator.name, kind, *place, tool),
                evaluator=evaluator.name,
                kind=kind,
                severity=row["severity"],
                state=None,
                trajectory_id=row["trajectory_id"],
                trace_id=row["trace_id"],
                span_id=row["span_id"],
                related_span_ids=related,
                tool_name=tool,
                message=row["message"],
                evidence=evidence,
            )
        )
        self._seen[same] += 1

    def _summarise(self, con: duckdb.DuckDBPyConnection, evaluators: list[Evaluator]) -> None:
        if prepare.select(con, self._selection, 0) == 0:
            return
        reads = {name for evaluator in evaluators for name in evaluator.reads}
        prepare.relations(con, self._settings, reads, with_sessions=False)
        prepare.lock_down(con)
        self._case_runs = dict(
            con.execute("SELECT task_id, count(*) FROM trajectories WHERE task_id IS NOT NULL GROUP BY ALL").fetchall()
        )
        self.measurements += self._rates(con)
        verdicts = [metrics.Verdict(*row) for row in prepare.verdicts(con, whole_store=self._whole_store)]
        self.measurements += metrics.of_outcomes(verdicts, self.runs)
        for evaluator in evaluators:
            rows = answers.rows(con, evaluator, self._values[evaluator.name])
            if evaluator.returns == "measurements":
                self.measurements += [answers.measurement(evaluator, row) for row in rows]
            else:
                self._take(con, evaluator, rows)

    def _compare(self, evaluators: list[Evaluator]) -> None:
        """Sets the numbers of summaries against those of the period of equal length before `since`."""
        since = self._selection.since
        evaluators = [evaluator for evaluator in evaluators if evaluator.returns == "measurements"]
        if since is None or not evaluators or not self.runs:
            return
        length = (self._selection.until or self.started_at) - since
        before = replace(self._selection, since=since - length, until=since)
        previous: list[Measurement] = []
        with open_store(self._db) as con:
            if prepare.select(con, before, 0) == 0:
                return
            reads = {name for evaluator in evaluators for name in evaluator.reads}
            prepare.relations(con, self._settings, reads, with_sessions=False)
            prepare.lock_down(con)
            for evaluator in evaluators:
                rows = answers.rows(con, evaluator, self._values[evaluator.name])
                previous += [answers.measurement(evaluator, row) for row in rows]
        self.measurements += metrics.against_previous(self.measurements, previous)

    def _rates(self, con: duckdb.DuckDBPyConnection) -> list[Measurement]:
        rates: list[Measurement] = []
        for name in (evaluator.name for evaluator in self._evaluators if evaluator.name in metrics.RATES):
            # A note tells of something worth a look, not of a fault.
            flagged = {f.trajectory_id for f in self.findings if f.evaluator == name and f.severity != "note"}
            blind = {b.trajectory_id for b in self._blind if b.evaluator == name and b.kind != metrics.ACROSS_RUNS}
            clusters = [metrics.Cluster(*row) for row in prepare.clusters(con, flagged, blind)]
            rates.append(metrics.rate(metrics.RATES[name], clusters))
        return rates

    def _anything_evaluable(self) -> bool:
        """Whether some run was judged in full by some evaluator."""
        return self.runs > len(self._unjudged())

    def _unjudged(self) -> set[str | None]:
        """Returns the runs that no evaluator could judge in full; measuring alone is no judgement, and cannot fail."""
        blind: dict[str, set[str | None]] = {e.name: set() for e in self._evaluators if e.returns == "findings"}
        for row in self._blind:
            if row.kind != metrics.ACROSS_RUNS and row.evaluator in blind:
                blind[row.evaluator].add(row.trajectory_id)
        return set[str | None].intersection(*blind.values()) if blind else set()


def _wanted(settings: Settings, only: Collection[str] | None) -> list[Evaluator]:
    known = catalog.load(settings.evaluator_paths)
    for name in settings.evaluators:
        if name not in known:
            raise ConfigError(f"evaluators.{name}: no such evaluator; {_nearest(name, known)}")
    for name in only or ():
        if name not in known:
            raise UsageError(f"no evaluator {name!r}; {_nearest(name, known)}")
    return [evaluator for name, evaluator in known.items() if not only or name in only]


def _nearest(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def _order(finding: Finding) -> tuple[int, str, str, str, str]:
    return (-RANK[finding.severity], finding.evaluator, finding.kind, finding.trajectory_id or "", finding.finding_id)


def _count(con: duckdb.DuckDBPyConnection, table: str) -> int:
    row = con.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
    return int(row[0]) if row else 0


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
