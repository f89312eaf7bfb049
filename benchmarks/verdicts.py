"""How right the verdicts are: precision and recall of each evaluator, against what is known to have happened.

Usage: verdicts.py [FOLDER...]. A folder holds recordings, `<framework>/<scenario>.jsonl`, with the truth beside each
(`<scenario>.expected.json`); without one, the recordings of the tests are judged. Two sorts of trials:

- What stands in the truth as a fault must be found, and no evaluator may report an error beside it.
- Rules made from the truth: a rule that the run kept must stay silent; the same rule, changed by one call, argument,
  word or name so that the run breaks it, must fire. The run is real, only the rule is made.
"""

import json
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from agenttrace import store
from agenttrace.collectors.files import import_files
from agenttrace.config import Settings
from agenttrace.evaluators import catalog
from agenttrace.evaluators.results import Evaluation, Finding
from agenttrace.evaluators.run import evaluate
from agenttrace.evaluators.statistics import wilson

RECORDINGS = Path(__file__).parent.parent / "tests" / "traces"
# The recordings were made with this budget.
BUDGETS = {"default": {"max_tool_calls": 5}}
NEVER_SAID = "zyzzyva"

Json = dict[str, Any]
Call = tuple[str, Json]


class Trial(NamedTuple):
    """One question with a known answer: must this evaluator report something, and did it?

    `fired` is None where it says itself that the recording does not show what it needs.
    """

    evaluator: str
    must_fire: bool
    fired: bool | None
    place: str

    @property
    def is_wrong(self) -> bool:
        """Whether there is a verdict, and it is not the truth."""
        return self.fired is not None and self.fired != self.must_fire


class Rule(NamedTuple):
    """A rule for one run, and whether the run breaks it."""

    evaluator: str
    is_broken: bool
    case: Json | None = None
    parameters: Json | None = None
    tools: Json | None = None


def main(folders: list[str]) -> int:
    """Prints the table; returns 1 where a verdict was wrong."""
    truths = sorted(path for root in folders or [RECORDINGS] for path in Path(root).glob("*/*.expected.json"))
    with tempfile.TemporaryDirectory() as folder:
        trials = list(Recordings(truths, Path(folder)).trials())
    for trial in trials:
        if trial.is_wrong:
            sys.stdout.write(f"{'missed' if trial.must_fire else 'false alarm'}: {trial.evaluator}: {trial.place}\n")
    print_table(trials)
    return int(any(trial.is_wrong for trial in trials))


class Recordings:
    """Recordings in one store; each is a task of its own."""

    def __init__(self, truths: list[Path], folder: Path) -> None:
        self._db = folder / "agenttrace.duckdb"
        self._truths: dict[str, Json] = {}
        for path in truths:
            stem = path.name.removesuffix(".expected.json")
            task_id = f"{path.parent.name}/{stem}"
            self._truths[task_id] = json.loads(path.read_text(encoding="utf-8"))
            files = [path.with_name(stem + end) for end in (".jsonl", ".logs.jsonl")]
            import_files([str(file) for file in files if file.exists()], self._db, task_id=task_id)
        store.refresh(self._db)
        with store.open_store(self._db) as con:
            runs = con.execute("SELECT trajectory_id, task_id FROM trajectories").fetchall()
        self._tasks: dict[str | None, str] = dict(runs)
        self._runs = Counter(self._tasks.values())

    def trials(self) -> Iterator[Trial]:
        """Yields every trial of every recording."""
        evaluation = evaluate(self._db, Settings.model_validate({"budgets": BUDGETS}))
        found, blind = self._findings(evaluation), self._blind(evaluation)
        for task_id, truth in self._truths.items():
            yield from against_truth(truth, found[task_id], blind[task_id], task_id)
        for rules_at_once in self._batches():
            yield from self._under(rules_at_once)

    def _batches(self) -> Iterable[dict[str, Rule]]:
        """Returns what one evaluation can judge at once: one rule for each recording, all of one configuration."""
        batches: dict[tuple[str, int], dict[str, Rule]] = defaultdict(dict)
        for task_id, truth in self._truths.items():
            seen: Counter[str] = Counter()
            # A run that was recorded as several traces is several runs to a rule.
            for rule in rules(truth) if self._runs[task_id] == 1 else ():
                configuration = json.dumps([rule.evaluator, rule.parameters, rule.tools])
                batches[configuration, seen[configuration]][task_id] = rule
                seen[configuration] += 1
        return batches.values()

    def _under(self, rules_at_once: dict[str, Rule]) -> Iterator[Trial]:
        cases = self._db.with_name("cases.jsonl")
        lines = [{"case_id": task_id, **(rule.case or {})} for task_id, rule in rules_at_once.items()]
        cases.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        rule = next(iter(rules_at_once.values()))
        parameters = {rule.evaluator: rule.parameters or {}}
        values = {"cases": {"path": str(cases)}, "tools": rule.tools or {}, "evaluators": parameters}
        evaluation = evaluate(self._db, Settings.model_validate(values), only=[rule.evaluator])
        found, blind = self._findings(evaluation), self._blind(evaluation)
        for task_id, own in rules_at_once.items():
            fired = bool(found[task_id]) or (None if own.evaluator in blind[task_id] else False)
            yield Trial(own.evaluator, own.is_broken, fired, f"{task_id} under {own}")

    def _blind(self, evaluation: Evaluation) -> dict[str, set[str]]:
        """Returns which evaluators could not judge a recording in full."""
        blind: dict[str, set[str]] = defaultdict(set)
        for row in evaluation.not_evaluable:
            if row.trajectory_id is not None:
                blind[self._tasks[row.trajectory_id]].add(row.evaluator)
        return blind

    def _findings(self, evaluation: Evaluation) -> dict[str, list[Finding]]:
        found: dict[str, list[Finding]] = defaultdict(list)
        for finding in evaluation.findings:
            found[self._tasks[finding.trajectory_id]].append(finding)
        return found


def against_truth(truth: Json, findings: Iterable[Finding], blind: set[str], place: str) -> Iterator[Trial]:
    """Yields a trial for each fault of the truth, and one for each evaluator that must report no error beside them."""
    left = list(findings)
    for fault in truth["findings"]:
        hits = [finding for finding in left if tells_of(finding, fault)]
        left = [finding for finding in left if finding not in hits]
        # What a recording does not show need not be found.
        if fault.get("evidence_in_spans", True):
            fired = bool(hits) or (None if fault["evaluator"] in blind else False)
            yield Trial(fault["evaluator"], True, fired, f"{place}: {fault.get('kind', fault.get('tool'))}")
    for name in catalog.load():
        alarms = [f"{f.kind}: {f.message}" for f in left if f.evaluator == name and f.severity == "error"]
        yield Trial(name, False, bool(alarms), f"{place}: {alarms}")


def tells_of(finding: Finding, fault: Json) -> bool:
    """Whether a finding reports this fault; one that spans two runs of a session is a warning by design."""
    return (
        finding.evaluator == fault["evaluator"]
        and finding.severity != "note"
        and fault.get("kind") in (None, finding.kind)
        and fault.get("tool") in (None, finding.tool_name)
    )


def rules(truth: Json) -> Iterator[Rule]:
    """Yields rules for a recording of one run."""
    executed = truth["executed_tool_calls"]
    if truth["runs"] != 1 or truth["framework_tools"] or not executed:
        return
    yield from rules_on_sequences([called(call) for call in executed])
    # What failed may have had no effect, and some rules are about effects.
    succeeded = [call for call in executed if call["status"] == "ok"]
    if succeeded:
        yield from rules_on_tools([call["tool"] for call in succeeded])
        yield from rules_on_arguments(*called(succeeded[0]))
    for call in succeeded:
        if call["mutates"]:
            # The users of these runs ask once, and nobody asks them back.
            yield Rule("unconfirmed_mutation", True, parameters={"destructive": [call["tool"]]})
    for response in truth["final_responses"]:
        if response:
            yield from rules_on_responses(response)


def called(call: Json) -> Call:
    """Returns tool and arguments."""
    return call["tool"], call["arguments"]


def rules_on_tools(names: list[str]) -> Iterator[Rule]:
    """Yields rules on which tools ran, and in what order."""
    first, last = names[0], names[-1]
    yield Rule("forbidden_tools", True, tools={"forbidden": [first]})
    yield Rule("forbidden_tools", True, case={"forbidden_tools": [last]})
    yield Rule("forbidden_tools", False, tools={"forbidden": [f"{first}_all", first[:-1]]})
    yield Rule("tool_order", True, parameters={"never": [last]})
    yield Rule("tool_order", False, parameters={"never": [f"{last}_all"]})
    yield Rule("tool_order", True, parameters={"required": [f"{first}_all"]})
    yield Rule("tool_order", False, parameters={"required": [first, last]})
    if names.count(first) == names.count(last) == 1 < len(names):
        yield Rule("tool_order", True, parameters={"before": [[last, first]]})
    yield Rule("unconfirmed_mutation", False, parameters={"destructive": [f"{first}_all"]})


def rules_on_arguments(tool: str, arguments: Json) -> Iterator[Rule]:
    """Yields rules on the values of a call's arguments, and on whose data they name."""
    for name, value in arguments.items():
        yield Rule("tool_arguments", True, case={"expected_arguments": {tool: {name: [NEVER_SAID]}}})
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield Rule("tool_arguments", True, parameters={"max": {f"{tool}.{name}": value - 1}})
            yield Rule("tool_arguments", True, parameters={"min": {f"{tool}.{name}": value + 1}})
        elif isinstance(value, str):
            yield Rule("tenant_isolation", True, case={"tenant_id": NEVER_SAID}, parameters={"keys": [name]})


def rules_on_sequences(calls: list[Call]) -> Iterator[Rule]:
    """Yields sequences that the run followed, and the same with one thing changed; also how many calls it made."""
    n = len(calls)
    yield Rule("outcome", False, case={"outcome_sql": f"tool_call_count = {n} AND len(tools) = {n}"})
    yield Rule("outcome", True, case={"outcome_sql": f"(SELECT count(*) FROM steps WHERE kind = 'tool') < {n}"})
    yield Rule("step_efficiency", True, case={"max_allowed_steps": n - 1})
    followed = [{"tool": tool, "arguments": arguments} for tool, arguments in calls]
    other = [*followed[:-1], {"tool": calls[-1][0], "arguments": {NEVER_SAID: 1}}]
    yield sequence(False, followed, "any_order", "exact")
    yield sequence(False, followed[::-1], "any_order", "exact")
    yield sequence(False, [*followed, followed[0]], "subset", "exact")
    yield sequence(False, followed[:-1], "superset", "exact")
    yield sequence(False, other, "any_order", "ignore")
    yield sequence(True, other, "any_order", "exact")
    yield sequence(True, followed[:-1], "any_order", "ignore")
    yield sequence(True, followed[:-1], "subset", "exact")
    yield sequence(True, [*followed, {"tool": NEVER_SAID}], "superset", "ignore")
    yield sequence(True, [*followed, {"tool": NEVER_SAID}], "in_order", "ignore")


def sequence(is_broken: bool, reference: list[Json], mode: str, arguments_mode: str) -> Rule:
    """Returns the rule that a run matches one sequence."""
    case = {"acceptable_tool_sequences": [reference], "sequence_mode": mode, "arguments_mode": arguments_mode}
    return Rule("tool_sequence", is_broken, case=case)


def rules_on_responses(response: str) -> Iterator[Rule]:
    """Yields words that the final response holds, and one that it does not."""
    words = response.split()
    said = " ".join(words[:3]).strip(".,;:!?")
    yield Rule("response_content", False, case={"expected_outcome": {"must_include": [said]}})
    yield Rule("response_content", False, case={"expected_outcome": {"must_not_include": [NEVER_SAID]}})
    yield Rule("response_content", True, case={"expected_outcome": {"must_include": [NEVER_SAID]}})
    yield Rule("response_content", True, case={"expected_outcome": {"must_not_include": [said]}})


def print_table(trials: Iterable[Trial]) -> None:
    """Prints one line per evaluator, with the 95 % interval of each ratio."""
    by_name: dict[str, list[Trial]] = defaultdict(list)
    for trial in trials:
        by_name[trial.evaluator].append(trial)
    table = Table("evaluator", "must fire", "fired", "must not", "fired", "can't tell", "precision", "recall", box=None)
    for name, own in sorted(by_name.items()):
        told = [trial for trial in own if trial.fired is not None]
        faults = [trial for trial in told if trial.must_fire]
        right = sum(bool(trial.fired) for trial in faults)
        false = sum(bool(trial.fired) for trial in told) - right
        counts = (len(faults), right, len(told) - len(faults), false, len(own) - len(told))
        table.add_row(name, *map(str, counts), ratio(right, right + false), ratio(right, len(faults)))
    Console(width=120).print(table)


def ratio(part: int, whole: int) -> str:
    """Returns a ratio with its interval (Wilson), as text."""
    interval = wilson(part, whole)
    return "-" if interval is None else f"{part / whole:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
