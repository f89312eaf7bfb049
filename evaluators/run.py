"""Runs the evaluators over the store: binds parameters, collects findings and measurements, says whether it passed."""

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import duckdb

from agenttrace.config import Settings
from agenttrace.errors import ConfigError, UsageError
from agenttrace.evaluators import answers, case_verdicts, cases, catalog, gate, metrics, prepare
from agenttrace.evaluators.catalog import Evaluator
from agenttrace.evaluators.measuring import Measuring
from agenttrace.evaluators.results import (
    RANK,
    Evaluation,
    Finding,
    Measurement,
    Unjudged,
    finding_id,
    fingerprint,
)
from agenttrace.store import open_store

# A slice of this many steps keeps evaluators within about 1 GB; fewer, larger slices are faster.
_SLICE_STEPS = 1_000_000
# Beyond this many runs with one and the same reason, the rest is one row that says how many.
_MAX_SAME_REASON = 10_000
# An evaluator that reads one of these asks what a benchmark case says of its runs.
_CASE_RELATIONS = frozenset({"cases", "sequence_matches", "outcome_checks"})


def evaluate(
    db: Path,
    settings: Settings,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    only: Collection[str] | None = None,
    label: str | None = None,
    include_open: bool = False,
    runs: Sequence[str] | None = None,
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
        runs: Only these trajectories; None is no limit.
        fail_on: The lowest severity that makes `passed` False: error, warning, note or never.

    Raises:
        ConfigError: An evaluator, a parameter, a case or a threshold is wrong, or an evaluator's query fails.
        UsageError: `only` names no evaluator.
        StoreError: The store cannot be read.
    """
    evaluators = _wanted(settings, only)
    job = _Job(db, settings, evaluators, prepare.Selection(since, until, include_open, runs=runs))
    job.judge()
    verdicts = gate.verdicts(settings.thresholds, job.measurements, job.offenders)
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
        not_evaluable=job.unjudged.rows(job.runs, _MAX_SAME_REASON),
        cases=job.cases(),
        gate=verdicts,
        unjudged=job.unjudged,
    )


class _Job:
    """One evaluation while it runs."""

    def __init__(
        self,
        db: Path,
        settings: Settings,
        evaluators: list[Evaluator],
        selection: prepare.Selection,
    ) -> None:
        self.started_at = datetime.now(UTC)
        self.runs = 0
        self.findings: list[Finding] = []
        self.measurements: list[Measurement] = []
        self.unjudged = Unjudged()
        self._db = db
        self._settings = settings
        self._evaluators = evaluators
        self._whole_store = (selection.since, selection.until, selection.runs) == (None, None, None)
        self._selection = selection
        self._seen: Counter[tuple[object, ...]] = Counter()
        self._tasks: dict[str, str | None] = {}
        self._cases = [case["case_id"] for case in cases.read(settings.cases.path)]
        self._case_runs: dict[str, list[str]] = {}
        judges = [evaluator for evaluator in evaluators if evaluator.returns == "findings"]
        # One that warns at most does not vouch for a run, unless no other was asked.
        self._vouching = [e.name for e in [e for e in judges if e.severity == "error"] or judges]
        self._measuring = Measuring([evaluator.name for evaluator in judges], with_cases=bool(self._cases))
        shared = settings.tools.model_dump()
        self._values = {e.name: e.values(settings.evaluators.get(e.name, {}), shared) for e in evaluators}

    def judge(self) -> None:
        """Runs everything; findings come out worst first, in an order that depends on nothing but their content."""
        local = [evaluator for evaluator in self._evaluators if evaluator.scope != "summary"]
        summary = [evaluator for evaluator in self._evaluators if evaluator.scope == "summary"]
        with open_store(self._db) as con:
            prepare.select(con, self._selection)
            slices = prepare.slices(con, self._selection, _SLICE_STEPS)
        for part in slices:
            with open_store(self._db) as con:
                self._judge_slice(con, local, part)
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

    def cases(self) -> list[dict[str, Any]]:
        """Returns one verdict object per benchmark case."""
        checks = [e.name for e in self._evaluators if e.severity == "error" and _CASE_RELATIONS.intersection(e.reads)]
        return case_verdicts.verdicts(
            self._cases, self._case_runs, checks, self._vouching, self.findings, self.unjudged
        )

    def offenders(self, metric: str) -> Sequence[str]:
        """Returns the tasks or runs behind the value of a metric, worst first."""
        return self._measuring.offenders(metric, self._tasks)

    def _judge_slice(
        self, con: duckdb.DuckDBPyConnection, evaluators: list[Evaluator], selection: prepare.Selection
    ) -> None:
        count = prepare.select(con, selection)
        self.runs += count
        if count == 0:
            return
        prepare.relations(con, self._settings, {name for evaluator in evaluators for name in evaluator.reads})
        prepare.lock_down(con)
        self._ask(con, evaluators)
        self._measuring.count(con)

    def _ask(self, con: duckdb.DuckDBPyConnection, evaluators: list[Evaluator]) -> None:
        """Runs the queries, and keeps what they say of judged runs; other runs of their sessions are context."""
        places = {row[0]: row for row in prepare.rows(con, "places")}
        for evaluator in evaluators:
            rows = answers.rows(con, evaluator, self._values[evaluator.name])
            if evaluator.returns == "measurements":
                self.measurements += [answers.measurement(evaluator, row) for row in rows]
                continue
            for row in rows:
                if (place := places.get(row["trajectory_id"])) is not None:
                    self._keep(evaluator, row, *place)

    def _keep(
        self,
        evaluator: Evaluator,
        row: dict[str, Any],
        trajectory_id: str,
        service: str | None,
        agent: str | None,
        task: str | None,
    ) -> None:
        evidence = answers.evidence(row)
        kind = row["kind"]
        if kind == "not_evaluable":
            # One text object per run, not one per row: an evaluator without a rule has a row for every run.
            self.unjudged.add(evaluator.name, str(evidence.get("kind") or kind), trajectory_id, row["message"])
            return
        answers.check(evaluator, row)
        related = list(row.get("related_span_ids") or [])
        spans = [span_id for span_id in (row["span_id"], *related) if span_id is not None]
        same = (evaluator.name, kind, trajectory_id, *sorted(spans))
        tool = row.get("tool_name")
        self.findings.append(
            Finding(
                finding_id=finding_id(evaluator.name, kind, trajectory_id, spans, self._seen[same]),
                fingerprint=fingerprint(evaluator.name, kind, service, agent, task, tool),
                evaluator=evaluator.name,
                kind=kind,
                severity=row["severity"],
                state=None,
                trajectory_id=trajectory_id,
                trace_id=row["trace_id"],
                span_id=row["span_id"],
                related_span_ids=related,
                tool_name=tool,
                message=row["message"],
                evidence=evidence,
            )
        )
        self._seen[same] += 1
        self._tasks[trajectory_id] = task

    def _summarise(self, con: duckdb.DuckDBPyConnection, evaluators: list[Evaluator]) -> None:
        if prepare.select(con, self._selection) == 0:
            return
        reads = {name for evaluator in evaluators for name in evaluator.reads}
        prepare.relations(con, self._settings, reads, with_sessions=False)
        prepare.lock_down(con)
        self._case_runs = dict(prepare.rows(con, "case_runs", case_ids=self._cases))
        self.measurements += self._measuring.rates(con, self.findings, self.unjudged)
        self.measurements += self._measuring.outcomes(con, self.runs, whole_store=self._whole_store)
        self._ask(con, evaluators)

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
            if prepare.select(con, before) == 0:
                return
            reads = {name for evaluator in evaluators for name in evaluator.reads}
            prepare.relations(con, self._settings, reads, with_sessions=False)
            prepare.lock_down(con)
            for evaluator in evaluators:
                rows = answers.rows(con, evaluator, self._values[evaluator.name])
                previous += [answers.measurement(evaluator, row) for row in rows]
        self.measurements += metrics.against_previous(self.measurements, previous)

    def _anything_evaluable(self) -> bool:
        """Whether some run was judged in full by some evaluator that may fail it."""
        return self.runs > len(self.unjudged.by_all(self._vouching))


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
