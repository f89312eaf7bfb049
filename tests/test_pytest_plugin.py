"""The pytest plugin, in projects of its own: each run is another pytest, as a user starts it."""

import re
import textwrap
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parent.parent
SHOP = """
import asyncio, threading
import agenttrace, pytest

@agenttrace.tool
def check_stock(item): return 6

@agenttrace.tool(mutates=True)
def place_order(item, qty):
    place_order.count = getattr(place_order, "count", 0) + 1
    return {"order_id": f"PO-{place_order.count}"}

@agenttrace.agent
def restock(request, orders=1):
    check_stock("rice")
    for _ in range(orders):
        place_order("rice", 40)
    return "Done."
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    # The tests' own options would be an outer pytest's.
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makepyfile(shop=SHOP)
    return pytester


def run(project: pytest.Pytester, text: str, *options: str) -> pytest.RunResult:
    project.makepyfile(test_it=f"from shop import *\n{textwrap.dedent(text)}")
    return project.runpytest_subprocess("-p", "no:cacheprovider", "-W", "error", *options)


def test_what_holds_passes(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        def test_calls(trajectory):
            restock("a")
            calls = trajectory.called("check_stock", item="rice").before("place_order", qty=40).times(1)
            assert (calls[0].arguments, calls[0].status, calls[0].place) == ({"item": "rice"}, "ok", 0)
            assert trajectory.called("place_order")[0].observation == {"order_id": "PO-1"}
            trajectory.called("place_order", qty=lambda qty: qty < 50).after("check_stock")
            trajectory.not_called("change_price")
            trajectory.not_called("place_order", qty=41)
            assert trajectory.tools == ["check_stock", "place_order"]
            assert (trajectory.final_response, trajectory.cost_usd, trajectory.total_tokens) == ("Done.", None, None)
            assert [step["kind"] for step in trajectory.steps] == ["agent", "tool", "tool"]
            # What comes later is seen by later questions.
            place_order("oil", 1)
            trajectory.called("place_order").times(2)
            assert len(trajectory.runs) == 2

        def test_another_test_sees_its_own(trajectory):
            with agenttrace.run("shop"), agenttrace.model_call("gpt-4o-mini", provider="openai") as call:
                call.record(output="x", input_tokens=1000, output_tokens=10)
            assert trajectory.tools == []
            assert trajectory.total_tokens == 1010
            assert 0 < trajectory.cost_usd < 0.01

        def test_no_findings(trajectory):
            restock("a")
            trajectory.assert_no_findings()
            trajectory.assert_no_findings("note", only=["duplicate_mutations", "error_recovery"])

        def test_threads(trajectory):
            thread = threading.Thread(target=restock, args=("a",))
            thread.start()
            thread.join()
            trajectory.called("place_order")

        @pytest.mark.asyncio
        async def test_coroutines(trajectory):
            @agenttrace.tool
            async def look(x):
                await asyncio.sleep(0)
                return x
            await asyncio.gather(look(1), look(2))
            trajectory.called("look").times(2)

        @pytest.mark.budget(max_tool_calls=2)
        def test_within_budget():
            restock("a")
        """,
    )
    result.assert_outcomes(passed=6)


def test_what_does_not_hold_fails_with_the_trajectory(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        def test_never(trajectory):
            restock("a")
            trajectory.called("ask_manager")

        def test_arguments(trajectory):
            restock("a")
            trajectory.called("place_order", qty=41)

        def test_order(trajectory):
            restock("a")
            trajectory.called("check_stock").after("place_order")

        def test_count(trajectory):
            restock("a", 2)
            trajectory.called("place_order").times(1)

        def test_forbidden(trajectory):
            restock("a\\x1b[31m")
            trajectory.not_called("place_order", item="rice")

        def test_twice(trajectory):
            restock("a", 2)
            trajectory.assert_no_findings()

        def test_nothing_recorded(trajectory):
            trajectory.not_called("place_order")

        def test_nothing_judged(trajectory):
            restock("a")
            trajectory.assert_no_findings(only=["budget_overruns"])

        @pytest.mark.budget(max_tool_calls=2)
        def test_over_budget():
            restock("a", 2)

        @pytest.mark.budget(max_cost_usd=1.0)
        def test_unknown_cost(trajectory):
            with agenttrace.run("shop"), agenttrace.model_call("nobody-knows-it") as call:
                call.record(output="x", input_tokens=1000, output_tokens=10)
        """,
    )
    result.assert_outcomes(failed=10)
    said = [line.removeprefix("E").strip() for line in result.outlines if line.startswith("E ")]
    text = "\n".join(said)
    for expected in (
        "AssertionError: ask_manager was not called",
        "AssertionError: place_order(qty=41) was not called with these arguments, once with others",
        "AssertionError: check_stock was called before place_order: step 0, and place_order is step 1",
        "AssertionError: place_order was called 2 times, expected once",
        "AssertionError: place_order(item='rice') was called once",
        "error duplicate_mutations/confirmed: place_order(item=rice, qty=40) ran twice",
        "AssertionError: place_order: cannot be told",
        "nothing was recorded. Is the agent run within the test",
        "AssertionError: nothing could be judged, which is no pass",
        "no rule set: budget_overruns",
        "error budget_overruns/max_tool_calls: the run used 3 tool calls",
        "not evaluable: budget_overruns/max_cost_usd",
        '├─ 0 tool check_stock(item="rice")',
    ):
        assert expected in text
    assert "\x1b" not in text


def test_trials_are_one_test_with_one_verdict(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        count = 0

        @pytest.fixture
        def number():
            global count
            count += 1
            return count

        @pytest.mark.trials(4, at_least=3)
        def test_enough(trajectory, number):
            restock("a")
            assert trajectory.tools == ["check_stock", "place_order"]
            assert number != 2

        @pytest.mark.trials(3)
        def test_too_few(number):
            print("this is trial", number)
            assert number % 2

        @pytest.mark.trials(2)
        def test_broken_fixture(request):
            request.getfixturevalue("missing")

        @pytest.fixture
        def broken():
            raise OSError("no server")

        @pytest.mark.trials(2)
        def test_broken_setup(broken): ...

        @pytest.mark.trials(n=3)
        def test_skipped():
            pytest.skip("not here")

        @pytest.mark.trials(2)
        @pytest.mark.asyncio
        async def test_coroutine(trajectory):
            restock("a")
            trajectory.called("place_order")
        """,
        "-n1",
        "--junitxml=junit.xml",
    )
    result.assert_outcomes(passed=2, failed=3, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "2 of 3 trials passed, 3 needed (k=1: pass@k 0.67, pass^k 0.67, k=3: pass@k 1.00, pass^k 0.00)",
            "*- trial 2 -*",
            "*assert (6 % 2)*",
        ]
    )
    assert result.stdout.str().count("no server") >= 2
    assert '<property name="trials_passed" value="3"' in (project.path / "junit.xml").read_text()


def test_markers_that_are_wrong_are_named(project: pytest.Pytester) -> None:
    wrong = ("budget(max_calls=3)", "budget(3)", "budget()")
    text = "\n".join(f"@pytest.mark.{marker}\ndef test_{n}(): restock('a')" for n, marker in enumerate(wrong))
    said = run(project, text).stdout.str()
    assert "does not know max_calls; known: max_tool_calls, " in said
    assert said.count("takes limits by name; known: max_tool_calls, ") >= 2


@pytest.mark.parametrize("marker", ["trials", "trials(0)", "trials(3, at_least=4)"])
def test_trials_that_are_none_are_named(project: pytest.Pytester, marker: str) -> None:
    result = run(project, f"@pytest.mark.{marker}\ndef test_it(): ...")
    assert result.ret != 0
    assert "expected n trials, and at_least between 1 and n" in result.stdout.str() + result.stderr.str()


def test_the_programs_own_store_gets_nothing_of_a_test(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        agenttrace.configure("own.duckdb")

        def test_recorded(trajectory):
            restock("in the test")
            agenttrace.configure()
            restock("in the test, too")
            trajectory.called("place_order").times(2)

        def test_not_recorded():
            restock("outside")
            agenttrace.flush()
        """,
    )
    result.assert_outcomes(passed=2)
    import duckdb

    for store in ("own.duckdb", "agenttrace.duckdb"):
        with duckdb.connect(project.path / store, read_only=True) as con:
            spans = con.execute("SELECT attributes FROM spans WHERE operation_name = 'invoke_agent'").fetchall()
        assert ["outside" in attributes for (attributes,) in spans] == [True]


def test_who_does_not_use_it_pays_next_to_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="import sys\ndef test_it():\n"
        "    assert not {'duckdb', 'pyarrow', 'opentelemetry.sdk'} & set(sys.modules)"
    )
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_the_documentation_is_true(project: pytest.Pytester) -> None:
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    files = re.findall(r"`(test_\w+\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL)
    for name, content in files:
        (project.path / name).write_text(content)
    consoles = re.findall(r"^\$ pytest (\S+)\n(.*?)```", text, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in files] == [name for name, _ in consoles]
    for name, output in consoles:
        result = project.runpytest_subprocess("-p", "no:cacheprovider", name)
        shown = re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "DURATION", result.stdout.str())
        for line in output.splitlines():
            assert line in shown, shown
