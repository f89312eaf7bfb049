"""The commands that judge: evaluate, nightly, compare, review, promote, evaluators."""

import os
from datetime import UTC, date, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agenttrace import terminal
from agenttrace.commands import FAILED, IMPOSSIBLE, PASSED, interruptible, nearest, ready, take_in
from agenttrace.config import Settings, load
from agenttrace.errors import StoreBusyError, StoreError, StoreMissingError, UsageError
from agenttrace.options import Config, Db, Events, FailOn, Form, Moment, Output

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from agenttrace.evaluators.nightly import Part
    from agenttrace.evaluators.results import Evaluation

# To judge a night without all that has arrived would be wrong, so a job may wait.
_NIGHT_WAIT_S = 120.0


def evaluate(
    since: Moment = None,
    until: Moment = None,
    only: Annotated[list[str] | None, typer.Option(help="Run this evaluator only; repeatable.")] = None,
    label: Annotated[str | None, typer.Option(help="Name of this evaluation.")] = None,
    form: Annotated[Form, typer.Option("--format", help="How to write the results.")] = "table",
    output: Output = None,
    report: Annotated[Path | None, typer.Option(help="Also write one self-contained HTML file.")] = None,
    events: Events = None,
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
    _check_targets(output, report, events)
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
    publish(path, settings, evaluation, form=form, output=output, report=report, events=events)
    if not evaluation.run["trajectories"]:
        terminal.note(nothing_to_judge(path))
    return _code(evaluation, allow_empty=allow_empty)


def nightly(
    backfill: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="FROM TO", help="Judge what past nights lack instead, both dates included."),
    ] = None,
    tz: Annotated[str, typer.Option(help="Time zone: a night lasts from noon to noon.")] = "UTC",
    sample: Annotated[
        float | None,
        typer.Option(
            help="Judge this share of the runs, as in 0.05, and of each run always the same.", show_default=False
        ),
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="How to write the results.")] = "table",
    output: Output = None,
    report: Annotated[Path | None, typer.Option(help="Also write one self-contained HTML file.")] = None,
    events: Events = None,
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 1 from this severity on.")] = "error",
    allow_empty: Annotated[bool, typer.Option("--allow-empty", help="A night without runs is no failure.")] = False,
    db: Db = None,
    config: Config = None,
) -> int:
    """Judge what has come since the night before, once, and say which faults are new, known, back or resolved."""
    from agenttrace.evaluators import nightly as nights
    from agenttrace.store import default_db, open_store

    if sample is not None and not 0 < sample <= 1:
        raise UsageError(f"nightly: --sample {sample:g} is no share; expected a number over 0, up to 1.")
    _check_targets(output, report, events)
    timezone = nights.zone(tz)
    settings, path = load(config), default_db(db)
    night = nights.night_of(datetime.now(UTC), timezone)
    if not path.exists():
        # Where there is no store, its spool must not be made.
        open_store(path).close()
    with nights.alone(path, tell=terminal.note), interruptible():
        _take_in_all(path, settings)
        if backfill is not None:
            if output or report or events or form != "table":
                raise UsageError("nightly: --backfill prints a line a night; leave the other outputs.")
            parts = nights.backfill(path, settings, *_nights(backfill, night), timezone, sample=sample)
            return _fill(path, settings, parts, timezone, sample, fail_on)
        evaluation = _judge_once(path, settings, night, timezone, sample, fail_on)
    _publish(path, evaluation, form=form, output=output, report=report, events=events)
    return _code(evaluation, allow_empty=allow_empty)


def _check_targets(output: Path | None, report: Path | None, events: str | None) -> None:
    """Refuses what could not be written, before anything is judged."""
    for target in (output, report):
        if target is not None:
            terminal.check_target(target)
    if output is not None and report is not None and output.absolute() == report.absolute():
        raise UsageError(f"--output and --report are one file, {output}: name two.")
    if events is not None:
        from agenttrace.evaluators.events import address_of

        address_of(events)


def _judge_once(
    path: Path, settings: Settings, night: date, timezone: "ZoneInfo", sample: float | None, fail_on: FailOn
) -> "Evaluation":
    from agenttrace.evaluators import nightly as nights
    from agenttrace.evaluators.storing import read_night

    evaluation = read_night(path, night, timezone.key)
    if evaluation is not None:
        finished_at = evaluation.run["finished_at"][:16].replace("T", " ")
        terminal.note(f"the night of {night} was judged at {finished_at} UTC; what came since waits for the next.")
        if evaluation.passed is False and not evaluation.findings and not evaluation.gate:
            terminal.note("more of its runs has arrived since, and took its findings away.")
        return evaluation
    evaluation = nights.judge(path, settings, night, timezone, sample=sample, fail_on=fail_on)
    take_in(path, settings)
    return evaluation


def _take_in_all(path: Path, settings: Settings) -> None:
    """Takes in everything: what would be missing now would be missing in the night's verdict."""
    refreshed = take_in(path, settings, wait_s=_NIGHT_WAIT_S)
    if refreshed.problem:
        raise StoreError(f"{refreshed.problem} The night was not judged.")
    if refreshed.busy:
        raise StoreBusyError(
            f"{path}: not all that has arrived is in the store, so the night was not judged; start it again."
        )


def _nights(given: tuple[str, str], present: date) -> tuple[date, date]:
    try:
        first, last = (date.fromisoformat(text) for text in given)
    except ValueError as error:
        raise UsageError(f"nightly: --backfill {' '.join(given)}: expected two dates like 2026-01-31.") from error
    if first > last:
        raise UsageError(f"nightly: --backfill {first} {last}: the first date is after the second.")
    if last >= present:
        raise UsageError(f"nightly: --backfill {first} {last}: the night of {present} is not over; end before it.")
    return first, last


def _fill(
    path: Path, settings: Settings, parts: "list[Part]", timezone: "ZoneInfo", sample: float | None, fail_on: FailOn
) -> int:
    from agenttrace.evaluators import nightly as nights
    from agenttrace.evaluators.reports import summary

    runs = sum(len(part.runs) for part in parts)
    spread = len({part.night for part in parts})
    terminal.note(
        f"{summary.count(runs, 'run')} of {summary.count(spread, 'night')} to judge"
        if runs
        else "nothing to judge: these nights are complete."
    )
    codes = [PASSED]
    for part in parts:
        evaluation = nights.judge_part(path, settings, part, timezone, sample=sample, fail_on=fail_on)
        take_in(path, settings)
        terminal.out(summary.verdict_line(evaluation))
        codes.append(_code(evaluation, allow_empty=False))
    return FAILED if FAILED in codes else max(codes)


def _code(evaluation: "Evaluation", *, allow_empty: bool) -> int:
    if evaluation.passed is None:
        # Runs that nobody could judge are no empty night.
        return PASSED if allow_empty and not evaluation.run["trajectories"] else IMPOSSIBLE
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
    path: Path,
    settings: Settings,
    evaluation: "Evaluation",
    *,
    form: str,
    output: Path | None,
    report: Path | None,
    events: str | None = None,
) -> None:
    """Keeps an evaluation in the store, and writes it in the form asked for."""
    from agenttrace.evaluators.storing import write_evaluation

    if evaluation.run["trajectories"]:
        write_evaluation(path, evaluation)
        take_in(path, settings)
    _publish(path, evaluation, form=form, output=output, report=report, events=events)


def _publish(
    path: Path, evaluation: "Evaluation", *, form: str, output: Path | None, report: Path | None, events: str | None
) -> None:
    text: str = import_module(f"agenttrace.evaluators.reports.{form}").render(evaluation)
    _write(text, output, styled=form == "table")
    if report is not None:
        from agenttrace.evaluators.reports import html
        from agenttrace.store import open_store

        with open_store(path) as connection:
            page = html.render(evaluation, connection)
        with terminal.whole_file(report) as part:
            part.write_text(page, encoding="utf-8")
    if form == "github" and (summary := os.environ.get("GITHUB_STEP_SUMMARY")):
        from agenttrace.evaluators.reports import markdown

        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(markdown.render(evaluation) + "\n")
    if events is not None:
        from agenttrace.evaluators.events import send

        terminal.note(f"{send(evaluation, path, events):,} findings sent to {events}")


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
