"""Evaluators over a store, whole evaluations, and a night in a year of data.

Run: `python benchmarks/evaluators.py [SPANS]` (1,000,000 by default; 10,000,000 take about 1 GB of disk and ten times
as long, and are set beside 1,000,000 in the same run).

- Each evaluator, as a multiple of DuckDB's scan of the columns that it needs: every column of `steps` and
  `trajectories` that a scan in the query's own plan reads, each once, as max(). Every evaluator has a rule to hold the
  runs against, and most runs keep it.
- A whole evaluation, as `agenttrace evaluate` does it, in a process of its own, with its peak memory.
- The nightly job over one new day with 1, 30 and 365 days in the store, of which earlier nights have judged the others.

All with `memory_limit = 2GB`.
"""

import functools
import json
import re
import resource
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, date, datetime
from importlib import resources
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
from ratios import Figure, Work, measure, report

from agenttrace.config import Settings
from agenttrace.evaluators import catalog, nightly, prepare, run
from agenttrace.evaluators.catalog import Evaluator
from agenttrace.evaluators.results import Evaluation
from agenttrace.store import SCHEMA_VERSION, open_store

SPANS = 1_000_000
A_DAY = 20_000
DAYS = (1, 30, 365)
FIRST_DAY = datetime(2026, 1, 1, tzinfo=UTC)
# The highest ratio to the scan that is good enough (design.md, section 10).
TARGETS = {"duplicate_mutations": 3.0, "budget_overruns": 3.0, "tool_hallucination": 5.0, "tool_order": 5.0}
# Ten times the spans may take so many times as long.
GROWTH = 12.0
# A day in a year of data may cost so many times what it costs alone.
NIGHT = 2.0
CASE = {
    "acceptable_tool_sequences": [["check_stock", "check_open_orders", "get_invoice", "place_order"] * 3],
    "sequence_mode": "subset",
    "forbidden_tools": ["delete_order"],
    "expected_arguments": {"place_order": {"supplier": "Globex"}},
    "max_allowed_steps": 12,
    "expected_outcome": {"must_include": ["placed the order"]},
    "outcome_sql": "tool_call_count < 13",
}
SETTINGS = {
    "budgets": {"default": {"max_tool_calls": 11, "max_tokens": 9_000, "max_duration_ms": 60_000}},
    "tools": {"forbidden": ["delete_*"]},
    "evaluators": {
        "tool_order": {"before": [["check_open_orders", "place_order"]], "required": ["place_order"]},
        "tool_arguments": {"max": {"place_order.qty": 100}, "schemas": {"place_order": {"required": ["item"]}}},
        "tenant_isolation": {"tenants": ["globex-de", "umbrella"]},
        "unconfirmed_mutation": {"destructive": ["place_*"], "confirmations": ["check_*"]},
    },
}


def main(spans: int = SPANS) -> bool:
    """Prints the tables; True where the targets are met."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = settings(folder)
        sizes = {f"{size:,} spans": build(folder / f"{size}.duckdb", size) for size in dict.fromkeys((SPANS, spans))}
        # An evaluation shows its evaluators so many spans at a time, however large the store is.
        one_slice = sizes[f"{SPANS:,} spans"]
        tables = {f"evaluators over {SPANS:,} spans, to the scan of their columns": scans(one_slice, config)}
        facts: dict[str, Any] = {}
        tables["whole evaluation"] = whole(sizes, config, evaluate, GROWTH, 1, facts)
        days = {f"1 day of {n}": judged_before(build(folder / f"{n}.duckdb", n * A_DAY)) for n in DAYS}
        tables[f"nightly job over one day, {A_DAY:,} spans"] = whole(days, config, nightly_job, NIGHT, 5, facts)
        return report("evaluators", tables, facts)


def settings(folder: Path) -> Settings:
    """Returns a configuration with rules for every evaluator, and a hundred benchmark cases."""
    path = folder / "cases.jsonl"
    path.write_text("\n".join(json.dumps({"case_id": f"task{n}", **CASE}) for n in range(100)), encoding="utf-8")
    return Settings.model_validate({**SETTINGS, "cases": {"path": str(path)}})


def build(path: Path, spans: int) -> Path:
    """Writes a store of so many spans, in parts."""
    with duckdb.connect(str(path)) as con:
        con.execute((resources.files("agenttrace") / "schema.sql").read_text(encoding="utf-8"))
        con.execute("INSERT INTO agenttrace_meta VALUES ('schema_version', ?)", [str(SCHEMA_VERSION)])
        for first in range(0, spans, 500_000):
            values = {"first": first, "last": min(first + 500_000, spans), "a_day": A_DAY}
            con.execute(query("steps"), values)
        con.execute(query("trajectories"))
    return path


def judged_before(path: Path) -> Path:
    """Writes the ledger and the findings of the nights before the last day."""
    with duckdb.connect(str(path)) as con:
        for statement in con.extract_statements(query("nights")):
            con.execute(statement)
    return path


def query(name: str) -> str:
    """Returns the query that fills one table."""
    return Path(__file__).with_name(f"evaluators_{name}.sql").read_text(encoding="utf-8")


def scans(store: Path, config: Settings) -> list[Figure]:
    """Measures each evaluator against the scan of its columns."""
    evaluators = catalog.load()
    with duckdb.connect(str(store), read_only=True) as con:
        limit(con)
        prepare.select(con, prepare.Selection(None, None, include_open=False))
        prepare.relations(con, config, {name for evaluator in evaluators.values() for name in evaluator.reads})
        return [_against_scan(con, evaluator, config) for evaluator in evaluators.values()]


def _against_scan(con: duckdb.DuckDBPyConnection, evaluator: Evaluator, config: Settings) -> Figure:
    values = evaluator.values(config.evaluators.get(evaluator.name, {}), config.tools.model_dump())
    statements = scan(con, columns(con, evaluator.query, values))
    works = [
        Work("scan", lambda: lambda: [con.execute(statement).fetchall() for statement in statements], repeats=3),
        Work(
            evaluator.name,
            lambda: lambda: con.execute(evaluator.query, values or None).fetchall(),
            TARGETS.get(evaluator.name),
        ),
    ]
    return measure(works, rounds=5)[1]


def scan(con: duckdb.DuckDBPyConnection, read: Mapping[str, list[str]]) -> list[str]:
    """Returns one statement per table that reads these columns; the sum is what no statistics know without reading."""
    numbers = {"steps": "step_index", "trajectories": "tool_call_count"}
    return [
        f"SELECT sum({numbers[table]}), {', '.join(f'max({column})' for column in names)} FROM stored_{table}"
        for table, names in read.items()
        if names
    ]


def columns(con: duckdb.DuckDBPyConnection, text: str, values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the columns of `steps` and `trajectories` that the scans of a query's plan read or filter by."""
    row = con.execute(f"EXPLAIN (FORMAT json) {text}", values or None).fetchone()
    found: dict[str, set[str]] = {"steps": set(), "trajectories": set()}
    nodes: list[dict[str, Any]] = json.loads(row[1]) if row else []
    while nodes:
        node = nodes.pop()
        nodes += node["children"]
        database, _, table = str(node["extra_info"].get("Table", "")).rpartition(".main.")
        if table in found and "temp" not in database:
            words = re.findall(r"\w+", f"{node['extra_info'].get('Projections')} {node['extra_info'].get('Filters')}")
            known = con.execute("SELECT column_name FROM (DESCRIBE FROM query_table($t))", {"t": f"stored_{table}"})
            found[table] |= {name for (name,) in known.fetchall()}.intersection(words)
    return {table: sorted(names) for table, names in found.items()}


def whole(
    stores: Mapping[str, Path],
    config: Settings,
    job: Callable[[Path, Settings], Evaluation],
    target: float,
    rounds: int,
    facts: dict[str, Any],
) -> list[Figure]:
    """Measures a job over stores, each time in a process of its own, against that over the first of them."""
    works = [
        Work(name, functools.partial(_in_process, name, path, config, job, facts)) for name, path in stores.items()
    ]
    figures = measure(works, rounds=rounds)
    return [figures[0], *(replace(figure, target=target) for figure in figures[1:])]


def _in_process(
    name: str, store: Path, config: Settings, job: Callable[[Path, Settings], Evaluation], facts: dict[str, Any]
) -> Callable[[], float]:
    def work() -> float:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            cpu_s, peak_mb, counts = pool.submit(limited, job, store, config).result()
        facts[f"{name}: peak memory, MB"] = round(peak_mb)
        facts[f"{name}: runs, findings"] = counts
        return cpu_s

    return work


def limited(
    job: Callable[[Path, Settings], Evaluation], store: Path, config: Settings
) -> tuple[float, float, tuple[int, int]]:
    """Does a job with little memory; returns processor time, peak memory in MB, counts of runs and findings."""

    def open_limited(db: Path) -> duckdb.DuckDBPyConnection:
        con = open_store(db)
        limit(con)
        return con

    run.open_store = nightly.open_store = open_limited
    before = resource.getrusage(resource.RUSAGE_SELF)
    evaluation = job(store, config)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s, after.ru_maxrss / 1024, (evaluation.run["trajectories"], len(evaluation.findings))


def evaluate(store: Path, config: Settings) -> Evaluation:
    """Evaluates all runs."""
    return run.evaluate(store, config)


def nightly_job(store: Path, config: Settings) -> Evaluation:
    """Judges what no night has seen: the last day."""
    return nightly.judge(store, config, date(2030, 1, 1), nightly.zone("UTC"))


def limit(con: duckdb.DuckDBPyConnection) -> None:
    """Gives DuckDB the memory that the targets are for."""
    con.execute("SET memory_limit = '2GB'")


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
