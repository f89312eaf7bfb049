"""What the channels disagree on, as `agenttrace review` lists it, and a human's verdict that settles it."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agenttrace.cli import IMPOSSIBLE, PASSED, main
from agenttrace.evaluators.statistics import cohens_kappa
from agenttrace.spans import OutcomeRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import open_store, refresh

T0 = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)


class Reviewed:
    """A store with runs r0000001, r0000002, ... that began a minute after each other, and the command over it."""

    def __init__(self, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store = store
        self._capsys = capsys
        self._told = 0

    def say(self, run: int, source: str, passed: bool | None, **more: Any) -> None:
        self._told += 1
        values = {"score": None, "detail": None} | more
        row = OutcomeRow(None, None, name(run), source, passed, **values, recorded_at_unix_nano=self._told * 1_000)
        Spool(spool_folder(self.store)).write("outcomes", [row])

    def __call__(self, *arguments: str) -> tuple[int, list[str], str]:
        code = main(["review", *arguments, "--db", str(self.store)])
        out, err = self._capsys.readouterr()
        return code, out.splitlines(), err


def name(number: int) -> str:
    return f"r{number:07}00000000"


@pytest.fixture
def review(fill_store: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> Reviewed:
    runs = [
        {
            "trajectory_id": name(number),
            "agent_name": "shop",
            "task_id": f"t{number}" if number < 3 else None,
            "trial": number if number < 3 else None,
            "user_input": "Refund order 7.",
            "start_time": T0 + timedelta(minutes=number),
        }
        for number in range(1, 7)
    ]
    nights = [
        # One run of the agent lies in both windows, the others in one of them.
        {"run_id": "first", "started_at": T0 + timedelta(hours=1), "until": T0 + timedelta(minutes=4)},
        {"run_id": "second", "started_at": T0 + timedelta(hours=2), "since": T0 + timedelta(minutes=3)},
        # An evaluation of another evaluator makes nothing go away.
        {"run_id": "third", "started_at": T0 + timedelta(hours=3), "evaluator_versions": '{"leaks": "v"}'},
    ]
    findings = [
        {"run_id": "first", "trajectory_id": name(2), "severity": "error"},
        {"run_id": "first", "trajectory_id": name(3), "severity": "error"},
        {"run_id": "second", "trajectory_id": name(4), "severity": "error"},
        {"run_id": "second", "trajectory_id": name(5), "severity": "warning"},
    ]
    told = {"evaluator": "duplicate_mutations", "kind": "confirmed", "message": "refund ran twice\x1b[2J"}
    store = fill_store(trajectories=runs, evaluation_runs=nights, findings=[told | finding for finding in findings])
    return Reviewed(store, capsys)


def listed(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if line.startswith("r0")]


def test_runs_on_which_checker_and_judge_disagree_come_newest_first(review: Reviewed) -> None:
    review.say(1, "checker", True, detail="stock is right\x1b[31m")
    review.say(1, "judge", False, score=0.25, detail="rude")
    review.say(6, "checker", False)
    review.say(6, "judge", True, detail="polite " * 20)
    # The same verdict, and a score without one.
    review.say(5, "checker", True)
    review.say(5, "judge", True)
    review.say(2, "judge", None, score=0.5)
    code, lines, err = review()
    assert code == PASSED
    assert listed(lines) == [name(6)[:12], name(1)[:12]]
    assert lines[0].split() == ["RUN", "STARTED", "(UTC)", "AGENT", "TASK", "CHECKER", "JUDGE", "EVALUATORS"]
    cells = [re.split(r"  +", line) for line in lines[1:3]]
    assert cells[1][1:] == [
        "2026-01-31 18:01:00",
        "shop",
        "t1 #1",
        "passed: stock is right\\x1b[31m",
        "failed, score 0.25: rude",
        "-",
    ]
    assert cells[0][5].endswith("…")
    assert len(cells[0][5]) < 80
    assert "--passed or --failed after it settles the run" in err


def test_a_verdict_that_evaluators_contradict_is_in_question(review: Reviewed) -> None:
    for number in (2, 3, 4, 5):
        review.say(number, "checker", True)
    _, lines, _ = review()
    # The second evaluation had run 3 in its window and found nothing; a warning contradicts nobody.
    assert listed(lines) == [name(4)[:12], name(2)[:12]]
    assert lines[1].endswith("1 error")
    review.say(2, "checker", False)
    review.say(4, "checker", False)
    assert listed(review()[1]) == []
    review.say(4, "judge", True)
    assert listed(review()[1]) == [name(4)[:12]]


def test_a_human_settles_a_run(review: Reviewed) -> None:
    review.say(2, "checker", True, detail="balance is right")
    assert listed(review()[1]) == [name(2)[:12]]
    code, lines, err = review("R0000002", "--failed", "--detail", "told by bob@example.com\nand twice")
    assert code == PASSED
    assert err == f"recorded: a human says that run {name(2)} failed.\n"
    with open_store(review.store) as con:
        kept = con.execute("SELECT task_id, trial, trajectory_id, passed, detail FROM outcomes WHERE source = 'human'")
        assert kept.fetchall() == [("t2", 2, name(2), False, "told by [REDACTED]\nand twice")]
    assert lines[:3] == [f"run {name(2)}  shop  2026-01-31 18:02:00 UTC", "  task t2 #2", "  user: Refund order 7."]
    assert lines[3:5] == ["checker: passed  (1970-01-01 00:00:00 UTC)", "  balance is right"]
    assert lines[5].startswith("human: failed  (20")
    assert lines[6:] == [
        "  told by [REDACTED]",
        "  and twice",
        "evaluators: 1 error",
        r"  duplicate_mutations/confirmed: refund ran twice\x1b[2J",
    ]
    code, lines, err = review()
    assert (code, err) == (PASSED, "")
    assert lines == [
        "nothing to settle: no run on which the channels disagree",
        "verdicts on runs: 1 by checker, 1 by human",
    ]


def test_a_human_who_cannot_tell_settles_nothing(review: Reviewed) -> None:
    review.say(2, "checker", True)
    review.say(2, "human", None, detail="asked a colleague")
    assert listed(review()[1]) == [name(2)[:12]]


def test_a_run_without_verdicts_is_shown(review: Reviewed) -> None:
    _, lines, err = review("r0000006")
    assert lines == [
        f"run {name(6)}  shop  2026-01-31 18:06:00 UTC",
        "  user: Refund order 7.",
        "no verdicts",
        "evaluators: no errors",
    ]
    assert err == "\nagenttrace show r0000006 shows the run; --passed or --failed settles it.\n"


def test_agreement_counts_runs_that_both_channels_judged(review: Reviewed) -> None:
    verdicts = {
        1: (True, True),
        2: (True, False),
        3: (False, False),
        4: (False, False),
        5: (True, None),
        6: (True, None),
    }
    for number, (checker, judge) in verdicts.items():
        review.say(number, "checker", checker)
        review.say(number, "judge", judge)
    for number in (1, 2):
        review.say(number, "human", True)
    review.say(5, "human", None)
    _, lines, _ = review()
    # Checker and judge: 3 of 4 agree; by chance 2/4 * 1/4 + 2/4 * 3/4 = 0.5, so kappa is 0.25 / 0.5. Checker and human
    # passed both runs; judge and human agree on one of two: by chance 1/2 * 1 = 0.5, so kappa is 0.
    assert lines[lines.index("verdicts on runs: 6 by checker, 3 by human, 6 by judge") + 1 :] == [
        "checker and judge agree on 3 of 4 runs (kappa 0.50)",
        "checker and human agree on 2 of 2 runs (kappa undefined: each gave one verdict throughout)",
        "judge and human agree on 1 of 2 runs (kappa 0.00)",
    ]


def test_one_run_in_common_is_no_agreement(review: Reviewed) -> None:
    review.say(1, "checker", True)
    review.say(1, "judge", True)
    assert review()[1][1:] == ["verdicts on runs: 1 by checker, 1 by judge"]


def test_without_verdicts_the_way_to_get_some_is_said(review: Reviewed) -> None:
    code, lines, _ = review()
    assert code == PASSED
    assert lines[1].startswith("no verdicts yet: agenttrace.outcome(...) in a program")
    Spool(spool_folder(review.store)).write("outcomes", [OutcomeRow("t9", 0, None, "judge", True, None, None, 0)])
    assert review()[1][1].startswith("none of the 1 verdicts here names a run of this store")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("x",), "review: no run's id begins with 'x'. agenttrace list shows the runs."),
        (("r0",), "review: 'r0' is how the ids of several runs or their traces begin: r0000006"),
        (("--passed",), "review: a verdict needs its RUN"),
        (("--detail", "fine"), "review: a verdict needs its RUN"),
        (("r0000001", "--detail", "fine"), "review: --detail goes with --passed or --failed."),
    ],
)
def test_wrong_use_is_told(review: Reviewed, arguments: tuple[str, ...], told: str) -> None:
    code, lines, err = review(*arguments)
    assert (code, lines) == (IMPOSSIBLE, [])
    assert told in err
    refresh(review.store)
    with open_store(review.store) as con:
        assert con.execute("SELECT count(*) FROM outcomes").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("cells", "kappa"),
    [
        # Cohen's own form: observed 0.7; by chance 0.5 * 0.6 + 0.5 * 0.4 = 0.5.
        ((20, 5, 10, 15), 0.4),
        ((10, 0, 0, 10), 1.0),
        # Each always contradicts the other: observed 0, by chance 0.5.
        ((0, 10, 10, 0), -1.0),
        ((5, 0, 0, 0), None),
        ((0, 0, 0, 5), None),
        ((0, 5, 0, 0), 0.0),
        ((0, 0, 0, 0), None),
    ],
)
def test_kappa(cells: tuple[int, int, int, int], kappa: float | None) -> None:
    assert cohens_kappa(*cells) == (None if kappa is None else pytest.approx(kappa))
