"""The examples as a reader runs them, and `agenttrace demo`, which runs two of them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agenttrace import demo
from agenttrace.config import Settings
from agenttrace.evaluators.results import Evaluation
from agenttrace.evaluators.run import evaluate
from agenttrace.store import open_store, refresh

pytestmark = pytest.mark.usefixtures("unmeasured")

EXAMPLES = Path(__file__).parent.parent / "examples"
AGENTTRACE = Path(sys.executable).with_name("agenttrace")

RIGHT_BY_THE_OUTCOME = """
    SELECT count(*) FROM trajectories
    WHERE task_id = 'refund'
      AND (initial_state->>'refundable' = 'true') = (final_state->>'refunded' = 'true')
      AND (initial_state->>'refundable' = 'true') <> (final_state->>'escalated' = 'true')
"""
RIGHT_BY_THE_LAST_TEXT = """
    SELECT count(*) FROM trajectories WHERE task_id = 'refund' AND final_response LIKE '%has been issued%'
"""


def run(*command: str | Path, folder: Path) -> str:
    environment = {**os.environ, "HOME": str(folder), "COLUMNS": "200", "NO_COLOR": "1"}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def judge(store: Path, settings: Settings) -> Evaluation:
    refresh(store, settings=settings)
    return evaluate(store, settings)


def ask(store: Path, query: str) -> list[tuple[Any, ...]]:
    with open_store(store) as connection:
        return connection.execute(query).fetchall()


def errors(store: Path, evaluation: Evaluation) -> list[tuple[str, str, str | None]]:
    tasks = dict(ask(store, "SELECT trajectory_id, task_id FROM trajectories"))
    found = [finding for finding in evaluation.findings if finding.severity == "error"]
    return [(finding.evaluator, finding.kind, tasks[finding.trajectory_id]) for finding in found]


def test_the_careless_shop_agent_is_caught_and_its_careful_twin_is_not(store: Path) -> None:
    printed = run(sys.executable, EXAMPLES / "grocery.py", folder=store.parent)
    assert "40 bags of rice are ordered" in printed
    evaluation = judge(store, Settings())
    assert errors(store, evaluation) == [("duplicate_mutations", "unverified_retry", "restock-careless")]
    assert ask(store, "SELECT task_id, final_state->>'open_orders' FROM trajectories ORDER BY task_id") == [
        ("restock-careful", "1"),
        ("restock-careless", "2"),
    ]


def test_refunds_are_right_by_the_state_where_the_last_text_misleads(store: Path) -> None:
    printed = run(sys.executable, EXAMPLES / "refunds.py", folder=store.parent)
    assert "by the outcome: 10 of 10" in printed
    # 1 - C(4, 3) / C(10, 3) = 1 - 4 / 120
    assert "by the last text: 6 of 10 (pass@3 = 0.9667)" in printed
    evaluation = judge(store, demo.settings())
    assert ask(store, RIGHT_BY_THE_OUTCOME) == [(10,)]
    assert ask(store, RIGHT_BY_THE_LAST_TEXT) == [(6,)]
    assert ask(store, "SELECT count(*) FILTER (passed), count(*) FROM outcomes WHERE task_id = 'refund'") == [(10, 10)]
    assert sorted(errors(store, evaluation)) == [
        ("budget_overruns", "max_tool_calls", "refund-dithering"),
        ("tool_hallucination", "claimed_not_called", "refund-hasty"),
    ]


def test_demo_prints_the_findings_the_cost_and_the_report(tmp_path: Path) -> None:
    for _ in range(2):  # a second run must not count the first one's agents again
        printed = run(AGENTTRACE, "demo", folder=tmp_path)
    for words in ("unverified_retry", "claimed_not_called", "max_tool_calls", "check_balance", "p50", "p95"):
        assert words in printed
    report = Path(printed.splitlines()[-1].removeprefix("report: "))
    assert report.is_relative_to(tmp_path)
    assert "unverified_retry" in report.read_text(encoding="utf-8")
    assert ask(report.parent / "agenttrace-demo.duckdb", "SELECT count(*) FROM trajectories") == [(14,)]


def test_spans_of_a_framework_arrive_over_otlp(store: Path) -> None:
    pytest.importorskip("pydantic_ai")
    command = [AGENTTRACE, "collect", "--http-port", "0", "--grpc-port", "0", "--db", store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout
        try:
            address = re.search(r"http://\S+", receiver.stdout.readline())
            assert address
            assert "umbrella" in run(sys.executable, EXAMPLES / "any_framework.py", address[0], folder=store.parent)
        finally:
            receiver.terminate()
    assert "weather" in run(AGENTTRACE, "list", folder=store.parent)
    assert ask(store, "SELECT agent_name, tools, final_response, total_tokens > 0 FROM trajectories") == [
        ("weather", ["get_forecast"], "Take an umbrella.", True)
    ]
    assert ask(store, "SELECT arguments->>'city', observation->>'$', status FROM steps WHERE kind = 'tool'") == [
        ("a", "rain in a", "ok")
    ]
