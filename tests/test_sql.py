"""`agenttrace sql`: named queries, parameters, the prompt; `list` with filters, `show` in other forms; docs/sql.md."""

import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from agenttrace import demo, named, show
from agenttrace.cli import IMPOSSIBLE, PASSED, main
from agenttrace.evaluators.run import evaluate
from agenttrace.evaluators.storing import write_evaluation
from agenttrace.store import open_store, refresh

Fill = Callable[..., Path]
DOCS = Path(__file__).parent.parent / "docs" / "sql.md"
DEADLINE_S = 60


def at(day: int, hour: int = 12) -> datetime:
    return datetime(2026, 1, day, hour, tzinfo=UTC)


def model_call(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "trajectory_id": f"r{number}",
        "span_id": f"m{number}",
        "kind": "model",
        "provider": "openai",
        "model": "gpt",
        "usage_source": "own",
        "input_tokens": 100,
        "output_tokens": 10,
        "cost_usd": 0.5,
        "start_time": at(1),
        **changes,
    }


def tool_call(number: int, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "trajectory_id": "r1",
        "span_id": f"t{number}",
        "kind": "tool",
        "tool_name": name,
        "tool_ran": True,
        "duration_ms": 10.0 * number,
        "agent_name": "shop",
        **changes,
    }


@pytest.fixture
def asked(fill_store: Fill, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[dict[str, Any]]]:
    """Fills a store, and asks a named query by the command and by a plain DuckDB client: both must say the same."""

    def asked(name: str, tables: dict[str, list[dict[str, object]]], **parameters: str) -> list[dict[str, Any]]:
        store = fill_store(**tables)
        options = [word for key, value in parameters.items() for word in ("--param", f"{key}={value}")]
        assert main(["sql", name, *options, "--format", "json", "--db", str(store)]) == PASSED
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        assert main(["sql", "--list", name]) == PASSED
        query = capsys.readouterr().out
        with duckdb.connect(store, read_only=True) as con:
            for key, value in parameters.items():
                con.execute(f"SET VARIABLE {key} = '{value}'")
            plain = con.sql(query)
            assert plain.columns == list(found[0] if found else plain.columns)
            texts = [tuple(map(str, row)) for row in con.sql(query).project("columns(*)::VARCHAR").fetchall()]
            # Physical order makes no difference.
            assert [tuple(map(str, row)) for row in con.sql(query).project("columns(*)::VARCHAR").fetchall()] == texts
        assert len(texts) == len(found)
        return found

    return asked


def test_cost_by_model_and_day(asked: Callable[..., list[dict[str, Any]]]) -> None:
    steps = [
        model_call(1),
        model_call(2, cost_usd=None),
        model_call(3, input_tokens=None, output_tokens=None, cost_usd=None),
        model_call(4, duplicate_of="m1"),
        model_call(5, usage_source="aggregate"),
        model_call(6, start_time=at(2), model="other"),
    ]
    first = {
        "day": "2026-01-01",
        "provider": "openai",
        "model": "gpt",
        "calls": 3,
        "input_tokens": 200,
        "output_tokens": 20,
        "calls_without_tokens": 1,
        "cost_usd": 0.5,
        "unpriced_calls": 2,
    }
    found = asked("cost_by_model_and_day", {"steps": steps})
    assert [row["model"] for row in found] == ["other", "gpt"]
    assert found[1] == first
    assert asked("cost_by_model_and_day", {"steps": steps}, until="2026-01-02") == [first]
    assert [row["model"] for row in asked("cost_by_model_and_day", {"steps": steps}, since="2026-01-02")] == ["other"]
    assert asked("cost_by_model_and_day", {}) == []


def test_tools_that_are_slow_or_fail(asked: Callable[..., list[dict[str, Any]]]) -> None:
    steps = [
        tool_call(1, "check"),
        tool_call(2, "check", status="error", error_type="ValueError"),
        tool_call(3, "check", status="timeout", error_type="TimeoutError", duration_ms=None),
        tool_call(4, "order", agent_name="other"),
        tool_call(5, "order", duplicate_of="t4", duration_ms=9_999.0),
        tool_call(6, "unknown", tool_ran=False),
    ]
    assert asked("slowest_tools", {"steps": steps}) == [
        {
            **{"tool_name": "order", "calls": 1, "calls_without_duration": 0},
            **{"p50_ms": 40.0, "p95_ms": 40.0, "max_ms": 40.0, "total_ms": 40.0},
        },
        {
            **{"tool_name": "check", "calls": 3, "calls_without_duration": 1},
            **{"p50_ms": 15.0, "p95_ms": 19.5, "max_ms": 20.0, "total_ms": 30.0},
        },
    ]
    check = {
        **{"tool_name": "check", "calls": 3, "errors": 1, "timeouts": 1, "unfinished": 0},
        **{"error_rate": 0.6667, "usual_error": "TimeoutError"},
    }
    assert asked("tool_error_rates", {"steps": steps})[0] == check
    assert asked("tool_error_rates", {"steps": steps}, agent="shop") == [check]


def run(number: int, **changes: Any) -> dict[str, Any]:
    return {"trajectory_id": f"r{number}", "trace_id": f"t{number}", "agent_name": "shop", **changes}


def test_sequences_and_sessions(asked: Callable[..., list[dict[str, Any]]]) -> None:
    tokens = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "cost_usd": 0.25}
    runs = [
        run(1, tools=["a", "b"], session_id="s1", user_id="u1", **tokens),
        run(2, tools=["a", "b"], session_id="s1", error_count=1, unpriced_model_calls=2),
        run(3, tools=["b"], task_id="t", **tokens),
        run(4, tools=["c"], complete=False, root_ended=False, last_arrival=datetime.now(UTC)),
    ]
    found = asked("tool_sequences", {"trajectories": runs})
    assert [(row["sequence"], row["runs"], row["runs_with_errors"], row["example"]) for row in found] == [
        ("a -> b", 2, 1, "r1"),
        ("b", 1, 0, "r3"),
    ]
    assert [row["sequence"] for row in asked("tool_sequences", {"trajectories": runs}, task="t")] == ["b"]
    session, others = asked("tokens_per_session", {"trajectories": runs})
    wanted = ("session_id", "runs", "total_tokens", "runs_without_tokens", "cost_usd", "unpriced_calls")
    assert [session[name] for name in wanted] == ["s1", 2, 15, 1, 0.25, 2]
    assert [others[name] for name in wanted] == [None, 2, 15, 1, 0.25, 0]


def test_a_users_day(asked: Callable[..., list[dict[str, Any]]]) -> None:
    runs = [
        run(1, user_id="u1", start_time=at(1), user_input="hi", final_response="yo"),
        run(2, user_id="u1", start_time=at(2, 9)),
        run(3, user_id="u1", start_time=at(2, 8)),
        run(4, user_id="u2", start_time=at(3)),
    ]
    found = [{"run_id": "e1", "evaluator": "x", "kind": "k", "severity": "error", "trajectory_id": "r3"}]
    tables: dict[str, Any] = {"trajectories": runs, "findings": found}
    assert [(row["time_utc"], row["faults_found"]) for row in asked("day_of_user", tables, user="u1")] == [
        ("08:00:00", 1),
        ("09:00:00", 0),
    ]
    [row] = asked("day_of_user", tables, user="u1", day="2026-01-01")
    assert (row["user_input"], row["final_response"], row["trajectory_id"]) == ("hi", "yo", "r1")
    assert [row["user_id"] for row in asked("day_of_user", tables)] == ["u2"]


@pytest.fixture(scope="module")
def demo_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of `agenttrace demo`, judged, where a new user has it."""
    folder = tmp_path_factory.mktemp("demo")
    made = (
        demo.run(folder / "made", say=lambda _: None)
        if "say" in demo.run.__annotations__
        else demo.run(folder / "made")
    )
    refresh(made, settings=demo.settings())
    write_evaluation(made, evaluate(made, demo.settings()))
    refresh(made)
    return Path(shutil.copyfile(made, folder / "agenttrace.duckdb"))


def test_what_a_success_costs_is_the_metric(demo_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "cost_per_successful_task", "--format", "json", "--db", str(demo_store)]) == PASSED
    rows = json.loads(capsys.readouterr().out)
    cost, passed = sum(row["cost_usd"] for row in rows), sum(row["passed"] for row in rows)
    with open_store(demo_store) as con:
        [(value,)] = con.execute("SELECT value FROM measurements WHERE metric = 'cost_per_success_usd'").fetchall()
    assert cost / passed == pytest.approx(value, rel=1e-4)


def test_every_named_query_answers_on_a_real_store(demo_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in named.known():
        assert main(["sql", name, "--format", "json", "--db", str(demo_store)]) == PASSED
        assert json.loads(capsys.readouterr().out), name
    for query in named.known().values():
        assert query.question.endswith((".", "?"))
        variables = set(re.findall(r"getvariable\('(\w+)'\)", query.query))
        assert variables == set(query.parameters)


# --- parameters and files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELECT $x"], "the query needs $x; give it with --param x=VALUE."),
        (["SELECT 1", "--param", "x=1"], "--param x=1: the query has no parameter x; it has: none"),
        (["slowest_tools", "--param", "agnt=a"], "it has: agent"),
        (["SELECT $x", "--param", "x"], "--param 'x'; expected NAME=VALUE"),
        (["slowest_tool"], "no named query 'slowest_tool'; did you mean slowest_tools?"),
        (["--list", "nothing"], "no named query 'nothing'; known: "),
        (["SELECT 1", "--file", "q.sql"], "give the query or --file, not both"),
        (["--file", "nowhere.sql"], "nowhere.sql: No such file"),
        (["SELECT 1 WHERE start_time > $t FROM steps", "--param", "t=x"], "sql: "),
    ],
)
def test_what_is_wrong_with_a_query_is_said(
    demo_store: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sql", *arguments, "--db", str(demo_store)]) == IMPOSSIBLE
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said


def test_a_file_that_is_no_text_is_named(demo_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "query.sql").write_bytes(b"SELECT '\xff'")
    assert main(["sql", "--file", str(tmp_path / "query.sql"), "--db", str(demo_store)]) == IMPOSSIBLE
    assert "query.sql: is no UTF-8 text, from byte 8 on." in capsys.readouterr().err


def test_a_file_of_markdown_has_all_rows(demo_store: Path, tmp_path: Path) -> None:
    target = tmp_path / "rows.md"
    query = ["sql", "FROM range(1500)", "--format", "markdown", "-o", str(target), "--db", str(demo_store)]
    assert main(query) == PASSED
    assert len(target.read_text().splitlines()) == 1502


def test_a_value_is_what_it_is_compared_with(
    demo_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "query.sql"
    file.write_text(
        "SELECT count(*) AS n FROM trajectories"
        " WHERE start_time > $since AND tool_call_count >= $calls AND agent_name = $agent LIMIT $limit"
    )
    values = ("since=2020-01-01", "calls=3", "agent=refunds", "limit=5")
    options = [word for value in values for word in ("--param", value)]
    assert main(["sql", "--file", str(file), *options, "--format", "csv", "--db", str(demo_store)]) == PASSED
    assert capsys.readouterr().out == "n\n11\n"
    # A value is a value, whatever it says.
    hostile = ["--param", "a='; DROP TABLE steps; --"]
    assert main(["sql", "SELECT $a AS a", *hostile, "--format", "csv", "--db", str(demo_store)]) == PASSED
    assert "DROP TABLE" in capsys.readouterr().out
    assert main(["sql", "SELECT getvariable('a') AS a", *hostile, "--format", "csv", "--db", str(demo_store)]) == PASSED
    assert "DROP TABLE" in capsys.readouterr().out


def test_markdown_shows_hostile_cells_and_does_nothing(demo_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT '<img src=x>|`[a](javascript:b)`' AS \"a|<b>\", NULL AS n"
    assert main(["sql", query, "--format", "markdown", "--db", str(demo_store)]) == PASSED
    head, _, row = capsys.readouterr().out.splitlines()
    assert head == "| `a\\|<b>` | `n` |"
    assert row == "| `` <img src=x>\\|`[a](javascript:b)` `` | `NULL` |"
    assert main(["sql", "FROM range(1001)", "--format", "markdown", "--db", str(demo_store)]) == PASSED
    assert "Only the first 1,000 rows" in capsys.readouterr().err


# --- list and show


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 14),
        (["--agent", "shop"], 2),
        (["--agent", "ref*"], 12),
        (["--task", "refund"], 10),
        (["--task", "refund-*"], 2),
        (["--model", "gpt-4o*"], 14),
        (["--model", "claude*"], 0),
        (["--finding", "duplicate_mutations"], 1),
        (["--finding", "*", "--agent", "shop"], 1),
        (["--min-cost", "0.001"], 1),
        (["--since", "1h"], 14),
        (["--until", "1h"], 0),
        (["--session", "none"], 0),
        (["--user", "none"], 0),
    ],
)
def test_runs_are_listed_by_what_they_are(
    demo_store: Path, options: list[str], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", *options, "--db", str(demo_store)]) == PASSED
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == (count + 1 if count else 0)
    assert ("no run passes these filters" in printed.err) == (count == 0)


def test_a_run_is_shown_as_json_and_as_markdown(demo_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store(demo_store) as con:
        [(run_id, runs)] = con.execute(
            "SELECT trajectory_id, count(*) FROM findings WHERE evaluator = 'duplicate_mutations' GROUP BY ALL"
        ).fetchall()
    assert main(["show", run_id, "--format", "json", "--db", str(demo_store)]) == PASSED
    found = json.loads(capsys.readouterr().out)
    assert found["trajectory"]["trajectory_id"] == run_id
    assert [step["tool_name"] for step in found["steps"] if step["kind"] == "tool"][-1] == "place_order"
    assert [step["arguments"]["qty"] for step in found["steps"] if step["tool_name"] == "place_order"] == [40, 40]
    duplicates = [finding for finding in found["findings"] if finding["evaluator"] == "duplicate_mutations"]
    assert len(duplicates) == runs
    assert duplicates[0]["evidence"]
    assert main(["show", run_id, "--format", "markdown", "--db", str(demo_store)]) == PASSED
    block = capsys.readouterr().out.splitlines()
    assert (block[0], block[-1]) == ("```text", "```")
    assert any("ERROR duplicate_mutations/" in line for line in block)


def test_a_block_of_markdown_cannot_be_left(fill_store: Fill) -> None:
    store = fill_store(trajectories=[run(1, user_input="````\n# x\n<script>", final_response="```")])
    with open_store(store) as con:
        lines = show.show_markdown(con, show.find_run(con, "r1")).split("\n")
    assert lines[0] == "`````text"
    assert lines[-1] == "`````"
    assert not any(line.startswith("`````") for line in lines[1:-1])


# --- the prompt


class Terminal:
    """A program at a real pseudo terminal."""

    def __init__(self, *arguments: str, home: Path) -> None:
        self._end, other = pty.openpty()
        environment = {**os.environ, "XDG_STATE_HOME": str(home), "TERM": "dumb"}
        command = [str(Path(sys.executable).with_name("agenttrace")), *arguments]
        self.process = subprocess.Popen(
            command, stdin=other, stdout=other, stderr=other, env=environment, start_new_session=True
        )
        os.close(other)
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._end, text.encode())

    def expect(self, text: str) -> str:
        """Waits until the program has printed this, and returns what came before it."""
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self._end], [], [], 1.0)[0]:
                try:
                    self.seen += os.read(self._end, 65_536).decode(errors="replace")
                except OSError:
                    break
        assert text in self.seen, self.seen
        before, _, self.seen = self.seen.partition(text)
        return before

    def end(self) -> int:
        try:
            return self.process.wait(DEADLINE_S)
        finally:
            self.process.kill()
            os.close(self._end)


@pytest.mark.usefixtures("unmeasured")
def test_the_prompt_answers_goes_on_and_holds_no_store(demo_store: Path, tmp_path: Path) -> None:
    db = Path(shutil.copyfile(demo_store, tmp_path / "agenttrace.duckdb"))
    terminal = Terminal("sql", "--db", str(db), home=tmp_path / "state")
    terminal.expect("agenttrace> ")
    terminal.type("SELECT count(*) AS runs\nFROM trajectories;\n")
    terminal.expect("... ")
    assert "14" in terminal.expect("agenttrace> ")
    terminal.type("SELECT nothing;\n")
    terminal.expect('column "nothing" was not found')
    terminal.expect("agenttrace> ")
    terminal.type("tool_sequences;\n")
    terminal.expect("verify_pnr -> check_balance")
    terminal.expect("agenttrace> ")
    # Between two statements anybody may write.
    with duckdb.connect(db) as con:
        con.execute("CREATE TABLE own AS SELECT 4711 AS n")
    terminal.type("FROM own;\n")
    terminal.expect("4711")
    terminal.expect("agenttrace> ")
    terminal.type("SELECT count(*) FROM range(1_000_000) a, range(1_000_000) b WHERE hash(a.range + b.range) = 5;\n")
    time.sleep(1.0)
    terminal.process.send_signal(signal.SIGINT)
    terminal.expect("nterrupted")
    terminal.expect("agenttrace> ")
    terminal.type("DELETE FROM steps;\n")
    terminal.expect("sql only reads")
    terminal.expect("agenttrace> ")
    terminal.type("\x04")
    assert terminal.end() == 0
    history = tmp_path / "state" / "agenttrace" / "sql_history"
    assert "FROM trajectories;" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600


# --- docs/sql.md


def test_the_documentation_is_true(
    demo_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copyfile(demo_store, tmp_path / "agenttrace.duckdb")
    monkeypatch.chdir(tmp_path)
    page = DOCS.read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        parts = re.split(r"^\$ agenttrace ", block, flags=re.MULTILINE)[1:]
        for part in parts:
            command, _, expected = part.partition("\n")
            assert main(shlex.split(command)) == PASSED
            printed = capsys.readouterr().out
            if expected.strip():
                assert printed == expected, command
    [(snippet, expected)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    printed = subprocess.run(
        [sys.executable, "-c", snippet], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path}
    ).stdout
    assert printed == expected
