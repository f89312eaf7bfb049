"""The commands that judge: evaluate, compare, review, promote, evaluators."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agenttrace import terminal
from agenttrace.commands import FAILED, IMPOSSIBLE, PASSED, interruptible, nearest, ready, take_in
from agenttrace.config import Settings, load
from agenttrace.errors import StoreMissingError, UsageError
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

    if label is not None and not label.strip():
        raise UsageError("evaluate: --label is empty; name the evaluation, or leave the option out.")
    if since is not None and until is not None and since >= until:
        raise UsageError(f"evaluate: --since {since.isoformat()} is not before --until {until.isoformat()}.")
    path, settings = ready(db, config)
    with interruptible():
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


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A database, or a label of the one that --db names.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="The candidate: a database or label, too.")],
    form: Annotated[
        Literal["table", "json", "markdown"], typer.Option("--format", help="How to write the results.")
    ] = "table",
    output: Output = None,
    db: Db = None,
    config: Config = None,
) -> int:
    """Say whether the head breaks safety or is worse than the base by more than chance."""
    from agenttrace.evaluators import compare as comparing
    from agenttrace.evaluators import sides
    from agenttrace.evaluators.reports import comparison as reports

    paths = [Path(name) for name in (base, head)]
    files = [path for path in paths if path.is_file()]
    if len(files) == 1:
        other = next(name for name, path in zip((base, head), paths, strict=True) if path not in files)
        raise UsageError(f"compare: {files[0]} is a file, {other!r} is none; give two databases, or two labels of one.")
    if files:
        settings = load(config)
        for path in files:
            take_in(path, settings)
        before, after = (sides.of_store(path, settings) for path in files)
    else:
        try:
            store, settings = ready(db, config)
            before, after = sides.of_labels(store, settings, base, head)
        except StoreMissingError as error:
            raise UsageError(
                f"compare: {base!r} and {head!r} are no files, and labels need a store: {error}"
            ) from error
    found = comparing.compare(before, after)
    _write(reports.RENDER[form](found), output, styled=form == "table")
    return IMPOSSIBLE if found.passed is None else PASSED if found.passed else FAILED


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
    _write(text, output, styled=form == "table")


def _write(text: str, output: Path | None, *, styled: bool) -> None:
    if output is None:
        terminal.out(text, styled=styled)
    else:
        with terminal.whole_file(output) as part:
            part.write_text(text + "\n", encoding="utf-8")


def review(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Id of a run, or how it begins: all that was said of it.")
    ] = None,
    passed: Annotated[bool | None, typer.Option("--passed/--failed", help="Your verdict on RUN.")] = None,
    detail: Annotated[str | None, typer.Option(help="Why; kept with the verdict.", show_default=False)] = None,
    db: Db = None,
    config: Config = None,
) -> int:
    """List the runs on which checker, judge and evaluators disagree; settle one by your own verdict."""
    from agenttrace.evaluators import review as reviews
    from agenttrace.show import find_run
    from agenttrace.store import open_store

    if run is None and (passed is not None or detail is not None):
        raise UsageError("review: a verdict needs its RUN; agenttrace review lists those in question.")
    if passed is None and detail is not None:
        raise UsageError("review: --detail goes with --passed or --failed.")
    path, settings = ready(db, config)
    if run is None:
        with open_store(path) as connection:
            reviews.make_relations(connection, settings)
            text, count = reviews.overview(connection)
        terminal.out(text)
        if count:
            terminal.note("\nagenttrace review RUN shows what was said; --passed or --failed after it settles the run.")
        return PASSED
    with open_store(path) as connection:
        found = find_run(connection, run, command="review")
    if passed is not None:
        reviews.settle(path, found, passed=passed, detail=detail)
        take_in(path, settings)
        terminal.note(f"recorded: a human says that run {found['trajectory_id']} {'passed' if passed else 'failed'}.")
    with open_store(path) as connection:
        reviews.make_relations(connection, settings)
        terminal.out(reviews.side_by_side(connection, found))
    if passed is None:
        terminal.note(f"\nagenttrace show {run} shows the run; --passed or --failed settles it.")
    return PASSED


def promote(
    run: Annotated[str, typer.Argument(metavar="TRAJECTORY", help="Id of a run, or how it begins.")],
    cases: Annotated[
        Path | None, typer.Option(help="Append the case to this file; else it is printed.", show_default=False)
    ] = None,
    db: Db = None,
    config: Config = None,
) -> int:
    """Turn a run into a benchmark case, with what happened as the starting point."""
    from agenttrace.evaluators import promote as promotions
    from agenttrace.evaluators import review as reviews
    from agenttrace.show import find_run
    from agenttrace.store import open_store

    path, settings = ready(db, config)
    with open_store(path) as connection:
        found = find_run(connection, run, command="promote")
        reviews.make_relations(connection, settings)
        promotion = promotions.promotion_of(connection, found["trajectory_id"])
    if cases is None:
        case = promotion.named(settings.cases.path)
        terminal.out(promotions.line_of(case))
    else:
        case = promotions.append(promotion, cases)
    for hint in promotions.hints(promotion, case, cases):
        terminal.note(hint)
    return PASSED


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
        terminal.out(terminal.inert_lines(known[name].path.read_text(encoding="utf-8").rstrip()))
        return PASSED
    rows = [(found.name, found.severity or "measures", found.question) for found in known.values()]
    terminal.out(terminal.table(("EVALUATOR", "SEVERITY", "QUESTION"), rows, fit=terminal.width()))
    return PASSED
