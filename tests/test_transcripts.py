"""Chat transcripts: what becomes of their messages, and two public sets of real runs, counted against their truth."""

import csv
import gzip
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import toolbench
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttrace.cli import FAILED, IMPOSSIBLE, PASSED, main
from agenttrace.collectors.chat_messages import normalised, text_of
from agenttrace.collectors.files import ImportResult, import_files
from agenttrace.collectors.transcripts import TranscriptReader
from agenttrace.errors import DecodeError
from agenttrace.store import open_store, refresh

# Its stores are made once, in one worker.
pytestmark = pytest.mark.xdist_group("transcripts")

Json = dict[str, Any]

TAU = Path(__file__).parent / "data" / "tau_bench_airline"
TRUTH: Json = json.loads((TAU / "truth.json").read_text(encoding="utf-8"))
PUBLISHED: Json = json.loads((TAU / "published.json").read_text(encoding="utf-8"))


def rows(db: Path, query: str) -> list[tuple[Any, ...]]:
    with open_store(db) as con:
        return con.execute(query).fetchall()


def asks(*calls: tuple[str | None, str, Json], text: str | None = None) -> Json:
    made = [
        {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for call_id, name, arguments in calls
    ]
    return {"role": "assistant", "content": text, "tool_calls": made}


def gives(call_id: str | None, content: Any, **more: Any) -> Json:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


@pytest.fixture
def bring(tmp_path: Path, store: Path) -> Callable[..., ImportResult]:
    """Imports records as JSON lines, and rebuilds."""

    def bring(*records: Any, **options: Any) -> ImportResult:
        path = tmp_path / "runs.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
        result = import_files([path], store, **options)
        refresh(store)
        return result

    return bring


def skipped(result: ImportResult) -> list[str]:
    return [f"{place.rpartition('/')[2]}: {message}" for place, message in result.skipped]


# What a transcript becomes


def test_a_transcript_becomes_a_run_with_its_steps(bring: Callable[..., ImportResult], store: Path) -> None:
    record = {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "Order rice"}]},
            asks(
                ("c1", "check_stock", {"item": "rice"}),
                ("c2", "place_order", {"item": "rice", "qty": 40}),
                text="Wait.",
            ),
            gives("c2", '{"order_id": "o-1"}'),
            gives("c1", "Error: no such item"),
            {"role": "assistant", "content": "Ordered."},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": [{"type": "function", "function": {"name": "check_stock"}}, {"name": "place_order", "parameters": {}}],
        "task_id": 17,
        "trial": 2.0,
        "reward": 1.0,
        "session_id": "s-1",
        "user_id": "u-1",
        "tenant_id": "acme",
        "agent": "clerk",
        "model": "gpt-4o",
    }
    result = bring(record)
    assert (result.transcripts, result.spans, result.outcomes, result.skipped_count) == (1, 5, 1, 0)
    steps = "step_index, kind, tool_name, tool_call_id, arguments ->> '$', observation ->> '$', status, effect"
    assert rows(store, f"SELECT {steps} FROM steps ORDER BY step_index NULLS FIRST") == [
        (None, "agent", None, None, None, None, "ok", None),
        (0, "model", None, None, None, None, "ok", None),
        (1, "tool", "check_stock", "c1", '{"item":"rice"}', "Error: no such item", "error", "no"),
        (2, "tool", "place_order", "c2", '{"item":"rice","qty":40}', '{"order_id":"o-1"}', "ok", "yes"),
        (3, "model", None, None, None, None, "ok", None),
    ]
    named = "session_id, user_id, tenant_id, task_id, trial, agent_name, user_input, final_response, tools, complete"
    assert rows(store, f"SELECT {named} FROM trajectories") == [
        ("s-1", "u-1", "acme", "17", 2, "clerk", "Order rice", "Ordered.", ["check_stock", "place_order"], True)
    ]
    same = "FROM steps WHERE kind = 'model' AND offered_tools ->> '$[1].name' = 'place_order' AND model = 'gpt-4o'"
    assert rows(store, f"SELECT count(*), max(thought) {same}") == [(2, "Wait.")]
    assert rows(store, "SELECT origin, convention FROM steps GROUP BY ALL") == [("message", "chat")]
    verdict = "SELECT source, passed, score FROM outcomes JOIN trajectories USING (trajectory_id, task_id, trial)"
    assert rows(store, verdict) == [("checker", True, 1.0)]


def test_model_call_was_given_all_that_came_before_it(bring: Callable[..., ImportResult], store: Path) -> None:
    bring({"traj": [{"role": role, "content": role + number} for number in "123" for role in ("user", "assistant")]})
    roles = "list_transform(from_json(input_messages, '[\"JSON\"]'), lambda m: m ->> '$.parts[0].content')"
    assert rows(store, f"SELECT {roles} FROM steps WHERE kind = 'model' ORDER BY step_index") == [
        (["user1"],),
        (["user1", "assistant1", "user2"],),
        (["user1", "assistant1", "user2", "assistant2", "user3"],),
    ]


def test_long_history_is_not_repeated_without_end() -> None:
    messages = [{"role": role, "content": "x" * 10_000} for _ in range(2_000) for role in ("user", "assistant")]
    spans = TranscriptReader(0).read({"messages": messages}).spans
    assert sum(len(span.attributes) for span in spans) < 4 * len(messages) * 10_000
    assert spans[-1].attributes.count("xxxx" * 2_500) == 2


# What answers which call: the messages between "go" and "done", and the tools that ran with what they gave.
PAIRS: dict[str, tuple[list[Json], list[tuple[str, str]]]] = {
    "one id twice in a message": (
        [asks(("x", "a", {}), ("x", "b", {})), gives("x", "1"), gives("x", "2")],
        [("a", "1"), ("b", "2")],
    ),
    "one id in two messages": (
        [asks(("x", "a", {})), gives("x", "1"), asks(("x", "b", {})), gives("x", "2")],
        [("a", "1"), ("b", "2")],
    ),
    "the latest message that asked goes first": (
        [asks(("x", "a", {})), asks(("x", "b", {})), gives("x", "2"), gives("x", "1")],
        [("a", "1"), ("b", "2")],
    ),
    "answers in another order": (
        [asks(("x", "a", {}), ("y", "b", {})), gives("y", "2"), gives("x", "1")],
        [("a", "1"), ("b", "2")],
    ),
    "a late answer": (
        [asks(("x", "a", {})), {"role": "assistant", "content": "wait"}, gives("x", "1")],
        [("a", "1")],
    ),
    "no ids": (
        [asks((None, "a", {}), (None, "b", {})), gives(None, "1"), gives(None, "2")],
        [("a", "1"), ("b", "2")],
    ),
    "no ids, but names": (
        [asks((None, "a", {}), (None, "b", {})), gives(None, "2", name="b")],
        [("b", "2")],
    ),
    "an id of no call": (
        [asks(("x", "a", {}), ("y", "b", {})), gives("z", "1"), gives("x", "2")],
        [("a", "2"), ("b", "1")],
    ),
    "no answer": ([asks(("x", "a", {})), asks(("y", "b", {})), gives("y", "2")], [("b", "2")]),
    "an answer before its call": ([gives("x", "0"), asks(("x", "a", {}))], []),
    "an answer that nobody asked for": ([{"role": "assistant", "content": "a"}, gives("x", "0")], []),
    "function_call": (
        [
            {"role": "assistant", "content": None, "function_call": {"name": "a", "arguments": "{}"}},
            {"role": "function", "name": "a", "content": "1"},
        ],
        [("a", "1")],
    ),
    "content blocks": (
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "a", "input": {"q": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "1"}]},
        ],
        [("a", "1")],
    ),
    "a call without `function`": (
        [{"role": "assistant", "tool_calls": [{"id": "x", "name": "a", "arguments": {"q": 1}}]}, gives("x", "1")],
        [("a", "1")],
    ),
    "no roles": (
        [{"tool_calls": asks(("x", "a", {}))["tool_calls"]}, {"tool_call_id": "x", "content": "1"}],
        [("a", "1")],
    ),
}


def test_results_belong_to_their_calls(bring: Callable[..., ImportResult], store: Path) -> None:
    begin, end = {"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}
    bring(*({"task_id": name, "messages": [begin, *messages, end]} for name, (messages, _) in PAIRS.items()))
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in PAIRS}
    steps = "SELECT task_id, tool_name, observation ->> '$' FROM steps WHERE kind = 'tool' ORDER BY step_index"
    for task_id, *call in rows(store, steps):
        found[task_id].append((call[0], call[1]))
    assert found == {name: expected for name, (_, expected) in PAIRS.items()}


def test_call_without_an_answer_was_only_requested(bring: Callable[..., ImportResult], store: Path) -> None:
    bring(
        {"messages": [asks(("x", "a", {}), ("y", "b", {})), gives("y", "2"), {"role": "assistant", "content": "done"}]}
    )
    asked = "SELECT requested_tool_calls ->> '$[*].name' FROM steps WHERE kind = 'model' ORDER BY step_index"
    assert rows(store, asked) == [(["a", "b"],), ([],)]
    assert rows(store, "SELECT tools FROM trajectories") == [(["b"],)]


def test_arguments_that_are_no_json_stay_text(bring: Callable[..., ImportResult], store: Path) -> None:
    call = {"id": "c1", "function": {"name": "a", "arguments": "{'item': 'ri"}}
    bring({"messages": [{"role": "assistant", "tool_calls": [call]}, gives("c1", "")]})
    assert rows(store, "SELECT arguments ->> '$', observation ->> '$' FROM steps WHERE kind = 'tool'") == [
        ("{'item': 'ri", "")
    ]


def test_result_that_is_marked_as_an_error_has_failed(bring: Callable[..., ImportResult], store: Path) -> None:
    blocks = [{"type": "tool_result", "tool_use_id": "c1", "content": "no seat", "is_error": True}]
    bring({"messages": [asks(("c1", "book", {})), {"role": "user", "content": blocks}]})
    assert rows(store, "SELECT status, effect, observation ->> '$' FROM steps WHERE kind = 'tool'") == [
        ("error", "no", "no seat")
    ]


def test_run_without_an_answer_has_none(bring: Callable[..., ImportResult], store: Path) -> None:
    bring({"messages": [{"role": "user", "content": "go"}], "task_id": "t"}, {"messages": [], "task_id": "u"})
    bring({"messages": [{"role": "assistant", "content": " \n"}], "task_id": "blank"})
    assert rows(
        store, "SELECT task_id, user_input, final_response, model_call_count FROM trajectories ORDER BY ALL"
    ) == [
        ("blank", None, None, 1),
        ("t", "go", None, 0),
        ("u", None, None, 0),
    ]


def test_last_messages_are_kept(bring: Callable[..., ImportResult], store: Path) -> None:
    bring({"messages": [{"role": "assistant", "content": "Hello"}, {"role": "user", "content": "Bye"}]})
    kept = "SELECT attributes ->> '$.\"agenttrace.transcript.last_messages\"' FROM spans WHERE parent_span_id IS NULL"
    assert json.loads(rows(store, kept)[0][0])[0]["parts"] == [{"type": "text", "content": "Bye"}]


def test_tool_that_was_asked_for_last_is_no_final_response(bring: Callable[..., ImportResult], store: Path) -> None:
    bring({"messages": [{"role": "assistant", "content": "Hello"}, asks(("c1", "book", {}), text="One moment.")]})
    assert rows(store, "SELECT final_response, tool_call_count FROM trajectories") == [("Hello", 0)]


# Times


def test_without_times_nothing_has_a_time(bring: Callable[..., ImportResult], store: Path, tmp_path: Path) -> None:
    messages = [
        asks(("c1", "place_order", {"n": 1})),
        gives("c1", "ok"),
        asks(("c2", "place_order", {"n": 1})),
        gives("c2", "ok"),
    ]
    bring({"messages": [*messages, {"role": "assistant", "content": "done"}]})
    assert rows(store, "SELECT start_time, end_time, duration_ms, complete FROM trajectories") == [
        (None, None, None, True)
    ]
    assert rows(store, "SELECT DISTINCT start_time, end_time, duration_ms, status FROM steps") == [
        (None, None, None, "ok")
    ]
    config, report, output = tmp_path / "agenttrace.toml", tmp_path / "report.html", tmp_path / "out.json"
    config.write_text("[budgets.default]\nmax_duration_ms = 1\n", encoding="utf-8")
    options = ["--db", str(store), "--config", str(config)]
    judged = main(["evaluate", *options, "--format", "json", "--output", str(output), "--report", str(report)])
    assert judged == FAILED
    found = json.loads(output.read_text(encoding="utf-8"))
    assert ("duplicate_mutations", "confirmed") in {(f["evaluator"], f["kind"]) for f in found["findings"]}
    unknown = [row for row in found["not_evaluable"] if row["kind"] == "max_duration_ms"]
    assert [row["reason"] for row in unknown] == ["no duration is known"]
    latencies = [m for m in found["measurements"] if m["metric"] == "latency_ms" and "period" not in m["dimensions"]]
    assert {(m["value"], m["n"], m["n_not_evaluable"]) for m in latencies} == {(None, 0, 1)}
    assert "1970" not in report.read_text(encoding="utf-8")
    assert main(["list", *options]) == PASSED
    assert main(["show", "--last", *options]) == PASSED
    assert main(["evaluate", *options, "--since", "2020-01-01"]) == IMPOSSIBLE


TIMES: list[tuple[Any, Any]] = [
    (1_700_000_000, 1_700_000_002.5),
    (1_700_000_000_000, 1_700_000_002_500),
    (1_700_000_000_000_000, 1_700_000_002_500_000),
    (1_700_000_000_000_000_000, 1_700_000_002_500_000_000),
    ("2023-11-14T22:13:20Z", "2023-11-14T22:13:22.5"),
    ("2023-11-14T23:13:20+01:00", "2023-11-14T22:13:22.500000Z"),
]


def test_times_of_messages_are_those_of_the_steps(bring: Callable[..., ImportResult], store: Path) -> None:
    def messages(first: Any, last: Any) -> list[Json]:
        return [
            {"role": "system", "content": "no time of its own"},
            {"role": "user", "content": "go", "created_at": first},
            asks(("c1", "look", {})),
            gives("c1", "rice", timestamp="yesterday"),
            {"role": "assistant", "content": "rice", "timestamp": last},
        ]

    bring(*({"messages": messages(*times)} for times in TIMES))
    moment = "epoch_ms({}) // 100"
    begin = int(datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC).timestamp() * 10)
    times = f"SELECT {moment.format('start_time')}, {moment.format('end_time')}, round(duration_ms), count(*) FROM "
    assert rows(store, times + "trajectories GROUP BY ALL") == [(begin, begin + 25, 2500.0, len(TIMES))]
    assert rows(store, times + "steps WHERE step_index IS NOT NULL GROUP BY ALL ORDER BY ALL") == [
        (begin, begin, None, 2 * len(TIMES)),
        (begin + 25, begin + 25, None, len(TIMES)),
    ]


def test_odd_times_are_none(bring: Callable[..., ImportResult], store: Path) -> None:
    odd = [True, -5, 1e400, 0.5, "", "soon", [], {}, 1e30, "9999-01-01", "1066-01-01"]
    bring(*({"messages": [{"role": "assistant", "content": "a", "created_at": time}]} for time in odd))
    assert rows(store, "SELECT start_time, count(*) FROM trajectories GROUP BY ALL") == [(None, len(odd))]


# Identity


def test_imported_twice_is_stored_once(bring: Callable[..., ImportResult], store: Path) -> None:
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "done"}]
    records = [{"messages": messages}, {"messages": messages}, {"messages": messages, "trial": 1, "task_id": "a"}]
    records += [{"messages": messages, "trial": 2, "task_id": "a"}, {"messages": messages, "trial": 1, "task_id": "b"}]
    for _ in range(2):
        assert bring(*records).transcripts == 5
        assert rows(store, "SELECT count(*) FROM trajectories") == [(5,)]
        assert rows(store, "SELECT count(*) FROM spans") == [(10,)]
    bring({"task_id": "a", "messages": messages, "trial": 1, "reward": 0})
    assert rows(store, "SELECT count(*) FROM trajectories") == [(5,)]
    assert rows(store, "SELECT task_id, passed FROM outcomes") == [("a", False)]


def test_task_and_trial_of_the_command_line_are_those_of_runs_that_name_none(
    bring: Callable[..., ImportResult], store: Path
) -> None:
    messages = [{"role": "assistant", "content": "done"}]
    for trial in (1, 2):
        bring({"messages": messages}, {"messages": messages, "task_id": "own", "trial": "7"}, task_id="t", trial=trial)
    assert rows(store, "SELECT task_id, trial FROM trajectories ORDER BY ALL") == [("own", 7), ("t", 1), ("t", 2)]


# Files


@pytest.mark.parametrize("packed", [False, True])
def test_one_json_document_holds_a_list_of_them(packed: bool, tmp_path: Path, store: Path) -> None:
    records = [{"messages": [{"role": "assistant", "content": text}]} for text in "ab"]
    text = json.dumps([*records, {"other": 1}, 5], indent=2).encode()
    path = tmp_path / "runs.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    result = import_files([path], store)
    assert (result.files, result.transcripts, result.traces) == (1, 2, 2)
    expected = (
        "expected the key 'resourceSpans' or 'resourceLogs' (OTLP), 'data' (Jaeger), 'batches' (Tempo), "
        "or chat messages under 'messages' or 'traj' (--messages KEY names another)"
    )
    assert skipped(result) == [
        f"runs.json:1[2]: the document is an object with the keys 'other'; {expected}",
        f"runs.json:1[3]: the document is a number; {expected}",
    ]


@pytest.mark.parametrize("key", [None, "history"])
def test_a_list_of_messages_is_a_run_itself(key: str | None, bring: Callable[..., ImportResult], store: Path) -> None:
    first, second = ([{"role": "user", "content": text}, {"role": "assistant", "content": text}] for text in "ab")
    # One to a line, and several of them in one list.
    result = bring(first, [second], messages_key=key)
    assert (result.transcripts, result.skipped) == (2, [])
    assert rows(store, "SELECT user_input, final_response FROM trajectories ORDER BY ALL") == [("a", "a"), ("b", "b")]


def test_a_torn_record_costs_itself_alone(tmp_path: Path, store: Path) -> None:
    whole = json.dumps({"task_id": "t", "messages": [{"role": "user", "content": "a"}]})
    path = tmp_path / "runs.jsonl"
    path.write_text(f'{whole[: whole.index("role")]}role":\n{whole}\n', encoding="utf-8")
    result = import_files([path], store)
    assert (result.transcripts, skipped(result)) == (1, ["runs.jsonl:1: the document that begins here does not end"])


def test_key_of_the_messages_can_be_named(bring: Callable[..., ImportResult], store: Path) -> None:
    said = [{"role": "assistant", "content": "b"}]
    result = bring({"history": said, "messages": []}, {"messages": said}, messages_key="history")
    assert result.transcripts == 1
    assert skipped(result) == [
        "runs.jsonl:2: the document is an object with the keys 'messages'; expected the key 'resourceSpans' or "
        "'resourceLogs' (OTLP), 'data' (Jaeger), 'batches' (Tempo), or chat messages under 'history' "
        "(--messages KEY names another)"
    ]
    assert rows(store, "SELECT final_response FROM trajectories") == [("b",)]


def test_otlp_and_transcripts_stand_in_one_file(bring: Callable[..., ImportResult]) -> None:
    span = {"traceId": "1" * 32, "spanId": "1" * 16, "name": "chat", "startTimeUnixNano": "5"}
    otlp = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}], "messages": []}
    result = bring(otlp, {"messages": []}, {"resourceMetrics": []}, {}, [])
    assert (result.transcripts, result.spans, result.other_signals, result.skipped_count) == (1, 2, 1, 0)


def test_what_is_wrong_in_a_transcript_is_reported_and_the_rest_lands(
    bring: Callable[..., ImportResult], store: Path
) -> None:
    said = {"role": "assistant", "content": "done"}
    result = bring(
        {"messages": "secret"},
        {"messages": ["secret", said, None, {}], "trial": "first"},
        {"messages": [said], "reward": "much"},
        {"messages": [said], "task_id": "t", "passed": {"secret": 1}},
        {"messages": [{"content": "no role"}, said], "reward": None},
        {"messages": [said, {"type": "function_call"}, {"role": ["\x1b"]}, {"role": "?"}, {"role": "?"}]},
        {"messages": [{"role": "assistant", "content": "[REDACTED]"}]},
    )
    known = "assistant, developer, function, system, tool, user"
    assert skipped(result) == [
        "runs.jsonl:1: 'messages' is a string; expected a list of chat messages",
        "runs.jsonl:2: trial is 'first'; expected a whole number",
        "runs.jsonl:2: message 0 is a string; expected an object with a role",
        "runs.jsonl:2: message 2 is null; expected an object with a role",
        "runs.jsonl:2: message 3 is an empty object; expected an object with a role",
        "runs.jsonl:3: reward is 'much'; expected a number",
        "runs.jsonl:4: passed is '{\"secret\":1}'; expected true, false, or error if it could not run",
        f"runs.jsonl:6: messages of role 'function_call' tell nothing (1 here); known are {known}",
        f"runs.jsonl:6: messages of role \"['\\\\x1b']\" tell nothing (1 here); known are {known}",
        f"runs.jsonl:6: messages of role '?' tell nothing (2 here); known are {known}",
        "runs.jsonl:7: the messages are nested too deeply, hold numbers that JSON lacks, or are all redacted",
    ]
    assert result.leniencies == {"messages without a role": 1}
    assert rows(store, "SELECT count(*), count(final_response) FROM trajectories") == [(5, 5)]
    assert rows(store, "FROM outcomes") == []


def test_nesting_has_a_bound(bring: Callable[..., ImportResult], store: Path) -> None:
    deep: Any = "rice"
    for _ in range(900):
        deep = {"a": deep}
    call = {"id": "c1", "function": {"name": "look", "arguments": deep}}
    messages = [
        {"role": "assistant", "content": "done"},
        {"role": "assistant", "tool_calls": [call]},
        gives("c1", "rice"),
    ]
    result = bring({"messages": messages}, {"messages": messages[:1]})
    assert result.transcripts >= 1
    assert rows(store, "SELECT count(*) > 0 FROM trajectories WHERE final_response = 'done'") == [(True,)]


def test_command_counts_the_transcripts(tmp_path: Path, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text('{"log": [{"role": "assistant", "content": "done"}], "passed": true}\n', encoding="utf-8")
    assert main(["import", str(path), "--db", str(store), "--messages", "log"]) == PASSED
    assert capsys.readouterr().out.startswith("1 transcripts, 2 spans, 1 outcomes of 1 traces in 1 of 1 files -> ")
    assert main(["import", str(path), "--db", str(store), "--messages", "history"]) == IMPOSSIBLE
    assert "an object with the keys 'log', 'passed'; expected the key" in capsys.readouterr().err


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS_OF_MESSAGES = st.sampled_from(
    ["role", "content", "tool_calls", "tool_call_id", "name", "function_call", "type", "parts", "data", "created_at"]
)
VALUES_OF_MESSAGES = (
    st.sampled_from(["user", "assistant", "tool", "function", "c1"])
    | st.lists(st.dictionaries(st.sampled_from(["id", "type", "text", "function", "name", "arguments"]), JSON_VALUES))
    | JSON_VALUES
)
SPOKEN = st.fixed_dictionaries({"role": st.just("assistant"), "content": st.text(min_size=1)})


@given(st.lists(SPOKEN | st.dictionaries(KEYS_OF_MESSAGES, VALUES_OF_MESSAGES) | JSON_VALUES, max_size=6), JSON_VALUES)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_messages_become_spans_and_no_text_of_the_assistant_is_lost(messages: list[Any], odd: Any) -> None:
    record = {"messages": messages, "task_id": odd, "trial": odd, "tools": odd, "reward": odd}
    try:
        spans = TranscriptReader(0).read(record).spans
    except DecodeError:
        # Numbers that JSON lacks, or a lone surrogate, which no file of JSON holds.
        return
    assert len({span.span_id for span in spans}) == len(spans)
    said = [message for span in spans[1:] for message in _messages_of(span.attributes)]
    for message in messages:
        if isinstance(message, dict) and set(message) == {"role", "content"} and message["role"] == "assistant":
            _, (expected,) = normalised([message], [], Counter())
            assert text_of(expected) is None or expected in said


def _messages_of(attributes: str) -> list[Json]:
    return json.loads(json.loads(attributes).get("gen_ai.output.messages", "[]"))


# tau-bench: real runs, of which 35 use one call id for several calls


def tau_runs() -> list[Json]:
    return [json.loads(line) for line in gzip.decompress((TAU / "trajectories.jsonl.gz").read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def tau(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the 132 transcripts and the outcomes of all 200 runs, built with the write tools declared."""
    folder = tmp_path_factory.mktemp("tau")
    tools: dict[str, list[str]] = {"mutating": [], "read_only": []}
    for tool in json.loads((TAU / "tools.json").read_text(encoding="utf-8")):
        tools["mutating" if tool["mutates"] else "read_only"].append(tool["name"])
    lists = "".join(f"{name} = {json.dumps(names)}\n" for name, names in tools.items())
    (folder / "agenttrace.toml").write_text(f"[tools]\n{lists}", encoding="utf-8")
    files = [str(TAU / name) for name in ("trajectories.jsonl.gz", "outcomes.csv")]
    options = ["--db", str(folder / "tau.duckdb"), "--config", str(folder / "agenttrace.toml")]
    assert main(["import", *files, *options]) == PASSED
    assert (
        main(["evaluate", *options, "--fail-on", "never", "--format", "json", "--output", str(folder / "out.json")])
        == PASSED
    )
    return folder / "tau.duckdb"


def test_tau_counts_are_those_of_its_truth(tau: Path) -> None:
    assert rows(tau, "SELECT count(*), count(DISTINCT task_id) FROM trajectories") == [
        (TRUTH["trajectories"], TRUTH["tasks"])
    ]
    per_tool = "SELECT tool_name, count(*) FROM steps WHERE kind = 'tool' AND tool_ran {} GROUP BY ALL"
    assert dict(rows(tau, per_tool.format(""))) == TRUTH["tool_calls_per_tool"]
    assert dict(rows(tau, per_tool.format("AND status = 'error'"))) == TRUTH["error_observations_per_tool"]
    assert rows(tau, "SELECT sum(tool_call_count)::INTEGER FROM trajectories") == [(TRUTH["tool_calls_total"],)]
    mutating = "SELECT count(*), count(DISTINCT tool_name) FROM steps WHERE mutability = 'mutating'"
    assert rows(tau, mutating) == [(TRUTH["mutating_calls"], len(TRUTH["mutating_tools"]))]
    # The last model call's input and answer, and what came after it, are the whole conversation.
    messages = """
        SELECT sum(n)::INTEGER FROM (
            SELECT max(len(from_json(input_messages, '["JSON"]'))) + 1 AS n
            FROM steps WHERE kind = 'model' GROUP BY trajectory_id
            UNION ALL
            SELECT len(from_json(attributes ->> '$."agenttrace.transcript.last_messages"', '["JSON"]')) FROM spans)"""
    assert rows(tau, messages) == [(TRUTH["messages"],)]


def _calls(run: Json) -> list[tuple[str, Any, Any]]:
    """A reader of its own: the answer to a call is the next tool message."""
    answers = iter([message["content"] for message in run["traj"] if message["role"] == "tool"])
    calls = [call["function"] for message in run["traj"] for call in message.get("tool_calls") or []]
    return [(call["name"], json.loads(call["arguments"]), _value(next(answers))) for call in calls]


def _value(text: str) -> Any:
    """The object or list that an answer holds, else its text, as `observation` has it."""
    return json.loads(text) if text.startswith(("{", "[")) else text


def test_tau_results_belong_to_their_calls(tau: Path) -> None:
    found: dict[tuple[str, int], list[tuple[str, Any, Any]]] = {}
    steps = (
        "SELECT task_id, trial, tool_name, arguments, observation FROM steps WHERE kind = 'tool' ORDER BY step_index"
    )
    for task, trial, tool, arguments, observation in rows(tau, steps):
        seen = None if observation is None else json.loads(observation)
        found.setdefault((task, trial), []).append((tool, json.loads(arguments), seen))
    runs = {(str(run["task_id"]), run["trial"]): _calls(run) for run in tau_runs()}
    repeated = sum(
        max(Counter(m["tool_call_id"] for m in run["traj"] if m["role"] == "tool").values(), default=0) > 1
        for run in tau_runs()
    )
    assert repeated == TRUTH["trajectories_with_a_reused_tool_call_id"]
    for key, calls in runs.items():
        assert found.get(key, []) == calls


def test_tau_published_row_is_met(tau: Path) -> None:
    measurements = json.loads((tau.parent / "out.json").read_text(encoding="utf-8"))["measurements"]
    estimates = {m["dimensions"]["k"]: m for m in measurements if m["metric"] == "pass_hat_k"}
    assert {str(k): round(m["value"], PUBLISHED["decimals"]) for k, m in estimates.items()} == PUBLISHED["pass^k"]
    # A run with a reward in its transcript and a row in the table counts once.
    assert {(m["n"], m["n_not_evaluable"]) for m in estimates.values()} == {(50, 0)}
    with (TAU / "outcomes.csv").open(encoding="utf-8", newline="") as file:
        included = [row for row in csv.DictReader(file) if row["trajectory_included"] == "1"]
    (completed,) = [m for m in measurements if m["metric"] == "task_completion_rate"]
    assert completed["n"] == len(included)
    assert completed["value"] == pytest.approx(sum(float(row["reward"]) for row in included) / len(included))


# ToolBench: real runs that call tools which they were not offered


@pytest.fixture(scope="module")
def tools_called(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toolbench")
    lines = "".join(json.dumps(run) + "\n" for run in toolbench.transcripts())
    (folder / "runs.jsonl").write_text(lines, encoding="utf-8")
    options = ["--db", str(folder / "toolbench.duckdb")]
    assert main(["import", str(folder / "runs.jsonl"), *options]) == PASSED
    judged = ["evaluate", *options, "--only", "tool_hallucination", "--format", "json"]
    assert main([*judged, "--output", str(folder / "out.json")]) == FAILED
    return folder / "toolbench.duckdb"


def test_toolbench_calls_are_all_there(tools_called: Path) -> None:
    truth: Json = json.loads((toolbench.DATA / "truth.json").read_text(encoding="utf-8"))["evalset_total"]
    counted = "SELECT count(*), count(*) FILTER (tool_name = 'Finish') FROM steps WHERE kind = 'tool'"
    assert rows(tools_called, counted) == [(truth["tool_calls_total"], truth["finish_calls"])]
    assert rows(tools_called, "SELECT count(*) FROM trajectories") == [(truth["trajectories"],)]


def test_toolbench_calls_of_tools_that_were_not_offered_are_found(tools_called: Path) -> None:
    truth: Json = json.loads((toolbench.DATA / "truth.json").read_text(encoding="utf-8"))["evalset_total"]
    offered = {run["task_id"]: [tool["name"] for tool in run["tools"]] for run in toolbench.transcripts()}
    invented = Counter(
        (run["task_id"], call["function"]["name"])
        for run in toolbench.transcripts()
        for message in run["messages"]
        for call in message.get("tool_calls", [])
        if call["function"]["name"] not in offered[run["task_id"]]
    )
    tasks = dict(rows(tools_called, "SELECT trajectory_id, task_id FROM trajectories"))
    findings = json.loads((tools_called.parent / "out.json").read_text(encoding="utf-8"))["findings"]
    unknown = [finding for finding in findings if finding["kind"] == "unknown_tool"]
    assert Counter((tasks[finding["trajectory_id"]], finding["tool_name"]) for finding in unknown) == invented
    assert len(unknown) == truth["calls_to_tools_not_offered"]
    assert len({finding["trajectory_id"] for finding in unknown}) == truth["trajectories_with_such_a_call"]
    assert {finding["kind"] for finding in findings if finding["severity"] == "error"} == {"unknown_tool"}
    # The environment takes the ending of a name for the name; the finding says so by naming tools that end like that.
    endings = 0
    for finding in unknown:
        of_that_ending = [
            name for name in offered[tasks[finding["trajectory_id"]]] if name.endswith(finding["tool_name"])
        ]
        endings += bool(of_that_ending)
        if of_that_ending:
            meant = finding["evidence"]["meant"]
            assert meant
            assert all(name.endswith(finding["tool_name"]) for name in meant)
    assert endings == truth["of_them_accepted_by_suffix_rule"]
