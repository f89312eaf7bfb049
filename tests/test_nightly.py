"""The nightly job: what a night is, what it judges, and what it says of the nights before."""

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from agenttrace.config import Nightly, Settings, Threshold
from agenttrace.errors import UsageError
from agenttrace.evaluators import catalog, nightly, storing
from agenttrace.evaluators.reports import summary
from agenttrace.evaluators.results import Evaluation
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import refresh

MakeSpan = Callable[..., SpanRow]
BERLIN = nightly.zone("Europe/Berlin")

# Finds a fault in each run that says so, and cannot judge those that say that.
EVALUATOR = """/* +++
name = "confessions"
returns = "findings"
scope = "trajectory"
severity = "error"
question = "Does the run confess a fault?"
reads = ["trajectories"]
limits = "Only what it says."
references = []
[columns]
trajectory_id = "run"
trace_id = "trace"
span_id = "none"
kind = "confessed or not_evaluable"
severity = "error"
message = "what it says"
tool_name = "the fault"
+++ */
SELECT trajectory_id, trace_id, NULL::VARCHAR AS span_id,
    CASE WHEN final_response = 'silence' THEN 'not_evaluable' ELSE 'confessed' END AS kind, 'error' AS severity,
    'it said ' || final_response AS message, final_response AS tool_name
FROM trajectories WHERE final_response <> 'fine'
"""


class World:
    """A store whose runs arrive when a test says so, and the nights over it."""

    def __init__(self, store: Path, make_span: MakeSpan, tmp_path: Path) -> None:
        folder = tmp_path / "own"
        folder.mkdir()
        (folder / "confessions.sql").write_text(EVALUATOR)
        self.store = store
        self.settings = Settings(evaluator_paths=[folder], nightly=Nightly(resolved_after=2, min_runs=2))
        self._make_span = make_span
        self._number = 0

    def run(self, says: str, at: datetime, **stated: Any) -> int:
        """Lets a run arrive, and returns its number."""
        self._number += 1
        self.span(self._number, at, says=says, **stated)
        return self._number

    def span(
        self,
        trace: int,
        at: datetime,
        *,
        says: str = "",
        agent: str = "shop",
        task: str | None = None,
        ended: bool = True,
        number: int = 1,
        under: int | None = None,
    ) -> None:
        """Lets a span of a run arrive: the first, and any that says something, is an agent's, others are tool calls."""
        is_agent = number == 1 or bool(says)
        stated = {
            "gen_ai.operation.name": "invoke_agent" if is_agent else "execute_tool",
            "gen_ai.agent.name": agent,
        }
        stated |= {"agenttrace.final_response": says} if is_agent else {"gen_ai.tool.name": "look"}
        if task:
            stated["agenttrace.task.id"] = task
        parent = under if is_agent else 1
        row = self._make_span(
            trace,
            span_id=f"{number:016x}",
            parent_span_id=None if parent is None else f"{parent:016x}",
            name="invoke_agent" if is_agent else "execute_tool look",
            operation_name=stated["gen_ai.operation.name"],
            tool_name=None if is_agent else "look",
            agent_name=agent,
            attributes=json.dumps(stated),
        )
        if not ended:
            row = row._replace(end_time_unix_nano=None)
        path = Spool(spool_folder(self.store)).write("spans", [row])
        path.rename(path.with_name(f"{int(at.timestamp() * 1e9):020d}{path.name[20:]}"))

    def night(self, day: date, **options: Any) -> Evaluation:
        """Judges a night, unless it has been; in either case what the store has of it is what was found."""
        refresh(self.store, settings=self.settings)
        kept = storing.read_night(self.store, day, BERLIN.key)
        if kept is not None:
            return kept
        found = nightly.judge(self.store, self.settings, day, BERLIN, **options)
        refresh(self.store, settings=self.settings)
        kept = storing.read_night(self.store, day, BERLIN.key)
        if found.run["trajectories"]:
            assert kept is not None
            assert json.dumps(kept.as_dict()) == json.dumps(found.as_dict())
        else:
            assert kept is None
        return found

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(self.store, read_only=True) as con:
            return con.execute(query).fetchall()

    def check_ledger(self) -> None:
        """Each run that has ended was judged once as it is, by each version of each evaluator."""
        assert (
            self.rows(
                "SELECT trajectory_id FROM judgements JOIN evaluation_runs USING (run_id) WHERE judged"
                " GROUP BY trajectory_id, revision, evaluator_versions::VARCHAR HAVING count(*) > 1"
            )
            == []
        )
        assert (
            self.rows(
                "SELECT trajectory_id FROM trajectories ANTI JOIN judgements USING (trajectory_id, revision)"
                " WHERE complete"
            )
            == []
        )


@pytest.fixture
def world(
    store: Path, empty_store: Path, make_span: MakeSpan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> World:
    """Nights with one evaluator of our own: the catalogue would take a second each."""
    shutil.copyfile(empty_store, store)
    load = catalog.load

    def own(folders: Sequence[Path]) -> dict[str, catalog.Evaluator]:
        return {name: found for name, found in load(folders).items() if name == "confessions"}

    monkeypatch.setattr(catalog, "load", own)
    return World(store, make_span, tmp_path)


def states(evaluation: Evaluation) -> dict[str, str | None]:
    """Returns what each fault is, by what the runs said."""
    assert evaluation.night is not None
    found = {finding.tool_name: finding.state for finding in evaluation.findings}
    return found | {fault.tool_name: fault.state for fault in evaluation.night.resolved}


def at(day: int, hour: int = 20) -> datetime:
    """A moment of November 2025."""
    return datetime(2025, 11, 1, hour, tzinfo=UTC) + timedelta(days=day - 1)


def night(day: int) -> date:
    return date(2025, 11, 1) + timedelta(days=day - 1)


# --- what a night is


@pytest.mark.parametrize(
    ("moment", "timezone", "expected"),
    [
        ("2026-01-31T23:00+00:00", "UTC", "2026-01-31"),
        ("2026-02-01T00:20+00:00", "UTC", "2026-01-31"),
        ("2026-02-01T11:59+00:00", "UTC", "2026-01-31"),
        ("2026-02-01T12:00+00:00", "UTC", "2026-02-01"),
        ("2026-02-01T01:00+00:00", "America/Los_Angeles", "2026-01-31"),
        ("2026-02-01T21:00+00:00", "America/Los_Angeles", "2026-02-01"),
        # 02:30 is twice there on the day when summer time ends.
        ("2025-10-26T00:30+00:00", "Europe/Berlin", "2025-10-25"),
        ("2025-10-26T01:30+00:00", "Europe/Berlin", "2025-10-25"),
        # A job every 24 hours crosses midnight, and still has one night after the other.
        ("2025-10-24T22:15+00:00", "Europe/Berlin", "2025-10-24"),
        ("2025-10-25T22:15+00:00", "Europe/Berlin", "2025-10-25"),
        ("2025-10-26T22:15+00:00", "Europe/Berlin", "2025-10-26"),
    ],
)
def test_a_night_lasts_from_noon_to_noon(moment: str, timezone: str, expected: str) -> None:
    found = nightly.night_of(datetime.fromisoformat(moment), nightly.zone(timezone))
    assert found.isoformat() == expected


@pytest.mark.parametrize(("day", "hours"), [("2025-03-29", 23), ("2025-10-25", 25), ("2025-10-26", 24)])
def test_nights_have_23_and_25_hours_where_clocks_change(day: str, hours: int) -> None:
    begin, end = nightly.bounds(date.fromisoformat(day), BERLIN)
    assert end - begin == timedelta(hours=hours)
    assert nightly.night_of(begin, BERLIN).isoformat() == day
    assert nightly.night_of(end - timedelta(microseconds=1), BERLIN).isoformat() == day


@pytest.mark.parametrize("name", ["Europe/Berln", "", "../etc/passwd", "Nowhere/Land\x00"])
def test_an_unknown_time_zone_is_named(name: str) -> None:
    with pytest.raises(UsageError, match=r"--tz .* is no time zone"):
        nightly.zone(name)


# --- what is new


def test_faults_are_new_known_resolved_and_back(world: World) -> None:
    said: list[dict[str, str | None]] = []
    for day, runs in enumerate(
        [
            ["rice", "fine"],  # the first night
            ["rice", "oil", "fine"],
            ["fine", "fine"],  # one quiet night
            ["fine"],  # too few runs to count
            ["fine", "fine"],  # the second quiet night
            ["fine", "fine"],
            ["oil", "fine"],
            ["oil", "rice"],
        ],
        1,
    ):
        for says in runs:
            world.run(says, at(day))
        said.append(states(world.night(night(day))))
        world.check_ledger()
    assert said == [
        {"rice": None},
        {"rice": "known", "oil": "new"},
        {},
        {},
        {"rice": "resolved", "oil": "resolved"},
        {},
        {"oil": "back"},
        {"oil": "known", "rice": "back"},
    ]


def test_quiet_nights_are_those_in_which_that_agent_ran_at_that_task(world: World) -> None:
    for _ in range(2):
        world.run("rice", at(1), task="t1")
        world.run("rice", at(1), agent="other", task="t1")
    assert {finding.state for finding in world.night(night(1)).findings} == {None}
    for day in (2, 3):
        for _ in range(2):
            world.run("fine", at(day), task="t1")
            world.run("fine", at(day), agent="other", task="t2")
        found = world.night(night(day))
    [resolved] = found.night.resolved if found.night else []
    assert (resolved.agent_name, resolved.task_id, resolved.last_seen) == ("shop", "t1", "2025-11-01")


def test_late_spans_open_a_run_again_and_withdraw_what_was_said_of_it(world: World) -> None:
    late = world.run("rice", at(1))
    world.run("fine", at(1))
    first = world.night(night(1))
    assert len(first.findings) == 1
    # Another host's clock is behind: its span arrived, by that, before the others.
    world.span(late, at(1, 1), number=2)
    world.run("fine", at(2))
    second = world.night(night(2))
    assert second.run["trajectories"] == 2
    assert [finding.state for finding in second.findings] == ["known"]
    assert world.rows("SELECT run_id FROM findings") == [(second.run["run_id"],)]
    world.check_ledger()
    assert world.night(night(3)).run["trajectories"] == 0


def test_a_run_that_has_not_ended_waits_and_is_not_skipped(world: World) -> None:
    now = datetime.now(UTC)
    open_run = world.run("rice", now, ended=False)
    world.run("fine", now)
    first = world.night(night(1))
    assert first.run["trajectories"] == 1
    assert first.night is not None
    assert first.night.open == 1
    world.span(open_run, now, says="rice")
    second = world.night(night(2))
    assert states(second) == {"rice": "new"}
    world.check_ledger()


def test_a_second_start_in_one_night_judges_nothing(world: World) -> None:
    world.run("rice", at(1))
    first = world.night(night(1))
    world.run("oil", at(1, 23))
    assert world.night(night(1)).run == first.run
    assert states(world.night(night(2))) == {"oil": "new"}
    world.check_ledger()


def test_a_night_without_arrivals_is_an_alarm_and_no_pass(world: World) -> None:
    world.run("fine", at(2))
    assert world.night(night(2)).passed is True
    empty = world.night(night(3))
    assert empty.passed is None
    assert summary.verdict_line(empty) == (
        "NOT EVALUABLE: night of 2025-11-03, nothing has arrived since 2025-11-02 20:00 UTC"
    )
    # Somebody has mended the exporter, and starts the job again.
    world.run("fine", at(3, 23))
    assert world.night(night(3)).passed is True
    nights = world.rows("SELECT night::VARCHAR, trajectories FROM evaluation_runs ORDER BY night")
    assert nights == [("2025-11-02", 1), ("2025-11-03", 1)]


def test_an_agent_that_falls_silent_is_named(world: World) -> None:
    for day in range(1, 5):
        world.run("fine", at(day))
        if day < 4:
            world.run("fine", at(day), agent="cook")
            world.run("fine", at(day), agent="cook")
        found = world.night(night(day))
        assert summary.alarms(found) == (["agent cook has not run, which ran 2 times a night"] if day == 4 else [])
    assert found.passed is True


def test_a_sample_is_the_same_every_night_and_on_every_machine(world: World) -> None:
    for _ in range(200):
        world.run("rice", at(1))
    found = world.night(night(1), sample=0.2)
    judged = {finding.trajectory_id for finding in found.findings}
    assert 20 < len(judged) < 60
    assert judged == {
        run for (run,) in world.rows("SELECT trajectory_id FROM trajectories") if nightly.in_sample(run, 0.2)
    }
    assert all(nightly.in_sample(run or "", 0.5) for run in judged)
    assert summary.news(found)[1] == f"a sample of 0.2: {len(judged)} of 200 runs"
    assert nightly.in_sample("fdf33b7e6eff", 0.62) is True
    assert nightly.in_sample("fdf33b7e6eff", 0.61) is False
    # They are not judged later, either.
    assert world.night(night(2), sample=0.9).run["trajectories"] == 0


# --- past nights


def test_a_backfill_judges_what_lacks_and_nothing_twice(world: World) -> None:
    for day in (1, 2, 2, 3, 5):
        world.run("rice", at(day))
    refresh(world.store, settings=world.settings)
    parts = nightly.backfill(world.store, world.settings, night(1), night(3), BERLIN)
    assert [(part.night, len(part.runs)) for part in parts] == [(night(1), 1), (night(2), 2), (night(3), 1)]
    found: list[Evaluation] = []
    for part in parts[:2]:
        found.append(nightly.judge_part(world.store, world.settings, part, BERLIN))
        refresh(world.store, settings=world.settings)
    # It was killed here, and is started again.
    [last] = nightly.backfill(world.store, world.settings, night(1), night(3), BERLIN)
    found.append(nightly.judge_part(world.store, world.settings, last, BERLIN))
    refresh(world.store, settings=world.settings)
    assert [states(evaluation) for evaluation in found] == [{"rice": None}, {"rice": "known"}, {"rice": "known"}]
    assert nightly.backfill(world.store, world.settings, night(1), night(3), BERLIN) == []
    assert world.night(night(5)).run["trajectories"] == 1
    world.check_ledger()


def test_a_backfill_asks_a_new_version_of_an_evaluator_alone(world: World) -> None:
    world.run("rice", at(1))
    world.run("fine", at(1))
    world.night(night(1))
    path = world.settings.evaluator_paths[0] / "confessions.sql"
    path.write_text(path.read_text().replace("it said", "it says"))
    [part] = nightly.backfill(world.store, world.settings, night(1), night(1), BERLIN)
    assert (len(part.runs), part.evaluators) == (2, ("confessions",))
    found = nightly.judge_part(world.store, world.settings, part, BERLIN)
    refresh(world.store, settings=world.settings)
    # The older version's verdict on these runs is gone.
    assert world.rows("SELECT run_id, message FROM findings") == [(found.run["run_id"], "it says rice")]
    world.check_ledger()


# --- thirty nights


class Oracle:
    """What the states of faults must be, by their definition alone."""

    def __init__(self, resolved_after: int, min_runs: int) -> None:
        self._limits = resolved_after, min_runs
        self._quiet: dict[tuple[str, str], int] = {}
        self._resolved: set[tuple[str, str]] = set()
        self._is_first = True

    def night(self, found: set[tuple[str, str]], runs: Counter[str]) -> dict[tuple[str, str], str | None]:
        resolved_after, min_runs = self._limits
        said: dict[tuple[str, str], str | None] = {}
        for fault in found:
            state = "back" if fault in self._resolved else "known" if fault in self._quiet else "new"
            said[fault] = None if self._is_first else state
            self._resolved.discard(fault)
            self._quiet[fault] = 0
        for fault in self._quiet.keys() - found - self._resolved:
            self._quiet[fault] += runs[fault[0]] >= min_runs
            if self._quiet[fault] >= resolved_after:
                said[fault] = "resolved"
                self._resolved.add(fault)
        self._is_first = False
        return said


# `make nights` has thirty.
NIGHTS = int(os.environ.get("NIGHTS", "10"))


def test_night_after_night(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    oracle = Oracle(2, 2)
    said: dict[int, tuple[str, str]] = {}
    # Summer time ends in the middle.
    first = -5 - NIGHTS // 2
    crash, nothing, twice = (first + NIGHTS * tenths // 10 for tenths in (3, 5, 7))
    said[world.run("fine", at(first))] = "shop", "fine"
    for day in range(first, first + NIGHTS):
        arrived = set(said) if day == first else set[int]()
        fresh = set(arrived)
        if day != nothing:
            for agent in ("shop", "cook"):
                for _ in range(rng.choice([0, 1, 2, 3, 5])):
                    says = rng.choice(["fine"] * 6 + ["rice", "oil", "salt"])
                    run = world.run(says, at(day, rng.randrange(24)), agent=agent)
                    said[run] = agent, says
                    arrived.add(run)
                    fresh.add(run)
            for run in rng.sample(sorted(said), min(len(said), rng.choice([0, 0, 1, 3]))):
                if run not in arrived:
                    world.span(run, at(day), agent=said[run][0], number=2 + rng.randrange(1_000_000))
                    arrived.add(run)
        if day == crash:
            with monkeypatch.context() as patched:
                patched.setattr(storing, "write_evaluation", _crash)
                with pytest.raises(MemoryError):
                    world.night(night(day))
        found = world.night(night(day))
        faults = {said[run] for run in arrived if said[run][1] != "fine"}
        runs = Counter(said[run][0] for run in arrived & fresh)
        expected = oracle.night(faults, runs) if arrived else {}
        assert found.run["trajectories"] == len(arrived)
        assert found.passed == (False if faults else True if arrived & fresh else None)
        assert _stated(world, found) == expected
        world.check_ledger()
        if day == twice:
            assert world.night(night(day)).run == found.run
    judged = world.rows("SELECT count(DISTINCT night), count(*) FROM evaluation_runs")
    assert judged == [(NIGHTS, NIGHTS)]


def _crash(*_: object) -> None:
    raise MemoryError


def _stated(world: World, found: Evaluation) -> dict[tuple[str, str], str | None]:
    agents = dict(world.rows("SELECT trajectory_id, agent_name FROM trajectories"))
    assert found.night is not None
    here = {(agents[each.trajectory_id], each.tool_name or ""): each.state for each in found.findings}
    return here | {(fault.agent_name or "", fault.tool_name or ""): fault.state for fault in found.night.resolved}


# --- what once went wrong


def test_a_resolved_fault_whose_runs_are_judged_again_leaves_later_nights_alone(world: World) -> None:
    changed = world.run("rice", at(1), ended=False)
    for day in range(1, 5):
        for _ in range(3):
            world.run("fine", at(day))
        found = world.night(night(day))
    assert states(found) == {}
    world.span(changed, at(5), says="fine")
    world.run("fine", at(5))
    assert states(world.night(night(5))) == {}
    world.run("rice", at(6))
    assert states(world.night(night(6))) == {"rice": "back"}


def test_a_fault_that_its_run_no_longer_has_is_withdrawn_and_no_news(world: World) -> None:
    world.run("fine", at(1))
    world.night(night(1))
    changed = world.run("rice", at(2), ended=False)
    kept = world.run("oil", at(2), ended=False)
    assert states(world.night(night(2))) == {"rice": "new", "oil": "new"}
    world.span(changed, at(3), says="fine")
    world.span(kept, at(3), says="oil")
    found = world.night(night(3))
    assert states(found) == {"oil": "known"}
    assert found.night is not None
    assert found.night.withdrawn == 1
    world.run("rice", at(4))
    assert states(world.night(night(4))) == {"rice": "new"}


def test_late_records_alone_are_no_night_that_passed(world: World) -> None:
    old = [world.run("rice", at(1)), world.run("fine", at(1))]
    world.night(night(1))
    for day in (2, 3, 4):
        world.span(old[1], at(day), number=day)
        found = world.night(night(day))
        assert found.passed is None
        assert summary.alarms(found) == ["no new run has come: more has arrived of 1 run of earlier nights alone"]
        # They say nothing about whether the fault is still there.
        assert states(found) == {}


def test_another_time_zone_has_nights_of_its_own(world: World) -> None:
    world.run("fine", at(1))
    first = world.night(night(1))
    world.run("rice", at(1))
    refresh(world.store, settings=world.settings)
    assert storing.read_night(world.store, night(1), "UTC") is None
    second = nightly.judge(world.store, world.settings, night(1), nightly.zone("UTC"))
    assert (first.passed, second.passed) == (True, False)


def test_thousands_that_lack_evidence_do_not_keep_a_fault_from_being_resolved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agenttrace.evaluators.run._MAX_SAME_REASON", 2)
    for day in range(1, 4):
        for _ in range(2):
            world.run("rice" if day == 1 else "fine", at(day))
        for _ in range(5):
            world.run("silence", at(day), agent="mute")
        found = world.night(night(day))
    assert states(found) == {"rice": "resolved"}


def test_runs_that_lack_evidence_do_not_vouch_for_a_fault(world: World) -> None:
    for day in range(1, 5):
        for _ in range(2):
            world.run("rice" if day == 1 else "silence", at(day))
        found = world.night(night(day))
    assert states(found) == {}


def test_a_backfill_of_one_evaluator_is_not_held_to_thresholds_of_others(world: World) -> None:
    world.run("fine", at(1))
    world.night(night(1))
    path = world.settings.evaluator_paths[0] / "confessions.sql"
    path.write_text(path.read_text().replace("it said", "it says"))
    held = world.settings.model_copy(update={"thresholds": {"tool_hallucination_rate": Threshold(max=0.5)}})
    [part] = nightly.backfill(world.store, held, night(1), night(1), BERLIN)
    assert nightly.judge_part(world.store, held, part, BERLIN).passed is True
    refresh(world.store, settings=world.settings)
    assert nightly.backfill(world.store, held, night(1), night(1), BERLIN) == []


def test_a_backfill_resolves_nothing_that_later_nights_have_seen(world: World) -> None:
    for day in (1, 2, 3, 4):
        for _ in range(2):
            world.run("fine" if 1 < day < 4 else "rice", at(day))
    refresh(world.store, settings=world.settings)
    parts = nightly.backfill(world.store, world.settings, night(1), night(4), BERLIN)
    for part in (parts[0], parts[3], parts[1], parts[2]):
        found = nightly.judge_part(world.store, world.settings, part, BERLIN)
        refresh(world.store, settings=world.settings)
        assert found.night is not None
        assert found.night.resolved == []


def test_a_late_outer_agent_takes_a_known_fault_over(world: World) -> None:
    world.run("fine", at(1))
    world.night(night(1))
    inner = world.run("rice", at(2), under=9)
    first = world.night(night(2))
    assert states(first) == {"rice": "new"}
    world.span(inner, at(3), says="rice", number=9)
    second = world.night(night(3))
    assert states(second) == {"rice": "known"}
    assert first.findings[0].trajectory_id != second.findings[0].trajectory_id
    world.check_ledger()
