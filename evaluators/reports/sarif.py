"""An evaluation as SARIF 2.1.0, for code scanning."""

import json
from importlib.metadata import version
from typing import Any

from agenttrace import terminal
from agenttrace.evaluators import catalog
from agenttrace.evaluators.reports import summary
from agenttrace.evaluators.results import Evaluation, Fault, Finding

# GitHub takes 25,000 results per run, and shows the first 5,000.
MAX_FINDINGS = 5_000
_MESSAGE_WIDTH = 1_000
# A fault that is back is new to whoever had closed it.
_BASELINE = {"new": "new", "back": "new", "known": "unchanged", "resolved": "absent"}


def render(evaluation: Evaluation) -> str:
    """Returns one run with a rule per kind of finding and a result per finding.

    Source:
        OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
    """
    findings = [*evaluation.findings[:MAX_FINDINGS], *(evaluation.night.resolved if evaluation.night else ())]
    rules = {summary.rule(finding): finding.evaluator for finding in findings}
    known = catalog.load()
    driver = {
        "name": "agenttrace",
        "version": version("agenttrace-otel"),
        "rules": [_rule(rule, known.get(evaluator)) for rule, evaluator in rules.items()],
    }
    run = {
        "tool": {"driver": driver},
        "results": [_result(finding) for finding in findings[:MAX_FINDINGS]],
        "properties": {"verdict": summary.verdict_line(evaluation)},
    }
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2)


def _rule(rule: str, evaluator: catalog.Evaluator | None) -> dict[str, Any]:
    # Code scanning demands all three texts; evaluators of the user's own are not in the catalogue.
    question = evaluator.question if evaluator else rule
    limits = f" Limits: {evaluator.limits}" if evaluator else ""
    return {
        "id": rule,
        "shortDescription": {"text": rule},
        "fullDescription": {"text": question},
        "help": {"text": question + limits},
    }


def _result(finding: Finding | Fault) -> dict[str, Any]:
    place = {"name": finding.trajectory_id or "-", "kind": "trajectory"}
    baseline = {"baselineState": _BASELINE[finding.state]} if finding.state in _BASELINE else {}
    return baseline | {
        "ruleId": summary.rule(finding),
        "level": finding.severity,
        "message": {"text": terminal.cut(finding.message, _MESSAGE_WIDTH)},
        # Runs of agents have no lines; viewers want a file for each result.
        "locations": [
            {
                "physicalLocation": {"artifactLocation": {"uri": "agenttrace.duckdb"}, "region": {"startLine": 1}},
                "logicalLocations": [place],
            }
        ],
        "partialFingerprints": {"agenttrace/v1": finding.fingerprint, "occurrence/v1": finding.finding_id},
    }
