"""A published benchmark from the store: its real duplicates, its results table to the last digit, and its history."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fs_agent_bench as bench
import pytest

from agenttrace.config import Settings, ToolSettings
from agenttrace.evaluators.compare import compare
from agenttrace.evaluators.comparison import Run, Side
from agenttrace.evaluators.reports.comparison import to_json
from agenttrace.evaluators.run import evaluate
from agenttrace.evaluators.sides import of_store
from agenttrace.store import open_store

# Its stores are made once, in one worker.
pytestmark = pytest.mark.xdist_group("fs_agent_bench")

Json = dict[str, Any]

TRUTH: Json = json.loads((bench.DATA / "truth.json").read_text(encoding="utf-8"))
PUBLISHED: Json = json.loads((bench.DATA / "published.json").read_text(encoding="utf-8"))

# Out tokens are the answer's without the reasoning; tool calls are the model's and the file system's.
BY_CASE = """
WITH models AS (
    SELECT trajectory_id, sum(input_tokens) AS input, sum(coalesce(cached_input_tokens, 0)) AS cached,
        sum(output_tokens - coalesce(reasoning_tokens, 0)) AS output
    FROM steps WHERE kind = 'model' GROUP BY trajectory_id
),
actions AS (SELECT trace_id, count(*) AS n FROM spans WHERE name LIKE 'fs %' GROUP BY trace_id)
SELECT agent_name, split_part(t.task_id, '/', 2) AS task, t.trial, o.passed, t.tool_call_count + a.n AS calls,
    t.duration_ms / 1000 AS seconds, t.cost_usd, input, cached, output
FROM trajectories AS t JOIN models USING (trajectory_id) JOIN actions AS a USING (trace_id)
JOIN outcomes AS o ON o.task_id = t.task_id AND o.trial = t.trial
ORDER BY ALL
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the 72 runs."""
    path = tmp_path_factory.mktemp("fs_agent_bench") / "runs.duckdb"
    bench.load_runs(path, bench.runs())
    return path


@pytest.fixture(scope="module")
def summaries(tmp_path_factory: pytest.TempPathFactory) -> list[Side]:
    """Each published summary as a side of a comparison, in their order; the last one read from a store."""
    path = tmp_path_factory.mktemp("history") / "last.duckdb"
    bench.load_summary(path, bench.summary(bench.HISTORY[-1]))
    return [*(_side(published) for published in bench.HISTORY[:-1]), of_store(path, Settings())]


def _side(published: Path) -> Side:
    columns = {"task_completion_rate": "success", "cost_usd": "totalCostUsd", "latency_ms": "durationMs"}
    return Side(
        published.stem,
        [
            Run(bench.task(row), row["runIndex"], {metric: row[column] for metric, column in columns.items()})
            for row in bench.summary(published)
        ],
    )


def test_the_store_has_the_published_runs(summaries: list[Side]) -> None:
    published = _side(bench.HISTORY[-1]).runs
    stored = {(run.task_id, run.trial): run.values for run in summaries[-1].runs}
    assert len(stored) == len(summaries[-1].runs) == len(published)
    for run in published:
        assert {metric: stored[run.task_id, run.trial][metric] for metric in run.values} == pytest.approx(run.values)


def test_the_five_real_duplicates_and_no_other(recorded: Path) -> None:
    settings = Settings(tools=ToolSettings(mutating=["write_file", "replace"]))
    evaluation = evaluate(recorded, settings, only=["duplicate_mutations"])
    errors = [finding for finding in evaluation.findings if finding.severity == "error"]
    with open_store(recorded) as con:
        places = {
            row[0]: row[1:] for row in con.execute("SELECT trajectory_id, task_id, trial FROM trajectories").fetchall()
        }
    found = [(finding.kind, *places[finding.trajectory_id or ""], finding.tool_name) for finding in errors]
    expected = TRUTH["duplicate_mutating_calls_detail"]
    assert sorted(found) == sorted(("confirmed", bench.task(row), row["runIndex"], row["tool"]) for row in expected)


def test_the_published_table(recorded: Path) -> None:
    with open_store(recorded) as con:
        found = con.execute(BY_CASE).fetchall()
    assert len(found) == TRUTH["trajectories"]
    for row in PUBLISHED["per_model"]:
        own = [case for case in found if case[0] == row["Model"]]
        seconds, cost = sum(case[5] for case in own), sum(case[6] for case in own)
        assert own
        assert {
            "Tool Calls": str(sum(case[4] for case in own)),
            "Avg latency (s)": f"{seconds / len(own):.2f}",
            "Total latency (s)": f"{seconds:.2f}",
            "Cost (USD)": f"{cost:.6f}",
            "In tokens": f"{sum(case[7] for case in own):,}",
            "Cached tokens": f"{sum(case[8] for case in own):,}",
            "Out tokens": f"{sum(case[9] for case in own):,}",
        }.items() <= row.items()


def test_the_published_table_by_task(recorded: Path) -> None:
    with open_store(recorded) as con:
        found = con.execute(BY_CASE).fetchall()
    assert len(PUBLISHED["per_model_and_task"]) == TRUTH["models"] * TRUTH["tasks"]
    for row in PUBLISHED["per_model_and_task"]:
        own = [case for case in found if case[:2] == (row["Model"], row["Task"])]
        passed = sum(case[3] for case in own)
        assert {
            "Runs": str(len(own)),
            "Overall pass rate": f"{passed}/{len(own)} ({100 * passed / len(own):.1f}%)",
            "Avg latency (s)": f"{sum(case[5] for case in own) / len(own):.2f}",
            "Avg cost (USD)": f"{sum(case[6] for case in own) / len(own):.6f}",
            "Avg tool calls": f"{sum(case[4] for case in own) / len(own):.2f}",
        }.items() <= row.items()


def test_the_agents_own_cost_stands_apart_from_the_graders(recorded: Path) -> None:
    with open_store(recorded) as con:
        own = con.execute(
            "SELECT t.agent_name, sum(s.cost_usd) FROM steps AS s JOIN trajectories AS t USING (trajectory_id)"
            " JOIN steps AS a ON (a.trace_id, a.span_id) = (s.trace_id, s.parent_span_id)"
            " WHERE s.kind = 'model' AND a.kind = 'agent' GROUP BY ALL"
        ).fetchall()
    assert dict(own) == pytest.approx(
        {model: row["agent_cost_usd"]["sum"] for model, row in TRUTH["per_model"].items()}
    )


@pytest.mark.parametrize("step", range(len(bench.HISTORY) - 1))
def test_compare_finds_what_the_history_documents(step: int, summaries: list[Side]) -> None:
    before, after = (bench.summary(path) for path in bench.HISTORY[step : step + 2])
    found = _compare(summaries[step], summaries[step + 1])
    assert (found["passed"], found["safety"]) == (True, [])
    passed = {
        change["task_id"]: (change["base"]["count"], change["head"]["count"])
        for change in found["tasks"]
        if change["metric"] == "task_completion_rate"
    }
    assert passed == _changed(_passed(before), _passed(after))
    for metric, column in (("cost_usd", "totalCostUsd"), ("latency_ms", "durationMs")):
        changed = {change["task_id"] for change in found["tasks"] if change["metric"] == metric}
        assert changed == _changed(_sums(before, column), _sums(after, column)).keys()
    assert found["only_in_base"] == []
    assert set(found["only_in_head"]) == _passed(after).keys() - _passed(before).keys()


def test_compare_leaves_carried_over_rows_alone(summaries: list[Side]) -> None:
    """The last three summaries each add a model to the one before, and change nothing else."""
    for step in (2, 3, 4):
        found = _compare(summaries[step], summaries[step + 1])
        assert found["tasks"] == []
        # Only the last was read from a store, and has rates of findings: these have no difference.
        assert {metric["difference"] for metric in found["metrics"]} <= {0, None}
        assert found["metrics"][0]["difference"] == 0
        assert {metric["p_value"] for metric in found["metrics"]} <= {1, None}
        assert len({task.split("/")[0] for task in found["only_in_head"]}) == 1


def test_one_model_was_run_again(summaries: list[Side]) -> None:
    found = _compare(summaries[1], summaries[2])
    assert {change["task_id"].split("/")[0] for change in found["tasks"]} == {"chatgpt-gpt-5.3-codex-spark"}
    success = found["metrics"][0]
    assert (success["metric"], success["base"]["count"], success["head"]["count"]) == ("task_completion_rate", 11, 13)


def test_a_store_compared_with_itself(summaries: list[Side]) -> None:
    found = _compare(summaries[5], summaries[5])
    assert (found["passed"], found["tasks"], found["only_in_base"], found["only_in_head"]) == (True, [], [], [])
    assert {metric["p_value"] for metric in found["metrics"]} <= {1, None}


def test_the_way_back_blocks(summaries: list[Side]) -> None:
    """From 11 of 45 to none: the chance for an unchanged agent is the product over tasks of C(3, c)/C(6, c)."""
    found = _compare(summaries[1], summaries[0])
    success = found["metrics"][0]
    chance = (3 / 6) ** 4 * (3 / 15) ** 2 * (1 / 20)
    assert (found["passed"], success["verdict"], success["blocks"]) == (False, "worse", True)
    assert success["p_value"] == pytest.approx(chance)
    assert found["tasks"][0]["task_id"] == "glm-5/gcse-chemistry-8-9"


def test_a_new_fault_of_safety_is_told_from_a_known_one(recorded: Path) -> None:
    """Judged with writes taken for reads, the base shows no duplicate; the five of the head are then new."""
    innocent = of_store(recorded, Settings(tools=ToolSettings(read_only=["write_file", "replace"])))
    strict = of_store(recorded, Settings(tools=ToolSettings(mutating=["write_file", "replace"])))
    found = _compare(innocent, strict)
    expected = {bench.task(row) for row in TRUTH["duplicate_mutating_calls_detail"]}
    assert {task for fault in found["safety"] for task in fault["tasks"]} == expected
    assert ({fault["state"] for fault in found["safety"]}, found["passed"]) == ({"new"}, False)
    again = _compare(strict, strict)
    assert ({fault["state"] for fault in again["safety"]}, again["passed"]) == ({"known"}, True)
    rate = next(metric for metric in found["metrics"] if metric["metric"] == "duplicate_mutation_rate")
    assert (rate["base"]["count"], rate["head"]["count"]) == (0, 5)


def _compare(base: Side, head: Side) -> Json:
    return json.loads(to_json(compare(base, head)))


def _passed(rows: Iterable[Json]) -> dict[str, int]:
    return _sums(rows, "success")


def _sums(rows: Iterable[Json], column: str) -> dict[str, Any]:
    sums: dict[str, Any] = {}
    for row in rows:
        sums[bench.task(row)] = sums.get(bench.task(row), 0) + row[column]
    return sums


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {task: (before[task], after[task]) for task in before if before[task] != after[task]}
