"""`agenttrace doctor` over good and bad set-ups."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from agenttrace import doctor
from agenttrace.collectors.counts import COUNTS_FILE, Counts
from agenttrace.completeness import Line, completeness, facts, nothing_to_judge
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import open_store

Fill = Callable[..., Path]

RUN: dict[str, object] = {"trajectory_id": "r1", "trace_id": "t1"}
SPAN: dict[str, object] = {"trace_id": "t1", "span_id": "s1", "scope_name": "agenttrace"}
MODEL: dict[str, object] = {
    "trajectory_id": "r1",
    "span_id": "s1",
    "kind": "model",
    "input_messages": "[]",
    "output_messages": "[]",
    "offered_tools": "[]",
    "input_tokens": 1,
    "output_tokens": 1,
    "cost_usd": 0.1,
}
TOOL: dict[str, object] = {
    "trajectory_id": "r1",
    "span_id": "s1",
    "kind": "tool",
    "tool_name": "pay",
    "arguments": "{}",
    "observation": "{}",
}

NO_TOKENS: dict[str, object] = {"input_tokens": None, "output_tokens": None}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Neither a configuration nor another store of the surroundings is found."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def examined(db: Path, port: int, config: Path | None = None) -> list[Line]:
    return list(doctor.examine(db, config, port=port))


def about(lines: list[Line], text: str) -> Line:
    (line,) = [line for line in lines if text in line.fact]
    return line


def gaps(store: Path) -> dict[str, Line]:
    with open_store(store) as connection:
        return {line.fact: line for line in completeness(facts(connection))}


def test_good_set_up_has_nothing_to_fix(fill_store: Fill, free_port: int):
    run = RUN | {"session_id": "s", "tool_call_count": 1, "model_call_count": 1, "mutation_count": 1}
    spans = [SPAN, SPAN | {"span_id": "s2", "parent_span_id": "s1"}]
    lines = examined(
        fill_store(spans=spans, trajectories=[run], steps=[MODEL, TOOL | {"span_id": "s2"}], evaluation_runs=[{}]),
        free_port,
    )
    assert [line for line in lines if line.state not in ("ok", "note")] == []
    assert about(lines, "spans: 2; traces: 1").state == "ok"
    assert about(lines, "evaluations: 1; the last one at 2026-01-31 18:00:00 UTC").state == "ok"


def test_missing_store_fails_and_says_how_to_record(store: Path, free_port: int):
    line = about(examined(store, free_port), "no such store")
    assert line.state == "fail"
    assert "agenttrace.configure()" in (line.advice or "")


def test_missing_store_names_others_nearby(tmp_path: Path, free_port: int, fill_store: Fill):
    fill_store()
    assert "agenttrace.duckdb" in about(examined(tmp_path / "other.duckdb", free_port), "no such store").fact


def test_empty_store_says_how_to_record(fill_store: Fill, free_port: int):
    line = about(examined(fill_store(), free_port), "no spans have arrived")
    assert line.state == "warn"
    assert "agenttrace.configure()" in (line.advice or "")


def test_place_of_the_store_is_explained(store: Path, free_port: int, monkeypatch: pytest.MonkeyPatch):
    assert about(list(doctor.examine(None, None, port=free_port)), "from the current folder")
    assert about(examined(store, free_port), "from --db")
    monkeypatch.setenv("AGENTTRACE_DB", str(store))
    assert about(list(doctor.examine(None, None, port=free_port)), "from AGENTTRACE_DB")


def test_file_that_is_no_store_fails(store: Path, free_port: int):
    store.write_bytes(b"not a database, but long enough to be looked at" * 100)
    assert about(examined(store, free_port), "is not a DuckDB file").state == "fail"


def test_newer_schema_fails(fill_store: Fill, free_port: int):
    store = fill_store()
    with duckdb.connect(store) as connection:
        connection.execute("UPDATE agenttrace_meta SET value = '99' WHERE key = 'schema_version'")
    assert about(examined(store, free_port), "schema version 99").state == "fail"


def test_broken_configuration_fails_and_the_rest_is_looked_at(fill_store: Fill, free_port: int, tmp_path: Path):
    config = tmp_path / "mine.toml"
    config.write_text("[tools]\nmutatin = []\n")
    lines = examined(fill_store(spans=[SPAN]), free_port, config)
    assert about(lines, "did you mean 'mutating'").state == "fail"
    assert about(lines, "spans: 1; traces: 1").state == "ok"


def test_configuration_in_force_is_named(store: Path, free_port: int, tmp_path: Path):
    config = tmp_path / "mine.toml"
    config.write_text("")
    assert str(config) in about(examined(store, free_port, config), "configuration: ").fact


def test_receiver_is_probed(store: Path, free_port: int):
    assert about(examined(store, free_port), f"nothing listens on 127.0.0.1:{free_port}").state == "note"
    with socket.create_server(("127.0.0.1", free_port)):
        assert about(examined(store, free_port), f"listens on 127.0.0.1:{free_port}").state == "ok"


@pytest.mark.parametrize(
    ("name", "value", "state"),
    [
        ("OTEL_SDK_DISABLED", "true", "fail"),
        ("OTEL_TRACES_SAMPLER", "traceidratio", "warn"),
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100", "warn"),
        ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "100", "warn"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "16", "warn"),
        ("AGENTTRACE_REDACT", "off", "note"),
    ],
)
def test_environment_that_costs_verdicts(
    store: Path, free_port: int, monkeypatch: pytest.MonkeyPatch, name: str, value: str, state: str
):
    monkeypatch.setenv(name, value)
    assert about(examined(store, free_port), name).state == state


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_SAMPLER", "always_on"),
        ("OTEL_SDK_DISABLED", "false"),
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "128"),
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", ""),
    ],
)
def test_harmless_environment_is_not_mentioned(
    store: Path, free_port: int, monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv(name, value)
    assert not [line for line in examined(store, free_port) if name in line.fact]


def test_segments_set_aside_are_named(fill_store: Fill, free_port: int):
    store = fill_store()
    spool = store.with_name(store.name + ".spool")
    spool.mkdir()
    (spool / "00000000000000000001-0123456789abcdef.1.spans.arrow.bad").write_bytes(b"")
    assert about(examined(store, free_port), "set aside").state == "warn"


def test_only_model_calls_are_instrumented(fill_store: Fill):
    asking = MODEL | {"requested_tool_calls": '[{"name": "pay"}]'}
    message = TOOL | {"origin": "message", "span_id": "s1#1"}
    found = gaps(fill_store(spans=[SPAN], trajectories=[RUN], steps=[asking, message]))
    line = next(line for fact, line in found.items() if fact.startswith("only model calls are instrumented: in 1 of 1"))
    assert line.state == "warn"
    assert "@agenttrace.tool" in (line.advice or "")


def test_tool_spans_beside_model_calls_are_fine(fill_store: Fill):
    asking = MODEL | {"requested_tool_calls": '[{"name": "pay"}]'}
    found = gaps(fill_store(spans=[SPAN], trajectories=[RUN], steps=[asking, TOOL]))
    assert not [fact for fact in found if "instrumented" in fact]


def test_spans_of_no_convention_are_counted_by_scope(fill_store: Fill):
    spans = [SPAN, *(SPAN | {"span_id": f"x{i}", "scope_name": "httpx"} for i in range(2))]
    steps = [MODEL, MODEL | {"span_id": "x0", "kind": "other", "convention": None}]
    found = gaps(fill_store(spans=[*spans, SPAN | {"span_id": "y", "scope_name": None}], steps=steps))
    assert found["3 of 4 spans follow no known convention: httpx (2), no scope (1)"].state == "note"


@pytest.mark.parametrize(
    ("step", "fact"),
    [
        (TOOL | {"arguments": None}, "1 of 1 tool calls came without their arguments"),
        (TOOL | {"observation": None}, "1 of 1 tool calls came without their result"),
        (MODEL | {"input_messages": None}, "1 of 1 model calls came without their messages"),
        (MODEL | NO_TOKENS, "1 of 1 model calls report no tokens"),
        (MODEL | {"status": "unfinished"}, "1 of 1 steps have started and never ended"),
    ],
)
def test_step_that_lacks_something(fill_store: Fill, step: dict[str, object], fact: str):
    assert any(found.startswith(fact) for found in gaps(fill_store(spans=[SPAN], steps=[step])))


@pytest.mark.parametrize(
    ("run", "fact"),
    [
        (
            {"mutation_count": 1, "tool_call_count": 1, "model_call_count": 1},
            "1 of 1 runs that change something have no",
        ),
        ({"complete": False, "model_call_count": 1}, "1 of 1 runs have not ended yet"),
        ({"tool_call_count": 1}, "1 of 1 runs with tool calls record no model call"),
        ({}, "1 of 1 runs hold neither a model call nor a tool call"),
    ],
)
def test_run_that_lacks_something(fill_store: Fill, run: dict[str, object], fact: str):
    assert any(found.startswith(fact) for found in gaps(fill_store(spans=[SPAN], trajectories=[RUN | run])))


def test_unpriced_models_are_named(fill_store: Fill):
    steps = [
        MODEL | {"span_id": f"s{i}", "model": "house-1", "cost_usd": None, "usage_source": "own"} for i in range(2)
    ]
    steps.append(MODEL | {"span_id": "s9", "cost_usd": None, "usage_source": "own"} | NO_TOKENS)
    assert "2 of 3 model calls have no price: house-1 (2)" in gaps(fill_store(steps=steps))


def test_few_gaps_are_notes_and_many_are_warnings(fill_store: Fill):
    steps = [TOOL | {"span_id": f"s{i}", "arguments": "{}" if i else None} for i in range(40)]
    (line,) = [line for fact, line in gaps(fill_store(steps=steps)).items() if "arguments" in fact]
    assert line.state == "note"


def test_dropped_and_missing_spans_are_counted(fill_store: Fill):
    spans = [SPAN | {"parent_span_id": "gone", "dropped_attributes_count": 3, "dropped_events_count": 2}]
    found = gaps(fill_store(spans=spans))
    assert any(fact.startswith("5 attributes, events and links were dropped") for fact in found)
    assert "in 1 of 1 traces a span's parent is missing" in found


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({}, "no spans have arrived"),
        ({"spans": [SPAN]}, "1 spans, but no run of an agent among them"),
        ({"spans": [SPAN], "trajectories": [RUN | {"complete": False}]}, "1 have not ended (--include-open"),
    ],
)
def test_nothing_to_judge_says_why(fill_store: Fill, tables: dict[str, list[dict[str, object]]], message: str):
    text = nothing_to_judge(fill_store(**tables))
    assert message in text
    assert len(text.splitlines()) <= 2


def test_what_the_last_receiver_did_is_told(fill_store: Fill, free_port: int):
    store = fill_store()
    counts = Counts(urls=[f"http://127.0.0.1:{free_port}"], spans=12, rejected_spans=2)
    counts.refused["401"] = 3
    counts.leniencies["base64 ids"] = 4
    folder = spool_folder(store)
    folder.mkdir()
    (folder / COUNTS_FILE).write_text(json.dumps(vars(counts)))
    lines = examined(store, 1)
    # It is looked for where that receiver said it listens.
    assert about(lines, f"nothing listens on 127.0.0.1:{free_port}").state == "note"
    assert about(lines, "took 12 spans").state == "ok"
    assert about(lines, "skipped 2 spans").state == "warn"
    assert "bearer token" in (about(lines, "refused 3 requests with 401").advice or "")
    assert about(lines, "4 times what OTLP forbids: base64 ids").state == "note"


def test_segments_that_wait_are_told_and_taken_in(store: Path, free_port: int, make_span: Callable[..., SpanRow]):
    Spool(spool_folder(store)).write("spans", [make_span(1)])
    lines = examined(store, free_port)
    assert about(lines, "spool: 1 segments were waiting").state == "ok"
    assert about(lines, "spans: 1; traces: 1").state == "ok"


def test_store_that_another_process_holds_fails_with_its_name(
    fill_store: Fill, free_port: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(open_store.__kwdefaults__, "wait_s", 1.0)
    store = fill_store(spans=[SPAN])
    code = f"import duckdb; c = duckdb.connect({str(store)!r}); print('held', flush=True); input()"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        lines = examined(store, free_port)
        holder.communicate("\n")
    line = about(lines, "another process holds it")
    assert (line.state, str(holder.pid) in line.fact) == ("fail", True)
