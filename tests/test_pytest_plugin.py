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
    # From pytest 9.2 on, warnings while it configures are errors, too: pytest-asyncio's asks for this option.
    chosen = ("-p", "no:cacheprovider", "-W", "error", "-o", "asyncio_default_fixture_loop_scope=function")
    return project.runpytest_subprocess(*chosen, *options)


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

        @pytest.fixture(scope="module")
        def opened():
            restock("for all tests")

        @pytest.fixture
        def answer(opened):
            return restock("a")

        @pytest.mark.parametrize("expected", ["Done.", "Done."])
        @pytest.mark.budget(max_tool_calls=2)
        def test_within_budget(answer, expected):
            assert answer == expected

        def test_fixtures_of_the_test_are_recorded(answer, trajectory):
            assert trajectory.tools == ["check_stock", "place_order"]
        """,
    )
    result.assert_outcomes(passed=8)


def test_what_does_not_hold_fails_with_the_trajectory(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        def test_questions(trajectory):
            restock("a")
            for ask in (
                lambda: trajectory.called("ask_manager"),
                lambda: trajectory.called("place_order", qty=41),
                lambda: trajectory.called("check_stock").after("place_order"),
                lambda: trajectory.called("place_order").times(2),
                lambda: trajectory.called("place_order").before("place_order", qty=40),
            ):
                with pytest.raises(AssertionError) as raised:
                    ask()
                print("E  ", raised.exconly())
            assert False

        @agenttrace.tool
        def send(to, text=""): ...

        @agenttrace.tool
        def nest(value): ...

        def test_hidden_arguments(trajectory):
            send("ann@example.com", "x" * 70_000)
            with agenttrace.tool_call("pay"):
                pass
            send(("a", "b"))
            nest({"text": "y" * 70_000})
            for ask in (
                lambda: trajectory.not_called("send", to="ann@example.com"),
                lambda: trajectory.called("send", to="bob@example.com"),
                lambda: trajectory.not_called("send", text="x" * 70_000),
                lambda: trajectory.called("send", to=("a", "b")).times(1),
                lambda: trajectory.called("send", to=lambda to: "@" in to),
                lambda: trajectory.not_called("nest", value={"text": "y" * 70_000}),
                lambda: trajectory.not_called("nest", value=lambda value: len(value["text"]) > 69_999),
            ):
                with pytest.raises(AssertionError, match="cannot be told: the arguments of a call were not"):
                    ask()
            trajectory.called("send", to=["a", "b"])
            check_stock(1)
            trajectory.not_called("check_stock", item=True)
            trajectory.called("check_stock", item=1.0).times(1)

        @pytest.mark.budget(max_tool_calls=3)
        def test_over_budget_together():
            restock("a")
            restock("b")

        def test_forbidden(trajectory):
            restock("a\\x1b[31m")
            trajectory.not_called("place_order", item="rice")

        def test_twice(trajectory):
            restock("a", 2)
            trajectory.assert_no_findings(only=["duplicate_mutations"])

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
    result.assert_outcomes(failed=8, passed=1)
    said = [line.removeprefix("E").strip() for line in result.outlines if line.startswith("E ")]
    text = "\n".join(said)
    for expected in (
        "AssertionError: ask_manager was not called",
        "AssertionError: place_order(qty=41) was not called with these arguments, once with others",
        "AssertionError: check_stock was called before place_order: step 0, and place_order is step 1",
        "AssertionError: place_order was called once, expected 2 times",
        "AssertionError: place_order is compared with the same call: step 1",
        "AssertionError: place_order(item='rice') was called once",
        "error duplicate_mutations/confirmed: place_order(item=rice, qty=40) ran twice",
        "AssertionError: place_order: cannot be told",
        "nothing was recorded. Is the agent run within the test",
        "AssertionError: nothing could be judged, which is no pass",
        "no rule set: budget_overruns",
        "error budget_overruns/max_tool_calls: the run used 3 tool calls",
        "the budget max_tool_calls = 3 is for all runs of the test, and they took 4 in 2 runs",
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
        @pytest.mark.xfail
        def test_known_to_fail():
            assert False

        @pytest.mark.trials(2)
        @pytest.mark.budget(max_tool_calls=2)
        @pytest.mark.asyncio
        async def test_coroutine(trajectory):
            restock("a")
            trajectory.called("place_order")
            seen.append(trajectory.runs[0]["trial"])
            assert seen == [1, 2][: len(seen)]

        seen = []
        """,
        "-n1",
        "--junitxml=junit.xml",
    )
    result.assert_outcomes(passed=2, failed=3, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "2 of 3 trials passed, 3 needed (k=1: pass@k 0.67, pass^k 0.67, k=3: pass@k 1.00, pass^k 0.00)",
            "*- trial 2 -*",
            "*assert (6 % 2)*",
            "*Captured stdout call, trial 2*",
            "this is trial 6",
        ]
    )
    assert "this is trial 5" not in result.stdout.str()
    assert result.stdout.str().count("no server") >= 2
    assert '<property name="trials_passed" value="3"' in (project.path / "junit.xml").read_text()


@pytest.mark.usefixtures("unmeasured")
def test_a_trial_hands_nothing_to_the_next_one_and_hides_nothing(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        opened, trials = [], []

        @pytest.fixture(scope="session")
        def server():
            opened.append("server")
            yield
            opened.append("closed")

        @pytest.mark.trials(2)
        def test_a_later_skip_hides_no_failure():
            trials.append(1)
            assert len(trials) > 1, "the first one fails"
            pytest.skip("no quota left")

        class TestClass:
            # The last test: pytest would take all fixtures down after each trial.
            @pytest.mark.trials(3)
            def test_self(self, server):
                assert opened == ["server"]
                assert not hasattr(self, "left")
                self.left = True
        """,
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["0 of 2 trials passed, 2 needed*", "*the first one fails", "*", "Skipped: no quota left"]
    )


@pytest.mark.usefixtures("unmeasured")
def test_each_trial_has_the_time_that_pytest_timeout_allows(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import time

        done = []

        @pytest.mark.trials(3, at_least=2)
        @pytest.mark.timeout(0.5)
        def test_hangs():
            if len(done) < 2:
                done.append("begun")
                time.sleep(60)

        @pytest.mark.trials(3)
        @pytest.mark.timeout(5)
        def test_is_fast():
            time.sleep(0.01)
        """,
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["1 of 3 trials passed, 2 needed*", "*- trial 1 -*", "*- trial 2 -*"])


def test_wrong_markers_are_named_before_the_agent_costs_anything(project: pytest.Pytester) -> None:
    trials = ("trials", "trials(0)", "trials(3, at_least=4)", "trials(1, 1, 1)")
    wrong = (*trials, "budget(max_calls=3)", "budget(3)", "budget()", "budget(max_tool_calls='3')")
    text = "\n".join(f"@pytest.mark.{marker}\ndef test_{n}(): print('it ran')" for n, marker in enumerate(wrong))
    result = run(project, text + "\ndef test_right(): ...", "-rA")
    result.assert_outcomes(passed=1, errors=len(wrong))
    said = result.stdout.str()
    assert "it ran" not in said
    assert "@pytest.mark.trials(3, at_least=4): expected n trials, and at_least between 1 and n\n" in said
    assert "does not know max_calls; known: max_tool_calls, " in said
    assert said.count("takes limits by name; known: max_tool_calls, ") >= 2
    assert "@pytest.mark.budget(max_tool_calls='3'): max_tool_calls should be a valid integer\n" in said


def test_the_programs_own_tracer_provider_is_recorded_whenever_it_is_set(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import os, subprocess, sys
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider

        FOO = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "foo"}

        def test_without_one(trajectory):
            restock("a")
            trajectory.called("place_order")

        def test_there_is_still_none():
            assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

        def test_the_next_one_has_it_again(trajectory):
            restock("a")
            trajectory.called("place_order").times(1)

        def test_set_within_the_test(trajectory):
            trace.set_tracer_provider(provider := TracerProvider())
            assert trace.get_tracer_provider() is provider
            provider.get_tracer("framework").start_span("execute_tool foo", attributes=FOO).end()
            restock("a")
            assert sorted(trajectory.tools) == ["check_stock", "foo", "place_order"]
            # A second one is refused, as without us.
            trace.set_tracer_provider(TracerProvider())
            assert trace.get_tracer_provider() is provider

        def test_it_stays(trajectory):
            assert type(trace.get_tracer_provider()) is TracerProvider
            restock("a")
            trajectory.called("place_order").times(1)

        def test_a_process_of_its_own(trajectory):
            program = "import agenttrace, shop; agenttrace.configure(); shop.restock('a')"
            environment = os.environ | {"AGENTTRACE_DB": str(trajectory.db)}
            subprocess.run([sys.executable, "-c", program], env=environment, check=True)
            trajectory.called("place_order").times(1)
        """,
    )
    result.assert_outcomes(passed=6)


@pytest.mark.usefixtures("unmeasured")
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


@pytest.mark.usefixtures("unmeasured")
def test_what_a_test_does_to_the_tracer_provider_stays(project: pytest.Pytester) -> None:
    result = run(
        project,
        """
        import socket
        from opentelemetry import trace
        from opentelemetry.util._once import Once

        def test_made_as_new_by_the_program(trajectory):
            trace._TRACER_PROVIDER, trace._TRACER_PROVIDER_SET_ONCE = None, Once()

        def test_there_is_none():
            assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

        def test_configured(trajectory):
            agenttrace.configure("own.duckdb")
            restock("in the test")
            assert len(trajectory.runs) == 1

        def test_outside():
            restock("outside")
            assert agenttrace.flush().written

        def test_no_question_waits_for_a_backend(trajectory):
            with socket.create_server(("127.0.0.1", 0)) as backend:
                backend.setblocking(False)
                agenttrace.configure(f"http://127.0.0.1:{backend.getsockname()[1]}", flush_interval=60)
                restock("in the test")
                trajectory.called("place_order").times(1)
                with pytest.raises(BlockingIOError):
                    backend.accept()
        """,
    )
    result.assert_outcomes(passed=5)
    import duckdb

    with duckdb.connect(project.path / "own.duckdb", read_only=True) as con:
        runs = con.execute("SELECT attributes FROM spans WHERE operation_name = 'invoke_agent'").fetchall()
    assert ["outside" in attributes for (attributes,) in runs] == [True]


def test_who_does_not_use_it_pays_next_to_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_it="import sys\ndef test_it():\n"
        "    assert not {'duckdb', 'pyarrow', 'opentelemetry.sdk'} & set(sys.modules)"
    )
    project.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


@pytest.mark.usefixtures("unmeasured")
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
