"""An evaluation in every format: right, bounded, and inert whatever a trace holds."""

import base64
import hashlib
import json as stdlib_json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttrace import markdown as inert_markdown
from agenttrace.evaluators.reports import charts, github, html, json, junit, markdown, sarif, summary, table, timeline
from agenttrace.evaluators.results import Evaluation, Finding, Measurement, NotEvaluable
from agenttrace.store import open_store

Fill = Callable[..., Path]

T0 = datetime(2026, 1, 31, 18, 0, tzinfo=UTC)
EVIL = (
    "\x1b[2J\x00\u202e</style></script><script>alert(1)</script><img src=x onerror=alert(1)>'\" onload=x `` ``` "
    "@everyone [x](javascript:alert(1)) | #1 %0A::error::forged\r\n::error::forged\n# forged {{ 7*7 }} {% raw %} "
    "\ud800 ]]> \ufffe"
)
RUN: dict[str, Any] = {
    "run_id": "8c1f00aa12345678",
    "label": "nightly",
    "started_at": "2026-02-01T02:00:00+00:00",
    "finished_at": "2026-02-01T02:00:04.123+00:00",
    "since": None,
    "until": None,
    "trajectories": 3,
    "passed": False,
    "config_hash": "ab12",
    "evaluator_versions": {"duplicate_mutations": "v1", "budget_overruns": "v1"},
}


def finding(number: int = 1, **values: Any) -> Finding:
    found = Finding(
        finding_id=f"f{number}",
        fingerprint="p1",
        evaluator="duplicate_mutations",
        kind="confirmed",
        severity="error",
        state=None,
        trajectory_id="abc123",
        trace_id="t1",
        span_id="s2",
        related_span_ids=["s1"],
        tool_name="place_order",
        message="place_order(item=rice) ran twice",
        evidence={},
    )
    return found._replace(**values)


def quantiles(metric: str, unit: str, values: list[float | None], **group: str) -> list[Measurement]:
    names = ("p50", "p95", "max")
    return [
        Measurement(metric, {**group, "quantile": name}, value, unit, 3, 1, None, None)
        for name, value in zip(names, values, strict=True)
    ]


EVALUATION = Evaluation(
    run=RUN,
    passed=False,
    findings=[finding(), finding(2, severity="warning", kind="unverified_retry", trajectory_id="def456")],
    measurements=[
        *quantiles("cost_usd", "usd", [0.001, 0.02, None]),
        *quantiles("latency_ms", "ms", [12, 3500, 150_000], agent="restock"),
        Measurement("duplicate_mutation_rate", {}, 0.25, "ratio", 3, 0, 0.1, 0.5),
    ],
    not_evaluable=[NotEvaluable("tool_hallucination", "unknown_tool", f"r{i}", "no tools listed") for i in range(2)],
    gate=[
        {"threshold": "safety_violation_rate", "value": 0.25, "n": 3, "min": None, "max": 0.0}
        | {"gate": "hard", "passed": False, "reason": "0.25 is above 0"},
        {"threshold": "latency_ms.p95", "value": None, "n": 0, "min": None, "max": 3500.0}
        | {"gate": "soft", "passed": None, "reason": "not measured in this evaluation"},
    ],
)
NOTHING = Evaluation(run=RUN | {"trajectories": 0, "passed": None}, passed=None)
HOSTILE = Evaluation(
    run=RUN | {"label": EVIL},
    passed=False,
    findings=[
        finding(
            1, message=EVIL, kind=EVIL, tool_name=EVIL, trajectory_id=EVIL, state=EVIL, evidence={EVIL: float("nan")}
        ),
        finding(2, message=EVIL, trajectory_id=None),
    ],
    measurements=[
        *quantiles("cost_usd", "usd", [1, 2, 3], agent=EVIL),
        Measurement("rate", {"agent": EVIL}, 1, "ratio", 1, 0, None, None),
    ],
    not_evaluable=[NotEvaluable("tool_hallucination", EVIL, None, EVIL)],
    cases=[
        {"case_id": EVIL, "passed": None, "reason": EVIL},
        {"case_id": EVIL * 2, "passed": False, "findings": ["f1"], "failed_runs": 1, "runs": 1},
        {"case_id": EVIL * 3, "passed": True},
    ],
    gate=[
        {
            "threshold": EVIL,
            "value": 1.0,
            "n": 1,
            "min": 2.0,
            "max": None,
            "gate": "hard",
            "passed": False,
            "reason": EVIL,
        }
    ],
)
TEXTUAL = [table, json, markdown, github, junit, sarif]


def page(evaluation: Evaluation, store: Path) -> str:
    with open_store(store) as connection:
        return html.render(evaluation, connection)


def runs_and_steps(**step: object) -> dict[str, list[dict[str, object]]]:
    run: dict[str, object] = {
        "trajectory_id": "abc123",
        "agent_name": "restock",
        "user_input": "order rice",
        "final_response": "done",
        "total_tokens": 100,
        "cost_usd": 0.01,
        "duration_ms": 1000.0,
    }
    steps = [
        {"trajectory_id": "abc123", "span_id": f"s{i}", "kind": "tool", "tool_name": "place_order", "step_index": i}
        | {"start_time": T0 + timedelta(seconds=i), "arguments": '{"item": "rice"}', "observation": '{"id": "o-1"}'}
        | step
        for i in range(3)
    ]
    return {"trajectories": [run], "steps": steps}


# The verdict


def test_verdict_line_tells_what_it_rests_on():
    assert summary.verdict_line(EVALUATION) == (
        "FAILED: 3 runs, 1 error, 1 warning, 2 verdicts not possible, 1 threshold missed"
    )
    assert (
        summary.verdict_line(replace(NOTHING, passed=True, run=RUN | {"trajectories": 1}))
        == "PASSED: 1 run, no findings"
    )


def test_nothing_evaluable_never_reads_as_passed():
    for report in TEXTUAL:
        assert "PASSED" not in report.render(NOTHING)
    assert summary.verdict_line(NOTHING) == "NOT EVALUABLE: 0 runs, no findings"
    assert stdlib_json.loads(json.render(NOTHING))["passed"] is None


# Text formats


def test_table_ends_with_the_verdict_and_holds_the_numbers():
    lines = table.render(EVALUATION).split("\n")
    assert lines[0] == "error    duplicate_mutations/confirmed  run abc123"
    assert lines[1].strip() == "place_order(item=rice) ran twice"
    assert lines[-1].startswith("FAILED: 3 runs")
    text = "\n".join(" ".join(line.split()) for line in lines)
    assert "cost_usd all runs 3 (+1 unknown) $0.0010 $0.0200 -" in text
    assert "latency_ms agent restock 3 (+1 unknown) 12 ms 3.5 s 2.5 min" in text
    assert "duplicate_mutation_rate all runs 3 0.25 0.1 to 0.5" in text
    assert "2 x tool_hallucination/unknown_tool: no tools listed" in text
    assert "safety_violation_rate: 0.25 (max 0, hard, n 3): missed: 0.25 is above 0" in text
    assert "latency_ms.p95: - (max 3500, soft, n 0): not evaluable (not measured in this evaluation)" in text


@pytest.mark.parametrize(("trials", "shown"), [(1, [1]), (2, [1, 2]), (4, [1, 3, 4]), (5, [1, 3, 5]), (10, [1, 3, 5])])
def test_of_pass_at_k_a_few_are_shown(trials: int, shown: list[int]):
    measured = [Measurement("pass_at_k", {"k": k}, 1.0, "ratio", 2, 0, None, None) for k in range(1, trials + 1)]
    evaluation = replace(EVALUATION, measurements=measured)
    assert [row.dimensions["k"] for row in summary.numbers(evaluation)] == shown
    assert len(stdlib_json.loads(json.render(evaluation))["measurements"]) == trials


def a_case(case_id: str, passed: bool | None, *, failed: int = 0, findings: tuple[str, ...] = ()) -> dict[str, Any]:
    counts = {"runs": 3, "passed_runs": 3 - failed, "failed_runs": failed, "not_evaluable_runs": 0}
    reason = "no run with that task_id" if passed is None else None
    return {"case_id": case_id, **counts, "passed": passed, "reason": reason, "checks": {}, "findings": [*findings]}


CASES = replace(
    EVALUATION,
    cases=[a_case("idle", None), a_case("good", True), a_case("bad", False, failed=1, findings=("f1", "f1"))],
)


def test_cases_that_did_not_pass_are_named_with_the_reason(fill_store: Fill):
    failed = "1 of 3 runs: duplicate_mutations/confirmed"
    assert summary.open_cases(CASES) == [
        summary.OpenCase("bad", "failed", failed),
        summary.OpenCase("idle", "not evaluable", "no run with that task_id"),
    ]
    assert summary.verdict_line(CASES).endswith(", 1 of 3 cases passed, 1 threshold missed")
    assert f"  failed         bad: {failed}\n  not evaluable  idle: no run with" in table.render(CASES)
    assert f"- failed: `bad`: `{failed}`\n- not evaluable: `idle`: `no run with" in markdown.render(CASES)
    shown = page(CASES, fill_store(**runs_and_steps()))
    assert "1 of 3 cases passed." in shown
    assert f"<td>{failed}</td>" in shown
    assert "<td>good</td>" not in shown
    for render in (table.render, markdown.render):
        assert "cases that" not in render(EVALUATION).lower()


def test_junit_has_a_test_for_each_case():
    suites = {suite.attrib["name"]: suite for suite in ET.fromstring(junit.render(CASES))}
    assert {case.attrib["name"]: [part.tag for part in case] for case in suites["cases"]} == {
        "bad": ["failure"],
        "idle": ["skipped"],
        "good": [],
    }
    assert "cases" not in junit.render(EVALUATION)


UNRULED = replace(
    EVALUATION,
    not_evaluable=[
        *EVALUATION.not_evaluable,
        NotEvaluable("budget_overruns", "no_rule", None, "no rule for this run: [budgets] in agenttrace.toml (3 runs)"),
        NotEvaluable("tool_order", "no_rule", "r1", "no rule for this run: [evaluators.tool_order]"),
        NotEvaluable("tool_order", "no_rule", "r2", "no rule for this run: [evaluators.tool_order]"),
    ],
)


def test_evaluators_without_a_rule_take_one_line():
    lines = table.render(UNRULED).split("\n")
    assert [line for line in lines if "tool_order" in line or "budget_overruns" in line] == [
        "no rule set: budget_overruns, tool_order (some runs) (agenttrace evaluators NAME shows what it reads)"
    ]
    assert "No rule set: `budget_overruns`, `tool_order (some runs)`" in markdown.render(UNRULED)
    assert summary.verdict_line(UNRULED) == summary.verdict_line(EVALUATION)
    assert "no rule" not in table.render(EVALUATION).lower()


def test_html_names_evaluators_without_a_rule(fill_store: Fill):
    store = fill_store(**runs_and_steps())
    assert "No rule set: budget_overruns, tool_order (some runs)." in page(UNRULED, store)
    assert "No rule set" not in page(EVALUATION, store)


def test_junit_shows_no_test_that_passes_for_an_evaluator_without_a_rule():
    suites = {suite.attrib["name"]: suite for suite in ET.fromstring(junit.render(UNRULED))}
    assert [case.attrib["name"] for case in suites["budget_overruns"]] == ["no_rule"]
    assert suites["budget_overruns"].attrib["skipped"] == "1"


def test_a_measurement_of_nothing_is_not_shown():
    nothing = Measurement("error_recovery_rate", {}, None, "ratio", 0, 0, None, None)
    evaluation = replace(EVALUATION, measurements=[nothing, nothing._replace(n_not_evaluable=1)])
    assert summary.numbers(evaluation) == [nothing._replace(n_not_evaluable=1)]


def test_json_has_the_promised_keys():
    found = stdlib_json.loads(json.render(EVALUATION))
    assert list(found) == ["run", "passed", "cases", "findings", "measurements", "not_evaluable", "gate"]
    assert found["findings"][0]["finding_id"] == "f1"
    assert found["measurements"][0]["dimensions"] == {"quantile": "p50"}


def test_github_annotates_each_finding_and_missed_threshold():
    lines = github.render(EVALUATION).split("\n")
    assert lines == [
        "::error title=duplicate_mutations/confirmed::place_order(item=rice) ran twice",
        "::warning title=duplicate_mutations/unverified_retry::place_order(item=rice) ran twice",
        "::error title=threshold::safety_violation_rate: 0.25 (max 0, hard, n 3): missed: 0.25 is above 0",
        summary.verdict_line(EVALUATION),
    ]


def test_github_annotates_a_hard_threshold_without_a_value():
    unknown = EVALUATION.gate[1] | {"gate": "hard"}
    lines = github.render(replace(NOTHING, gate=[unknown, unknown | {"gate": "soft"}])).split("\n")
    assert [line.partition(" ")[0] for line in lines] == ["::error", "NOT"]


def test_junit_fails_errors_and_hard_thresholds_only():
    suites = {suite.attrib["name"]: suite for suite in ET.fromstring(junit.render(EVALUATION))}
    assert suites["duplicate_mutations"].attrib | {"name": ""} == {
        "name": "",
        "tests": "2",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
    }
    assert suites["budget_overruns"].attrib["failures"] == "0"
    assert [case.attrib["name"] for case in suites["budget_overruns"]] == ["no findings"]
    assert suites["tool_hallucination"].attrib["skipped"] == "1"
    assert (suites["thresholds"].attrib["failures"], suites["thresholds"].attrib["skipped"]) == ("1", "1")


def test_sarif_names_rules_levels_and_fingerprints():
    (run,) = stdlib_json.loads(sarif.render(EVALUATION))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [
        "duplicate_mutations/confirmed",
        "duplicate_mutations/unverified_retry",
    ]
    assert [result["level"] for result in run["results"]] == ["error", "warning"]
    assert run["results"][0]["partialFingerprints"]["agenttrace/v1"] == "p1"
    # Code scanning shows them beside the finding.
    assert all(
        rule["fullDescription"]["text"].endswith("?") and rule["help"]["text"]
        for rule in run["tool"]["driver"]["rules"]
    )


@pytest.mark.parametrize("report", TEXTUAL)
def test_hostile_content_reaches_no_terminal(report: Any):
    text = report.render(HOSTILE)
    assert not set(text) & set("\x1b\x00\u202e\r")
    text.encode()


def test_hostile_content_forges_no_line():
    assert not [line for line in github.render(HOSTILE).split("\n") if line.startswith("::error::")]
    assert not [line for line in markdown.render(HOSTILE).split("\n") if line.startswith(("# ", "::"))]
    assert "%250A" in github.render(HOSTILE)


def test_hostile_content_is_strict_json():
    for report in (json, sarif):
        stdlib_json.loads(report.render(HOSTILE), parse_constant=lambda constant: pytest.fail(constant))


def test_hostile_content_is_well_formed_xml():
    ET.fromstring(junit.render(HOSTILE))


@given(st.text(st.characters(codec="utf-8"), max_size=80))
def test_markdown_code_span_cannot_be_left(text: str):
    span = inert_markdown.code(text)
    fence = re.match("`+", span)
    assert fence is not None
    inner = span[len(fence[0]) : -len(fence[0])]
    assert span.endswith(fence[0])
    assert fence[0] not in re.findall("`+", inner)
    assert "\n" not in span


def test_markdown_table_cells_cannot_be_split():
    cells = [line for line in markdown.render(HOSTILE).split("\n") if line.startswith("| `cost_usd`")]
    assert len(cells) == 1
    # Six borders: metric, of, n, p50, p95 and max are six cells.
    assert len(re.findall(r"(?<!\\)\|", cells[0])) == 7


@pytest.mark.parametrize(
    ("report", "limit"),
    [(table, table.MAX_FINDINGS), (markdown, markdown.MAX_FINDINGS), (github, github.MAX_FINDINGS)],
)
def test_long_lists_are_cut_and_say_so(report: Any, limit: int):
    text = report.render(replace(EVALUATION, findings=[finding(i, message="m" * 5000) for i in range(limit + 7)]))
    assert "7 more findings" in text
    assert len(text) < 300_000


def test_a_name_without_end_is_cut(fill_store: Fill):
    name = "x" * 100_000
    rate = Measurement("rate", {"agent": name}, 1, "ratio", 1, 0, 0, 1)
    measured = [*quantiles("cost_usd", "usd", [1, 2, 3], agent=name), rate]
    evaluation = replace(EVALUATION, measurements=measured, cases=[a_case(name, None)])
    assert max(map(len, table.render(evaluation).split("\n"))) < 700
    for text in (markdown.render(evaluation), page(evaluation, fill_store(**runs_and_steps()))):
        assert "x" * 201 not in text


def test_markdown_fits_a_comment():
    many = [finding(i, message="m" * 5000) for i in range(500)]
    assert len(markdown.render(replace(EVALUATION, findings=many))) < 65_536


# The page


class Tags(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def tags(text: str) -> Tags:
    found = Tags()
    found.feed(text)
    return found


def test_page_tells_the_run_and_marks_the_step(fill_store: Fill):
    text = page(EVALUATION, fill_store(**runs_and_steps()))
    for part in (
        "FAILED",
        "order rice",
        "place_order(item=rice) ran twice",
        "part of a finding",
        "Cost of a run",
        "p95",
    ):
        assert part in text
    fault = text.index('class="tool fault error"')
    assert text.index('id="run-1"') < fault < text.index("duplicate_mutations/confirmed", fault)
    assert 'href="#run-1-step-3"' in text
    assert 'id="run-1-step-3"' in text


def test_page_needs_nothing_else(fill_store: Fill):
    text = page(EVALUATION, fill_store(**runs_and_steps()))
    found = tags(text)
    assert not set(found.tags) & {"link", "img", "iframe", "object", "embed", "base", "form"}
    assert found.tags.count("script") == 1
    assert not [value for name, value in found.attributes if name in ("src", "href") and not str(value).startswith("#")]
    assert not [name for name, _ in found.attributes if name == "style" or name.startswith("on")]
    assert "default-src 'none'" in text
    assert "unsafe" not in text


@pytest.mark.parametrize("tag", ["style", "script"])
def test_style_and_script_of_the_page_have_the_hash_that_its_policy_allows(fill_store: Fill, tag: str):
    text = page(EVALUATION, fill_store())
    content = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
    assert f"{tag}-src 'sha256-{digest}'" in text.replace("&#43;", "+").replace("&#39;", "'")


def test_hostile_content_adds_no_tag_to_the_page(fill_store: Fill):
    # DuckDB stores no NUL and no lone surrogate.
    evil = EVIL.replace("\x00", "").replace("\ud800", "")
    run_id = "<b>'\""
    messages = [{"role": "assistant", "parts": [{"type": "text", "content": evil}]}]
    step: dict[str, object] = dict.fromkeys(("tool_name", "thought", "error_message", "error_type", "name"), evil)
    step |= {
        "trajectory_id": run_id,
        "observation": stdlib_json.dumps(evil),
        "arguments": stdlib_json.dumps({evil: evil}),
    }
    tables = runs_and_steps(**step, output_messages=stdlib_json.dumps(messages))
    tables["trajectories"][0] |= {"trajectory_id": run_id, "user_input": evil, "final_response": evil, "task_id": evil}
    tables["trajectories"][0] |= dict.fromkeys(("agent_name", "session_id", "tenant_id"), evil)
    findings = [finding(trajectory_id=run_id, message=evil, kind=evil, tool_name=evil, state=evil)]
    findings.append(finding(2, trajectory_id=None, message=EVIL))
    text = page(replace(HOSTILE, findings=findings), fill_store(**tables))
    assert not set(text) & set("\x1b\u202e\r")
    assert not set(tags(text).tags) & {"img", "b"}
    assert tags(text).tags.count("script") == 1
    assert not [name for name, _ in tags(text).attributes if name.startswith("on")]
    assert text.count("<style>") == 1
    # What the template engine is given is not a template.
    assert "{{ 7*7 }}" in text
    text.encode()


def test_page_of_a_run_that_is_gone_still_tells_the_finding(fill_store: Fill):
    text = page(EVALUATION, fill_store())
    assert "no longer in the store" in text
    assert "ran twice" in text


def test_page_without_findings_says_so(fill_store: Fill):
    text = page(replace(EVALUATION, findings=[], passed=True), fill_store(**runs_and_steps()))
    assert "No findings." in text
    assert "What the agent did" not in text
    assert "PASSED" in text


def test_page_of_nothing_is_a_page(fill_store: Fill):
    assert "NOT EVALUABLE" in page(NOTHING, fill_store())


def test_page_is_bounded_and_says_what_it_leaves_out(fill_store: Fill):
    steps: list[dict[str, object]] = [
        {"trajectory_id": "abc123", "span_id": f"s{i}", "kind": "tool", "tool_name": "read", "step_index": i}
        | {"start_time": T0 + timedelta(seconds=i), "observation": stdlib_json.dumps("x" * 50_000)}
        for i in range(200)
    ]
    findings = [finding(0, span_id="s150", related_span_ids=[])]
    findings += [finding(i, trajectory_id=f"run{i:03}", severity="warning") for i in range(64)]
    findings += [finding(i, fingerprint=f"p{i}", severity="note") for i in range(2, timeline.MAX_FAULTS + 6)]
    tables = runs_and_steps()
    text = page(replace(EVALUATION, findings=findings), fill_store(trajectories=tables["trajectories"], steps=steps))
    assert len(text) < 1_000_000
    # The worst run comes first, with the step at fault although it lies behind the cut.
    assert text.index("abc123") < text.index("run000")
    assert "90 steps left out here" in text
    assert 'id="run-1-step-151"' in text
    assert "49 more steps left out" in text
    assert "more characters are in the store" in text
    assert "65 runs, agent restock" in text
    assert "and 32 more; <code>agenttrace show ID</code> tells any run" in text
    assert "5 more faults, less grave or less frequent, are not told here" in text


def test_page_reads_only_the_window_of_the_evaluation(fill_store: Fill):
    inside, outside = ({"trajectory_id": name, "duration_ms": 5.0} for name in ("in", "out"))
    store = fill_store(trajectories=[inside, outside | {"start_time": T0 + timedelta(days=1)}])
    run = RUN | {"since": T0.isoformat(), "until": (T0 + timedelta(hours=1)).isoformat()}
    assert "Duration of a run: 1 runs" in page(replace(EVALUATION, run=run), store)


# Pictures


def test_histogram_puts_runs_where_they_belong(fill_store: Fill):
    runs: list[dict[str, object]] = [
        {"trajectory_id": f"r{i}", "duration_ms": value} for i, value in enumerate([0.0, 10.0, 20.0, 240.0])
    ]
    text = page(replace(EVALUATION, findings=[]), fill_store(trajectories=runs))
    # p50 of 0, 10, 20, 240 is 15; p95 lies 0.85 of the way from 20 to 240: 207. The axis ends at 250: bins of 10.42 ms.
    assert "Duration of a run: 4 runs, p50 15, p95 207 milliseconds" in text
    assert "0 to 10.4 milliseconds: 2" in text
    assert "10.4 to 20.8 milliseconds: 1" in text


@pytest.mark.parametrize(
    ("highest", "p95", "end"),
    [
        (0.0, 0.0, 1.0),
        (240.0, 207.0, 250.0),
        (1.0, 1.0, 1.0),
        (0.0031, 0.003, 0.004),
        # One run a thousand times as long as the others stays in the last bin.
        (100_000.0, 100.0, 200.0),
    ],
)
def test_axis_ends_at_a_round_number(highest: float, p95: float, end: float):
    assert charts.axis_end(highest, p95) == pytest.approx(end)


@given(st.floats(1e-9, 1e12), st.floats(0, 1))
def test_axis_always_holds_the_95th_percentile(highest: float, share: float):
    assert charts.axis_end(highest, highest * share) >= min(highest, highest * share) * (1 - 1e-9)


@given(
    st.lists(st.integers(0, 10_000), min_size=charts.BINS, max_size=charts.BINS).filter(any),
    st.floats(1e-6, 1e9),
    st.sampled_from(["usd", "ms", "tokens"]),
)
def test_picture_is_well_formed_and_stays_inside(counts: list[int], upper: float, unit: str):
    chart = charts.Histogram("T", unit, upper, counts, 0, [("p50", upper / 2), ("p95", upper)])
    root = ET.fromstring(str(charts.svg(chart)))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for bar in root.iter("rect"):
        assert 0 <= float(bar.attrib["x"]) <= width
        assert 0 <= float(bar.attrib["y"]) <= height
        assert float(bar.attrib["height"]) >= 0
    assert sum(1 for _ in root.iter("rect")) == sum(1 for count in counts if count)


@pytest.mark.parametrize(
    ("unit", "upper", "name"),
    [("ms", 900, "milliseconds"), ("ms", 5000, "seconds"), ("ms", 600_000, "minutes"), ("usd", 1, "US dollars")],
)
def test_axis_has_the_unit_that_reads_best(unit: str, upper: float, name: str):
    chart = charts.Histogram("T", unit, upper, [1] * charts.BINS, 2, [("p50", upper / 2)])
    assert name in charts.svg(chart)
    assert "2 beyond, in the last bar" in charts.svg(chart)
