"""Hostile trace content, evaluator files, queries and stores, one test a threat (docs/security.md has the list)."""

import json
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from agenttrace import markdown, show
from agenttrace.cli import main
from agenttrace.config import Settings
from agenttrace.errors import ConfigError, UsageError
from agenttrace.evaluators import reading, review
from agenttrace.evaluators.promote import line_of, promotion_of
from agenttrace.evaluators.reports import markdown as markdown_report
from agenttrace.evaluators.results import Evaluation, Measurement
from agenttrace.evaluators.run import evaluate
from agenttrace.python_repr import json_of_repr
from agenttrace.query import relation
from agenttrace.store import open_store

ROOT = Path(__file__).parents[1]
Fill = Callable[..., Path]

# --- content in SQL

# Lower case: as in ids, which are looked up so.
INJECTION = "x' or '1'='1\"; drop table steps; copy steps to '/tmp/agenttrace-stolen.csv'; --$1 ?"


def test_content_reaches_sql_as_a_value(fill_store: Fill, tmp_path: Path) -> None:
    names = ("service_name", "agent_name", "session_id", "user_id", "tenant_id", "task_id", "user_input")
    run: dict[str, object] = dict.fromkeys((*names, "trajectory_id", "final_response"), INJECTION)
    step: dict[str, object] = dict.fromkeys(("trajectory_id", "name", "tool_name", "tool_call_id"), INJECTION)
    steps: list[dict[str, object]] = [
        {**step, "span_id": f"s{index}", "kind": "tool", "step_index": index, "arguments": json.dumps({"a": INJECTION})}
        for index in (0, 1)
    ]
    more: dict[str, object] = {"mutability": "mutating", "effect": "yes", "tool_ran": True}
    store = fill_store(
        trajectories=[run | {"tools": [INJECTION] * 2, "tool_call_count": 2, "mutation_count": 2}],
        steps=[found | more for found in steps],
    )
    case = {"case_id": INJECTION, "forbidden_tools": [INJECTION], "acceptable_tool_sequences": [[INJECTION]]}
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(case | {"outcome_sql": "tool_call_count = 2"}))
    settings = Settings.model_validate({"cases": {"path": str(cases)}, "tools": {"mutating": [INJECTION]}})
    only = ("duplicate_mutations", "forbidden_tools", "outcome")
    findings = evaluate(store, settings, label=INJECTION, only=only).findings
    assert {finding.evaluator for finding in findings} == {"duplicate_mutations", "forbidden_tools"}
    assert {finding.tool_name for finding in findings} - {None} == {INJECTION}
    with open_store(store) as con:
        assert show.find_run(con, INJECTION)["trajectory_id"] == INJECTION
        with pytest.raises(UsageError, match="no run's id begins with"):
            show.find_run(con, INJECTION + "'")
        review.make_relations(con, settings)
        assert json.loads(line_of(promotion_of(con, INJECTION).case))["user_input"] == INJECTION
        assert con.execute("SELECT count(*) FROM stored_steps").fetchone() == (2,)


# --- content in Markdown, on a terminal, and in time and memory


@pytest.mark.parametrize(
    "text", ["`", "``x``", "a`[x](javascript:x)`b", "`<img src=x>", "```\n# x\n```", "|a|b`", "\\`"]
)
def test_content_cannot_leave_a_markdown_code_span_or_cell(text: str) -> None:
    span = markdown.code(text)
    fence = re.match("`+", span)
    assert fence is not None
    inner = span[len(fence[0]) : -len(fence[0])]
    # CommonMark: a span ends at the first run of backticks that is as long as the one that began it.
    assert span.endswith(fence[0])
    assert fence[0] not in re.findall("`+", inner)
    assert "\n" not in span
    cells = _EVALUATION.measurements[0]._replace(dimensions={"agent": text})
    page = markdown_report.render(replace(_EVALUATION, measurements=[cells]))
    (row,) = [line for line in page.split("\n") if line.startswith("| `cost")]
    # Five cells have six borders.
    assert len(re.findall(r"(?<!\\)\|", row)) == 6


_EVALUATION = Evaluation(
    run={"run_id": "e1", "trajectories": 1, "evaluator_versions": {}},
    passed=True,
    measurements=[Measurement("cost", {}, 1.0, "usd", 1, 0, None, None)],
)


def test_an_evaluators_own_text_does_not_steer_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.sql").write_text(HEADER + "SELECT '\x1b]0;owned\x07\u202e' FROM steps", encoding="utf-8")
    (tmp_path / "agenttrace.toml").write_text('evaluator_paths = ["own"]')
    assert main(["evaluators", "mine"]) == 0
    assert r"SELECT '\x1b]0;owned\x07\u202e' FROM steps" in capsys.readouterr().out


@pytest.mark.parametrize("unit", ["\\'", '\\"', "<a", "<b>", "'", "-", "(", "1+", "f(", "[["])
def test_a_hostile_repr_ends(unit: str) -> None:
    start = time.process_time()
    assert json_of_repr("'" + unit * (150_000 // len(unit))) is None
    assert json_of_repr("[" + unit * (150_000 // len(unit))) is None
    # A quadratic expression takes minutes.
    assert time.process_time() - start < 3


# Modules that run what they read, and calls that run a text.
_DANGEROUS = re.compile(
    r"^\s*(?:import|from)\s+(pickle|marshal|shelve|dill|yaml|subprocess|xml\.(?:etree|dom|parsers)|lxml|ctypes)\b"
    r"|(?<![.\w])((?:eval|exec|compile|__import__|os\.system|os\.popen)\()",
    re.MULTILINE,
)


def test_no_module_unpickles_evaluates_or_starts_programs() -> None:
    modules = [path for folder in ("agenttrace", "collectors", "evaluators") for path in (ROOT / folder).rglob("*.py")]
    found = {
        (path.name, match.group(1, 2)) for path in modules for match in _DANGEROUS.finditer(path.read_text("utf-8"))
    }
    # The binder of a decorated function is made of the names of its parameters, which are the program's own.
    assert found == {("binding.py", (None, "eval("))}


# --- hostile evaluator files and queries

HEADER = """/* +++
name       = "mine"
returns    = "findings"
scope      = "trajectory"
severity   = "warning"
question   = "Is it so?"
reads      = ["steps"]
limits     = "none known"
references = []

[columns]
trajectory_id = "run"
trace_id      = "trace"
span_id       = "step"
kind          = "kind"
severity      = "warning"
message       = "sentence"
+++ */
"""
COLUMNS = "NULL AS trajectory_id, NULL AS trace_id, NULL AS span_id, 'a' AS kind, 'note' AS severity, 'b' AS message"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("SELECT * FROM findings", "reads findings"),
        ("SELECT * FROM stored_steps", "reads stored_steps"),
        ("SELECT * FROM main.steps", "reads main.steps"),
        ("SELECT (SELECT max(run_id) FROM evaluation_runs) FROM steps", "reads evaluation_runs"),
        ("WITH findings AS (SELECT * FROM findings) SELECT * FROM findings", "reads findings"),
        ("SELECT * FROM (WITH spans AS (FROM steps) FROM spans), spans", "reads spans"),
        ('WITH "main.findings" AS (SELECT 1) SELECT * FROM main.findings', "reads main.findings"),
        (
            "WITH RECURSIVE spans AS (SELECT * FROM spans UNION ALL SELECT * FROM spans) SELECT * FROM spans",
            "reads spans",
        ),
        ("SELECT * FROM query_table('findings')", "calls the table function query_table"),
        ("SELECT * FROM query('FROM findings')", "calls the table function query"),
        ("SELECT * FROM duckdb_tables()", "calls the table function duckdb_tables"),
        ("DESCRIBE steps", "asks which relations there are"),
        ("WITH gone AS (DELETE FROM judged RETURNING *) SELECT * FROM gone", "changes data"),
        ("CREATE OR REPLACE TEMP VIEW steps AS SELECT 1", "is not one SELECT"),
        ("SELECT 1; SELECT 2", "holds 2 statements"),
        ("", "holds 0 statements"),
        ("SELECT " + "(" * 400 + "1" + "+1)" * 400, "is nested too deeply"),
    ],
)
def test_an_evaluator_reads_what_its_header_names(query: str, problem: str) -> None:
    with duckdb.connect() as con:
        assert problem in (reading.problem(con, query, ("steps",)) or "")


def test_an_evaluator_may_name_and_nest_its_own_parts() -> None:
    query = """
        WITH RECURSIVE findings AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM findings WHERE n < 3),
            later AS (SELECT * FROM findings, Steps, json_each('{}'), unnest([1]))
        SELECT * FROM later WHERE EXISTS (SELECT * FROM later) UNION SELECT * FROM steps
    """
    with duckdb.connect() as con:
        assert reading.problem(con, query, ("steps",)) is None


def test_a_hostile_evaluator_ends_the_evaluation(fill_store: Fill, tmp_path: Path) -> None:
    store = fill_store(
        trajectories=[{"trajectory_id": "r1"}], steps=[{"trajectory_id": "r1", "span_id": "s1", "kind": "tool"}]
    )
    (tmp_path / "mine.sql").write_text(
        f"{HEADER}WITH gone AS (DELETE FROM judged RETURNING *) SELECT {COLUMNS} FROM gone"
    )
    with pytest.raises(ConfigError, match=r"mine\.sql: the query changes data"):
        evaluate(store, Settings(evaluator_paths=[tmp_path]), only=["mine"])


HIDDEN = "WITH gone AS (COPY spans TO ''{0}/a.csv'') SELECT * FROM gone"


@pytest.mark.parametrize(
    "query",
    [
        "COPY spans TO '{0}/a.csv'",
        "EXPLAIN ANALYZE COPY spans TO '{0}/a.csv'",
        "/* so */ EXPLAIN -- far\n (ANALYZE, FORMAT json) COPY spans TO '{0}/a.csv'",
        "WITH gone AS (COPY spans TO '{0}/a.csv') SELECT * FROM gone",
        "EXPLAIN ANALYZE WITH gone AS (COPY spans TO '{0}/a.csv') SELECT * FROM gone",
        f"FROM json_execute_serialized_sql(json_serialize_sql('{HIDDEN}'))",
        f"PRAGMA json_execute_serialized_sql(json_serialize_sql('{HIDDEN}'))",
        "/* so */ PRAGMA import_database('{0}')",
        "IMPORT DATABASE '{0}'",
    ],
)
def test_sql_does_not_write_where_duckdb_may(
    fill_store: Fill, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = fill_store()
    with open_store(store, locked=True) as con:
        row = con.execute("SELECT current_setting('temp_directory')").fetchone()
        folder = Path(row[0] if row else "")
        folder.mkdir(parents=True, exist_ok=True)
        with pytest.raises(UsageError, match="with any DuckDB client to change it"):
            relation(con, query.format(folder)).fetchall()
        assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("query", "hiding"),
    [
        # Tokens are counted in bytes: so many letters of two bytes hide as many that follow from who counts characters.
        (
            "EXPLAIN ANALYZE /*{1}*/ WITH gone AS (COPY spans TO '{0}/a.csv') SELECT * FROM gone",
            "WITH gone AS (COPY spans TO '{0}/a.csv') ",
        ),
        ("/*{1}*/ PRAGMA import_database('{0}/version(           ')", "import_database('{0}/"),
        # A space for the parser and a letter for the tokenizer.
        ("EXPLAIN\u00a0ANALYZE\u00a0WITH\u00a0gone\u00a0AS (COPY spans TO '{0}/a.csv') SELECT * FROM gone", ""),
        ("PRAGMA\u00a0import_database('{0}')", ""),
    ],
)
def test_letters_beyond_ascii_hide_no_change(
    fill_store: Fill, query: str, hiding: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with open_store(fill_store(), locked=True) as con:
        row = con.execute("SELECT current_setting('temp_directory')").fetchone()
        folder = Path(row[0] if row else "")
        folder.mkdir(parents=True, exist_ok=True)
        with pytest.raises(UsageError, match=r"only ASCII is allowed|is no PRAGMA of"):
            relation(con, query.format(folder, "é" * len(hiding.format(folder)))).fetchall()
        assert list(folder.iterdir()) == []


ENDLESS = "SELECT count(*) FROM range(1000000) a, range(100000000) b WHERE hash(a.range, b.range) = 1"

# The interrupt comes while the query runs.
INTERRUPTED = """
import os, signal, sys, threading
from agenttrace import cli
from agenttrace.evaluators import answers
rows = answers.rows

def interrupted(*arguments):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    return rows(*arguments)

answers.rows = interrupted
cli.main(sys.argv[1:])
"""


def test_an_endless_evaluator_can_be_interrupted(fill_store: Fill, tmp_path: Path) -> None:
    store = fill_store(
        trajectories=[{"trajectory_id": "r1"}], steps=[{"trajectory_id": "r1", "span_id": "s1", "kind": "tool"}]
    )
    (tmp_path / "mine.sql").write_text(f"{HEADER}SELECT {COLUMNS} FROM steps WHERE ({ENDLESS}) = 0")
    (tmp_path / "agenttrace.toml").write_text('evaluator_paths = ["."]')
    command = [sys.executable, "-c", INTERRUPTED, "evaluate", "--only", "mine", "--db", store]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGINT


def test_sql_changes_no_setting(fill_store: Fill) -> None:
    with open_store(fill_store(), locked=True) as con:
        for change in ("SET memory_limit = '1TB'", "PRAGMA enable_profiling = 'json'", "SET temp_directory = '/tmp'"):
            with pytest.raises(duckdb.Error, match="configuration has been locked"):
                con.execute(change)


def test_sql_changes_no_row(fill_store: Fill) -> None:
    store = fill_store(trajectories=[{"trajectory_id": "r1"}])
    with open_store(store, locked=True) as con, pytest.raises(duckdb.Error, match="read-only"):
        # A SELECT, by the parser's word.
        con.execute("WITH gone AS (DELETE FROM trajectories RETURNING *) SELECT * FROM gone")
    with open_store(store) as con:
        assert con.execute("SELECT count(*) FROM trajectories").fetchone() == (1,)


def test_sql_reaches_no_file_network_secret_or_variable(fill_store: Fill, tmp_path: Path) -> None:
    out = tmp_path / "out"
    variable_of_ours = pa.table({"a": [1]})
    queries = (
        f"WITH gone AS (COPY steps TO '{out}') SELECT * FROM gone",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM read_json('/etc/passwd')",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        f"SELECT * FROM parquet_scan('{out}')",
        f"SELECT * FROM read_duckdb('{out}')",
        "SELECT * FROM 'https://example.com/a.csv'",
        "SELECT * FROM duckdb_secrets()",
        "SELECT getenv('HOME')",
        "LOAD httpfs",
        f"ATTACH '{out}' AS other",
        "SELECT * FROM variable_of_ours",
    )
    with open_store(fill_store(), locked=True) as con:
        for query in queries:
            with pytest.raises(duckdb.Error):
                con.sql(query).fetchall()
    assert not out.exists()
    assert variable_of_ours.num_rows == 1


def test_no_extension_is_loaded_or_downloaded(fill_store: Fill) -> None:
    names = ("autoinstall_known_extensions", "autoload_known_extensions")
    with open_store(fill_store()) as con:
        assert [con.execute(f"SELECT current_setting('{name}')").fetchone() for name in names] == [(False,)] * 2


def test_a_store_from_elsewhere_reads_no_other_file(fill_store: Fill, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    store = fill_store()
    with duckdb.connect(store) as con:
        columns = [row[0] for row in con.execute("SELECT column_name FROM (DESCRIBE trajectories)").fetchall()]
        con.execute("DROP TABLE trajectories")
        values = ", ".join(f"content AS {name}" if name == "user_input" else f"NULL AS {name}" for name in columns)
        con.execute(f"CREATE VIEW trajectories AS SELECT {values} FROM read_text('{secret}')")
    with open_store(store) as con, pytest.raises(duckdb.PermissionException, match="disabled by configuration"):
        show.list_runs(con, 10)


# --- nothing goes out unless asked

OFFLINE = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.sendto"):
        raise SystemExit(f"{event}{arguments}")

sys.addaudithook(refuse)
import agenttrace
from agenttrace.cli import main

agenttrace.configure("store.duckdb")
with agenttrace.run("restock"):
    agenttrace.tool(mutates=True)(lambda: "done")()
agenttrace.shutdown()
assert main(["--help"]) == 0
options = ["--only", "unfinished_runs", "--include-open", "--report", "r.html", "--db", "store.duckdb"]
assert main(["evaluate", *options]) == 0
print("nothing went out")
"""


def test_nothing_goes_out_unless_asked(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OFFLINE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.endswith("nothing went out\n"), done.stdout + done.stderr


# --- the threat model itself

TEST = r"`tests/(?:\w+)\.py::(?:\w+)`"
ROW = re.compile(rf"^\| (?P<threat>[^|]+) \| (?P<defence>[^|]+) \| (?P<tests>{TEST}(?:, {TEST})*) \|$")


def threats() -> list[re.Match[str]]:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "::" in line]
    rows = [ROW.match(line) for line in lines]
    assert None not in rows, lines[rows.index(None)]
    return [row for row in rows if row]


def test_every_threat_has_a_test_and_a_defence_to_take_out() -> None:
    defences: list[dict[str, Any]] = tomllib.loads((ROOT / "tests" / "defences.toml").read_text("utf-8"))["defence"]
    assert [row["threat"] for row in threats()] == [defence["threat"] for defence in defences]
    for row, defence in zip(threats(), defences, strict=True):
        for file, test in re.findall(r"`(tests/\w+\.py)::(\w+)`", row["tests"]):
            assert re.search(rf"^(?:async )?def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE), test
        for file, find in zip(defence["files"], defence["find"], strict=True):
            assert (ROOT / file).read_text("utf-8").count(find) == 1, (defence["threat"], file, find)
