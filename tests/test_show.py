"""`agenttrace list` and `agenttrace show` over stores with known rows."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.cells import cell_len

from agenttrace import show
from agenttrace.errors import UsageError
from agenttrace.store import open_store

Fill = Callable[..., Path]

T0 = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
RUN = {"trajectory_id": "abc123", "trace_id": "def456", "agent_name": "restock", "user_input": "order rice"}


def step(span_id: str, parent: str | None = None, *, second: int = 0, **values: object) -> dict[str, object]:
    row: dict[str, object] = {
        "trajectory_id": "abc123",
        "span_id": span_id,
        "parent_span_id": parent,
        "kind": "tool",
        "tool_name": span_id,
        "start_time": T0 + timedelta(seconds=second),
    }
    return row | values


def shown(store: Path, run: str | None = None) -> list[str]:
    with open_store(store) as connection:
        return show.show_run(connection, show.find_run(connection, run)).split("\n")


def listed(store: Path, limit: int = 50) -> tuple[list[str], int]:
    with open_store(store) as connection:
        text, total = show.list_runs(connection, limit)
    return text.split("\n"), total


def test_run_is_a_tree_in_order_of_time(fill_store: Fill):
    store = fill_store(
        trajectories=[RUN],
        steps=[
            step("s1", kind="agent", agent_name="restock"),
            step("s4", "s1", second=3, step_index=2, tool_name="later"),
            step("s2", "s1", second=1, step_index=0, tool_name="first", arguments='{"qty": 40, "item": "rice"}'),
            step("s3", "s2", second=2, step_index=1, tool_name="inside"),
        ],
    )
    tree = [line for line in shown(store) if line.startswith(("agent", "├", "└", "│"))]
    assert tree == [
        "agent restock",
        '├─ 0 tool first(qty=40, item="rice")',
        "│  └─ 1 tool inside(...)",
        "└─ 2 tool later(...)",
    ]


@pytest.mark.parametrize("width", [40, 41, 60, 80, 200])
def test_every_line_fits_and_every_step_is_told(fill_store: Fill, width: int):
    wide = "飯🍚" * 200
    steps = [
        step(f"s{i:02}", f"s{i - 1:02}" if i else None, second=i, step_index=i, observation=json.dumps(wide))
        for i in range(40)
    ]
    facts = {"session_id": wide, "task_id": "t" * 90, "final_response": "word " * 200, "user_input": wide}
    finding = {"trajectory_id": "abc123", "span_id": "s01", "evaluator": "duplicate_mutations", "kind": "k" * 50}
    store = fill_store(
        trajectories=[RUN | facts],
        steps=steps,
        evaluation_runs=[{}],
        findings=[finding | {"severity": "error", "message": wide}],
    )
    with open_store(store) as connection:
        lines = show.show_run(connection, show.find_run(connection, None), width=width).split("\n")
    assert max(map(cell_len, lines)) <= width
    for number in range(40):
        assert sum(f" {number} tool s{number:02}" in line for line in lines) == 1 or number == 0
    # Long texts go on below, up to 400 columns of them.
    text = "".join(line.strip() for line in lines)
    assert text.count("word") > 70


def test_findings_stand_at_their_step_and_below(fill_store: Fill):
    store = fill_store(
        trajectories=[RUN],
        steps=[step("s1", step_index=0), step("s2", second=1, step_index=1)],
        evaluation_runs=[{}],
        findings=[
            {
                "trajectory_id": "abc123",
                "span_id": "s2",
                "evaluator": "duplicate_mutations",
                "kind": "confirmed",
                "severity": "error",
                "message": "ran twice",
            }
        ],
    )
    lines = shown(store)
    at = lines.index("1 tool s2(...)")
    assert lines[at + 1].strip() == "ERROR duplicate_mutations/confirmed"
    assert lines[-2:] == ["error  duplicate_mutations/confirmed at step 1", "  ran twice"]


def test_findings_are_those_of_each_evaluators_last_evaluation_of_the_run(fill_store: Fill):
    def finding(run_id: str, evaluator: str) -> dict[str, object]:
        row = {"trajectory_id": "abc123", "kind": "k", "severity": "error", "message": f"of {run_id}"}
        return row | {"run_id": run_id, "evaluator": evaluator}

    both = '{"a": "1", "b": "1"}'
    store = fill_store(
        trajectories=[RUN],
        evaluation_runs=[
            {"run_id": "first", "evaluator_versions": both},
            # Only `a`, and later: the findings of `b` still stand.
            {"run_id": "second", "evaluator_versions": '{"a": "1"}', "started_at": T0 + timedelta(hours=1)},
            # Of other runs: says nothing about this one.
            {
                "run_id": "third",
                "evaluator_versions": both,
                "started_at": T0 + timedelta(hours=2),
                "since": T0 + timedelta(hours=1),
            },
        ],
        findings=[finding("first", "a"), finding("first", "b"), finding("second", "a")],
    )
    assert [line.strip() for line in shown(store) if line.startswith("  of ")] == ["of second", "of first"]


def test_run_without_evaluation_says_how_to_judge_it(fill_store: Fill):
    assert shown(fill_store(trajectories=[RUN]))[-1] == "not judged yet: agenttrace evaluate does that"


def test_judged_run_without_findings_says_so(fill_store: Fill):
    assert shown(fill_store(trajectories=[RUN], evaluation_runs=[{}]))[-1] == "no findings"


def test_duplicates_are_left_out_and_their_children_kept(fill_store: Fill):
    store = fill_store(
        trajectories=[RUN],
        steps=[
            step("s1", step_index=0),
            step("s2", "s1", second=1, duplicate_of="s1"),
            step("s3", "s2", second=2, step_index=1),
        ],
    )
    lines = shown(store)
    assert "└─ 1 tool s3(...)" in lines
    assert not any("s2" in line for line in lines)


@pytest.mark.parametrize("parents", [{"s1": "s1"}, {"s1": "s2", "s2": "s1"}, {"s1": "s3", "s2": "s1", "s3": "s2"}])
def test_cycle_of_parents_loses_no_step(fill_store: Fill, parents: dict[str, str]):
    steps = [step(span_id, parent, step_index=i) for i, (span_id, parent) in enumerate(parents.items())]
    lines = shown(fill_store(trajectories=[RUN], steps=[*steps, step("s9", "s1", second=1, step_index=9)]))
    for span_id in (*parents, "s9"):
        assert sum(f"tool {span_id}(...)" in line for line in lines) == 1


def test_missing_parent_makes_a_root(fill_store: Fill):
    assert "0 tool s1(...)" in shown(fill_store(trajectories=[RUN], steps=[step("s1", "gone", step_index=0)]))


def test_deep_run_is_shown_without_recursion(fill_store: Fill):
    steps = [step(f"s{i:03}", f"s{i - 1:03}" if i else None, second=i, step_index=i) for i in range(450)]
    lines = shown(fill_store(trajectories=[RUN], steps=steps))
    assert sum("tool s" in line for line in lines) == 450
    assert max(map(len, lines)) <= 200


def test_long_run_is_cut_and_says_so(fill_store: Fill):
    steps = [step(f"s{i:03}", second=i, step_index=i) for i in range(show.MAX_STEPS + 1)]
    lines = shown(fill_store(trajectories=[RUN], steps=steps))
    assert sum(" tool s" in line for line in lines) == show.MAX_STEPS
    assert any(f"only the first {show.MAX_STEPS} steps" in line for line in lines)


def test_model_step_tells_thought_requests_and_tokens(fill_store: Fill):
    calls = json.dumps([{"id": "c1", "name": "place_order", "arguments": {"item": "rice"}}, {"name": "pay"}])
    store = fill_store(
        trajectories=[RUN],
        steps=[
            step(
                "s1",
                kind="model",
                step_index=0,
                model="gpt-4o",
                thought="stock first",
                requested_tool_calls=calls,
                input_tokens=1204,
                output_tokens=88,
                cost_usd=0.0041,
                duration_ms=812.4,
            )
        ],
    )
    lines = [line.strip() for line in shown(store)]
    assert "0 model gpt-4o  812 ms  1,204 -> 88 tokens  $0.0041" in lines
    assert {"thought: stock first", 'asks for place_order(item="rice")', "asks for pay(...)"} <= set(lines)


def test_unreadable_requests_do_not_stop_the_show(fill_store: Fill):
    store = fill_store(trajectories=[RUN], steps=[step("s1", kind="model", requested_tool_calls='[{"no": "name"}]')])
    assert any("calls that cannot be read" in line for line in shown(store))


def test_failed_tool_says_how_and_what_is_unknown(fill_store: Fill):
    store = fill_store(
        trajectories=[RUN],
        steps=[
            step(
                "s1",
                step_index=0,
                tool_name="pay",
                status="timeout",
                mutability="mutating",
                effect="unknown",
                duration_ms=5000.0,
                error_type="TimeoutError",
                error_message="no answer",
                error_source="span",
            )
        ],
    )
    lines = [line.strip() for line in shown(store)]
    assert "0 tool pay(...)  TIMEOUT  mutating, effect unknown  5 s" in lines
    assert "TimeoutError: no answer" in lines


def test_hostile_content_is_inert(fill_store: Fill):
    evil = "\x1b[2J\x07\u202e\u2066\x9b31m\r\nforged"
    values = {"thought": evil, "error_message": evil, "error_type": evil, "observation": json.dumps(evil), "name": evil}
    store = fill_store(
        trajectories=[RUN | {"user_input": evil, "final_response": evil, "agent_name": evil, "session_id": evil}],
        steps=[step("s1", tool_name=evil, arguments=json.dumps({evil: evil}), **values)],
        evaluation_runs=[{}],
        findings=[
            {"trajectory_id": "abc123", "span_id": "s1", "severity": "error", "message": evil}
            | {"evaluator": "duplicate_mutations", "kind": evil}
        ],
    )
    for lines in (shown(store), listed(store)[0]):
        text = "\n".join(lines)
        assert not set(text) & set("\x1b\x07\u202e\u2066\x9b\r")
        assert not any(line.startswith("forged") for line in lines)


def test_prefix_of_run_or_trace_finds_the_run(fill_store: Fill):
    store = fill_store(trajectories=[RUN, RUN | {"trajectory_id": "abd999", "trace_id": "fff"}])
    for prefix in ("abc", "DEF4", " abc123 "):
        assert shown(store, prefix)[0].startswith("run abc123")


def test_last_is_the_newest_run(fill_store: Fill):
    newer = RUN | {"trajectory_id": "newer", "start_time": T0 + timedelta(minutes=1)}
    assert shown(fill_store(trajectories=[newer, RUN, RUN | {"trajectory_id": "x", "start_time": None}]))[0].startswith(
        "run newer"
    )


@pytest.mark.parametrize(
    ("prefix", "message"),
    [("zzz", "no run's id begins with 'zzz'"), ("ab", "several runs or their traces begin: abc123, abd999")],
)
def test_unknown_or_ambiguous_id_is_refused(fill_store: Fill, prefix: str, message: str):
    store = fill_store(trajectories=[RUN, RUN | {"trajectory_id": "abd999"}])
    with pytest.raises(UsageError, match=message):
        shown(store, prefix)


def test_whole_id_goes_before_longer_ones(fill_store: Fill):
    store = fill_store(trajectories=[RUN, RUN | {"trajectory_id": "abc1234"}])
    assert shown(store, "abc123")[0].startswith("run abc123 ")


def test_last_of_nothing_is_refused(fill_store: Fill):
    with pytest.raises(UsageError, match="holds no runs"):
        shown(fill_store())


def test_list_is_newest_first_and_counts_all(fill_store: Fill):
    runs = [RUN | {"trajectory_id": f"run{i}", "start_time": T0 + timedelta(minutes=i)} for i in range(3)]
    lines, total = listed(fill_store(trajectories=runs), limit=2)
    assert total == 3
    assert [line.split()[0] for line in lines] == ["RUN", "run2", "run1"]


def test_list_tells_numbers_with_units_and_gaps(fill_store: Fill):
    run = RUN | {
        "task_id": "task-17",
        "trial": 3,
        "tool_call_count": 6,
        "error_count": 2,
        "total_tokens": 3210,
        "cost_usd": 0.0123,
        "unpriced_model_calls": 1,
        "duration_ms": 4200.0,
        "complete": False,
    }
    (_, line), _ = listed(fill_store(trajectories=[run]))
    for part in ("2026-01-31 18:00:00", "task-17 #3", "3,210", "$0.0123 + 1 unpriced", "4.2 s", "open", "order rice"):
        assert part in line


def test_list_marks_what_was_not_recorded(fill_store: Fill):
    (_, line), _ = listed(fill_store(trajectories=[{"trajectory_id": "abc123", "start_time": None}]))
    assert line.split() == ["abc123", "-", "-", "-", "0", "0", "-", "-", "-", "complete", "-"]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (None, "-"),
        (0, "0 ms"),
        (0.25, "0.25 ms"),
        (999.4, "999 ms"),
        (1000, "1 s"),
        (119_000, "119 s"),
        (120_000, "2 min"),
        (7_200_000, "2 h"),
        (360_000_000, "100 h"),
    ],
)
def test_duration_takes_the_unit_that_reads_best(milliseconds: float | None, text: str):
    assert show.duration(milliseconds) == text
