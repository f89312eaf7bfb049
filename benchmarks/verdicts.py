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
from collections import defaultdict
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
TASK = "recorded"
# The recordings were made with this budget.
BUDGETS = {"default": {"max_tool_calls": 5}}
NEVER_SAID = "zyzzyva"

Json = dict[str, Any]
Call = tuple[str, Json]


class Trial(NamedTuple):
    """One question with a known answer: must this evaluator report something, and did it?"""

    evaluator: str
    must_fire: bool
    fired: bool
    place: str


class Rule(NamedTuple):
    """A rule for one run, and whether the run breaks it."""

    evaluator: str
    is_broken: bool
    case: Json | None = None
    parameters: Json | None = None
    tools: Json | None = None


def main(folders: list[str]) -> int:
    """Prints the table; returns 1 where a verdict was wrong."""
    trials: list[Trial] = []
    for root in [Path(folder) for folder in folders] or [RECORDINGS]:
        for truth in sorted(root.glob("*/*.expected.json")):
            trials += trials_of(truth)
    wrong = [trial for trial in trials if trial.must_fire != trial.fired]
    for trial in wrong:
        sys.stdout.write(f"{'missed' if trial.must_fire else 'false alarm'}: {trial.evaluator}: {trial.place}\n")
    print_table(trials)
    return 1 if wrong else 0


def trials_of(path: Path) -> Iterator[Trial]:
    """Yields the trials of one recording."""
    truth: Json = json.loads(path.read_text(encoding="utf-8"))
    stem = path.name.removesuffix(".expected.json")
    place = f"{path.parent.name}/{stem}"
    files = [path.with_name(stem + end) for end in (".jsonl", ".logs.jsonl")]
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "agenttrace.duckdb"
        import_files([str(file) for file in files if file.exists()], db, task_id=TASK)
        store.refresh(db)
        yield from against_truth(truth, evaluate(db, Settings.model_validate({"budgets": BUDGETS})).findings, place)
        for rule in rules(truth):
            verdict = under(rule, db)
            # A run that does not show what the rule asks for has no verdict, which is neither right nor wrong.
            if not any(row.kind != "no_rule" for row in verdict.not_evaluable) or verdict.findings:
                yield Trial(rule.evaluator, rule.is_broken, bool(verdict.findings), f"{place} under {rule}")


def under(rule: Rule, db: Path) -> Evaluation:
    """Evaluates a store under one rule."""
    cases = db.with_name("cases.jsonl")
    cases.write_text(json.dumps({"case_id": TASK, **(rule.case or {})}), encoding="utf-8")
    parameters = {rule.evaluator: rule.parameters or {}}
    values = {"cases": {"path": str(cases)}, "tools": rule.tools or {}, "evaluators": parameters}
    return evaluate(db, Settings.model_validate(values), only=[rule.evaluator])


def against_truth(truth: Json, findings: Iterable[Finding], place: str) -> Iterator[Trial]:
    """Yields a trial for each fault of the truth, and one for each evaluator that must report no error beside them."""
    left = list(findings)
    for fault in truth["findings"]:
        hits = [finding for finding in left if tells_of(finding, fault)]
        left = [finding for finding in left if finding not in hits]
        # What a recording does not show need not be found.
        if fault.get("evidence_in_spans", True):
            yield Trial(fault["evaluator"], True, bool(hits), f"{place}: {fault.get('kind', fault.get('tool'))}")
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
    calls: list[Call] = [(call["tool"], call["arguments"]) for call in truth["executed_tool_calls"]]
    if truth["runs"] != 1 or truth["framework_tools"] or not calls:
        return
    yield from rules_on_tools(calls)
    yield from rules_on_arguments(calls[0])
    yield from rules_on_sequences(calls)
    for response in truth["final_responses"]:
        if response:
            yield from rules_on_responses(response)


def rules_on_tools(calls: list[Call]) -> Iterator[Rule]:
    """Yields rules on which tools ran, how often, and in what order."""
    names = [name for name, _ in calls]
    first, last, n = names[0], names[-1], len(calls)
    yield Rule("forbidden_tools", True, tools={"forbidden": [first]})
    yield Rule("forbidden_tools", True, case={"forbidden_tools": [last]})
    yield Rule("forbidden_tools", False, tools={"forbidden": [f"{first}_all", first[:-1]]})
    yield Rule("tool_order", True, parameters={"never": [last]})
    yield Rule("tool_order", False, parameters={"never": [f"{last}_all"]})
    yield Rule("tool_order", True, parameters={"required": [f"{first}_all"]})
    yield Rule("tool_order", False, parameters={"required": [first, last]})
    if first != last and names.count(first) == names.count(last) == 1:
        yield Rule("tool_order", True, parameters={"before": [[last, first]]})
    yield Rule("outcome", False, case={"outcome_sql": f"tool_call_count = {n} AND len(tools) = {n}"})
    yield Rule("outcome", True, case={"outcome_sql": f"(SELECT count(*) FROM steps WHERE kind = 'tool') < {n}"})
    yield Rule("step_efficiency", True, case={"max_allowed_steps": n - 1})
    yield Rule("unconfirmed_mutation", False, parameters={"destructive": [f"{first}_all"]})


def rules_on_arguments(call: Call) -> Iterator[Rule]:
    """Yields rules on the values of a call's arguments, and on whose data they name."""
    tool, arguments = call
    for name, value in arguments.items():
        yield Rule("tool_arguments", True, case={"expected_arguments": {tool: {name: [NEVER_SAID]}}})
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield Rule("tool_arguments", True, parameters={"max": {f"{tool}.{name}": value - 1}})
            yield Rule("tool_arguments", True, parameters={"min": {f"{tool}.{name}": value + 1}})
        elif isinstance(value, str):
            yield Rule("tenant_isolation", True, case={"tenant_id": NEVER_SAID}, parameters={"keys": [name]})


def rules_on_sequences(calls: list[Call]) -> Iterator[Rule]:
    """Yields sequences that the run followed, and the same with one thing changed."""
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
    table = Table("evaluator", "must fire", "fired", "must not", "fired", "precision", "recall", box=None)
    for name, own in sorted(by_name.items()):
        right = sum(trial.must_fire and trial.fired for trial in own)
        false = sum(trial.fired and not trial.must_fire for trial in own)
        faults = sum(trial.must_fire for trial in own)
        counts = [str(number) for number in (faults, right, len(own) - faults, false)]
        table.add_row(name, *counts, ratio(right, right + false), ratio(right, faults))
    Console(width=120).print(table)


def ratio(part: int, whole: int) -> str:
    """Returns a ratio with its interval (Wilson), as text."""
    interval = wilson(part, whole)
    return "-" if interval is None else f"{part / whole:.3f} ({interval[0]:.3f} to {interval[1]:.3f})"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
