"""Verdicts from the program to the run that they are about, by whichever key and in whichever order they come."""

import logging
import os
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from segment_rows import read_segment

import agenttrace
from agenttrace.collectors.files import import_files
from agenttrace.config import Settings
from agenttrace.evaluators import prepare
from agenttrace.guard import guard
from agenttrace.spans import OutcomeRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import open_store, refresh

Verdicts = list[tuple[Any, ...]]


@pytest.fixture
def traced(store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store that the spans and verdicts of the test reach; faults of ours are raised, and each is told anew."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(agenttrace.DuckDBSpanExporter(store)))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    monkeypatch.setattr(guard, "strict", True)
    monkeypatch.setattr(guard, "_seen", {})
    yield store
    provider.shutdown()


def written(store: Path) -> list[tuple[Any, ...]]:
    """Verdicts on their way: whether a run is named, task, trial, source, passed, score, detail."""
    rows = [
        row
        for segment in Spool(spool_folder(store)).segments()
        if segment.kind == "outcomes"
        for row in read_segment(segment).table.to_pylist()
    ]
    columns = ("task_id", "trial", "source", "passed", "score", "detail")
    return [(row["trajectory_id"] is not None, *(row[name] for name in columns)) for row in rows]


def attached(store: Path) -> Verdicts:
    """Verdicts that count: agent, task, trial of their run, source, passed."""
    refresh(store)
    with open_store(store) as con:
        prepare.select(con, prepare.Selection(None, None, include_open=True))
        prepare.relations(con, Settings(), {"outcomes"})
        return con.execute(
            "SELECT t.agent_name, o.task_id, o.trial, o.source, o.passed"
            " FROM outcomes AS o JOIN trajectories AS t USING (trajectory_id) ORDER BY ALL"
        ).fetchall()


def test_a_verdict_inside_a_run_is_about_that_run(traced: Path) -> None:
    with agenttrace.run("first", task_id="t", trial=1):
        agenttrace.outcome(True)
    with agenttrace.run("second", task_id="t", trial=1):
        # The run's own key, said once more.
        agenttrace.outcome(False, task_id="t")
    with agenttrace.run("third"), agenttrace.run("helper"):
        agenttrace.outcome(False, source="judge")

    @agenttrace.agent
    def fourth(request: str) -> None:
        agenttrace.outcome(True, source="human")

    fourth("hello")
    assert [(run, passed) for run, _, _, _, passed in attached(traced)] == [
        ("first", True),
        ("fourth", True),
        ("second", False),
        ("third", False),
    ]


def test_a_verdict_inside_a_run_may_name_another(traced: Path) -> None:
    with agenttrace.run("r", task_id="t", trial=4):
        agenttrace.outcome(True, task_id="u")
        agenttrace.outcome(True, trial=5)
        agenttrace.outcome(True, trajectory_id="abc")
    assert written(traced) == [
        (False, "u", None, "checker", True, None, None),
        (False, "t", 5, "checker", True, None, None),
        (True, None, None, "checker", True, None, None),
    ]


def test_a_verdict_may_come_before_its_run(traced: Path) -> None:
    agenttrace.outcome(False, task_id="t", trial=2, source="human", detail="mail bob@example.com")
    assert written(traced) == [(False, "t", 2, "human", False, None, "mail [REDACTED]")]
    assert attached(traced) == []
    with agenttrace.run("r", task_id="t", trial=2):
        pass
    assert attached(traced) == [("r", "t", 2, "human", False)]


def test_a_verdict_follows_its_run_below_an_agent_of_another_framework(traced: Path) -> None:
    from opentelemetry import trace

    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "outer"}
    with (
        trace.get_tracer("framework").start_as_current_span("invoke_agent outer", attributes=attributes),
        agenttrace.run("inner"),
    ):
        agenttrace.outcome(True)
        # The run alone has been seen so far, then the agent above it ends.
        assert attached(traced) == [("inner", None, None, "checker", True)]
    assert attached(traced) == [("outer", None, None, "checker", True)]


def test_of_one_source_the_last_verdict_counts_whole(store: Path, traced: Path) -> None:
    with agenttrace.run("r", task_id="t", trial=0):
        pass
    rows = [
        OutcomeRow("t", 0, None, "checker", True, 1.0, "fine", 1_000_000),
        OutcomeRow("t", 0, None, "checker", None, None, "could not run", 2_000_000),
        OutcomeRow("t", 0, None, "judge", True, None, None, 5_000_000),
        OutcomeRow("t", 0, None, "judge", False, None, None, 4_000_000),
        # Two rows of one file: neither is the later one.
        OutcomeRow("t", 0, None, "human", False, None, None, 1_000_000),
        OutcomeRow("t", 0, None, "human", True, None, None, 1_000_000),
    ]
    for row in rows:
        Spool(spool_folder(store)).write("outcomes", [row])
    assert [verdict[3:] for verdict in attached(store)] == [("checker", None), ("human", False), ("judge", True)]


def test_a_file_of_verdicts_reaches_runs_by_either_key(traced: Path, tmp_path: Path) -> None:
    with agenttrace.run("a", task_id="t", trial=0):
        pass
    with agenttrace.run("b"):
        pass
    refresh(traced)
    with open_store(traced) as con:
        ((run,),) = con.execute("SELECT trajectory_id FROM trajectories WHERE agent_name = 'b'").fetchall()
    file = tmp_path / "outcomes.csv"
    file.write_text(f"task_id,trial,trajectory_id,passed,source\nt,0,,true,judge\n,,{run},false,human\n")
    assert import_files([file], traced).outcomes == 2
    assert attached(traced) == [("a", "t", 0, "judge", True), ("b", None, None, "human", False)]


class Scalar:
    """As numpy's scalars are: no bool, and equal to one."""

    def __init__(self, value: object) -> None:
        self._value = value

    def item(self) -> object:
        return self._value


@pytest.mark.parametrize(
    ("given", "passed", "score"),
    [
        ({"passed": True}, True, None),
        ({"passed": 0}, False, None),
        ({"passed": Scalar(True), "score": Scalar(0.5)}, True, 0.5),
        ({"score": 1}, None, 1.0),
        ({"passed": False, "score": Decimal("0.25")}, False, 0.25),
        ({"passed": None}, None, None),
    ],
)
def test_verdicts_are_taken_in_every_plain_form(
    traced: Path, given: dict[str, Any], passed: bool | None, score: float | None
) -> None:
    agenttrace.outcome(**given, task_id="t", trial=Scalar(3))  # type: ignore[arg-type]
    assert written(traced) == [(False, "t", 3, "checker", passed, score, None)]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"passed": "yes"}, "passed is a str that is neither True nor False"),
        ({"passed": 0.7}, "passed is a float that is neither True nor False"),
        ({"passed": [True]}, "passed is a list that is neither True nor False"),
        ({"source": "critic"}, "source is none of checker, judge and human"),
        ({"source": ["human"]}, "source is none of checker, judge and human"),
        ({"trial": -1}, "trial is no whole number from 0 to 2147483647"),
        ({"trial": 2**31}, "trial is no whole number from 0 to 2147483647"),
        ({"trial": "3"}, "trial is no whole number from 0 to 2147483647"),
        ({"task_id": None}, "called without a task_id or trajectory_id outside a run"),
    ],
)
def test_wrong_use_is_told_once_and_never_raised(
    traced: Path, caplog: pytest.LogCaptureFixture, given: dict[str, Any], told: str
) -> None:
    for _ in range(2):
        agenttrace.outcome(**{"passed": True, "task_id": "t"} | given)
    assert written(traced) == []
    assert [record.getMessage() for record in caplog.records] == [f"agenttrace.outcome: {told}: not recorded."]


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "much", 10**400])
def test_a_score_that_is_no_number_does_not_take_the_verdict_away(
    traced: Path, caplog: pytest.LogCaptureFixture, score: Any
) -> None:
    agenttrace.outcome(False, score=score, task_id="t")
    assert written(traced) == [(False, "t", None, "checker", False, None, None)]
    assert "the score is no finite number" in caplog.text


def test_a_trial_without_a_task_is_told(traced: Path, caplog: pytest.LogCaptureFixture) -> None:
    with agenttrace.run("r"):
        agenttrace.outcome(True, trial=3)
    assert attached(traced) == [("r", None, None, "checker", True)]
    assert "a trial without a task_id names no run" in caplog.text


def test_a_verdict_with_nowhere_to_go_is_told(traced: Path, caplog: pytest.LogCaptureFixture) -> None:
    agenttrace.outcome(True, task_id="before")
    from opentelemetry import trace

    provider: Any = trace.get_tracer_provider()
    provider.shutdown()
    with caplog.at_level(logging.WARNING, "agenttrace"):
        agenttrace.outcome(True, task_id="after")
    assert "no store of this process took it" in caplog.text
    refresh(traced)
    with open_store(traced) as con:
        assert con.execute("SELECT task_id FROM outcomes").fetchall() == [("before",)]


def test_a_forked_checker_writes_too(traced: Path, run_forked: Callable[[Callable[[], None]], None]) -> None:
    with agenttrace.run("r", task_id="t"):
        run_forked(lambda: agenttrace.outcome(True))
    assert attached(traced) == [("r", "t", None, "checker", True)]


@pytest.fixture
def run_forked() -> Callable[[Callable[[], None]], None]:
    """Calls a function in a forked child, and waits for its end."""

    def run(function: Callable[[], None]) -> None:
        child = os.fork()
        if child == 0:
            try:
                function()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0

    return run
