"""A run of the agent becomes a benchmark case that the faulty run fails and a corrected one passes."""

import contextlib
import json
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import agenttrace
from agenttrace import store as stores
from agenttrace.cli import IMPOSSIBLE, PASSED, main
from agenttrace.collectors.files import import_files
from agenttrace.config import Cases, Settings, ToolSettings
from agenttrace.errors import UsageError
from agenttrace.evaluators import cases, promote, review
from agenttrace.evaluators.run import evaluate
from agenttrace.evaluators.storing import write_evaluation

TRACES = Path(__file__).parent / "traces"

Json = dict[str, Any]


@pytest.fixture
def traced(store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store that the runs of the test reach."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(agenttrace.DuckDBSpanExporter(store)))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    yield store
    provider.shutdown()


@pytest.fixture
def cli(traced: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command over that store: exit code, output, messages."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([*map(str, arguments), "--db", str(traced)])
        return code, *capsys.readouterr()

    return run


def refund(calls: int = 1, *, tool: str = "issue_refund", **stated: Any) -> None:
    """One run of an agent that looks an order up, and then refunds it so many times."""
    with agenttrace.run("refunds", user_input="Refund order 7 of bob@example.com", tenant_id="acme", **stated) as run:
        run.state(initial={"orders": {"7": "paid"}})
        with agenttrace.model_call("gpt-4o", messages="Refund order 7", tools=["get_order", "issue_refund"]) as model:
            model.record("", tool_calls=[{"id": "a", "name": "get_order", "arguments": {"order": 7}}])
        with agenttrace.tool_call("get_order", {"order": 7}, call_id="a") as call:
            call.record({"order": 7, "total": 40, "customer": "bob@example.com"})
        for number in range(calls):
            with agenttrace.model_call(
                "gpt-4o", messages="Refund order 7", tools=["get_order", "issue_refund"]
            ) as model:
                asked = {"id": f"b{number}", "name": tool, "arguments": {"order": 7, "amount": 40}}
                model.record("", tool_calls=[asked])
            with agenttrace.tool_call(tool, {"order": 7, "amount": 40}, mutates=True, call_id=f"b{number}") as call:
                call.record({"ok": True})
        run.respond("The order is settled.")


def run_ids(store: Path) -> list[str]:
    """Ids of the runs, in the order in which they began."""
    stores.refresh(store)
    with stores.open_store(store) as con:
        return [row[0] for row in con.execute("SELECT trajectory_id FROM trajectories ORDER BY start_time").fetchall()]


def judged(store: Path, config: Settings | None = None) -> None:
    stores.refresh(store)
    write_evaluation(store, evaluate(store, config or Settings()))
    stores.refresh(store)


def verdict(store: Path, file: Path) -> tuple[bool | None, int]:
    """Whether the only case passed, and how many runs it has."""
    stores.refresh(store)
    (found,) = evaluate(store, Settings(cases=Cases(path=file))).cases
    return found["passed"], found["runs"]


def test_a_run_becomes_a_case(traced: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    refund()
    (run,) = run_ids(traced)
    code, out, err = cli("promote", run[:10])
    assert code == PASSED
    called = {"tool": "get_order", "arguments": {"order": 7}}
    refunded = {"tool": "issue_refund", "arguments": {"order": 7, "amount": 40}}
    assert json.loads(out) == {
        "case_id": f"refunds-{run[:8]}",
        "tenant_id": "acme",
        "user_input": "Refund order 7 of [REDACTED]",
        "mock_env": {
            "initial_state": {"orders": {"7": "paid"}},
            "tools": [
                called | {"observation": {"order": 7, "total": 40, "customer": "[REDACTED]"}},
                refunded | {"observation": {"ok": True}},
            ],
        },
        "acceptable_tool_sequences": [[called, refunded]],
        "sequence_mode": "in_order",
        "arguments_mode": "ignore",
        "max_allowed_steps": 4,
        "expected_outcome": {"must_include": [], "must_not_include": []},
    }
    assert err.splitlines() == [
        f"case refunds-{run[:8]}: edit acceptable_tool_sequences to what should have happened, "
        "and expected_outcome to what the answer must say.",
        "not judged yet: after agenttrace evaluate, a promoted case leaves out the calls that were found faulty.",
        f"runs that replay it must carry its id: agenttrace.run(..., task_id='refunds-{run[:8]}'), "
        f"or agenttrace import --task-id refunds-{run[:8]}",
    ]


def test_a_faulty_run_fails_its_case_and_a_corrected_one_passes(
    traced: Path, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "agent_benchmarks.jsonl"
    refund(3, task_id="refund-7", trial=0)
    judged(traced)
    code, out, err = cli("promote", run_ids(traced)[0], "--cases", file)
    assert (code, out) == (PASSED, "")
    repeated = "duplicate_mutations/confirmed"
    assert err.splitlines() == [
        f"case refund-7 -> {file}: edit acceptable_tool_sequences to what should have happened, "
        "and expected_outcome to what the answer must say.",
        f"left out of the sequence as faulty: issue_refund at step 5 ({repeated}), issue_refund at step 7 ({repeated})",
    ]
    (case,) = cases.read(file)
    assert [call["tool"] for call in json.loads(case["acceptable_tool_sequences"])[0]] == ["get_order", "issue_refund"]
    assert verdict(traced, file) == (False, 1)
    # The agent is mended, and its new run stands alone in a new store.
    with duckdb.connect(str(traced)) as con:
        for table in ("spans", "steps", "trajectories"):
            con.execute(f"DELETE FROM {table}")
    refund(1, task_id="refund-7", trial=0)
    assert verdict(traced, file) == (True, 1)


def test_what_must_not_be_called_is_forbidden(traced: Path) -> None:
    refund(tool="delete_order")
    (run,) = run_ids(traced)
    judged(traced, Settings(tools=ToolSettings(forbidden=["delete_*"])))
    promotion = promoted(traced, run)
    assert promotion.case["forbidden_tools"] == ["delete_order"]
    # It was not among the offered tools, either: one call, and every finding about it is answered for.
    assert [call["tool"] for call in promotion.case["acceptable_tool_sequences"][0]] == ["get_order"]
    assert [text.split(" (")[0] for text in promotion.left_out] == ["delete_order at step 3"]
    assert promotion.open_findings == []


def test_a_tool_that_does_not_exist_is_left_out(traced: Path) -> None:
    refund(tool="issue-refund")
    (run,) = run_ids(traced)
    judged(traced)
    promotion = promoted(traced, run)
    assert promotion.left_out == ["issue-refund at step 3 (tool_hallucination/unknown_tool)"]
    assert "forbidden_tools" not in promotion.case


def test_a_finding_that_the_case_does_not_heed_is_named(traced: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    with agenttrace.run("refunds", user_input="Refund order 7") as run:
        with agenttrace.model_call(
            "gpt-4o", messages=[{"role": "user", "content": "Refund 7"}], tools=["issue_refund"]
        ) as call:
            call.record("I have called issue_refund for order 7.")
        run.respond("I have called issue_refund for order 7.")
    (trajectory_id,) = run_ids(traced)
    judged(traced)
    _, out, err = cli("promote", trajectory_id)
    assert json.loads(out)["acceptable_tool_sequences"] == [[]]
    assert "found in this run, and not in the case: tool_hallucination/claimed_not_called\n" in err


def test_what_is_told_is_short_and_no_shell_expands_it(traced: Path, cli: Callable[..., tuple[int, str, str]]) -> None:
    with agenttrace.run("$(reboot)'", user_input="Refund order 7"), agenttrace.tool_call("get_order", {"order": 7}):
        pass
    (run,) = run_ids(traced)
    _, out, err = cli("promote", run)
    assert shlex.split(err.split("agenttrace import --task-id ")[1].split("\n")[0]) == [json.loads(out)["case_id"]]
    case = promoted(traced, run)
    many = case._replace(left_out=["x" * 500] * 10, open_findings=["leaks/secret"] * 1_011)
    lines = list(promote.hints(many, {"case_id": "a"}, None))
    assert lines[1] == "left out of the sequence as faulty: " + ", ".join(["x" * 119 + "…"] * 10)
    assert lines[2].endswith("leaks/secret, and 1,001 more")


def promoted(store: Path, trajectory_id: str) -> promote.Promotion:
    with stores.open_store(store) as con:
        review.make_relations(con, Settings())
        return promote.promotion_of(con, trajectory_id)


def test_a_case_stands_once(traced: Path, cli: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    file = tmp_path / "cases.jsonl"
    # A line feed is missing at the end, as some editors leave it.
    file.write_text('{"case_id": "other"}', encoding="utf-8")
    for _ in range(2):
        refund(task_id="refund-7")
    first, second = run_ids(traced)
    assert cli("promote", first, "--cases", file)[0] == PASSED
    # The task has its case: another run of it gets one of its own.
    code, _, err = cli("promote", second, "--cases", file)
    assert code == PASSED
    assert f"must carry its id: agenttrace.run(..., task_id='refunds-{second[:8]}')" in err
    before = file.read_bytes()
    code, _, err = cli("promote", second, "--cases", file)
    assert code == IMPOSSIBLE
    assert f"{file} holds the case 'refunds-{second[:8]}' already" in err
    assert file.read_bytes() == before
    assert before.endswith(b"\n")
    assert [case["case_id"] for case in cases.read(file)] == ["other", "refund-7", f"refunds-{second[:8]}"]


def test_a_printed_case_looks_into_the_configured_file(
    traced: Path, cli: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    refund(task_id="refund-7")
    (run,) = run_ids(traced)
    configuration = tmp_path / "agenttrace.toml"
    configuration.write_text('[cases]\npath = "cases.jsonl"\n', encoding="utf-8")
    (tmp_path / "cases.jsonl").touch()
    assert json.loads(cli("promote", run, "--config", configuration)[1])["case_id"] == "refund-7"
    (tmp_path / "cases.jsonl").write_text('{"case_id": "refund-7"}\n', encoding="utf-8")
    assert json.loads(cli("promote", run, "--config", configuration)[1])["case_id"] == f"refunds-{run[:8]}"


@pytest.mark.parametrize(
    ("content", "told"), [("{]\n", "cases.jsonl, line 1: not a JSON object"), ('{"case_id": 5}', "case_id")]
)
def test_a_broken_file_is_left_alone(
    traced: Path, cli: Callable[..., tuple[int, str, str]], tmp_path: Path, content: str, told: str
) -> None:
    refund()
    file = tmp_path / "cases.jsonl"
    file.write_text(content, encoding="utf-8")
    code, _, err = cli("promote", run_ids(traced)[0], "--cases", file)
    assert code == IMPOSSIBLE
    assert told in err
    assert file.read_text(encoding="utf-8") == content


def test_wrong_use_is_told(traced: Path, cli: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    refund()
    (run,) = run_ids(traced)
    for arguments, told in [
        (("x",), "promote: no run's id begins with 'x'"),
        ((run, "--cases", tmp_path), "is no file; without --cases the case is printed"),
        ((run, "--cases", tmp_path / "none" / "cases.jsonl"), "No such file or directory"),
    ]:
        code, out, err = cli("promote", *arguments)
        assert (code, out) == (IMPOSSIBLE, "")
        assert told in err


def test_a_full_disk_leaves_the_file_whole(traced: Path, small_disk: Path) -> None:
    refund(task_id="refund-7")
    promotion = promoted(traced, run_ids(traced)[0])
    file = small_disk / "cases.jsonl"
    file.write_text('{"case_id": "other"}\n', encoding="utf-8")
    padding = small_disk / "padding"
    with contextlib.suppress(OSError), padding.open("wb", buffering=0) as rest:
        while rest.write(bytes(1 << 16)):
            pass
    promotion.case["user_input"] = "x" * (1 << 16)
    with pytest.raises(OSError, match="No space left"):
        promote.append(promotion, file)
    assert file.read_text(encoding="utf-8") == '{"case_id": "other"}\n'


def test_several_promotions_at_once_lose_none(traced: Path, tmp_path: Path) -> None:
    refund(task_id="t")
    promotion = promoted(traced, run_ids(traced)[0])
    file = tmp_path / "cases.jsonl"
    refused: list[str] = []

    def add(number: int) -> None:
        # Pairs of one id: of each pair one is refused.
        try:
            promote.append(promotion._replace(task_id=f"t{number // 2}", fallback_id=f"t{number // 2}"), file)
        except UsageError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(case["case_id"] for case in cases.read(file)) == [f"t{number}" for number in range(8)]
    assert len(refused) == 8


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
# DuckDB takes NaN for JSON, and more depth than a case should have.
JSON_TEXTS = st.none() | JSON_VALUES.map(json.dumps) | st.sampled_from(["NaN", "[" * 60 + "]" * 60])


@pytest.fixture(scope="module")
def one_run() -> duckdb.DuckDBPyConnection:
    """The relations that a promotion reads, for a run whose rows each example writes."""
    con = duckdb.connect()
    con.execute(resources.files("agenttrace").joinpath("schema.sql").read_text(encoding="utf-8"))
    con.execute("CREATE VIEW current_findings AS FROM findings")
    return con


# Each example writes and reads a file.
@settings(max_examples=40)
@given(
    texts=st.lists(st.none() | st.text(), min_size=4, max_size=4),
    initial_state=JSON_TEXTS,
    calls=st.lists(st.tuples(st.text(min_size=1), JSON_TEXTS, JSON_TEXTS), max_size=4),
)
def test_every_run_becomes_a_valid_case(
    one_run: duckdb.DuckDBPyConnection,
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str | None],
    initial_state: str | None,
    calls: list[tuple[Any, ...]],
) -> None:
    one_run.execute("DELETE FROM steps; DELETE FROM trajectories")
    one_run.execute(
        "INSERT INTO trajectories (trajectory_id, trace_id, tools, tool_call_count, model_call_count, error_count,"
        " mutation_count, unpriced_model_calls, complete, last_arrival, root_ended,"
        " task_id, agent_name, tenant_id, user_input, initial_state)"
        " VALUES ('0123456789abcdef', 't', [], 0, 0, 0, 0, 0, TRUE, now(), TRUE, ?, ?, ?, ?, ?)",
        [*texts, initial_state],
    )
    for index, call in enumerate(calls):
        one_run.execute(
            "INSERT INTO steps (trajectory_id, trace_id, kind, status, origin, span_id, step_index, tool_name,"
            " arguments, observation) VALUES ('0123456789abcdef', 't', 'tool', 'ok', 'span', ?, ?, ?, ?, ?)",
            [str(index), index, *call],
        )
    file = tmp_path_factory.mktemp("cases") / "cases.jsonl"
    promotion = promote.promotion_of(one_run, "0123456789abcdef")
    line = promote.line_of(promote.append(promotion, file))
    assert file.read_text(encoding="ascii") == f"{line}\n"
    (case,) = cases.read(file)
    named = [call[0] for call in calls if call[0].strip()]
    assert len(json.loads(case["acceptable_tool_sequences"])[0]) == len(named)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store with every recording, judged."""
    store = tmp_path_factory.mktemp("recordings") / "agenttrace.duckdb"
    import_files([path for path in sorted(TRACES.glob("*/*.jsonl")) if path.stat().st_size], store)
    judged(store)
    return store


def test_every_recorded_run_becomes_a_case_that_accepts_it_where_it_has_no_fault(
    recordings: Path, tmp_path: Path
) -> None:
    file = tmp_path / "cases.jsonl"
    faultless: set[str] = set()
    with stores.open_store(recordings) as con:
        review.make_relations(con, Settings())
        names = dict(con.execute("SELECT trajectory_id, tools FROM trajectories").fetchall())
        lines: list[str] = []
        for trajectory_id, tools in names.items():
            promotion = promote.promotion_of(con, trajectory_id)
            # An id of its own for each run, although many have one name and one task.
            case = promotion._replace(task_id=trajectory_id).named(None)
            lines.append(promote.line_of(case))
            if not promotion.left_out:
                faultless.add(trajectory_id)
                assert [call["tool"] for call in case["acceptable_tool_sequences"][0]] == tools
    file.write_text("\n".join(lines), encoding="utf-8")
    assert {case["case_id"] for case in cases.read(file)} == set(names)
    assert 0 < len(faultless) < len(names)
    # As if each run had been started for its case.
    copy = tmp_path / "agenttrace.duckdb"
    shutil.copy(recordings, copy)
    with duckdb.connect(str(copy)) as con:
        con.execute("UPDATE trajectories SET task_id = trajectory_id")
    found = evaluate(copy, Settings(cases=Cases(path=file)))
    of_cases = {"tool_sequence", "tool_arguments", "forbidden_tools", "response_content", "step_efficiency"}
    against = [finding for finding in found.findings if finding.evaluator in of_cases and finding.severity == "error"]
    assert {finding.trajectory_id for finding in against} & faultless == set()
