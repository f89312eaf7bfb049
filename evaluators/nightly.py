"""The nightly job: judges what has come since the night before, each run once, and says which faults are new.

A night lasts from noon to noon, so that a job that is due at 23:00 and starts at 00:20 is still that night's, and on a
day when the clocks change there is one all the same. Which runs a night has seen, and with which records, stands in the
ledger, the table `judgements`: neither the time at which a run began nor the clock of its host decides.
"""

import hashlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from agenttrace import private
from agenttrace.config import Settings
from agenttrace.errors import StoreBusyError, UsageError
from agenttrace.evaluators import catalog, prepare, storing
from agenttrace.evaluators.results import RANK, RESOLVED, WITHDRAWN, Evaluation, Fault, Finding, Night
from agenttrace.evaluators.run import evaluate
from agenttrace.spool import locked_folder, spool_folder
from agenttrace.store import open_store

NOON = time(12)
# An agent that ran in each of so many nights is missed when it does not.
_USUAL_NIGHTS = 3
_WAIT_S = 600.0
_NEWS = {"new": 0, "back": 1}
_ENDED = (RESOLVED, WITHDRAWN)

Group = tuple[str | None, str | None, str | None]
"""Service, agent and task: what a fault belongs to."""


class Waiting(NamedTuple):
    """A run to be judged; `is_new` is False where a night has seen it before more of it arrived."""

    trajectory_id: str
    revision: int
    is_new: bool
    group: Group


class Part(NamedTuple):
    """Runs of one night that the same evaluators have to judge; `seen` also has those that are not in the sample."""

    night: date
    evaluators: tuple[str, ...]
    runs: list[Waiting]
    seen: list[Waiting]


def zone(name: str) -> ZoneInfo:
    """Returns a time zone.

    Raises:
        UsageError: There is none of this name.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = available_timezones()
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}?" if close else "expected a name such as Europe/Berlin"
        if not known:
            hint = "this machine has no time zones; install the package tzdata"
        raise UsageError(f"nightly: --tz {name!r} is no time zone; {hint}") from error


def night_of(moment: datetime, timezone: ZoneInfo) -> date:
    """Returns the night to which a moment belongs, by the date on which it begins."""
    local = moment.astimezone(timezone)
    return local.date() if local.time() >= NOON else local.date() - timedelta(days=1)


def bounds(night: date, timezone: ZoneInfo) -> tuple[datetime, datetime]:
    """Returns when a night begins and ends, in UTC; where the clocks change it has 23 or 25 hours."""
    begin, end = (datetime.combine(day, NOON, timezone).astimezone(UTC) for day in (night, night + timedelta(days=1)))
    return begin, end


@contextmanager
def alone(db: Path, wait_s: float = _WAIT_S, *, tell: Callable[[str], None] = lambda _: None) -> Generator[None]:
    """Keeps out a second nightly job on the same store, which waits until the first has ended, and tells so.

    Raises:
        StoreBusyError: The other one takes longer than that.
    """
    folder = spool_folder(db)
    private.make_folder(folder)
    with locked_folder(folder, 0.0) as is_first:
        if is_first:
            yield
            return
    tell(f"{db}: another nightly job is at work; waiting for its end")
    with locked_folder(folder, wait_s) as is_alone:
        if not is_alone:
            raise StoreBusyError(
                f"{db}: another nightly job has been at work for {wait_s / 60:.0f} minutes; wait for its end."
            )
        yield


def judge(
    db: Path,
    settings: Settings,
    night: date,
    timezone: ZoneInfo,
    *,
    sample: float | None = None,
    fail_on: str = "error",
) -> Evaluation:
    """Judges the runs that wait, and puts the evaluation and its ledger into the store's spool; `alone` comes first.

    Args:
        db: The store, with all that has arrived.
        settings: What `evaluate` takes, and when a fault is resolved.
        night: The night, by the date on which it begins.
        timezone: Whose nights they are.
        sample: Share of the runs that is judged; None: all.
        fail_on: The lowest severity that makes `passed` False.

    Raises:
        AgentTraceError: As `evaluate` and `write_evaluation` do.
    """
    with open_store(db) as con:
        seen = [Waiting(*row[:3], group=row[3:6]) for row in prepare.rows(con, "night_waiting")]
    part = Part(night, (), [run for run in seen if in_sample(run.trajectory_id, sample)], seen)
    return judge_part(db, settings, part, timezone, sample=sample, fail_on=fail_on)


def backfill(
    db: Path, settings: Settings, first: date, last: date, timezone: ZoneInfo, *, sample: float | None = None
) -> list[Part]:
    """Returns what there is to judge of past nights: runs that an evaluator has not judged as it is and as they are.

    A run belongs to the night in which its last record arrived.
    """
    known = catalog.load(settings.evaluator_paths)
    parts: list[Part] = []
    with open_store(db) as con:
        night = first
        while night <= last:
            since, until = bounds(night, timezone)
            values = {"since": since, "until": until, "config_hash": settings.hash()}
            versions = [evaluator.version for evaluator in known.values()]
            rows = prepare.rows(con, "night_lacking", evaluators=list(known), versions=versions, **values)
            lacking: dict[tuple[str, ...], list[Waiting]] = {}
            for row in rows:
                lacking.setdefault(tuple(row[6]), []).append(Waiting(*row[:3], group=row[3:6]))
            for evaluators, seen in lacking.items():
                runs = [run for run in seen if in_sample(run.trajectory_id, sample)]
                if runs:
                    parts.append(Part(night, evaluators, runs, runs))
            night += timedelta(days=1)
    return parts


def in_sample(trajectory_id: str, share: float | None) -> bool:
    """Tells whether a run is in a sample; a larger sample holds the smaller ones, on every machine and every night."""
    if share is None:
        return True
    return int.from_bytes(hashlib.sha256(trajectory_id.encode()).digest()[:8]) < share * 2**64


def judge_part(
    db: Path, settings: Settings, part: Part, timezone: ZoneInfo, *, sample: float | None = None, fail_on: str = "error"
) -> Evaluation:
    """Judges some runs of a night, as `judge` does."""
    runs = [run.trajectory_id for run in part.runs]
    # A threshold on what other evaluators measure says nothing about this part.
    judging = settings.model_copy(update={"thresholds": {}}) if part.evaluators else settings
    evaluation = evaluate(db, judging, runs=runs, only=part.evaluators, fail_on=fail_on)
    history = _History(db, settings, part, evaluation)
    faults = list(history.faults())
    passed = _passed(evaluation.passed, part)
    changes = {"night": part.night.isoformat(), "passed": passed, "config_hash": settings.hash()}
    evaluation = replace(
        evaluation,
        run=evaluation.run | changes,
        passed=passed,
        findings=sorted((history.dated(finding) for finding in evaluation.findings), key=_order),
        night=history.night(timezone, sample, faults),
        judged=runs,
    )
    judged = set(runs)
    ledger = [storing.Seen(*run[:2], run.trajectory_id in judged, run.is_new) for run in part.seen]
    storing.write_evaluation(db, evaluation, ledger, faults)
    return evaluation


def _passed(passed: bool | None, part: Part) -> bool | None:
    """A night in which no new run came is no pass, whatever late records have shown of earlier ones."""
    return passed if passed is False or part.evaluators or any(run.is_new for run in part.runs) else None


class _History:
    """What the nights before one knew, and what this one adds."""

    def __init__(self, db: Path, settings: Settings, part: Part, evaluation: Evaluation) -> None:
        self._part = part
        self._evaluation = evaluation
        self._settings = settings.nightly
        self._here = {each.fingerprint: each for each in sorted(evaluation.findings, key=_order, reverse=True)}
        night = part.night.isoformat()
        again: dict[str, Any] = {
            "night": night,
            "judged": [run.trajectory_id for run in part.runs],
            "evaluators": list(evaluation.run["evaluator_versions"]),
        }
        with open_store(db) as con:
            facts = prepare.rows(con, "night_facts", night=night)[0]
            self.previous, self._is_latest, self._arrived_until, self._open = facts
            rows = prepare.rows(con, "night_faults", **again)
            self._known = {row[0]: (Fault(*row[:-1]), bool(row[-1])) for row in rows}
            self._usual = prepare.rows(con, "night_agents", night=night, nights=_USUAL_NIGHTS)

    def dated(self, finding: Finding) -> Finding:
        """Returns a finding with the state of its fault."""
        return finding._replace(state=self._state(finding.fingerprint))

    def faults(self) -> Iterator[Fault]:
        """Returns what is known of each fault after this night."""
        groups = {run.trajectory_id: run.group for run in self._part.runs}
        for fingerprint, finding in self._here.items():
            service, agent, task = groups[finding.trajectory_id or ""]
            yield Fault(
                fingerprint,
                self._state(fingerprint),
                0,
                self._part.night.isoformat(),
                finding.evaluator,
                finding.kind,
                finding.severity,
                service,
                agent,
                task,
                finding.tool_name,
                finding.finding_id,
                finding.trajectory_id,
                finding.message,
            )
        # What a past night says now was not known in those that came after it.
        if self._is_latest:
            for fault, stands in self._known.values():
                if fault.fingerprint not in self._here and fault.state not in _ENDED:
                    yield self._unseen(fault, stands)

    def night(self, timezone: ZoneInfo, sample: float | None, faults: Sequence[Fault]) -> Night:
        """Returns what the night has to say beside its findings."""
        return Night(
            date=self._part.night.isoformat(),
            timezone=timezone.key,
            previous=self.previous,
            arrived_until=self._arrived_until,
            seen=len(self._part.seen),
            fresh=sum(run.is_new for run in self._part.seen),
            sample=sample,
            open=self._open,
            withdrawn=sum(fault.state == WITHDRAWN for fault in faults),
            silent=list(self._silent()),
            resolved=[fault for fault in faults if fault.state == RESOLVED],
        )

    def _state(self, fingerprint: str) -> str | None:
        if self.previous is None:
            return None
        if fingerprint not in self._known:
            return "new"
        return {RESOLVED: "back", WITHDRAWN: "new"}.get(self._known[fingerprint][0].state or "", "known")

    def _unseen(self, fault: Fault, stands: bool) -> Fault:
        if not stands:
            return fault._replace(state=WITHDRAWN)
        quiet = fault.quiet_nights + (self._vouching(fault) >= self._settings.min_runs)
        return fault._replace(state=RESOLVED if quiet >= self._settings.resolved_after else "quiet", quiet_nights=quiet)

    def _vouching(self, fault: Fault) -> int:
        """Counts the runs of this night that would have shown a fault."""
        if fault.evaluator not in self._evaluation.run["evaluator_versions"]:
            return 0
        group = fault.service_name, fault.agent_name, fault.task_id
        runs = {run.trajectory_id for run in self._part.runs if run.is_new and run.group == group}
        return len(runs - self._evaluation.unjudged.blind(fault.evaluator))

    def _silent(self) -> Iterator[tuple[str, float]]:
        here = {run.group[:2] for run in self._part.seen if run.is_new}
        for service, agent, runs in self._usual:
            if (service, agent) not in here:
                yield agent or service or "unnamed agent", runs


def _order(finding: Finding) -> tuple[Any, ...]:
    """Worst first; of equal ones those that are news."""
    place = (finding.evaluator, finding.kind, finding.trajectory_id or "", finding.finding_id)
    return (-RANK[finding.severity], _NEWS.get(finding.state or "", 2), *place)
