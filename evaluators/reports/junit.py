"""An evaluation as JUnit XML, which every CI system can show: one suite per evaluator."""

from xml.sax.saxutils import escape, quoteattr

from agenttrace import terminal
from agenttrace.evaluators.reports import summary
from agenttrace.evaluators.results import NO_RULE, Evaluation, Finding

# CI systems read the whole file into memory, and show one page of it.
MAX_FINDINGS = 1_000
_MESSAGE_WIDTH = 2_000


def render(evaluation: Evaluation) -> str:
    """Returns a test per finding, benchmark case and threshold, and one that passes per evaluator without findings.

    An error is a failure. Warnings and notes are skipped tests, and so is what could not be judged: they are seen, and
    turn nothing red.
    """
    suites = [_suite(name, cases) for name, cases in _suites(evaluation).items()]
    return "\n".join(
        ['<?xml version="1.0" encoding="UTF-8"?>', '<testsuites name="agenttrace">', *suites, "</testsuites>"]
    )


def _suites(evaluation: Evaluation) -> dict[str, list[str]]:
    suites: dict[str, list[str]] = {name: [] for name in evaluation.run["evaluator_versions"]}
    for finding in evaluation.findings[:MAX_FINDINGS]:
        suites.setdefault(finding.evaluator, []).append(_finding(finding))
    if (more := len(evaluation.findings) - MAX_FINDINGS) > 0:
        suites["more"] = [_case("more", "findings", f"<skipped message={_attribute(f'{more} more findings')}/>")]
    for row in summary.unjudged(evaluation):
        text = f"not evaluable in {row.runs:,} runs: {row.reason}"
        suites.setdefault(row.evaluator, []).append(
            _case(row.evaluator, f"{row.kind} (not evaluable)", f"<skipped message={_attribute(text)}/>")
        )
    # Without a rule an evaluator has no test that could pass.
    for row in evaluation.not_evaluable:
        if row.kind == NO_RULE and row.trajectory_id is None:
            suites.setdefault(row.evaluator, []).append(
                _case(row.evaluator, NO_RULE, f"<skipped message={_attribute(row.reason)}/>")
            )
    if evaluation.night is not None:
        suites["night"] = _night(evaluation)
    if evaluation.cases:
        suites["cases"] = _cases(evaluation)
    for gate in evaluation.gate:
        tag = "failure" if gate["passed"] is False and gate["gate"] == "hard" else "skipped"
        body = "" if gate["passed"] else f"<{tag} message={_attribute(summary.gate_text(gate))}/>"
        suites.setdefault("thresholds", []).append(_case("thresholds", gate["threshold"], body))
    return {name: cases or [_case(name, "no findings", "")] for name, cases in suites.items()}


def _night(evaluation: Evaluation) -> list[str]:
    tag = "skipped" if evaluation.run["trajectories"] else "failure"
    bodies = [f"<{tag} message={_attribute(line)}/>" for line in summary.alarms(evaluation)]
    return [_case("night", f"arrival {number}", body) for number, body in enumerate(bodies, 1)] or [
        _case("night", "arrival", "")
    ]


def _cases(evaluation: Evaluation) -> list[str]:
    passed = [case["case_id"] for case in evaluation.cases if case["passed"]]
    tags = {"failed": "failure", "not evaluable": "skipped"}
    cases = [
        _case("cases", case.case_id, f"<{tags[case.verdict]} message={_attribute(f'{case.verdict}: {case.why}')}/>")
        for case in summary.open_cases(evaluation)
    ]
    return cases + [_case("cases", case_id, "") for case_id in passed]


def _suite(name: str, cases: list[str]) -> str:
    failures = sum("<failure" in case for case in cases)
    skipped = sum("<skipped" in case for case in cases)
    head = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    return "\n".join([f"<testsuite name={_attribute(name)} {head}>", *cases, "</testsuite>"])


def _finding(finding: Finding) -> str:
    tag = "failure" if finding.severity == "error" else "skipped"
    text = escape(terminal.cut(finding.message, _MESSAGE_WIDTH))
    body = f"<{tag} message={_attribute(f'{finding.severity}: {finding.message}')}>{text}</{tag}>"
    return _case(finding.evaluator, f"{finding.kind} in run {finding.trajectory_id or '-'}", body)


def _case(suite: str, name: str, body: str) -> str:
    return f"<testcase classname={_attribute(suite)} name={_attribute(name)}>{body}</testcase>"


def _attribute(text: str) -> str:
    # XML 1.0 has no way to write most control characters, nor U+FFFE and U+FFFF: `cut` writes them out.
    return quoteattr(terminal.cut(text, _MESSAGE_WIDTH))
