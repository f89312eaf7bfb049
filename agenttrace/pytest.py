"""pytest plugin: what an agent does in a test is recorded into a store of that test's own, and can be asserted on.

The fixture `trajectory` records; the marker `budget` bounds what a test may take; the marker `trials` runs it several
times and says how reliable it is. Nothing is loaded until a test uses one of them.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

if TYPE_CHECKING:
    from agenttrace.config import Budget, Settings
    from agenttrace.trajectory import Trajectory

_MARKERS = (
    "budget(**limits): what the agent may take in this test, by the names of [budgets]: max_tool_calls, "
    "max_model_calls, max_tokens, max_cost_usd, max_duration_ms",
    "trials(n, at_least=n): run this test n times, each with fixtures of its own; so many trials must pass",
)
_STORE = pytest.StashKey[Path]()
_PROVIDER = pytest.StashKey[Any]()
_TIMER = pytest.StashKey[Any]()


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Has a test with a budget recorded, whether or not it asks for the fixture; before other fixtures of its own."""
    names: list[str] = getattr(item, "fixturenames", [])
    definitions: dict[str, Any] = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    if "trajectory" in names:
        asked_for = definitions.get("trajectory")
        # Without a definition it stands where it was put for another parameter of the same test.
        if not asked_for or getattr(asked_for[-1].func, "__module__", None) != __name__:
            return
        names.remove("trajectory")
    elif item.get_closest_marker("budget") is None:
        return
    # What a wider fixture does is no single test's.
    is_own = (name in definitions and definitions[name][-1].scope == "function" for name in names)
    names.insert(next((place for place, own in enumerate(is_own) if own), len(names)), "trajectory")


@pytest.fixture
def trajectory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Trajectory]":
    """Records the spans of this test, whatever the program has configured, and answers questions about them.

    Spans of the global tracer provider and all decorators of agenttrace go to a store of this test's own. Exporters to
    other backends stay as the program has set them.
    """
    from agenttrace.configure import flush_stores
    from agenttrace.exporter import diverted
    from agenttrace.trajectory import Trajectory

    db = tmp_path_factory.mktemp("trajectory") / "agenttrace.duckdb"
    # What has ended before is not this test's.
    flush_stores()
    with _recorded(request.config, _shared_store(request.config, tmp_path_factory)), diverted(db):
        yield Trajectory(db, lambda: _settings(request.path))
        flush_stores()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuses markers that are wrong, before the agent costs anything."""
    if (marker := item.get_closest_marker("trials")) and _trials(marker) is None:
        pytest.fail(f"{_written(marker)}: expected n trials, and at_least between 1 and n", pytrace=False)
    if marker := item.get_closest_marker("budget"):
        _budget(marker)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Checks the budget of a test that passed."""
    yield
    if marker := item.get_closest_marker("budget"):
        _check_budget(item, marker)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Runs a test with trials, and reports it once."""
    marker = item.get_closest_marker("trials")
    if marker is None or (asked := _trials(marker)) is None:
        return None
    count, needed = asked
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    # Between trials the fixtures of class, module and session stay: all but the test itself is needed next.
    following: list[Any] = [item.parent] * (count - 1) + [nextitem]
    trials = [_trial(item, number, after) for number, after in enumerate(following, 1)]
    for report in _summed(trials, needed):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Learns what pytest-timeout allows a test, and leaves the timer to it."""
    item.stash[_TIMER] = settings


@contextmanager
def _recorded(config: pytest.Config, store: Path) -> Generator[None]:
    """Has the global tracer provider record; where the program has none, one of ours stands in for the time of a test.

    It gives way to one that the program sets within the test, and is not left to tests that do not ask for it.
    """
    from opentelemetry import trace

    import agenttrace

    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        agenttrace.configure(store)
        yield
        return
    # There is no public way to take a provider back.
    api = trace.__dict__
    api["_TRACER_PROVIDER"] = config.stash.get(_PROVIDER, None)
    agenttrace.configure(store)
    ours = config.stash[_PROVIDER] = trace.get_tracer_provider()
    processors = _processors(ours)
    before = api["_TRACER_PROVIDER_SET_ONCE"]
    api["_TRACER_PROVIDER_SET_ONCE"] = once = _Once(lambda: agenttrace.configure(store))
    try:
        yield
    finally:
        # Otherwise a fixture of the program has itself made the API as new.
        if api["_TRACER_PROVIDER_SET_ONCE"] is once:
            api["_TRACER_PROVIDER_SET_ONCE"] = after = type(before)()
            # With a processor of the program's it is what `configure` would have made for it without us.
            if once.is_done or _processors(ours) > processors:
                after.do_once(lambda: None)
            else:
                api["_TRACER_PROVIDER"] = None


class _Once:
    """Stands in for OpenTelemetry's: lets the program set one provider in place of ours, and has that one record."""

    def __init__(self, record: Callable[[], None]) -> None:
        self.is_done = False
        self._record = record

    def do_once(self, set_provider: Callable[[], None]) -> bool:
        if self.is_done:
            return False
        self.is_done = True
        set_provider()
        self._record()
        return True


def _processors(provider: Any) -> int:
    return len(getattr(getattr(provider, "_active_span_processor", None), "_span_processors", ()))


def _shared_store(config: pytest.Config, factory: pytest.TempPathFactory) -> Path:
    """Returns the store that the process's exporter is made for; within a test it writes to that test's own."""
    store = config.stash.get(_STORE, None)
    if store is None:
        store = config.stash[_STORE] = factory.mktemp("agenttrace") / "agenttrace.duckdb"
    return store


def _settings(path: Path) -> "Settings":
    from agenttrace.config import load

    return load(start=path.parent)


def _written(marker: pytest.Mark) -> str:
    given = [*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())]
    return f"@pytest.mark.{marker.name}({', '.join(given)})"


def _budget(marker: pytest.Mark) -> "Budget":
    from pydantic import ValidationError

    from agenttrace.config import Budget

    unknown = sorted(set(marker.kwargs) - set(Budget.model_fields))
    if marker.args or unknown or not marker.kwargs:
        named = f"does not know {', '.join(unknown)}" if unknown else "takes limits by name"
        pytest.fail(f"@pytest.mark.budget {named}; known: {', '.join(Budget.model_fields)}", pytrace=False)
    try:
        return Budget(**marker.kwargs)
    except ValidationError as err:
        first = err.errors()[0]
        wrong = f"{_written(marker)}: {first['loc'][0]} {first['msg'].removeprefix('Input ')}"
    pytest.fail(wrong, pytrace=False)


def _check_budget(item: pytest.Item, marker: pytest.Mark) -> None:
    __tracebackhide__ = True
    from agenttrace.trajectory import Trajectory

    found: Any = getattr(item, "funcargs", {}).get("trajectory")
    if not isinstance(found, Trajectory):
        pytest.fail(
            "@pytest.mark.budget needs the fixture `trajectory` of agenttrace, and got another one", pytrace=False
        )
    budget = _budget(marker)
    settings = _settings(item.path).model_copy(update={"budgets": {"default": budget}})
    found.check(found.evaluate(settings, ["budget_overruns"]))
    if len(found.runs) > 1:
        found.check_totals(budget)


def _trials(marker: pytest.Mark) -> tuple[int, int] | None:
    """Returns how many trials, and how many of them must pass; None where the marker is wrong."""
    given: dict[str, Any] = {**dict(zip(("n", "at_least"), marker.args, strict=False)), **marker.kwargs}
    count = given.get("n")
    needed = given.get("at_least", count)
    is_known = set(given) <= {"n", "at_least"} and len(marker.args) < 3
    if is_known and isinstance(count, int) and isinstance(needed, int) and 1 <= needed <= count:
        return count, needed
    return None


def _trial(item: pytest.Item, number: int, nextitem: Any) -> list[pytest.TestReport]:
    """Runs a test as if for the first time; its spans bear the number of the trial."""
    from opentelemetry import baggage, context

    from agenttrace.semconv import TRIAL

    if getattr(item, "cls", None) is not None:
        # What one trial leaves on `self` is no matter of the next one.
        for name in ("_instance", "_obj"):
            vars(item).pop(name, None)
    getattr(item, "_initrequest", lambda: None)()
    item._report_sections.clear()  # pyright: ignore[reportPrivateUsage]
    if number > 1 and _TIMER in item.stash and not item.stash[_TIMER].func_only:
        # The timer of the whole test: each trial has its time.
        item.ihook.pytest_timeout_cancel_timer(item=item)
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[_TIMER])
    token = context.attach(baggage.set_baggage(TRIAL, number))
    try:
        return runtestprotocol(item, nextitem=nextitem, log=False)
    finally:
        context.detach(token)


def _summed(trials: list[list[pytest.TestReport]], needed: int) -> Iterator[pytest.TestReport]:
    """Makes one report of all trials: that of a single test."""
    failed = [[report for report in trial if report.failed] for trial in trials]
    skipped = [[report for report in trial if report.skipped] for trial in trials]
    if (all(skipped) or any(hasattr(report, "wasxfail") for each in skipped for report in each)) and not any(failed):
        yield from next(trial for trial, each in zip(trials, skipped, strict=True) if each)
        return
    # A trial that was skipped shows nothing, so it is none that passed.
    shown = [bad or left for bad, left in zip(failed, skipped, strict=True)]
    passed = sum(not reports for reports in shown)
    verdict = _verdict(passed, len(trials), needed)
    setup, teardown = trials[0][0], trials[-1][-1]
    call = next((report for trial in reversed(trials) for report in trial if report.when == "call"), setup)
    texts = [f"{'-' * 20} trial {n} {'-' * 20}\n{_text(r)}" for n, rs in enumerate(shown, 1) for r in rs]
    sections = [(f"{name}, trial {n}", text) for n, rs in enumerate(shown, 1) for r in rs for name, text in r.sections]
    is_passed = passed >= needed
    setup.outcome = teardown.outcome = "passed"
    setup.longrepr = teardown.longrepr = None
    call.when = "call"
    call.outcome = "passed" if is_passed else "failed"
    call.longrepr = None if is_passed else "\n\n".join([verdict, *texts])
    call.duration = sum(report.duration for trial in trials for report in trial if report.when == "call")
    call.sections = [("trials", verdict), *sections] if is_passed else sections
    for report in (call, teardown):
        # JUnit's file takes them from the last one.
        report.user_properties = [*report.user_properties, ("trials", len(trials)), ("trials_passed", passed)]
    if call is not setup:
        yield setup
    yield call
    yield teardown


def _text(report: pytest.TestReport) -> str:
    if report.failed:
        return report.longreprtext
    # Of a skip, pytest keeps file, line and reason.
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext


def _verdict(passed: int, trials: int, needed: int) -> str:
    """Says how many trials passed, and how likely k more all would."""
    from agenttrace.evaluators.statistics import pass_at_k, pass_hat_k

    ks = sorted({1, min(3, trials), trials})
    curve = ", ".join(
        f"k={k}: pass@k {pass_at_k(passed, trials, k):.2f}, pass^k {pass_hat_k(passed, trials, k):.2f}" for k in ks
    )
    return f"{passed} of {trials} trials passed, {needed} needed ({curve})"
