"""What an agent did in a test, and assertions on it; the pytest plugin makes one for each test."""

import json
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from agenttrace.configure import flush_stores

if TYPE_CHECKING:
    from agenttrace.config import Budget, Settings
    from agenttrace.evaluators.results import Evaluation

Severity = Literal["error", "warning", "note"]
_JSON = ("arguments", "observation", "input_messages", "output_messages", "requested_tool_calls", "offered_tools")
# What the limits of a budget are compared with, by run.
_TOTALS = {
    "max_tool_calls": "tool_call_count",
    "max_model_calls": "model_call_count",
    "max_tokens": "total_tokens",
    "max_cost_usd": "cost_usd",
    "max_duration_ms": "duration_ms",
}
# What a question names is compared as a whole, however much of it was recorded.
_WHOLE_BYTES = 1 << 30
_MAX_ASKED = 200
_NOTHING = (
    "nothing was recorded. Is the agent run within the test, and are its tools decorated with @agenttrace.tool, or is "
    "its framework instrumented with OpenTelemetry and the global tracer provider?"
)


@dataclass(frozen=True)
class Call:
    """One executed tool call.

    Attributes:
        name: The tool.
        arguments: By name, as JSON has them; None where they were not captured.
        observation: What the tool gave back, as JSON has it.
        status: ok, error, timeout, cancelled or unfinished.
        place: Where it stands among all tool and model steps of the test, from 0.
    """

    name: str
    arguments: Any
    observation: Any
    status: str
    place: int


class Calls(Sequence[Call]):
    """Calls of one tool that a question found; each method asserts, and returns the calls for the next one."""

    def __init__(self, trajectory: "Trajectory", asked: str, found: Sequence[Call], unknown: int) -> None:
        self._trajectory = trajectory
        self._asked = asked
        self._found = found
        self._unknown = unknown

    @overload
    def __getitem__(self, index: int) -> Call: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Call]: ...
    def __getitem__(self, index: int | slice) -> Call | Sequence[Call]:
        return self._found[index]

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        return f"{self._asked}: {list(self._found)}"

    def before(self, other: str, /, **arguments: Any) -> "Calls":
        """Asserts that the other tool was called, and not before one of these calls."""
        __tracebackhide__ = True
        later = self._trajectory.called(other, **arguments)
        self._expect(later[0].place > self._found[0].place, "only after", later[0])
        return self

    def after(self, other: str, /, **arguments: Any) -> "Calls":
        """Asserts that the other tool was called, and before the first of these calls."""
        __tracebackhide__ = True
        earlier = self._trajectory.called(other, **arguments)
        self._expect(earlier[0].place < self._found[0].place, "before", earlier[0])
        return self

    def times(self, count: int) -> "Calls":
        """Asserts how many calls there were."""
        __tracebackhide__ = True
        self._refuse_unknown()
        if len(self) != count:
            self._fail(f"was called {_times(len(self))}, expected {_times(count)}")
        return self

    def _expect(self, is_so: bool, instead: str, other: Call) -> None:
        __tracebackhide__ = True
        self._refuse_unknown()
        own = self._found[0]
        if own == other:
            self._fail(f"is compared with the same call: step {own.place}")
        if not is_so:
            self._fail(f"was called {instead} {other.name}: step {own.place}, and {other.name} is step {other.place}")

    def _refuse_unknown(self) -> None:
        __tracebackhide__ = True
        if self._unknown:
            self._fail(f"cannot be told: {_unseen(self._unknown)}")

    def _fail(self, what: str) -> None:
        __tracebackhide__ = True
        raise self._trajectory.failure(f"{self._asked} {what}")


class Trajectory:
    """What was recorded in one test; each question takes in what has ended by then.

    A test may hold several runs; questions are over all of them, in the order of time.
    """

    def __init__(self, db: Path, settings: "Callable[[], Settings]") -> None:
        self.db = db
        self._settings = settings

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs, a row of the table `trajectories` each."""
        return self._rows("SELECT * FROM trajectories ORDER BY start_time, trajectory_id")

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps, a row of the table `steps` each, JSON decoded; duplicates left out."""
        return self._rows(
            "SELECT s.* FROM steps AS s JOIN trajectories AS t USING (trajectory_id) WHERE s.duplicate_of IS NULL"
            " ORDER BY t.start_time, t.trajectory_id, s.step_index NULLS FIRST, s.start_time, s.span_id"
        )

    @property
    def tools(self) -> list[str]:
        """Names of the executed tool calls, in order, repeats included."""
        return [call.name for call in self._calls()]

    @property
    def final_response(self) -> str | None:
        """The answer of the last run."""
        return next((run["final_response"] for run in reversed(self.runs)), None)

    @property
    def cost_usd(self) -> float | None:
        """Cost of all runs in US dollars; None where nothing has a price."""
        known = [run["cost_usd"] for run in self.runs if run["cost_usd"] is not None]
        return sum(known) if known else None

    @property
    def total_tokens(self) -> int | None:
        """Tokens of all runs; None where none were reported."""
        known = [run["total_tokens"] for run in self.runs if run["total_tokens"] is not None]
        return sum(known) if known else None

    def called(self, tool: str, /, **arguments: Any) -> Calls:
        """Asserts that a tool ran at least once, with such arguments.

        Args:
            tool: Its name.
            arguments: What the arguments must be; a function gets the argument and tells whether it will do.

        Returns:
            The calls that fit.

        Raises:
            AssertionError: There is none; the text shows the trajectory.
        """
        __tracebackhide__ = True
        calls = [call for call in self._calls() if call.name == tool]
        found, unknown = _fitting(calls, arguments)
        if not found and unknown:
            raise self.failure(f"{_asked(tool, arguments)} cannot be told: {_unseen(unknown)}")
        if not found:
            other = f" with these arguments, {_times(len(calls))} with others" if calls else ""
            raise self.failure(f"{_asked(tool, arguments)} was not called{other}")
        return Calls(self, _asked(tool, arguments), found, unknown)

    def not_called(self, tool: str, /, **arguments: Any) -> None:
        """Asserts that a tool did not run, or not with such arguments.

        Raises:
            AssertionError: It did, or nothing was recorded at all, which shows nothing.
        """
        __tracebackhide__ = True
        calls = self._calls()
        if not self.runs:
            raise self.failure(f"{_asked(tool, arguments)}: cannot be told")
        found, unknown = _fitting([call for call in calls if call.name == tool], arguments)
        if found:
            raise self.failure(f"{_asked(tool, arguments)} was called {_times(len(found))}")
        if unknown:
            raise self.failure(f"{_asked(tool, arguments)} cannot be told: {_unseen(unknown)}")

    def assert_no_findings(self, severity: Severity = "error", *, only: Collection[str] = ()) -> None:
        """Asserts that the evaluators find nothing, with the configuration that stands above the test file.

        Args:
            severity: The lowest that counts.
            only: Evaluators to ask; none: all.

        Raises:
            AssertionError: There are findings, or nothing could be judged, which is no pass.
        """
        __tracebackhide__ = True
        evaluation = self.evaluate(self._settings(), only)
        self.check(evaluation, severity)

    def evaluate(self, settings: "Settings", only: Collection[str] = ()) -> "Evaluation":
        """Judges the runs, those that have not ended, too."""
        from agenttrace.evaluators.run import evaluate

        self._take_in()
        if not self.db.exists():
            raise self.failure("no findings: cannot be told")
        # A release gate is over many runs.
        settings = settings.model_copy(update={"thresholds": {}})
        return evaluate(self.db, settings, only=only, include_open=True)

    def check(self, evaluation: "Evaluation", severity: Severity = "error") -> None:
        """Asserts that an evaluation found nothing of a severity, and that something was evaluable."""
        __tracebackhide__ = True
        from agenttrace import terminal
        from agenttrace.evaluators.reports import summary
        from agenttrace.evaluators.results import RANK

        def line(rule: str, text: str) -> str:
            return f"{terminal.inert(rule)}: {terminal.cut(text, 600)}"

        found = [each for each in evaluation.findings if RANK[each.severity] >= RANK[severity]]
        blind = [line(f"not evaluable: {row.evaluator}/{row.kind}", row.reason) for row in summary.unjudged(evaluation)]
        if found:
            lines = [line(f"{each.severity} {summary.rule(each)}", each.message) for each in found]
            raise self.failure("\n".join([f"{len(found)} findings" if len(found) > 1 else "1 finding", *lines, *blind]))
        if evaluation.passed is None:
            without = summary.without_rule(evaluation)
            reasons = blind or [f"no rule set: {', '.join(without)}" if without else "no run was recorded"]
            raise self.failure("\n".join(["nothing could be judged, which is no pass", *reasons]))

    def check_totals(self, budget: "Budget") -> None:
        """Asserts that all runs of the test together keep a budget."""
        __tracebackhide__ = True
        runs = self.runs
        for name, column in _TOTALS.items():
            limit: float | None = getattr(budget, name)
            if limit is None:
                continue
            known = [run[column] for run in runs if run[column] is not None]
            if sum(known) > limit:
                used = f"{sum(known):,.6g} in {len(runs)} runs"
                raise self.failure(
                    f"the budget {name} = {limit:,.6g} is for all runs of the test, and they took {used}"
                )
            priced = name != "max_cost_usd" or not any(run["unpriced_model_calls"] for run in runs)
            if len(known) < len(runs) or not priced:
                raise self.failure(f"the budget {name} = {limit:,.6g} cannot be told: {column} of a run is not known")

    def failure(self, what: str) -> AssertionError:
        """Returns the error that says what is wrong, and shows the trajectory."""
        return AssertionError(f"{what}\n\n{self}")

    def __str__(self) -> str:
        """Shows the runs as `agenttrace show` does; nothing in them steers a terminal."""
        from agenttrace import show
        from agenttrace.store import open_store

        found = self.runs
        if not found:
            is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
            return _NOTHING + (" OTEL_SDK_DISABLED is set: unset it." if is_off else "")
        with closing(open_store(self.db)) as connection:
            shown = [
                show.show_run(connection, show.find_run(connection, run["trajectory_id"])).partition(
                    "\n\nnot judged yet"
                )[0]
                for run in found
            ]
        return "\n\n".join(shown)

    def _calls(self) -> list[Call]:
        steps = [step for step in self.steps if step["step_index"] is not None]
        return [
            Call(step["tool_name"], step["arguments"], step["observation"], step["status"], place)
            for place, step in enumerate(steps)
            if step["kind"] == "tool" and step["tool_ran"]
        ]

    def _take_in(self) -> None:
        from agenttrace.store import refresh

        flush_stores()
        refresh(self.db, settings=self._settings(), wait_s=10.0)

    def _rows(self, query: str) -> list[dict[str, Any]]:
        from agenttrace import show
        from agenttrace.store import open_store

        self._take_in()
        if not self.db.exists():
            return []
        with closing(open_store(self.db)) as connection:
            return [_decoded(row) for row in show.rows(connection, query)]


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: json.loads(row[name]) for name in _JSON if row.get(name) is not None}


def _fitting(calls: Sequence[Call], wanted: dict[str, Any]) -> tuple[list[Call], int]:
    """Returns the calls with such arguments, and how many others may have them: not captured, hidden or cut."""
    answers = [_fits(call.arguments, wanted) for call in calls]
    return [call for call, fits in zip(calls, answers, strict=True) if fits], answers.count(None)


def _fits(arguments: Any, wanted: dict[str, Any]) -> bool | None:
    from agenttrace.encode import encode
    from agenttrace.evaluators.sequence_calls import Call as Recorded
    from agenttrace.evaluators.sequence_calls import Equality, all_of

    if not wanted or not isinstance(arguments, dict):
        return True if not wanted else None if arguments is None else False
    found = cast("dict[str, Any]", arguments)
    # As the decorators would have recorded them: JSON has no tuples.
    plain = {name: value for name, value in wanted.items() if not callable(value)}
    values = json.loads(encode(plain, limit_bytes=_WHOLE_BYTES).text)
    same = Equality({"*": "superset"})(Recorded("", found), Recorded("", values))
    return all_of([same, *(_meets(found, name, value) for name, value in wanted.items() if callable(value))])


def _meets(arguments: dict[str, Any], name: str, predicate: Callable[[Any], object]) -> bool | None:
    from agenttrace.evaluators.sequence_calls import may_be_hidden

    if name not in arguments:
        # That stands where some were cut.
        return None if "…" in arguments else False
    return None if may_be_hidden(arguments[name]) else bool(predicate(arguments[name]))


def _unseen(count: int) -> str:
    return f"the arguments of {'a call' if count == 1 else f'{count} calls'} were not captured, or are hidden or cut"


def _asked(tool: str, arguments: dict[str, Any]) -> str:
    from agenttrace import terminal

    shown = terminal.cut(
        ", ".join(f"{name}={getattr(value, '__name__', repr(value))}" for name, value in arguments.items()), _MAX_ASKED
    )
    return f"{tool}({shown})" if arguments else tool


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
