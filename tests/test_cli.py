"""The command line as its users call it: output, errors and exit codes."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from agenttrace.cli import FAILED, IMPOSSIBLE, PASSED, main
from agenttrace.store import open_store

Fill = Callable[..., Path]

T0 = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
COMMANDS = [
    "demo",
    "import",
    "collect",
    "list",
    "show",
    "sql",
    "schema",
    "evaluate",
    "review",
    "promote",
    "evaluators",
    "doctor",
]
# A process that starts on a busy machine takes its time.
PATIENCE_S = 60.0


class Answer:
    """What a command printed and how it ended."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Runs a command in a folder where nothing else is."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)

    def run(*arguments: object) -> Answer:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Answer(code, captured.out, captured.err)

    return run


def program(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
    """Starts the installed program."""
    command = [str(Path(sys.executable).with_name("agenttrace")), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def span(span_id: str, parent: str | None = None, *, second: int = 0, **attributes: object) -> dict[str, object]:
    start = int((T0 + timedelta(seconds=second)).timestamp()) * 10**9
    row: dict[str, object] = {
        "traceId": "0af7651916cd43dd8448eb211c80319c",
        "spanId": span_id.rjust(16, "0"),
        "name": span_id,
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + 10**9),
        "attributes": [{"key": key, "value": {"stringValue": str(value)}} for key, value in attributes.items()],
    }
    return row | ({"parentSpanId": parent.rjust(16, "0")} if parent else {})


def call(span_id: str, second: int, arguments: dict[str, object]) -> dict[str, object]:
    names = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "place_order"}
    texts = {"gen_ai.tool.call.arguments": json.dumps(arguments), "gen_ai.tool.call.result": '{"ok": true}'}
    return span(span_id, "a1", second=second, **names, **texts)


def request(*spans: dict[str, object]) -> dict[str, object]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "shop"}, "spans": list(spans)}]}]}


AGENT = span("a1", **{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "restock", "session.id": "s-1"})
TWICE = request(AGENT, call("b1", 1, {"item": "rice", "qty": 40}), call("b2", 2, {"item": "rice", "qty": 40}))
ONCE = request(AGENT, call("b1", 1, {"item": "rice", "qty": 40}))


@pytest.fixture
def imported(cli: Callable[..., Answer], tmp_path: Path) -> Callable[..., Path]:
    """Imports a request, and gives the store."""

    def record(document: dict[str, object]) -> Path:
        file, db = tmp_path / "spans.json", tmp_path / "recorded.duckdb"
        file.write_text(json.dumps(document))
        answer = cli("import", file, "--db", db)
        assert answer.code == PASSED, answer.err
        return db

    return record


# All commands


def test_every_command_explains_itself(cli: Callable[..., Answer]):
    overview = cli("--help").out
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", overview)
        assert cli(command, "--help").code == PASSED


def test_version_is_that_of_the_distribution(cli: Callable[..., Answer]):
    from importlib.metadata import version

    assert cli("--version").out == f"agenttrace {version('agenttrace-otel')}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lst"], "No such command"),
        (["list", "--lmit", "3"], "No such option"),
        (["list", "--limit", "none"], "'--limit'"),
        (["list", "--limit", "0"], "'--limit'"),
        (["import"], "Missing argument"),
        (["evaluate", "--format", "yaml"], "yaml"),
        (["evaluate", "--fail-on", "fatal"], "fatal"),
        (["evaluate", "--since", "yesterday"], "neither like 2026-01-31"),
        (["evaluate", "--since", "999999w"], "neither like 2026-01-31"),
        (["show"], "give the ID of a run"),
        (["show", "abc", "--last"], "give the ID of a run"),
    ],
)
def test_wrong_use_is_two_lines_and_exit_code_2(cli: Callable[..., Answer], arguments: list[str], message: str):
    answer = cli(*arguments)
    assert answer.code == IMPOSSIBLE
    assert answer.out == ""
    assert message in answer.err
    assert len(answer.err.strip().splitlines()) <= 2
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("command", [["list"], ["show", "--last"], ["sql", "SELECT 1"], ["evaluate"]])
def test_missing_store_is_named_with_those_nearby(cli: Callable[..., Answer], fill_store: Fill, command: list[str]):
    fill_store()
    answer = cli(*command)
    assert answer.code == IMPOSSIBLE
    assert "agenttrace.duckdb: no such store" in answer.err
    assert "../agenttrace.duckdb" in answer.err
    assert len(answer.err.strip().splitlines()) <= 2


@pytest.mark.parametrize("command", [["list"], ["evaluate"], ["doctor"]])
def test_broken_configuration_stops_a_command(cli: Callable[..., Answer], command: list[str]):
    Path("agenttrace.toml").write_text("[budget.default]\nmax_tokens = 1\n")
    answer = cli(*command)
    assert answer.code == IMPOSSIBLE
    assert "unknown key 'budget'; did you mean 'budgets'?" in answer.err + answer.out


def test_option_goes_before_the_environment_and_that_before_the_folder(
    cli: Callable[..., Answer], imported: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    db = imported(ONCE)
    assert cli("list").code == IMPOSSIBLE
    monkeypatch.setenv("AGENTTRACE_DB", str(db))
    assert "restock" in cli("list").out
    assert cli("list", "--db", "other.duckdb").code == IMPOSSIBLE


def test_error_shows_its_traceback_with_debug_only(cli: Callable[..., Answer]):
    assert "Traceback" not in cli("list").err
    for arguments in (["--debug", "list"], ["list", "--debug"]):
        assert "Traceback" in cli(*arguments).err


def test_fault_of_our_own_is_no_finding(cli: Callable[..., Answer], monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> str:
        raise ZeroDivisionError("nobody expected\nthis")

    monkeypatch.setattr("agenttrace.query.schema", broken)
    answer = cli("schema")
    assert answer.code == IMPOSSIBLE
    assert answer.err.startswith("agenttrace: internal error: ZeroDivisionError: nobody expected\n")


def test_a_closed_standard_output_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdout", None)
    assert main(["schema"]) == PASSED
    assert main(["schema", "nothing"]) == IMPOSSIBLE
    sys.stdout.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("DROP TABLE steps", "the store's tables are not as agenttrace made them (CatalogException: "),
        ("UPDATE agenttrace_meta SET value = 'mine'", "a DuckDB file without tables of agenttrace"),
    ],
)
def test_a_store_that_another_program_changed_is_said(
    cli: Callable[..., Answer], imported: Callable[..., Path], change: str, said: str
):
    db = imported(ONCE)
    with duckdb.connect(db) as connection:
        connection.execute(change)
    answer = cli("evaluate", "--db", db)
    assert answer.code == IMPOSSIBLE
    assert said in answer.err


def test_store_held_by_another_process_is_said(
    cli: Callable[..., Answer], imported: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(open_store.__kwdefaults__, "wait_s", 1.0)
    db = imported(ONCE)
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import duckdb; c = duckdb.connect({str(db)!r}); print('held', flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    try:
        answer = cli("list", "--db", db)
        assert answer.code == IMPOSSIBLE
        assert "another process holds it" in answer.err
        assert str(holder.pid) in answer.err
    finally:
        holder.communicate("\n")


def test_reader_that_leaves_is_no_error(imported: Callable[..., Path]):
    db = imported(ONCE)
    process = program("sql", "SELECT range FROM range(3000000)", "--format", "csv", "--db", db)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "range\n"
    process.stdout.close()
    assert process.wait(PATIENCE_S) == PASSED
    assert process.stderr.read() == ""
    process.stderr.close()


def test_terminal_without_unicode_gets_escapes(imported: Callable[..., Path]):
    db = imported(ONCE)
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = program("sql", "SELECT 'größer' AS a", "--db", db, env=environment)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out, err) == (PASSED, "a\ngr\\xf6\\xdfer\n", "")


# import, list, show


def test_import_tells_what_it_read(cli: Callable[..., Answer], tmp_path: Path):
    file = tmp_path / "spans.jsonl"
    file.write_text(json.dumps(ONCE) + "\n")
    answer = cli("import", file, "--task-id", "task-17", "--trial", "3")
    assert (answer.code, answer.err) == (PASSED, "")
    assert answer.out == "2 spans of 1 traces in 1 of 1 files -> agenttrace.duckdb\n"
    assert "task-17 #3" in cli("list").out


def test_import_skips_what_it_cannot_read_and_says_where(cli: Callable[..., Answer], tmp_path: Path):
    file = tmp_path / "spans.jsonl"
    file.write_text(json.dumps(ONCE) + "\nnot json\x1b[2J\n")
    answer = cli("import", file)
    assert answer.code == FAILED
    assert answer.out.startswith("2 spans")
    assert f"{file}:2: skipped: " in answer.err
    assert "\x1b" not in answer.err


def test_import_of_nothing_readable_is_a_failure(cli: Callable[..., Answer]):
    answer = cli("import", "none.json")
    assert answer.code == IMPOSSIBLE
    assert "none.json" in answer.err


def test_list_and_show_tell_the_run(cli: Callable[..., Answer], imported: Callable[..., Path]):
    db = imported(ONCE)
    (header, run) = cli("list", "--db", db).out.splitlines()
    assert header.startswith("RUN")
    shown = cli("show", run.split()[0], "--db", db)
    assert shown.code == PASSED
    assert 'place_order(item="rice", qty=40)' in shown.out
    assert cli("show", "--last", "--db", db).out == shown.out


def test_list_says_how_many_it_leaves_out(cli: Callable[..., Answer], fill_store: Fill):
    store = fill_store(trajectories=[{"trajectory_id": f"r{i}"} for i in range(3)])
    answer = cli("list", "--limit", "2", "--db", store)
    assert len(answer.out.splitlines()) == 3
    assert answer.err == "2 of 3 runs; --limit 3 shows all.\n"


@pytest.mark.parametrize("command", [["list"], ["evaluate", "--allow-empty"]])
def test_store_without_spans_says_how_to_record(cli: Callable[..., Answer], fill_store: Fill, command: list[str]):
    answer = cli(*command, "--db", fill_store())
    assert answer.code == PASSED
    assert "no spans have arrived" in answer.err
    assert "agenttrace.configure()" in answer.err


def test_spans_that_wait_in_the_spool_are_taken_in(cli: Callable[..., Answer], tmp_path: Path):
    script = "import agenttrace\nagenttrace.configure('agenttrace.duckdb')\nwith agenttrace.run('waiting'): pass\n"
    # No exit handler runs: what was written stays in the spool.
    subprocess.run([sys.executable, "-c", script + "agenttrace.flush()\nimport os\nos._exit(0)"], check=True)
    assert "waiting" in cli("list").out


# sql, schema


def test_sql_reads_standard_input(imported: Callable[..., Path]):
    process = program("sql", "--format", "json", "--db", imported(ONCE), stdin=subprocess.PIPE)
    out, err = process.communicate("SELECT tool_name FROM steps WHERE kind = 'tool'", timeout=PATIENCE_S)
    assert (process.returncode, err) == (PASSED, "")
    assert json.loads(out) == [{"tool_name": "place_order"}]


def test_sql_refusal_is_exit_code_2(cli: Callable[..., Answer], imported: Callable[..., Path]):
    db = imported(ONCE)
    for query in ("DELETE FROM spans", "SELECT * FROM read_text('/etc/passwd')", "SELECT 1; SELECT 2"):
        answer = cli("sql", query, "--db", db)
        assert (answer.code, answer.out) == (IMPOSSIBLE, "")
        assert len(answer.err.strip().splitlines()) <= 2
    with duckdb.connect(db, read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM spans").fetchone() == (2,)


def test_sql_writes_parquet(cli: Callable[..., Answer], imported: Callable[..., Path], tmp_path: Path):
    output = tmp_path / "steps.parquet"
    assert cli("sql", "FROM steps", "--format", "parquet", "--output", output, "--db", imported(ONCE)).code == PASSED
    (count,) = duckdb.sql(f"SELECT count(*) FROM '{output}'").fetchall()[0]
    assert count == 2


def test_interrupt_ends_a_long_query(imported: Callable[..., Path]):
    # The first line of the listing says that the query is under way; its second never comes.
    query = "SELECT range FROM range(10) WHERE range = 0 OR (SELECT count(*) FROM range(10000000000000)) = range"
    process = program("sql", query, "--format", "csv", "--db", imported(ONCE))
    assert process.stdout is not None
    assert process.stdout.readline() == "range\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGINT


def test_schema_needs_no_store(cli: Callable[..., Answer]):
    answer = cli("schema", "steps")
    assert answer.code == PASSED
    assert "tool_name" in answer.out
    assert cli("schema", "step").code == IMPOSSIBLE


# evaluate


def test_findings_fail_the_evaluation(cli: Callable[..., Answer], imported: Callable[..., Path]):
    db = imported(TWICE)
    answer = cli("evaluate", "--db", db)
    assert (answer.code, answer.err) == (FAILED, "")
    assert answer.out.startswith("error    duplicate_mutations/confirmed")
    assert answer.out.splitlines()[-1].startswith("FAILED: 1 run, 1 error")
    assert "cost_usd" in answer.out
    # The evaluation is in the store when the command ends.
    assert "ERROR duplicate_mutations/confirmed" in cli("show", "--last", "--db", db).out


@pytest.mark.parametrize(("level", "code"), [("error", FAILED), ("note", FAILED), ("never", PASSED)])
def test_level_that_fails_is_the_users(
    cli: Callable[..., Answer], imported: Callable[..., Path], level: str, code: int
):
    assert cli("evaluate", "--only", "duplicate_mutations", "--fail-on", level, "--db", imported(TWICE)).code == code


def test_clean_run_passes(cli: Callable[..., Answer], imported: Callable[..., Path]):
    answer = cli("evaluate", "--db", imported(ONCE))
    assert answer.code == PASSED
    assert answer.out.splitlines()[-1].startswith("PASSED: 1 run, no findings")


def test_evaluation_as_json_has_the_promised_shape(cli: Callable[..., Answer], imported: Callable[..., Path]):
    answer = cli("evaluate", "--format", "json", "--label", "main", "--db", imported(TWICE))
    found = json.loads(answer.out, parse_constant=lambda constant: pytest.fail(constant))
    assert list(found) == ["run", "passed", "cases", "findings", "measurements", "not_evaluable", "gate"]
    assert (found["passed"], found["run"]["label"], len(found["findings"])) == (False, "main", 1)


def test_only_chosen_evaluators_run(cli: Callable[..., Answer], imported: Callable[..., Path]):
    db = imported(TWICE)
    assert cli("evaluate", "--only", "cost_percentiles", "--db", db).code == PASSED
    assert "did you mean 'budget_overruns'" in cli("evaluate", "--only", "budget_overrun", "--db", db).err


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["--db", "x.duckdb", "list"], "--db stands after the command"),
        (["evalute"], "See: agenttrace --help"),
        (["evaluate", "--fail-on", "all"], "'--fail-on': 'all' is not one of"),
        (["evaluate", "--since", "2026-02-01", "--until", "2026-01-01"], "is not before --until"),
        (["evaluate", "--label", " "], "--label is empty"),
        (["compare", "a.duckdb", "b.duckdb"], "'a.duckdb' and 'b.duckdb' are no files"),
    ],
)
def test_a_wrong_command_is_told_the_way_out(cli: Callable[..., Answer], arguments: list[str], advice: str):
    answer = cli(*arguments)
    assert answer.code == IMPOSSIBLE
    assert advice in answer.err


def test_a_run_without_a_budget_has_not_passed_one(cli: Callable[..., Answer], imported: Callable[..., Path]):
    answer = cli("evaluate", "--only", "budget_overruns", "--format", "json", "--db", imported(ONCE))
    found = json.loads(answer.out)
    rate = next(row for row in found["measurements"] if row["metric"] == "budget_overrun_rate")
    assert (answer.code, found["passed"]) == (IMPOSSIBLE, None)
    assert (rate["value"], rate["n"], rate["n_not_evaluable"]) == (None, 0, 1)


def test_configuration_sets_budgets(cli: Callable[..., Answer], imported: Callable[..., Path]):
    db = imported(ONCE)
    Path("agenttrace.toml").write_text("[budgets.default]\nmax_tool_calls = 0\n")
    assert "budget_overruns/max_tool_calls" in cli("evaluate", "--db", db).out


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--since", "2026-01-31"], FAILED),
        (["--since", "2026-01-31T19:00+01:00"], FAILED),
        (["--since", "2026-01-31T18:00:01"], IMPOSSIBLE),
        (["--until", "2026-01-31T18:00:00"], IMPOSSIBLE),
        (["--until", "2026-01-31T18:00:01"], FAILED),
        (["--since", "1h"], IMPOSSIBLE),
        (["--since", "9000w"], FAILED),
    ],
)
def test_window_is_in_utc_unless_it_says_otherwise(
    cli: Callable[..., Answer], imported: Callable[..., Path], options: list[str], code: int
):
    answer = cli("evaluate", *options, "--only", "duplicate_mutations", "--db", imported(TWICE))
    assert answer.code == code
    if code == IMPOSSIBLE:
        assert "lie outside of --since and --until" in answer.err
        assert "PASSED" not in answer.out


def test_nothing_to_judge_leaves_no_evaluation(cli: Callable[..., Answer], imported: Callable[..., Path]):
    db = imported(TWICE)
    assert cli("evaluate", "--since", "2027-01-01", "--allow-empty", "--db", db).code == PASSED
    assert cli("sql", "SELECT * FROM evaluation_runs", "--format", "json", "--db", db).out == "[]\n"


def test_report_and_output_are_files(cli: Callable[..., Answer], imported: Callable[..., Path], tmp_path: Path):
    report, output = tmp_path / "report.html", tmp_path / "result.md"
    answer = cli("evaluate", "--report", report, "--format", "markdown", "--output", output, "--db", imported(TWICE))
    assert (answer.code, answer.out) == (FAILED, "")
    assert output.read_text().startswith("## agenttrace: FAILED")
    assert report.read_text().startswith("<!doctype html>")


def test_report_that_cannot_be_written_is_exit_code_2(cli: Callable[..., Answer], imported: Callable[..., Path]):
    answer = cli("evaluate", "--report", "no/such/folder.html", "--db", imported(TWICE))
    assert answer.code == IMPOSSIBLE
    assert "no/such/folder.html: cannot be written" in answer.err


# evaluators, doctor, demo, collect


def test_catalogue_lists_and_prints_evaluators(cli: Callable[..., Answer]):
    answer = cli("evaluators")
    assert answer.code == PASSED
    for name in ("tool_hallucination", "duplicate_mutations", "budget_overruns", "cost_percentiles"):
        assert name in answer.out
    assert cli("evaluators", "budget_overruns").out.startswith("/* +++")
    assert "did you mean budget_overruns" in cli("evaluators", "budget_overrun").err


def test_doctor_exit_codes_follow_the_worst_line(cli: Callable[..., Answer], fill_store: Fill):
    assert cli("doctor").code == IMPOSSIBLE
    store = fill_store()
    answer = cli("doctor", "--db", store)
    assert answer.code == FAILED
    assert f"warn  {store}: no spans have arrived\n      -> call agenttrace.configure()" in answer.out


def test_demo_catches_both_agents_and_ends_with_the_report(tmp_path: Path):
    process = program("demo", "here", cwd=tmp_path)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == PASSED, err
    for rule in ("duplicate_mutations/unverified_retry", "tool_hallucination/claimed_not_called", "budget_overruns/"):
        assert rule in out
    report = out.splitlines()[-1].removeprefix("report: ")
    assert Path(report) == tmp_path / "here" / "report.html"
    assert "unverified_retry" in Path(report).read_text()


def test_collector_receives_until_it_is_told_to_stop(cli: Callable[..., Answer], tmp_path: Path):
    db = tmp_path / "received.duckdb"
    process = program("collect", "--http-port", "0", "--grpc-port", "0", "--token", "secret", "--db", db)
    assert process.stdout is not None
    line = process.stdout.readline()
    url = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert url is not None, line
    assert "grpc://127.0.0.1:" in process.stdout.readline()
    headers = {"Content-Type": "application/json", "Authorization": "Bearer secret"}
    post = urllib.request.Request(f"{url[0]}/v1/traces", json.dumps(ONCE).encode(), headers)
    with urllib.request.urlopen(post, timeout=PATIENCE_S) as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (PASSED, "")
    assert "2 spans received" in err
    assert "restock" in cli("list", "--db", db).out


def test_help_is_quick_because_it_loads_no_database():
    heavy = ("duckdb", "pyarrow", "uvicorn", "jinja2")
    code = (
        f"import sys; from agenttrace import cli; cli.main(['--help']); print([m for m in {heavy} if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "[]"


def on_terminal(*arguments: object, columns: int = 100, **environment: str) -> str:
    """Runs the program on a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    settings = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("agenttrace")), *map(str, arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=settings | {"TERM": "xterm-256color"} | environment,
    )
    os.close(theirs)
    seen = b""
    # Linux reports the end of a terminal's last process as an input/output error.
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 65536):
            seen += chunk
    os.close(ours)
    process.wait(PATIENCE_S)
    return seen.decode().replace("\r\n", "\n")


def test_terminal_gets_colours_that_fit_and_nothing_of_the_trace(imported: Callable[..., Path]):
    evil = {"item": "\x1b]0;owned\x07" + "rice " * 100}
    db = imported(request(AGENT, call("b1", 1, evil), call("b2", 2, evil)))
    seen = on_terminal("evaluate", "--only", "duplicate_mutations", "--db", db)
    assert "\x1b[1;31merror\x1b[0m" in seen
    assert "\x1b]" not in seen
    listing = on_terminal("list", "--db", db)
    assert max(map(len, listing.splitlines())) <= 100
    tree = on_terminal("show", "--last", "--db", db)
    assert [line for line in tree.splitlines() if "place_order" in line and line.endswith("…")]


def test_no_color_is_respected(imported: Callable[..., Path]):
    assert "\x1b" not in on_terminal("evaluate", "--only", "duplicate_mutations", "--db", imported(TWICE), NO_COLOR="1")


def test_wide_rows_become_blocks_on_a_narrow_terminal(imported: Callable[..., Path]):
    seen = on_terminal("sql", "FROM trajectories", "--db", imported(ONCE), columns=60)
    assert re.search(r"^agent_name +restock$", seen, re.MULTILINE)


def test_nothing_is_written_over_a_store(
    cli: Callable[..., Any], imported: Callable[..., Path], tmp_path: Path
) -> None:
    store = imported(ONCE)
    before = store.stat().st_size
    for option in (["evaluate", "--report", store], ["evaluate", "--output", store], ["sql", "SELECT 1", "-o", store]):
        answer = cli(*option, "--db", store)
        assert (answer.code, answer.out) == (IMPOSSIBLE, "")
        assert "is a DuckDB database. Name another file to write to." in answer.err
    answer = cli("evaluate", "--report", tmp_path / "r.html", "--output", tmp_path / "r.html", "--db", store)
    assert "--output and --report are one file" in answer.err
    answer = cli("evaluate", "--report", tmp_path / "none" / "r.html", "--db", store)
    assert (answer.code, answer.out) == (IMPOSSIBLE, "")
    assert "there is no folder" in answer.err
    assert store.stat().st_size == before
