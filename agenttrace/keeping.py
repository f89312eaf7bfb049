"""The commands over the life of the data: export, prune, compact, redact, merge."""

import gzip
import re
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from agenttrace import terminal
from agenttrace.commands import FAILED, PASSED, ready, take_in
from agenttrace.config import load
from agenttrace.errors import UsageError
from agenttrace.options import Config, Db, Moment
from agenttrace.show import count

if TYPE_CHECKING:
    from agenttrace.prune import Pruned
    from agenttrace.rewrite import Rewritten

_UNITS = {
    "": 1,
    "B": 1,
    **{f"{letter}{end}": 1000 ** (n + 1) for n, letter in enumerate("KMGT") for end in ("", "B")},
    **{f"{letter}IB": 1024 ** (n + 1) for n, letter in enumerate("KMGT")},
}


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if match is None or match[2].upper() not in _UNITS:
        raise typer.BadParameter(f"{text!r} is no size; expected one such as 5GB or 500MiB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


MaxSize = Annotated[
    int | None,
    typer.Option(
        parser=_size, metavar="SIZE", help="The oldest runs go until the file is no larger: 5GB.", show_default=False
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without, say what would be done.")]


def export(
    target: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|FOLDER", help="OTLP: a file, with gzip if it ends in .gz, or - ; Parquet: a folder."
        ),
    ],
    form: Annotated[
        Literal["otlp", "parquet"],
        typer.Option("--format", help="Spans and log records as OTLP JSON lines, or all tables as Parquet."),
    ] = "otlp",
    since: Moment = None,
    until: Moment = None,
    db: Db = None,
    config: Config = None,
) -> int:
    """Write what the store holds for other programs: OTLP JSON lines, or Parquet by day and bucket."""
    from agenttrace import otlp_lines
    from agenttrace.parquet import write_parquet
    from agenttrace.store import open_store

    path, _ = ready(db, config)
    if form == "parquet":
        if since or until:
            raise UsageError("export: --since and --until are for OTLP; of Parquet, read the days that you want.")
        rows = write_parquet(path, target)
        terminal.note(f"{target}: " + ", ".join(f"{number:,} {table}" for table, number in rows.items() if number))
        return PASSED
    with open_store(path) as con:
        lines = otlp_lines.lines(con, since, until)
        if str(target) == "-":
            _print_lines(lines)
            return PASSED
        written = _write_lines(lines, target)
    terminal.note(f"{target}: {count(written, 'request')}")
    return PASSED


def _print_lines(lines: Iterable[bytes]) -> None:
    # Data keeps every character; a terminal must not act on them.
    clean = terminal.inert if sys.stdout.isatty() else str
    for line in lines:
        if not terminal.out(clean(line.decode().rstrip("\n"))):
            return


def _write_lines(lines: Iterable[bytes], target: Path) -> int:
    written = 0
    with terminal.whole_file(target) as part, (gzip.open if target.suffix == ".gz" else open)(part, "wb") as file:
        for line in lines:
            file.write(line)
            written += 1
    return written


def prune(
    older_than: Moment = None,
    max_size: MaxSize = None,
    yes: Yes = False,
    db: Db = None,
    config: Config = None,
) -> int:
    """Delete old runs, by whole sessions. Findings, outcomes, evaluations and what their labels cover stay."""
    from agenttrace import prune as pruning

    if older_than is None and max_size is None:
        raise UsageError("prune: say what goes: --older-than 30d, --max-size 5GB, or both.")
    path, _ = ready(db, config)
    planned = pruning.plan(path, older_than, max_size)
    for label, runs in planned.labelled.items():
        terminal.note(
            f"the label {label!r} keeps {count(runs, 'run')}, which its newest evaluation covers; "
            f"evaluate --label {label!r} --since 30d moves it on"
        )
    size = path.stat().st_size
    if not planned.traces and (max_size is None or size <= max_size):
        terminal.out(f"nothing to delete: {count(planned.runs_left, 'run')} stay, {_bytes(size)}")
        return PASSED
    if not yes:
        what = f"would delete {_gone(planned)} that ended before {_minute(planned.before)}"
        if not planned.traces:
            what = "would delete no run, and give back the room of what was deleted"
        terminal.out(f"{what}; {count(planned.runs_left, 'run')} stay; {_bytes(size)} -> about {_bytes(planned.bytes)}")
        terminal.note("Nothing is changed yet; --yes does it.")
        return PASSED
    done, sizes = pruning.prune(path, older_than, max_size)
    terminal.out(f"deleted {_gone(done)}; {_change(path, sizes)}")
    if max_size is not None and sizes.after > max_size:
        terminal.note(f"{path}: is still over {_bytes(max_size)}: findings and what labels cover are left.")
        return FAILED
    return PASSED


def compact(db: Db = None, config: Config = None) -> int:
    """Write the store anew, without the room that deleted rows have left."""
    from agenttrace.rewrite import rewrite

    path, _ = ready(db, config)
    sizes = rewrite(path)
    terminal.out(_change(path, sizes))
    return PASSED


def redact(
    pattern: Annotated[
        list[str] | None,
        typer.Option(help="Regular expression of what to hide besides the defaults; repeatable.", show_default=False),
    ] = None,
    yes: Yes = False,
    db: Db = None,
    config: Config = None,
) -> int:
    """Hide secrets and personal data in what the store holds already, in all texts of all tables."""
    from agenttrace import stored_redaction

    path, settings = ready(db, config)
    found = stored_redaction.count(path, pattern or ())
    changed = {table: rows for table, (rows, _) in found.items() if rows}
    if not changed:
        terminal.out("nothing to hide")
        return PASSED
    what = ", ".join(f"{rows:,} of {found[table][1]:,} rows of {table}" for table, rows in changed.items())
    if not yes:
        terminal.out(f"would hide something in {what}")
        terminal.note("Nothing is changed yet; --yes does it, and nobody can take it back.")
        return PASSED
    sizes = stored_redaction.redact(path, pattern or ())
    take_in(path, settings)
    terminal.out(f"hid something in {what}; {_change(path, sizes)}")
    return PASSED


def merge(
    sources: Annotated[list[Path], typer.Argument(metavar="STORE...", help="Stores to read.")],
    db: Db = None,
    config: Config = None,
) -> int:
    """Bring what other stores hold into this one; what it has already comes no second time."""
    from agenttrace.collectors.merge import merge as bring
    from agenttrace.places import real_path
    from agenttrace.store import default_db, open_store

    settings, path = load(config), default_db(db)
    for source in sources:
        if real_path(source) == real_path(path):
            raise UsageError(f"merge: {source} is the store itself; name others, and it with --db.")
        # One that is missing is named before anything is brought.
        open_store(source).close()
    for source in sources:
        take_in(source, settings)
        read = bring(source, path)
        take_in(path, settings)
        said = (
            count(read.spans, "span"),
            count(read.logs, "log record"),
            count(read.outcomes, "outcome"),
            count(read.evaluations, "evaluation"),
        )
        terminal.out(f"{source}: {', '.join(said)} read")
    with open_store(path) as con:
        runs = con.execute("SELECT count(*) FROM trajectories").fetchall()[0][0]
    terminal.out(f"{path}: {count(runs, 'run')}")
    return PASSED


def _gone(pruned: "Pruned") -> str:
    return f"{count(pruned.runs, 'run')} ({count(pruned.traces, 'trace')}, {count(pruned.spans, 'span')})"


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _change(path: Path, sizes: "Rewritten") -> str:
    return f"{path}: {_bytes(sizes.before)} -> {_bytes(sizes.after)}"


def _bytes(number: float) -> str:
    unit = "bytes"
    for larger in ("KB", "MB", "GB"):
        if number < 1000:
            break
        number, unit = number / 1000, larger
    return f"{number:,.0f} {unit}" if number >= 10 or unit == "bytes" else f"{number:.1f} {unit}"
