"""pytest plugin: what an agent does in a test is recorded into a store of that test's own, and can be asserted on.

The fixture `trajectory` records; the marker `budget` bounds what a test may take; the marker `trials` runs it several
times and says how reliable it is. Nothing is loaded until a test uses one of them.
"""

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from agenttrace.config import Settings
    from agenttrace.trajectory import Trajectory

_MARKERS = (
    "budget(**limits): what the agent may take in this test, by the names of [budgets]: max_tool_calls, "
    "max_model_calls, max_tokens, max_cost_usd, max_duration_ms",
    "trials(n, at_least=n): run this test n times, each with fixtures of its own; so many trials must pass",
)


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Has a test with a budget recorded, whether or not it asks for the fixture."""
    names: list[str] = getattr(item, "fixturenames", [])
    if item.get_closest_marker("budget") and "trajectory" not in names:
        names.append("trajectory")


@pytest.fixture
def trajectory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Trajectory]":
    """Records the spans of this test, whatever the program has configured, and answers questions about them.

    Spans of the global tracer provider and all decorators of agenttrace go to a store of this test's own. Exporters to
    other backends stay as the program has set them.
    """
    import agenttrace
    from agenttrace.exporter import diverted
    from agenttrace.trajectory import Trajectory

    folder = tmp_path_factory.mktemp("trajectory")
    # What has ended before is not this test's.
    agenttrace.flush()
    agenttrace.configure(_shared_store(request.config, tmp_path_factory))
    with diverted(folder / "agenttrace.duckdb"):
        yield Trajectory(folder / "agenttrace.duckdb", lambda: _settings(request.path))
        agenttrace.flush()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Checks the budget of a test that passed."""
    yield
    if marker := item.get_closest_marker("budget"):
        _check_budget(item, marker)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test with trials, and reports it once."""
    if (marker := item.get_closest_marker("trials")) is None:
        return None
    count, needed = _trials(marker)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    trials: list[list[pytest.TestReport]] = []
    for _ in range(count):
        getattr(item, "_initrequest", lambda: None)()
        trials.append(runtestprotocol(item, nextitem=nextitem, log=False))
        if any(report.skipped for report in trials[-1]):
            break
    for report in _summed(trials, needed):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _shared_store(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """Returns the store that the process's exporter is made for; within a test it writes to that test's own."""
    store = config.stash.get(_STORE, None)
    if store is None:
        store = config.stash[_STORE] = factory.mktemp("agenttrace") / "agenttrace.duckdb"
    return store


_STORE = pytest.StashKey[Path]()


def _settings(path: Path) -> "Settings":
    from agenttrace.config import load

    return load(start=path.parent)


def _check_budget(item: pytest.Item, marker: pytest.Mark) -> None:
    __tracebackhide__ = True
    from agenttrace.config import Budget
    from agenttrace.trajectory import Trajectory

    unknown = sorted(set(marker.kwargs) - set(Budget.model_fields))
    if marker.args or unknown or not marker.kwargs:
        named = f"does not know {', '.join(unknown)}" if unknown else "takes limits by name"
        pytest.fail(f"@pytest.mark.budget {named}; known: {', '.join(Budget.model_fields)}", pytrace=False)
    found: Any = getattr(item, "funcargs", {}).get("trajectory")
    if not isinstance(found, Trajectory):
        pytest.fail(
            "@pytest.mark.budget needs the fixture `trajectory` of agenttrace, and got another one", pytrace=False
        )
    settings = _settings(item.path).model_copy(update={"budgets": {"default": Budget(**marker.kwargs)}})
    found.check(found.evaluate(settings, ["budget_overruns"]))


def _trials(marker: pytest.Mark) -> tuple[int, int]:
    given: dict[str, Any] = {**dict(zip(("n", "at_least"), marker.args, strict=False)), **marker.kwargs}
    count = given.get("n")
    needed = given.get("at_least", count)
    is_known = set(given) <= {"n", "at_least"} and len(marker.args) < 3
    if not (is_known and isinstance(count, int) and isinstance(needed, int) and 1 <= needed <= count):
        raise pytest.UsageError(f"@pytest.mark.trials{marker.args}: expected n trials, and at_least between 1 and n.")
    return count, needed


def _summed(trials: list[list[pytest.TestReport]], needed: int) -> Iterator[pytest.TestReport]:
    """Makes one report of all trials: that of a single test."""
    if any(report.skipped for report in trials[-1]):
        yield from trials[-1]
        return
    failed = [[report for report in trial if report.failed] for trial in trials]
    passed = sum(not reports for reports in failed)
    verdict = _verdict(passed, len(trials), needed)
    shown = [f"{'-' * 20} trial {n} {'-' * 20}\n{r.longreprtext}" for n, rs in enumerate(failed, 1) for r in rs]
    setup, teardown = trials[0][0], trials[-1][-1]
    setup.outcome = teardown.outcome = "passed"
    setup.longrepr = teardown.longrepr = None
    call = next((report for trial in reversed(trials) for report in trial if report.when == "call"), setup)
    call.when = "call"
    call.outcome = "passed" if passed >= needed else "failed"
    call.longrepr = None if passed >= needed else "\n\n".join([verdict, *shown])
    call.duration = sum(report.duration for trial in trials for report in trial if report.when == "call")
    for report in (call, teardown):
        # JUnit's file takes them from the last one.
        report.user_properties = [*report.user_properties, ("trials", len(trials)), ("trials_passed", passed)]
    call.sections = [("trials", verdict)]
    if call is not setup:
        yield setup
    yield call
    yield teardown


def _verdict(passed: int, trials: int, needed: int) -> str:
    """Says how many trials passed, and how likely k more all would."""
    from agenttrace.evaluators.statistics import pass_at_k, pass_hat_k

    ks = sorted({1, min(3, trials), trials})
    curve = ", ".join(
        f"k={k}: pass@k {pass_at_k(passed, trials, k):.2f}, pass^k {pass_hat_k(passed, trials, k):.2f}" for k in ks
    )
    return f"{passed} of {trials} trials passed, {needed} needed ({curve})"
