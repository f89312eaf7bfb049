"""The commands that judge: evaluate, evaluators."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agenttrace import terminal
from agenttrace.commands import FAILED, IMPOSSIBLE, PASSED, nearest, ready, take_in
from agenttrace.config import Settings, load
from agenttrace.errors import UsageError
from agenttrace.options import Config, Db, FailOn, Form, Moment, Output

if TYPE_CHECKING:
    from agenttrace.evaluators.results import Evaluation


def evaluate(
    since: Moment = None,
    until: Moment = None,
    only: Annotated[list[str] | None, typer.Option(help="Run this evaluator only; repeatable.")] = None,
    label: Annotated[str | None, typer.Option(help="Name of this evaluation.")] = None,
    form: Annotated[Form, typer.Option("--format", help="How to write the results.")] = "table",
    output: Output = None,
    report: Annotated[Path | None, typer.Option(help="Also write one self-contained HTML file.")] = None,
    include_open: Annotated[bool, typer.Option("--include-open", help="Judge runs that have not ended, too.")] = False,
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 1 from this severity on.")] = "error",
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="Nothing to judge is no failure.")] = False,
    db: Db = None,
    config: Config = None,
) -> int:
    """Judge the runs: print findings and measurements, and keep them in the store."""
    from agenttrace.completeness import nothing_to_judge
    from agenttrace.evaluators.run import evaluate as judge

    if since is not None and until is not None and since >= until:
        raise UsageError(f"evaluate: --since {since.isoformat()} is not before --until {until.isoformat()}.")
    path, settings = ready(db, config)
    evaluation = judge(
        path,
        settings,
        since=since,
        until=until,
        only=only or (),
        label=label,
        include_open=include_open,
        fail_on=fail_on,
    )
    publish(path, settings, evaluation, form=form, output=output, report=report)
    if not evaluation.run["trajectories"]:
        terminal.note(nothing_to_judge(path))
    if evaluation.passed is None:
        return PASSED if allow_empty else IMPOSSIBLE
    return PASSED if evaluation.passed else FAILED


def publish(
    path: Path, settings: Settings, evaluation: "Evaluation", *, form: str, output: Path | None, report: Path | None
) -> None:
    """Keeps an evaluation in the store, and writes it in the form asked for."""
    from agenttrace.evaluators.run import write_evaluation

    if evaluation.run["trajectories"]:
        write_evaluation(path, evaluation)
        take_in(path, settings)
    if report is not None:
        from agenttrace.evaluators.reports import html
        from agenttrace.store import open_store

        with open_store(path) as connection:
            page = html.render(evaluation, connection)
        with terminal.whole_file(report) as part:
            part.write_text(page, encoding="utf-8")
    text: str = import_module(f"agenttrace.evaluators.reports.{form}").render(evaluation)
    if output is None:
        terminal.out(text, styled=form == "table")
    else:
        with terminal.whole_file(output) as part:
            part.write_text(text + "\n", encoding="utf-8")


def evaluators(
    name: Annotated[str | None, typer.Argument(help="Show this evaluator's file.")] = None,
    _db: Db = None,
    config: Config = None,
) -> int:
    """List the evaluators, or show one."""
    from agenttrace.evaluators import catalog

    known = catalog.load(load(config).evaluator_paths)
    if name is not None:
        if name not in known:
            raise UsageError(f"evaluators: no evaluator {name!r}; {nearest(name, known)}")
        terminal.out(known[name].path.read_text(encoding="utf-8").rstrip())
        return PASSED
    rows = [(found.name, found.severity or "measures", found.question) for found in known.values()]
    terminal.out(terminal.table(("EVALUATOR", "SEVERITY", "QUESTION"), rows, fit=terminal.width()))
    return PASSED
