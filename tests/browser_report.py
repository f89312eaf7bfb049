"""The report in a real browser, headless Chromium: `make test-browser`.

Not part of `make test`: it needs Debian's `chromium` and Playwright. Pictures and figures are left in build/browser.
"""

import json
import shutil
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from agenttrace.evaluators.reports import html
from agenttrace.evaluators.results import Evaluation, Fault, Finding, Measurement, Night
from agenttrace.store import SCHEMA_VERSION, open_store

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "build" / "browser"
RUNS = 10_000
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)><svg onload=alert(3)><a href='javascript:alert(4)'>x</a>"
    "</pre></style></script>\u202eevil\x1b[31m`**bold**`[x](javascript:alert(5))"
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert program, "no Chromium: on Debian, apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a night with 10,000 runs, a hostile one and one with an observation of 5 MB among them."""
    store = tmp_path_factory.mktemp("report") / "agenttrace.duckdb"
    with duckdb.connect(store) as con:
        con.execute(resources.files("agenttrace").joinpath("schema.sql").read_text(encoding="utf-8"))
        con.execute("INSERT INTO agenttrace_meta VALUES ('schema_version', ?)", [str(SCHEMA_VERSION)])
        con.execute(_RUNS, {"runs": RUNS})
        con.execute(_STEPS)
        for statement in con.extract_statements(_NIGHTS):
            con.execute(statement)
        con.execute(
            "UPDATE steps SET observation = to_json(?) WHERE trajectory_id = 'run00000' AND step_index = 1", [HOSTILE]
        )
        con.execute(
            "UPDATE trajectories SET user_input = ?, agent_name = ? WHERE trajectory_id = 'run00000'",
            [HOSTILE, HOSTILE],
        )
        con.execute(
            "UPDATE steps SET observation = to_json(repeat('x', 5000000))"
            " WHERE trajectory_id = 'run00001' AND step_index = 1"
        )
    page = KEPT / "report.html"
    KEPT.mkdir(parents=True, exist_ok=True)
    with open_store(store) as con:
        page.write_text(html.render(_evaluation(), con), encoding="utf-8")
    return page


_RUNS = """
INSERT INTO trajectories BY NAME
SELECT format('run{:05d}', i) AS trajectory_id, format('{:032x}', i) AS trace_id, 'shop' AS service_name,
    ['restock', 'refunds', 'support'][1 + i % 3] AS agent_name, 'task-' || (i % 40) AS task_id, i // 40 AS trial,
    'Order ' || i || ' bags of rice, please.' AS user_input, 'Done: ' || i || ' bags ordered.' AS final_response,
    ['place_order'] AS tools, 6 AS tool_call_count, 2 AS model_call_count, i % 2 AS error_count, 1 AS mutation_count,
    900 + i AS input_tokens, 90 AS output_tokens, 990 + i AS total_tokens, 0.002 + (i % 97) / 9000.0 AS cost_usd,
    0 AS unpriced_model_calls, TIMESTAMPTZ '2026-01-31 18:00:00+00' + INTERVAL (i) SECOND AS start_time,
    800.0 + (i * 7919) % 4000 AS duration_ms, TRUE AS complete, now() AS last_arrival, TRUE AS root_ended,
    0 AS revision
FROM range($runs) AS r(i)
"""
_STEPS = """
INSERT INTO steps BY NAME
SELECT t.trajectory_id, t.trace_id, format('{:016x}', s) AS span_id, 'root' AS parent_span_id, s AS step_index,
    CASE WHEN s IN (0, 5) THEN 'model' ELSE 'tool' END AS kind, 'step' AS name,
    CASE WHEN s NOT IN (0, 5) THEN 'place_order' END AS tool_name, CASE WHEN s IN (0, 5) THEN 'gpt-4o' END AS model,
    CASE WHEN s NOT IN (0, 5) THEN '{"item": "rice", "qty": 40}' END::JSON AS arguments,
    CASE WHEN s NOT IN (0, 5) THEN '{"order_id": "PO-1", "status": "open"}' END::JSON AS observation,
    'Look at the stock first, then order what is missing.' AS thought, 'span' AS origin,
    CASE WHEN s = 2 THEN 'timeout' ELSE 'ok' END AS status,
    450 AS input_tokens, 45 AS output_tokens, 0.001 AS cost_usd,
    t.start_time + INTERVAL (CASE WHEN s IN (3, 4) THEN 300 ELSE s * 100 END) MILLISECOND AS start_time,
    95.0 AS duration_ms
FROM trajectories AS t, range(6) AS r(s)
"""
_NIGHTS = """
INSERT INTO evaluation_runs BY NAME
SELECT 'night' || i AS run_id, now() AS started_at, now() AS finished_at, 900 + 20 * (i % 5) AS trajectories,
    FALSE AS passed, 'ab12' AS config_hash, '{"duplicate_mutations": "v1"}' AS evaluator_versions,
    DATE '2026-01-11' + i::INTEGER AS night
FROM range(21) AS r(i);

INSERT INTO measurements BY NAME
SELECT 'night' || i AS run_id, metric, dimensions, value * (1 + (i * 37 % 11) / 9) AS value, unit, 900 AS n,
    0 AS n_not_evaluable, value * 0.7 * (1 + (i * 37 % 11) / 9) AS low, value * 1.3 * (1 + (i * 37 % 11) / 9) AS high
FROM range(21) AS r(i), (VALUES
    ('duplicate_mutation_rate', '{}', 0.03, 'ratio'), ('task_completion_rate', '{}', 0.4, 'ratio'),
    ('latency_ms', '{"quantile": "p50"}', 1200, 'ms'), ('latency_ms', '{"quantile": "p95"}', 3100, 'ms'),
    ('cost_usd', '{"quantile": "p50"}', 0.004, 'usd'), ('cost_usd', '{"quantile": "p95"}', 0.011, 'usd')
) AS m(metric, dimensions, value, unit)
WHERE i <> 7;

INSERT INTO findings BY NAME
SELECT 'f' || i || '-' || j AS finding_id, 'p' || j AS fingerprint, 'night' || i AS run_id,
    'duplicate_mutations' AS evaluator, 'confirmed' AS kind, ['error', 'warning'][1 + j % 2] AS severity,
    [] AS related_span_ids, 'x' AS message, '{}' AS evidence
FROM range(21) AS r(i), range(30) AS s(j)
WHERE j < 5 + i * 13 % 20;
"""


def _evaluation() -> Evaluation:
    def finding(number: int, **values: Any) -> Finding:
        kind = ("confirmed", "unverified_retry", "key_reuse")[number % 3]
        made = Finding(
            finding_id=f"f{number}", fingerprint=f"p{number % 150}", evaluator="duplicate_mutations", kind=kind,
            severity=("error", "warning", "note")[number % 3], state=("new", "known", "back")[number % 5 % 3],
            trajectory_id=f"run{number:05d}", trace_id=None, span_id=f"{2:016x}", related_span_ids=[f"{1:016x}"],
            tool_name="place_order", message=f"place_order(item=rice, qty={number}) ran twice", evidence={},
        )  # fmt: skip
        return made._replace(**values)

    findings = [finding(number) for number in range(RUNS)]
    findings[0] = finding(0, message=HOSTILE, tool_name=HOSTILE)
    rates = [
        Measurement("pass_hat_k", {"k": k}, 0.9**k, "ratio", 40, 0, 0.9**k - 0.1, min(0.9**k + 0.1, 1))
        for k in range(1, 6)
    ]
    rates += [Measurement("pass_at_k", {"k": k}, 1 - 0.1**k, "ratio", 40, 0, 0.8, 1.0) for k in range(1, 6)]
    run = {
        "run_id": "8c1f00aa12345678", "label": None, "started_at": "2026-02-01T02:00:00+00:00",
        "finished_at": "2026-02-01T02:00:04+00:00", "since": None, "until": None, "trajectories": RUNS, "passed": False,
        "config_hash": "ab12", "evaluator_versions": {"duplicate_mutations": "v1"}, "night": "2026-01-31",
    }  # fmt: skip
    gone = Fault(
        "p9", "resolved", 3, "2026-01-20", "duplicate_mutations", "confirmed", "error", None, "cook", None,
        "place_order", "f9", "run00009", "place_order(item=oil) ran twice",
    )  # fmt: skip
    night = Night(
        "2026-01-31", "UTC", "2026-01-30", "2026-02-01T01:59:00+00:00", RUNS, RUNS, None, 3, 2, [("cook", 40.0)], [gone]
    )
    return Evaluation(
        run=run, passed=False, findings=sorted(findings, key=lambda f: f.severity), measurements=rates, night=night
    )


class Seen:
    """What a page did that it must not do."""

    def __init__(self, page: Page) -> None:
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 900})
    yield made
    made.close()


def test_it_opens_and_filters_at_once(context: BrowserContext, report: Path) -> None:
    opened: list[float] = []
    for _ in range(3):
        page = context.new_page()
        began = time.perf_counter()
        page.goto(report.as_uri(), wait_until="load")
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        opened.append(time.perf_counter() - began)
        page.close()
    page = context.new_page()
    page.goto(report.as_uri())
    typed: list[float] = []
    said = ""
    for text in ("qty=77)", "rice restock", "nothing holds this"):
        began = time.perf_counter()
        page.fill("#find", text)
        while (count := page.locator("#count").text_content() or "") == said:
            assert time.perf_counter() - began < 10
        said = count
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        typed.append(time.perf_counter() - began)
    figures = {"bytes": report.stat().st_size, "open_s": sorted(opened)[1], "filter_s": sorted(typed)[1]}
    (KEPT / "figures.json").write_text(json.dumps(figures, indent=2) + "\n")
    print(figures)
    assert figures["open_s"] < 2
    assert figures["filter_s"] < 0.5
    assert figures["bytes"] < 5 << 20


def test_hostile_content_is_inert(context: BrowserContext, report: Path) -> None:
    page = context.new_page()
    seen = Seen(page)
    page.goto(report.as_uri())
    for details in page.locator("details").all()[:40]:
        details.evaluate("node => { node.open = true; }")
    page.wait_for_timeout(200)
    assert seen.dialogs == []
    assert [url for url in seen.requests if not url.startswith("file:")] == []
    assert seen.complaints == []
    assert page.locator("img, iframe, object, embed, form, a[href^=javascript]").count() == 0
    assert page.locator("script").count() == 1
    assert "\u202e" not in page.content()
    assert "\x1b" not in page.content()


def test_search_filters_and_keys(context: BrowserContext, report: Path) -> None:
    page = context.new_page()
    page.goto(report.as_uri())
    visible = page.locator(".fault-card:visible")
    everything = visible.count()
    page.keyboard.press("/")
    page.keyboard.type("unverified_retry")
    page.wait_for_timeout(150)
    assert 0 < visible.count() < everything
    assert page.locator("#count").text_content() == f"{visible.count()} of {everything} faults"
    page.keyboard.press("Escape")
    page.wait_for_timeout(150)
    assert visible.count() == everything
    page.click("button[value=new]")
    new = visible.count()
    assert 0 < new < everything
    page.click("button[value=error]")
    assert 0 < visible.count() < new
    page.click("button[value=error]")
    page.click("button[value=new]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.evaluate("document.activeElement.parentElement.id")
    assert focused == "fault-2"
    before = page.locator(f"#{focused}").evaluate("node => node.open")
    page.keyboard.press("Enter")
    assert page.locator(f"#{focused}").evaluate("node => node.open") != before


def test_a_link_leads_into_a_folded_fault(context: BrowserContext, report: Path) -> None:
    page = context.new_page()
    page.goto(report.as_uri() + "#run-30")
    page.wait_for_timeout(200)
    assert page.locator("#run-30").is_visible()


@pytest.mark.parametrize(
    ("name", "width", "scheme"), [("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 390, "light")]
)
def test_it_is_read_in_light_and_dark_and_on_a_phone(
    browser: Browser, report: Path, name: str, width: int, scheme: Any
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.goto(report.as_uri())
    page.screenshot(path=KEPT / f"{name}.png", clip={"x": 0, "y": 0, "width": width, "height": 3600}, full_page=True)
    # Nothing but what scrolls by itself is wider than the page.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(19, 20, 18)") == (scheme == "dark")
    context.close()


def test_it_prints_whole(context: BrowserContext, report: Path) -> None:
    page = context.new_page()
    page.goto(report.as_uri())
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".fault-card:not([open])").count() == 0
    assert not page.locator(".filters").is_visible()


def test_without_scripts_everything_is_there(browser: Browser, report: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator(".fault-card").count() > 100
    context.close()
