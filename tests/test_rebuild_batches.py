"""What a rebuild takes at once, what it leaves out, and what it reads in one pass make no difference to the steps."""

import json
from importlib import resources
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from span_trees import (
    Json,
    agent,
    answer,
    asked,
    call,
    chat,
    insert,
    message,
    open_memory,
    rebuilt,
    records,
    span_rows,
    text,
    tool,
    user,
)

from agenttrace import dialects, envelopes, json_text
from agenttrace import rebuild as rebuilding
from agenttrace.compact import read_totals
from agenttrace.completeness import facts
from agenttrace.config import Settings, ToolSettings
from agenttrace.prices import PriceTable
from agenttrace.rebuild import Plan, rebuild
from agenttrace.spans import SpanRow

DAY = 86_400_000_000_000


def _traces() -> list[SpanRow]:
    """Six runs on six days; the first one's tool call is a month late."""
    rows: list[SpanRow] = []
    for number in range(6):
        found = span_rows(
            f"{number + 1:032x}",
            agent(
                "restock",
                chat(reads=[user("order")], asks=[call("order", {"n": number}, "a")], offers=["order"]),
                tool("order", {"n": number}, id="a", result="x" * 500),
                chat(reads=[user("order"), asked(call("order", {"n": number}, "a")), answer("a", "ok")], says="Done."),
            ),
        )
        rows += [row._replace(start_time_unix_nano=row.start_time_unix_nano + number * DAY) for row in found]
    late = rows[2]
    return [*rows[:2], late._replace(start_time_unix_nano=late.start_time_unix_nano + 30 * DAY), *rows[3:]]


def _tables(con: duckdb.DuckDBPyConnection) -> tuple[list[Json], list[Json]]:
    return (
        records(con, "SELECT * FROM steps ORDER BY trace_id, span_id"),
        records(con, "SELECT * EXCLUDE (last_arrival, revision) FROM trajectories ORDER BY trajectory_id"),
    )


@pytest.mark.parametrize(("spans", "size"), [(5, 1 << 30), (25_000, 1_000)])
def test_batches_of_few_spans_or_bytes_give_what_one_batch_gives(
    monkeypatch: pytest.MonkeyPatch, spans: int, size: int
) -> None:
    con = open_memory()
    insert(con, _traces())
    assert rebuild(con) == 6
    expected = _tables(con)
    monkeypatch.setattr(rebuilding, "_BATCH_SPANS", spans)
    monkeypatch.setattr(rebuilding, "_BATCH_BYTES", size)
    con = open_memory()
    insert(con, _traces())
    assert rebuild(con) == 6
    assert _tables(con) == expected
    (parts,) = con.execute("SELECT count(DISTINCT part) FROM parts").fetchone() or (0,)
    (batches,) = con.execute("SELECT count(DISTINCT batch) FROM waiting").fetchone() or (0,)
    assert max(parts, batches) > 1


def test_a_rebuild_that_stops_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    con = open_memory()
    insert(con, _traces())
    rebuild(con)
    expected = _tables(con)
    monkeypatch.setattr(rebuilding, "_BATCH_SPANS", 5)
    monkeypatch.setattr(rebuilding, "_BATCHES_AHEAD", 2)
    con = open_memory()
    insert(con, _traces())
    done = left = 0
    plan = Plan()
    while done < 6:
        step = rebuild(con, deadline=0, plan=plan)
        done += step
        (left,) = con.execute("SELECT count(*) FROM dirty_traces").fetchone() or (0,)
        assert 0 < step < 6
        assert left == 6 - done
    assert _tables(con) == expected


def test_a_span_that_comes_between_two_calls_of_a_rebuild_is_in_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = _traces()[:8]
    monkeypatch.setattr(rebuilding, "_BATCH_SPANS", 3)
    con = open_memory()
    insert(con, rows[:-1])
    plan = Plan()
    assert rebuild(con, deadline=0, plan=plan) == 1
    # Estimates are too low here, and below this bound DuckDB compares each row with each.
    assert con.execute("SELECT current_setting('asof_loop_join_threshold')::INTEGER").fetchall() == [(0,)]
    insert(con, rows[-1:])
    # So does the compactor.
    con.execute("INSERT INTO agenttrace_meta VALUES ('totals', '1')")
    rebuild(con, plan=plan)
    assert con.execute("SELECT count(*) FROM steps GROUP BY trace_id").fetchall() == [(4,), (4,)]


def test_traces_that_do_not_fit_into_memory_cost_no_other_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fits, long, endless = (f"{number:032x}" for number in (1, 2, 3))
    rebuild_part = rebuilding._rebuild_part  # pyright: ignore[reportPrivateUsage]

    def starved(con: duckdb.DuckDBPyConnection, prices: PriceTable) -> None:
        [(longest,)] = con.execute("SELECT getvariable('longest')").fetchall()
        scope = {trace_id for (trace_id,) in con.execute("FROM scope").fetchall()}
        if endless in scope or (long in scope and longest > 1_000):
            raise duckdb.OutOfMemoryException("failed to allocate data of size 512.0 MiB")
        rebuild_part(con, prices)

    monkeypatch.setattr(rebuilding, "_rebuild_part", starved)
    monkeypatch.setattr(rebuilding, "_SHORT_BYTES", 300)
    con = open_memory()
    insert(con, _traces()[:12])
    assert rebuild(con) == 3
    assert con.execute("FROM dirty_traces").fetchall() == []
    assert con.execute("SELECT trace_id FROM trajectories ORDER BY trace_id").fetchall() == [(fits,), (long,)]
    # What was too long was not captured, and no verdict guesses it.
    tools = "SELECT trace_id, status, observation IS NULL FROM steps WHERE kind = 'tool' ORDER BY trace_id"
    assert con.execute(tools).fetchall() == [(fits, "ok", False), (long, "ok", True)]
    assert long in caplog.text
    assert endless in caplog.text
    assert read_totals(con).too_large == 2
    assert facts(con)["too_large"].n == 2
    monkeypatch.undo()
    con.execute("INSERT INTO dirty_traces SELECT DISTINCT trace_id FROM spans")
    assert rebuild(con) == 3
    assert read_totals(con).too_large == 0
    assert con.execute("SELECT count(*) FROM trajectories").fetchall() == [(3,)]


def test_a_rebuild_that_goes_on_leaves_the_store_to_who_began_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuilding, "_BATCH_SPANS", 5)
    ours, theirs = (Settings(tools=ToolSettings(mutating=[name])) for name in ("order", "other"))
    con = open_memory()
    insert(con, _traces())
    our_plan, their_plan = Plan(), Plan()
    rebuild(con, settings=ours, deadline=0, plan=our_plan)
    begun = rebuild(con, settings=theirs, deadline=0, plan=their_plan)
    assert rebuild(con, settings=ours, deadline=0, plan=our_plan) == 0
    assert begun + rebuild(con, settings=theirs, plan=their_plan) == 6


def test_a_span_that_comes_a_month_later_finds_its_trace() -> None:
    rows = _traces()
    con = open_memory()
    insert(con, rows)
    rebuild(con)
    expected = _tables(con)
    con = open_memory()
    insert(con, rows[:2] + rows[3:])
    rebuild(con)
    insert(con, rows[2:3])
    assert rebuild(con) == 1
    assert _tables(con) == expected


def test_keys_of_a_framework_within_a_value_are_not_its_spans() -> None:
    seen = {"file": '{"traceloop.span.kind": "tool", "langfuse.observation.type": "agent", "mlflow.spanType": "TOOL"}'}
    run = rebuilt(agent("reader", tool("read", seen, result=seen)))
    assert {step["convention"] for step in run.steps} == {"gen_ai"}
    assert json.loads(run.tool["arguments"]) == seen


def test_what_the_user_asked_may_stand_in_a_later_call() -> None:
    told = message("system", text("You sell rice."))
    run = rebuilt(
        agent("shop", chat(reads=[told], says="Hello."), chat(reads=[told, user("Sell me rice.")], says="No."))
    )
    assert run.trajectory["user_input"] == "Sell me rice."


def test_blocks_of_the_step_files_begin_and_end() -> None:
    files = [file for file in resources.files("agenttrace.steps").iterdir() if file.name.endswith(".sql")]
    found = {file.name: file.read_text(encoding="utf-8") for file in files}
    assert len(found) > 10
    for name, sql in found.items():
        lines = [line for line in sql.splitlines() if line.startswith("-- if ") or line == "-- end if"]
        assert [line[:6] for line in lines] == ["-- if ", "-- end"] * (len(lines) // 2), name
        # A line left over would be a comment, and its block always run.
        assert len(rebuilding._IF.findall(sql)) == len(lines) // 2, name


@given(st.text(alphabet="{}[]\":,0123456789.eE-ntrufalse \\'abc", max_size=40) | st.text(max_size=30))
def test_a_value_is_parsed_as_the_text_of_it_is_decoded(value: str) -> None:
    decoded = json_text.json_of_text(value)
    assert json_text.parsed_value(value) == (None if decoded is None else json_text.try_parse(decoded))
    quoted = json.dumps(value)
    decoded = json_text.json_of_text(quoted)
    assert json_text.parsed_value(quoted) == (None if decoded is None else json_text.try_parse(decoded))


@pytest.mark.parametrize("places", range(20))
def test_long_integers_are_found_wherever_they_stand(places: int) -> None:
    number = 9_999_999_999_999_999_999
    assert json_text.parse("[" + " " * places + f"{number}]") == [number]


@pytest.mark.parametrize("offered", ['{"name": "order", "parameters": {"type": "object"}}', 5, None])
def test_a_flattened_call_is_read_in_one_pass(offered: Any) -> None:
    attributes = json.dumps(
        {
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": "order",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "order",
            "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"n": 1}',
            "llm.tools.0.tool.json_schema": offered,
            "llm.tools": "none of its",
        }
    )
    prefixes = ("llm.input_messages", "llm.output_messages", "llm.tools")
    read, written, tools = (envelopes.unflatten(attributes, prefix) or "null" for prefix in prefixes)
    assert envelopes.flattened_call(attributes, *prefixes) == {
        "input": dialects.messages(read),
        "output": dialects.messages(written),
        "tools": dialects.tool_definitions(tools),
    }
    assert '"name":"order"' in (dialects.messages(written) or "")
