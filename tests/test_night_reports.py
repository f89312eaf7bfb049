"""A night in every format: what is new, what is resolved, what did not arrive."""

import json as stdlib_json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_reports import EVALUATION, EVIL, finding, page

from agenttrace.evaluators.reports import github, json, junit, lines, markdown, sarif, summary, table
from agenttrace.evaluators.results import Evaluation, Fault, Measurement, Night

Fill = Callable[..., Path]
T0 = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
TEXTUAL = [table, json, markdown, github, junit, sarif]

OIL = Fault(
    fingerprint="p7",
    state="resolved",
    quiet_nights=3,
    last_seen="2026-01-20",
    evaluator="duplicate_mutations",
    kind="confirmed",
    severity="error",
    service_name=None,
    agent_name="shop",
    task_id="t1",
    tool_name="place_order",
    finding_id="f7",
    trajectory_id="r7",
    message="place_order(item=oil) ran twice",
)
NIGHT = Night(
    date="2026-01-31",
    timezone="Europe/Berlin",
    previous="2026-01-30",
    arrived_until="2026-02-01T01:59:00+00:00",
    seen=60,
    fresh=60,
    sample=0.05,
    open=2,
    withdrawn=1,
    silent=[("cook", 40.0)],
    resolved=[OIL],
)
JUDGED = replace(
    EVALUATION,
    findings=[
        finding(1, state="new"),
        finding(2, state="new"),
        finding(3, state="back", fingerprint="p3"),
        finding(4, state="known", fingerprint="p4", severity="warning"),
    ],
    night=NIGHT,
)
EMPTY = replace(
    JUDGED,
    run=JUDGED.run | {"trajectories": 0},
    passed=None,
    findings=[],
    measurements=[],
    not_evaluable=[],
    gate=[],
    night=NIGHT._replace(seen=0, fresh=0, open=0, sample=None, resolved=[], silent=[], withdrawn=0),
)


def test_faults_are_counted_by_state_and_not_by_finding() -> None:
    assert summary.news(JUDGED) == [
        "since the night of 2026-01-30: 1 new fault, 1 back, 1 known, 1 resolved",
        "a sample of 0.05: 3 of 60 runs",
        "2 runs not ended yet, to be judged in a later night",
        "1 fault of earlier nights withdrawn: more of their runs has arrived",
    ]
    first = replace(JUDGED, night=NIGHT._replace(previous=None, sample=None, open=0, withdrawn=0))
    assert summary.news(first) == ["the first night: no other to compare with"]
    assert summary.news(EVALUATION) == summary.alarms(EVALUATION) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "nothing has arrived since 2026-02-01 01:59 UTC"),
        ({"open": 1}, "1 run not ended yet, nothing has arrived since 2026-02-01 01:59 UTC"),
        ({"seen": 9}, "none of 9 runs is in the sample"),
        ({"arrived_until": None}, "nothing has ever arrived"),
    ],
)
def test_a_night_without_runs_says_why(changes: dict[str, Any], said: str) -> None:
    evaluation = replace(EMPTY, night=EMPTY.night and EMPTY.night._replace(**changes))
    assert summary.verdict_line(evaluation) == f"NOT EVALUABLE: night of 2026-01-31, {said}"


@pytest.mark.parametrize("report", TEXTUAL)
def test_every_format_tells_states_and_alarms(report: Any) -> None:
    text = report.render(JUDGED)
    assert "cook" in text or report is sarif
    assert "place_order(item=oil) ran twice" in text or report in (github, junit)
    assert "PASSED" not in report.render(EMPTY)
    assert "nothing has arrived since 2026-02-01" in report.render(EMPTY) or report is json


def test_the_table_and_annotations_name_the_state() -> None:
    assert table.render(JUDGED).split("\n")[0] == "error    duplicate_mutations/confirmed  run abc123  new"
    assert "- `back duplicate_mutations/confirmed` in run" in markdown.render(JUDGED)
    assert "::error title=new duplicate_mutations/confirmed::" in github.render(JUDGED)
    assert "::warning title=arrival::agent cook has not run, which ran 40 times a night" in github.render(JUDGED)
    assert github.render(EMPTY).startswith("::error title=arrival::nothing has arrived since")


def test_junit_fails_an_empty_night_and_skips_a_silent_agent() -> None:
    def night(evaluation: Evaluation) -> list[str]:
        [suite] = [suite for suite in ET.fromstring(junit.render(evaluation)) if suite.attrib["name"] == "night"]
        return [part.tag for case in suite for part in case] or ["passed"]

    assert night(JUDGED) == ["skipped"]
    assert night(EMPTY) == ["failure"]
    assert night(replace(JUDGED, night=NIGHT._replace(silent=[]))) == ["passed"]


def test_sarif_says_what_is_new_and_what_is_gone() -> None:
    [run] = stdlib_json.loads(sarif.render(JUDGED))["runs"]
    states = [result.get("baselineState") for result in run["results"]]
    assert states == ["new", "new", "new", "unchanged", "absent"]
    [run] = stdlib_json.loads(sarif.render(EVALUATION))["runs"]
    assert all("baselineState" not in result for result in run["results"])


def test_json_holds_the_night() -> None:
    found = stdlib_json.loads(json.render(JUDGED))
    assert next(iter(found)) == "night"
    assert found["night"]["silent"] == [["cook", 40.0]]
    assert [each["state"] for each in found["night"]["resolved"]] == ["resolved"]
    assert "night" not in stdlib_json.loads(json.render(EVALUATION))


@pytest.mark.parametrize("report", TEXTUAL)
def test_hostile_names_of_a_night_reach_no_terminal(report: Any) -> None:
    night = NIGHT._replace(
        silent=[(EVIL, 1.0)], timezone=EVIL, resolved=[OIL._replace(message=EVIL, kind=EVIL, agent_name=EVIL)]
    )
    text = report.render(replace(JUDGED, night=night))
    assert not set(text) & set("\x1b\x00\u202e\r")


# --- the page


def told_page(fill_store: Fill, evaluation: Evaluation, **tables: Any) -> str:
    return page(evaluation, fill_store(**tables))


def a_run(run: str, **values: object) -> dict[str, object]:
    return {"trajectory_id": run, "agent_name": "restock", "duration_ms": 1000.0} | values


def a_call(run: str, number: int, begin_ms: int, **values: object) -> dict[str, object]:
    return {
        "trajectory_id": run,
        "span_id": f"s{number}",
        "kind": "tool",
        "tool_name": f"tool{number}",
        "step_index": number,
        "start_time": T0 + timedelta(milliseconds=begin_ms),
        "duration_ms": 100.0,
        "parent_span_id": "root",
    } | values


def test_a_fault_is_told_once_with_its_runs(fill_store: Fill) -> None:
    findings = [finding(n, trajectory_id=f"run{n}", state="new") for n in range(5)]
    findings.append(
        finding(9, trajectory_id="run0", fingerprint="p2", kind="key_reuse", severity="warning", state="known")
    )
    text = told_page(
        fill_store,
        replace(EVALUATION, findings=findings, night=NIGHT),
        trajectories=[a_run(f"run{n}", task_id="t1") for n in range(5)],
        steps=[a_call(f"run{n}", 2, 0) for n in range(5)],
    )
    assert text.count('class="card fault-card') == 2
    assert text.index('data-severity="error" data-state="new"') < text.index(
        'data-severity="warning" data-state="known"'
    )
    assert "5 findings in 5 runs, agent restock, task t1" in text
    assert text.count("<article") == 3
    assert "2 other runs with this fault" in text
    # Its run is told with the first fault.
    assert '<a href="#run-1"><code>run0</code></a>' in text
    assert "1 fault not seen for long enough" in text
    assert '<p class="alarm" role="alert">agent cook has not run' in text


def test_calls_side_by_side_are_one_row_with_bars(fill_store: Fill) -> None:
    text = told_page(
        fill_store,
        replace(EVALUATION, findings=[finding(span_id="s1", related_span_ids=[])]),
        trajectories=[a_run("abc123", start_time=T0)],
        steps=[a_call("abc123", 1, 0), a_call("abc123", 2, 50), a_call("abc123", 3, 500), a_call("abc123", 4, 700)],
    )
    assert text.count("calls side by side") == 1
    lanes = text.partition('<ol class="lanes">')[2].partition("</ol>")[0]
    assert [name in lanes for name in ("tool1", "tool2", "tool3", "tool4")] == [True, True, False, False]
    assert '<rect x="50.0" y="0" width="10.0" height="4"/>' in text


def test_trends_show_what_earlier_nights_measured(fill_store: Fill) -> None:
    runs: list[dict[str, object]] = [
        {"run_id": f"n{day}", "night": f"2026-01-{day}", "started_at": T0, "trajectories": 10 * day}
        for day in (29, 30, 31)
    ]
    text = told_page(
        fill_store,
        JUDGED,
        evaluation_runs=[*runs, {"run_id": "later", "night": "2026-02-05"}, {"run_id": "other"}],
        findings=[
            {"finding_id": str(n), "run_id": f"n{day}", "evaluator": "e", "kind": "k", "severity": "error"}
            for n, day in enumerate((29, 31, 31))
        ],
        judgements=[
            {"run_id": f"n{day}", "trajectory_id": f"{day}-{n}", "revision": 0, "judged": n < 2, "is_new": True}
            for day in (29, 30, 31)
            for n in range(day - 27)
        ],
    )
    assert "The last 3 nights" in text
    assert 'aria-label="Findings in findings: error 01-29 1 to 01-31 2"' in text
    assert 'aria-label="Runs judged in runs: Runs judged 01-29 2 to 01-31 2"' in text
    assert "02-05" not in text
    assert "The last" not in told_page(fill_store, EVALUATION, evaluation_runs=runs)


def test_pass_hat_k_is_a_curve_with_its_interval(fill_store: Fill) -> None:
    measured = [Measurement("pass_hat_k", {"k": k}, 1 / k, "ratio", 5, 0, 0.1, 1.0) for k in (1, 2, 3)]
    text = told_page(fill_store, replace(EVALUATION, measurements=measured))
    assert 'aria-label="Tasks passed in k trials in share: all of them (pass^k) 1 1 to 3 0.333"' in text
    assert '<polygon class="band s1"' in text
    assert "Tasks passed" not in told_page(fill_store, replace(EVALUATION, measurements=measured[:1]))


def test_agents_tasks_and_models_have_their_percentiles(fill_store: Fill) -> None:
    text = told_page(
        fill_store,
        EVALUATION,
        trajectories=[a_run("r1", task_id="t1", cost_usd=0.25), a_run("r2", duration_ms=3000.0)],
        steps=[a_call("r1", 1, 0, kind="model", tool_name=None, model="gpt-4o", cost_usd=0.2, duration_ms=80.0)],
    )
    rows = [row.partition("</tr>")[0] for row in text.split("<tr data-find><td>")[1:]]
    cells = [[cell.rpartition(">")[2] for cell in row.split("</td>")[:-1]] for row in rows]
    assert cells[0][:4] == ["restock", "2", "2 s", "2.9 s"]
    assert cells[1][:6] == ["t1", "1", "1 s", "1 s", "1 s", "$0.2500"]
    assert cells[2][:3] == ["gpt-4o", "1", "80 ms"]


_VALUES = st.none() | st.floats(0, 1e9)


@given(
    st.integers(1, 40).flatmap(
        lambda size: st.tuples(
            st.lists(st.builds(lines.Point, _VALUES, _VALUES, _VALUES), min_size=size, max_size=size),
            st.lists(
                st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S"]), max_size=9),
                min_size=size,
                max_size=size,
            ),
        )
    ),
    st.sampled_from(["usd", "ms", "tokens", "share", "runs"]),
)
def test_a_line_chart_is_well_formed_and_stays_inside(drawn: tuple[list[lines.Point], list[str]], unit: str) -> None:
    points, labels = drawn
    root = ET.fromstring(
        str(lines.svg(lines.Chart("T", unit, labels, [lines.Line("a", points), lines.Line("b", points, "s1")])))
    )
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    dots = [dot for dot in root.iter("circle") if len(dot)]
    assert len(dots) == 2 * sum(point.value is not None for point in points)
    for dot in dots:
        assert 0 <= float(dot.attrib["cx"]) <= width
        assert 0 <= float(dot.attrib["cy"]) <= height
