"""What blocks a change and what does not: the decision, what it says, and the command over stores and labels."""

import json
import runpy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from span_trees import open_memory

from agenttrace.cli import main
from agenttrace.evaluators import prepare
from agenttrace.evaluators.compare import compare, decide
from agenttrace.evaluators.comparison import Comparison, Metric, Run, SafetyFinding, Side
from agenttrace.evaluators.differences import Counts
from agenttrace.evaluators.reports.comparison import RENDER, as_dict
from agenttrace.spans import OutcomeRow, SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import refresh

# Its stores are made once, in one worker.
pytestmark = pytest.mark.xdist_group("compare")

Json = dict[str, Any]

LOST, WON, KEPT = Counts(1, 1, 0, 1), Counts(0, 1, 1, 1), Counts(1, 1, 1, 1)


def a_side(
    passed: Iterable[bool | None], *, name: str = "base", trials: int = 1, **values: Iterable[float | None]
) -> Side:
    """Runs of tasks in turn, so many trials of each, with further values in the same order."""
    found = list(passed)
    rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)] or [{}] * len(found)
    return Side(
        name,
        [
            Run(f"task-{number // trials:02}", number % trials, {"task_completion_rate": success} | row)
            for number, (success, row) in enumerate(zip(found, rows, strict=True))
        ],
    )


def metric(comparison: Comparison, name: str = "task_completion_rate") -> Metric:
    (found,) = [metric for metric in comparison.metrics if metric.name == name]
    return found


def test_five_lost_tasks_block_and_four_do_not() -> None:
    # 0.5^5 = 0.03125, 0.5^4 = 0.0625
    decision = decide({"task_completion_rate": [LOST] * 5 + [KEPT] * 25})["task_completion_rate"]
    assert (decision.verdict, decision.p_value, decision.corrected) == ("worse", 0.03125, 0.03125)
    decision = decide({"task_completion_rate": [LOST] * 4 + [KEPT] * 26})["task_completion_rate"]
    assert (decision.verdict, decision.p_value) == ("too_few", 0.0625)
    decision = decide({"task_completion_rate": [LOST] * 5 + [WON] * 3})["task_completion_rate"]
    assert decision.verdict == "chance"


def test_a_flagged_run_more_is_worse_and_a_success_more_is_better() -> None:
    decisions = decide({"task_completion_rate": [WON] * 5, "tool_hallucination_rate": [WON] * 6})
    assert decisions["task_completion_rate"].verdict == "better"
    assert decisions["tool_hallucination_rate"].verdict == "worse"


def test_several_metrics_share_the_chance() -> None:
    # 0.03125 alone would block; of two that could, it counts twice. A metric that shows nothing costs nothing.
    others = {"budget_overrun_rate": [WON, LOST] * 5, "duplicate_mutation_rate": [Counts(0, 1, 0, 1)] * 30}
    decisions = decide({"task_completion_rate": [LOST] * 5, **others})
    assert decisions["task_completion_rate"].corrected == 0.0625
    assert decisions["task_completion_rate"].verdict == "chance"
    assert decisions["duplicate_mutation_rate"].corrected is None


def test_tasks_of_one_side_are_named_and_not_compared() -> None:
    base = a_side([True] * 8)
    head = Side("head", [run._replace(task_id=f"task-{number + 2:02}") for number, run in enumerate(base.runs)])
    found = compare(base, head)
    assert (found.only_in_base, found.only_in_head) == (["task-00", "task-01"], ["task-08", "task-09"])
    assert (metric(found).base.n, metric(found).head.n, found.passed) == (6, 6, True)


def test_worst_tasks_come_first() -> None:
    base = a_side([True, True, True, True, False, False], trials=2)
    head = a_side([True, False, False, False, True, True], trials=2)
    changes = [(change.task_id, change.base.count, change.head.count) for change in compare(base, head).tasks]
    assert changes == [("task-01", 2, 0), ("task-00", 2, 1), ("task-02", 0, 2)]


def test_pass_hat_k_is_shown_with_the_k_that_both_sides_have() -> None:
    base, head = a_side([True] * 9, trials=3), a_side([True] * 6, trials=2)
    found = compare(base, head)
    assert metric(found, "pass_hat_k.2").head.value == 1
    assert metric(found, "pass_hat_k.2").decision.verdict == "shown"
    assert found.notes == ["3 of 3 tasks have unequal numbers of runs; each is weighed alike on both sides."]


def test_unpaired_runs_are_one_group() -> None:
    base = Side("base", [Run(None, None, {"task_completion_rate": True})] * 20)
    head = Side("head", [Run(None, None, {"task_completion_rate": number < 12}) for number in range(20)])
    found = compare(base, head)
    assert (found.paired, found.passed, found.tasks) == (False, False, [])
    assert metric(found).decision.p_value == pytest.approx(0.00163, abs=1e-5)


def test_runs_of_one_task_are_no_independent_ones() -> None:
    base = a_side([True] * 20, trials=10)
    head = Side("head", [Run("other", trial, {"task_completion_rate": False}) for trial in range(20)])
    found = compare(base, head)
    assert (metric(found).base.n, metric(found).head.n) == (2, 1)
    assert found.notes[0].startswith("No task is known on both sides")


def test_numbers_are_told_and_never_block() -> None:
    base = a_side([True] * 10, cost_usd=[0.1] * 10, total_tokens=[None] * 10)
    head = a_side([True] * 10, cost_usd=[0.2] * 10, total_tokens=[5] * 10)
    found = compare(base, head)
    cost = metric(found, "cost_usd")
    assert (cost.decision.verdict, cost.decision.p_value, cost.blocks) == ("worse", 0.5**10, False)
    assert metric(found, "total_tokens").decision.verdict == "not_evaluable"
    assert found.passed
    assert metric(compare(head, base), "cost_usd").decision.verdict == "better"


def test_equal_costs_of_unequal_numbers_of_runs_are_no_change() -> None:
    base, head = (a_side([True] * n, trials=n, cost_usd=[0.1] * n) for n in (2, 3))
    found = compare(base, head)
    assert (metric(found, "cost_usd").decision.verdict, found.tasks) == ("equal", [])


def test_what_cannot_be_compared_is_no_pass() -> None:
    known, unknown = a_side([True] * 3), Side("head", [Run(f"task-{n:02}", 0, {}) for n in range(3)])
    assert compare(known, unknown).passed is None
    assert compare(unknown, unknown).passed is None
    # Verdicts that only the head has cannot show a drop; the rates still can.
    flagged = Side("base", [run._replace(values={"error_finding_rate": False}) for run in unknown.runs])
    assert compare(flagged, flagged).passed is True
    assert "NOT EVALUABLE" in RENDER["table"](compare(known, unknown))


def test_verdicts_that_only_the_head_lacks_are_no_pass() -> None:
    # Half of the head's runs crashed, and nobody checked them: of the 10 that are left all passed.
    base, head = a_side([True] * 20), a_side([True] * 10 + [None] * 10, name="head")
    found = compare(base, head)
    assert metric(found).decision.verdict == "equal"
    assert (found.passed, found.notes[-1]) == (
        None,
        "10 runs of the head have no verdict; if they failed, it is worse by more than chance: no pass.",
    )
    assert RENDER["table"](found).endswith("NOT EVALUABLE: base -> head: runs of the head lack verdicts")
    assert compare(head, head).passed is True
    # As many are lacking on both sides, of other tasks: no reason to think that the head failed.
    assert compare(a_side([None] * 6 + [True] * 14), a_side([True] * 14 + [None] * 6)).passed is True
    assert compare(head, base).passed is True
    # 0.5^4 = 0.0625: so few failures might be chance.
    assert compare(base, a_side([True] * 16 + [None] * 4)).passed is True


def test_safety_that_only_the_base_shows_is_no_pass() -> None:
    base = a_side([True] * 5, safety_violation_rate=[False] * 5)
    head = a_side([True] * 5, safety_violation_rate=[None] * 5)
    assert (compare(base, head).passed, compare(head, base).passed, compare(base, base).passed) == (None, True, True)
    told = RENDER["table"](compare(base, head)).split("\n")[-1]
    assert told == "NOT EVALUABLE: base -> base: safety_violation_rate cannot be compared"


def a_fault(**changes: Any) -> SafetyFinding:
    fault = SafetyFinding("leaks", "secret", "shop", "reply", "task-01", "r1", "the reply holds a key")
    return fault._replace(**changes)


def test_a_new_fault_of_safety_blocks_whatever_the_numbers_say() -> None:
    runs = a_side([True] * 100).runs
    found = compare(Side("base", runs), Side("head", runs, [a_fault()]))
    assert found.passed is False
    (fault,) = found.safety
    assert (fault.state, fault.tasks, fault.messages) == ("new", ["task-01"], ["the reply holds a key"])
    assert "FAILED" in RENDER["table"](found)
    assert "leaks/secret" in RENDER["markdown"](found)


def test_a_fault_that_the_base_showed_is_known() -> None:
    runs = a_side([True] * 5).runs
    found = compare(Side("base", runs, [a_fault(task_id="task-03")]), Side("head", runs, [a_fault()]))
    assert [(fault.state, fault.base_runs) for fault in found.safety] == [("known", 1)]
    assert found.passed is True
    for change in (
        {"tool_name": "mail"},
        {"agent_name": "clerk"},
        {"kind": "prompt"},
        {"evaluator": "forbidden_tools"},
    ):
        assert compare(Side("base", runs, [a_fault(**change)]), Side("head", runs, [a_fault()])).passed is False


def test_power_says_which_drop_would_be_noticed() -> None:
    # At 0.9, 23 of 30 or fewer come by luck with chance 0.026. Against the base's own 30 runs five tasks must be lost.
    base = a_side([True] * 27 + [False] * 3)
    assert compare(base, base).power == (
        "With 30 runs a drop from 90 % would be noticed: to 77 % (23 of 30) or lower if the base's rate were its true "
        "one, to 73 % (22 of 30) or lower against the 30 runs of the base, spread over its tasks, with nothing else "
        "tested."
    )
    few = a_side([True] * 4)
    assert compare(few, few).power == "With 4 runs against 4 of the base no drop from 100 % could be noticed."
    none = a_side([False] * 4)
    assert "no run of the base succeeded" in compare(none, none).power


def test_what_power_promises_blocks() -> None:
    base = a_side([True] * 27 + [False] * 3)
    for passed, verdict in ((22, False), (23, True)):
        assert compare(base, a_side([True] * passed + [False] * (30 - passed))).passed is verdict


def test_swing_of_the_base() -> None:
    # Tasks 2/2, 1/2, 0/2: variances 0, 1/2, 0; trial 0 passes two of three, trial 1 one.
    base = a_side([True, True, True, False, False, False], trials=2)
    assert compare(base, base).swing == {
        "tasks": 3,
        "within_task_sd": pytest.approx((1 / 6) ** 0.5),
        "rate_sd": pytest.approx((1 / 18) ** 0.5),
        "lowest": pytest.approx(1 / 3),
        "highest": pytest.approx(2 / 3),
    }
    # Trial 0 of each task was run once more, and passed: three and two more of six.
    again = Side("base", [*base.runs, *(Run(f"task-{n:02}", 0, {"task_completion_rate": True}) for n in range(3))])
    swing = compare(again, again).swing
    assert swing is not None
    assert (swing["lowest"], swing["highest"]) == pytest.approx((1 / 3, 5 / 6))
    single = a_side([True, False])
    assert compare(single, single).swing is None


def test_hostile_names_are_inert() -> None:
    runs = [Run("task\x1b[31m|`", 0, {"task_completion_rate": True})]
    changed = [run._replace(values={"task_completion_rate": False}) for run in runs]
    found = compare(Side("base", runs), Side("head", changed, [a_fault(message="a\x1b[2J`b")]))
    for form in RENDER:
        assert "\x1b" not in RENDER[form](found)


def test_an_unchanged_agent_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short run of benchmarks/false_alarms.py: of 200 comparisons at 5 in 100, over 19 would be beyond chance."""
    folder = Path(__file__).parents[1] / "benchmarks"
    monkeypatch.syspath_prepend(str(folder))
    benchmark = runpy.run_path(str(folder / "false_alarms.py"))
    for shape in (benchmark["Shape"](30, 1, 1, 0.9, False), benchmark["Shape"](20, 3, 3, 0.7, True)):
        assert benchmark["measure"](shape, 0.0, 200) <= 19
    assert benchmark["measure"](benchmark["Shape"](100, 3, 3, 0.8, True), 0.2, 30) >= 27


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A base and a head that hold verdicts and no runs; the head lost 6 of 30 tasks."""
    folder = tmp_path_factory.mktemp("verdicts")
    paths = [folder / "base.duckdb", folder / "head.duckdb"]
    for path, successes in zip(paths, (30, 24), strict=True):
        rows = [OutcomeRow(f"task-{n:02}", 0, None, "checker", n < successes, None, None, n) for n in range(30)]
        Spool(spool_folder(path)).write("outcomes", rows)
        refresh(path)
    return paths


def test_verdicts_alone_can_be_compared(stores: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    base, head = stores
    assert main(["compare", str(base), str(head)]) == 1
    printed = capsys.readouterr().out
    assert "task_completion_rate" in printed
    assert "task-29: passed 1/1 -> 0/1" in printed
    assert printed.rstrip().endswith("task_completion_rate is worse by more than chance")
    assert main(["compare", str(base), str(base)]) == 0


def test_json_names_all_parts(stores: list[Path], tmp_path: Path) -> None:
    head, base = stores
    report = tmp_path / "compare.json"
    assert main(["compare", str(base), str(head), "--format", "json", "--output", str(report)]) == 0
    found = json.loads(report.read_text(encoding="utf-8"))
    assert list(found) == [
        *("passed", "base", "head", "paired", "metrics", "tasks", "safety", "only_in_base", "only_in_head"),
        *("notes", "power", "swing"),
    ]
    assert found["base"] == {"name": str(base), "runs": 30, "tasks": 30}
    (success,) = found["metrics"]
    assert (success["p_value"], success["verdict"], success["chance"]) == (
        0.5**6,
        "better",
        "such a rise by luck alone: 1.6 in 100",
    )


def test_nothing_to_compare(stores: list[Path], store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = stores[0]
    Spool(spool_folder(store)).write("outcomes", [OutcomeRow(None, None, "gone", "checker", True, None, None, 0)])
    refresh(store)
    assert main(["compare", str(base), "nightly", "--db", str(base)]) == 2
    assert "is a file, 'nightly' is none" in capsys.readouterr().err
    assert main(["compare", "monday", "tuesday", "--db", str(base)]) == 2
    assert "'monday' is neither a file nor a label" in capsys.readouterr().err
    assert main(["compare", str(base), str(store)]) == 2
    assert "there is nothing to compare" in capsys.readouterr().err


@pytest.fixture
def labelled(store: Path, make_span: Callable[..., SpanRow]) -> Path:
    """A store whose runs 1 to 3 were evaluated as `monday`, and runs 1 to 6 as `tuesday`."""
    for label, numbers in (("monday", (1, 2, 3)), ("tuesday", (4, 5, 6))):
        spans = [
            make_span(number, attributes=json.dumps({"agenttrace.task.id": f"task-{number % 3}"})) for number in numbers
        ]
        Spool(spool_folder(store)).write("spans", spans)
        refresh(store)
        with duckdb.connect(str(store)) as con:
            con.execute("UPDATE trajectories SET complete = TRUE")
        assert main(["evaluate", "--label", label, "--db", str(store), "--only", "budget_overruns"]) in (0, 2)
    return store


def test_labels(labelled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    main(["compare", "monday", "tuesday", "--db", str(labelled), "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["base"], found["head"]) == (
        {"name": "monday", "runs": 3, "tasks": 3},
        {"name": "tuesday", "runs": 3, "tasks": 3},
    )
    assert main(["compare", "tuesday", "monday", "--db", str(labelled)]) == 2
    assert "'monday' covers no run" in capsys.readouterr().err
    assert main(["compare", "monday", "tuseday", "--db", str(labelled)]) == 2
    assert "did you mean 'tuesday'?" in capsys.readouterr().err
    assert main(["compare", "monday", "x", "--db", str(labelled)]) == 2
    assert "known: 'monday', 'tuesday'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("since", "until", "started_at", "covered"),
    [
        (None, None, "2030-01-01", 6),
        ("2026-01-03", None, "2030-01-01", 4),
        (None, "2026-01-03", "2030-01-01", 2),
        (None, None, "2020-01-01", 0),
    ],
)
def test_a_label_covers_what_its_newest_evaluation_saw(
    since: str | None, until: str | None, started_at: str, covered: int
) -> None:
    con = open_memory()
    for table in ("trajectories", "evaluation_runs"):
        # The same columns, without those that must have a value.
        con.execute(f"CREATE TEMP TABLE {table} AS FROM main.{table} LIMIT 0")
    con.execute(
        "INSERT INTO temp.trajectories BY NAME SELECT 'r' || day AS trajectory_id, '2026-02-01'::DATE AS last_arrival,"
        " '2026-01-01'::DATE + day::INTEGER AS start_time FROM range(6) AS days(day)"
    )
    con.execute(
        "INSERT INTO temp.evaluation_runs BY NAME SELECT unnest(['nightly', 'nightly', 'weekly']) AS label,"
        " unnest(['2026-01-06', $since, '2026-01-06'])::DATE AS since, unnest([NULL, $until, NULL])::DATE AS until,"
        " unnest(['2019-01-01', $started_at, '2031-01-01'])::DATE AS started_at",
        {"since": since, "until": until, "started_at": started_at},
    )
    assert len(prepare.rows(con, "label_runs", label="nightly")) == covered


def test_reports_agree() -> None:
    found = compare(a_side([True] * 6), a_side([False] * 6))
    assert as_dict(found)["passed"] is False
    assert "worse, BLOCKS" in RENDER["table"](found)
    assert "worse, BLOCKS" in RENDER["markdown"](found)
