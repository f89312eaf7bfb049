"""Evaluators over a store, as a multiple of DuckDB's scan of the columns that they need in the same run.

Run: `python benchmarks/evaluators.py [SPANS]` (1,000,000 by default; 10,000,000 take about 6 GB of disk). Targets
(processor time): at most 3 times the scan for duplicates and budgets, 5 for rows in order; 10 M spans at most 12 times
1 M with `memory_limit = 2GB`.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import duckdb

from agenttrace.config import Budget, Settings
from agenttrace.evaluators import catalog, prepare, run

SPANS = 1_000_000
PER_RUN = 20
SETTINGS = Settings(budgets={"default": Budget(max_tool_calls=11, max_tokens=9_000, max_duration_ms=60_000)})
SCANS = {
    "duplicate_mutations": "trajectory_id, trace_id, span_id, kind, tool_name, tool_ran, effect, mutability, arguments",
    "budget_overruns": "trajectory_id, kind, step_index, tool_ran, input_tokens, output_tokens, usage_source, end_time",
    "tool_hallucination": "trajectory_id, span_id, kind, tool_name, tool_call_id, requested_tool_calls, offered_tools",
    "cost_percentiles": "trajectory_id, kind, model",
}


def query(name: str) -> str:
    """Returns the query that fills one table."""
    return Path(__file__).with_name(f"evaluators_{name}.sql").read_text(encoding="utf-8")


def build(path: Path, spans: int) -> None:
    """Writes a store of so many spans, in parts."""
    with duckdb.connect(str(path)) as con:
        con.execute((resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8"))
        con.execute("INSERT INTO agenttrace_meta VALUES ('schema_version', '1')")
        for first in range(0, spans, 500_000):
            con.execute(query("steps"), {"first": first, "last": min(first + 500_000, spans)})
        con.execute(query("trajectories"))


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """Best processor time of all threads."""
    best = float("inf")
    for _ in range(repeats):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def compare(path: Path) -> None:
    """Prints each evaluator's ratio to the scan of its columns."""
    with duckdb.connect(str(path), read_only=True) as con:
        con.execute("SET memory_limit = '2GB'")
        prepare.select(con, prepare.Selection(None, None, include_open=False), 0)
        prepare.relations(con, SETTINGS, {"budgets"})
        for name, columns in SCANS.items():
            evaluator = catalog.load()[name]
            values = evaluator.values({}, SETTINGS.tools.model_dump())
            scan = "SELECT " + ", ".join(f"max({column})" for column in columns.split(", ")) + " FROM stored_steps"
            baseline = seconds(lambda scan=scan: con.execute(scan).fetchall())
            taken = seconds(lambda text=evaluator.query, bound=values: con.execute(text, bound or None).fetchall())
            print(f"{name:22} {taken:7.2f} s, {taken / baseline:6.2f} times the scan ({baseline:.2f} s)")


def main() -> None:
    """Builds a store and prints the ratios, then the time of a whole evaluation."""
    spans = int(sys.argv[1]) if len(sys.argv) > 1 else SPANS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.duckdb"
        build(path, spans)
        compare(path)
        started = time.process_time()
        evaluation = run.evaluate(path, SETTINGS)
        taken = time.process_time() - started
        print(f"{'whole evaluation':22} {taken:7.2f} s, {len(evaluation.findings)} findings, {spans} spans")


if __name__ == "__main__":
    main()
