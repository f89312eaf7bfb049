"""The command line: each command parses its arguments, calls one function, and prints.

Results go to standard output, everything else to standard error. Exit codes: 0 passed; 1 findings at or over --fail-on,
a gate that failed, or input that was skipped; 2 the command could not do its work.

duckdb, pyarrow and the readers of traces are imported inside the commands: `--help` must not wait for them.
"""

import logging
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from agenttrace import judging, keeping, private, terminal
from agenttrace.commands import FAILED, IMPOSSIBLE, PASSED, ready, take_in
from agenttrace.config import load
from agenttrace.errors import AgentTraceError, UsageError
from agenttrace.options import Config, Db, FileFormat, Moment, Output, show_version

_LIST_LIMIT = 50
_SHOWN_PROBLEMS = 20

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _agenttrace(  # pyright: ignore[reportUnusedFunction]
    _version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
    _debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; also after a command.")
    ] = False,
) -> None:
    """OpenTelemetry tracing for AI agents, with an offline evaluator in SQL."""


@app.command()
def demo(
    folder: Annotated[
        Path, typer.Argument(help="Where the store and the report go; made if it does not exist.")
    ] = Path("agenttrace-demo"),
) -> int:
    """Run two small agents with known faults, evaluate them, write the report. No network, no key."""
    from agenttrace import demo as demo_agents
    from agenttrace.evaluators.run import evaluate as judge

    path = demo_agents.run(folder)
    settings = demo_agents.settings()
    take_in(path, settings)
    report = folder / "report.html"
    evaluation = judge(path, settings)
    judging.publish(path, settings, evaluation, form="table", output=None, report=report)
    terminal.out(f"\nreport: {report.resolve()}")
    return PASSED


@app.command("import")
def import_(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files to read; - is standard input.")],
    task_id: Annotated[str | None, typer.Option(help="Task of all runs in these files.", show_default=False)] = None,
    trial: Annotated[int | None, typer.Option(help="Number of the attempt.", show_default=False)] = None,
    messages: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Where transcripts hold their messages; else 'messages' or 'traj'.", show_default=False
        ),
    ] = None,
    form: Annotated[
        FileFormat | None,
        typer.Option("--format", help="What the files are; else each is told by its content.", show_default=False),
    ] = None,
    db: Db = None,
    config: Config = None,
) -> int:
    """Read OTLP (JSON, JSON lines, protobuf), Jaeger and Tempo JSON, transcripts, outcomes as CSV; plain or gzip."""
    from agenttrace.collectors.files import import_files
    from agenttrace.store import default_db

    settings = load(config)
    path = default_db(db)
    with terminal.progress("reading") as tell:
        result = import_files(
            files,
            path,
            task_id=task_id,
            trial=trial,
            messages_key=messages,
            form=form,
            progress=lambda name, count: tell(f"{name}: {count:,} rows"),
        )
    for problem in result.skipped[:_SHOWN_PROBLEMS]:
        terminal.note(f"{problem.place}: skipped: {problem.message}")
    if (more := result.skipped_count - _SHOWN_PROBLEMS) > 0:
        terminal.note(f"... and {more:,} more were skipped")
    for leniency, count in result.leniencies.items():
        terminal.note(f"taken although the format forbids it, {count:,} times: {leniency}")
    take_in(path, settings)
    found = [
        (result.transcripts, "transcripts"),
        (result.spans, "spans"),
        (result.logs, "log records"),
        (result.outcomes, "outcomes"),
    ]
    counts = ", ".join(f"{count:,} {name}" for count, name in found if count) or "nothing"
    terminal.out(f"{counts} of {result.traces:,} traces in {result.files:,} of {len(files):,} files -> {path}")
    if result.skipped_count and not result.read_count():
        return IMPOSSIBLE
    return FAILED if result.skipped_count else PASSED


@app.command()
def collect(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    http_port: Annotated[int, typer.Option(min=0, max=65535, help="OTLP over HTTP; 0 is a free port.")] = 4318,
    grpc_port: Annotated[int, typer.Option(min=0, max=65535, help="OTLP over gRPC; 0 is a free port.")] = 4317,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="AGENTTRACE_TOKEN",
            help="Bearer token that clients must send. A list of processes shows the option, not the variable.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file that holds the token, instead.", show_default=False)
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate of both ports, with its chain (PEM).", show_default=False)
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key (PEM).", show_default=False)] = None,
    tls_client_ca: Annotated[
        Path | None,
        typer.Option(help="Take clients only whose certificates these roots have signed (PEM).", show_default=False),
    ] = None,
    allow_anonymous: Annotated[
        bool, typer.Option("--allow-anonymous", help="Listen beyond this machine without asking who sends.")
    ] = False,
    max_body: Annotated[int, typer.Option(min=1, help="Largest request in bytes, as sent.")] = 16 << 20,
    max_inflated: Annotated[int, typer.Option(min=1, help="Largest request in bytes, unpacked.")] = 64 << 20,
    db: Db = None,
    config: Config = None,
) -> int:
    """Receive spans over OTLP, HTTP (protobuf, JSON, gzip) and gRPC, until Ctrl-C."""
    # gRPC writes a line of its own for each client that fails to shake hands.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    from agenttrace.collectors.access import load_tls, read_token
    from agenttrace.collectors.otlp import OTLPReceiver
    from agenttrace.store import default_db

    path = default_db(db)
    receiver = OTLPReceiver(
        path,
        host,
        http_port=http_port,
        grpc_port=grpc_port,
        token=read_token(token, token_file),
        tls=load_tls(tls_cert, tls_key, tls_client_ca),
        allow_anonymous=allow_anonymous,
        max_body=max_body,
        max_inflated=max_inflated,
        settings=load(config),
    )
    receiver.run(ready=lambda urls: _announce(urls, path))
    counts = receiver.counts
    terminal.note(f"{counts.spans:,} spans received; {counts.rejected_spans:,} skipped")
    return PASSED


def _announce(urls: list[str], path: Path) -> None:
    for url in urls:
        terminal.out(f"listening on {url} -> {path}")


@app.command("list")
def list_(
    limit: Annotated[int, typer.Option(min=1, help="Show this many runs.")] = _LIST_LIMIT,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent, or of agents such as 'shop-*'.")] = None,
    task: Annotated[str | None, typer.Option(help="Only of this task; 'restock-*' is a pattern here, too.")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session.")] = None,
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    model: Annotated[str | None, typer.Option(help="Only with a call of this model.")] = None,
    finding: Annotated[str | None, typer.Option(help="Only with a finding of this evaluator; '*': of any.")] = None,
    min_cost: Annotated[float | None, typer.Option(min=0, help="Only from so many US dollars on.")] = None,
    since: Moment = None,
    until: Moment = None,
    db: Db = None,
    config: Config = None,
) -> int:
    """List the runs, newest first."""
    from agenttrace import show
    from agenttrace.completeness import nothing_to_judge
    from agenttrace.store import open_store

    path, _ = ready(db, config)
    only = show.Filter(agent, task, session, user, model, finding, since, until, min_cost)
    with open_store(path) as connection:
        text, total = show.list_runs(connection, limit, only)
    if not total:
        terminal.note(nothing_to_judge(path) if only == show.ANY_RUN else f"{path}: no run passes these filters.")
        return PASSED
    terminal.out(text)
    if total > limit:
        terminal.note(f"{limit} of {total:,} runs; --limit {total} shows all.")
    return PASSED


@app.command("show")
def show_(
    run: Annotated[str | None, typer.Argument(metavar="ID", help="Id of a run or trace, or how it begins.")] = None,
    last: Annotated[bool, typer.Option("--last", help="Show the newest run.")] = False,
    form: Annotated[Literal["tree", "json", "markdown"], typer.Option("--format", help="How to write it.")] = "tree",
    db: Db = None,
    config: Config = None,
) -> int:
    """Show one run as a tree, with its findings."""
    from agenttrace import show
    from agenttrace.store import open_store

    if (run is None) != last:
        raise UsageError("show: give the ID of a run (agenttrace list shows them), or --last.")
    path, _ = ready(db, config)
    render = {"tree": show.show_run, "json": show.show_json, "markdown": show.show_markdown}[form]
    with open_store(path) as connection:
        text = render(connection, show.find_run(connection, run))
    terminal.out(text, styled=form == "tree")
    return PASSED


@app.command()
def sql(
    query: Annotated[
        str | None,
        typer.Argument(help="The query, or the name of one; else from standard input, or from a prompt."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="Read the query from this file.", show_default=False)] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Value of $NAME in the query; repeatable.", show_default=False),
    ] = None,
    list_queries: Annotated[bool, typer.Option("--list", help="List the named queries; with a name, show it.")] = False,
    form: Annotated[
        Literal["table", "json", "csv", "parquet", "markdown"], typer.Option("--format", help="How to write the rows.")
    ] = "table",
    output: Output = None,
    db: Db = None,
    config: Config = None,
) -> int:
    """Run a query over the store. It can read the store and nothing else. `agenttrace schema` names the columns."""
    from agenttrace import asking

    if list_queries:
        asking.show_named(query)
        return PASSED
    asking.ask(query, file, param or (), form, output, db, config)
    return PASSED


@app.command()
def schema(
    table: Annotated[str | None, typer.Argument(help="Show this table only.")] = None,
    db: Db = None,
    _config: Config = None,
) -> int:
    """Show the tables and what their columns mean: of the store that --db names, else of this release."""
    from agenttrace import query

    terminal.out(query.schema(table, db))
    return PASSED


app.command()(judging.evaluate)
app.command()(judging.nightly)
app.command()(judging.compare)
app.command()(judging.review)
app.command()(judging.promote)
app.command()(judging.evaluators)
app.command()(keeping.export)
app.command()(keeping.prune)
app.command()(keeping.compact)
app.command()(keeping.redact)
app.command()(keeping.merge)


@app.command()
def doctor(db: Db = None, config: Config = None) -> int:
    """Say what is wrong with a set-up, and what to do about it."""
    from agenttrace import doctor as doctors

    states: list[str] = []
    for line in doctors.examine(db, config):
        states.append(line.state)
        advice = "" if line.advice is None else "\n" + _indented(f"-> {line.advice}")
        terminal.out(f"{line.state:4}  {terminal.inert(line.fact)}{advice}", styled=True)
    if "fail" in states:
        return IMPOSSIBLE
    return FAILED if "warn" in states else PASSED


def _indented(text: str) -> str:
    return "\n".join(f"      {line}" for line in terminal.inert_lines(text).split("\n"))


class _Log(logging.Handler):
    """Warnings of the library, on standard error like every other message."""

    def emit(self, record: logging.LogRecord) -> None:
        terminal.note(f"{record.levelname.lower()}: {record.getMessage()}")


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: What follows the program's name; None is the process's own.

    Returns:
        The exit code.
    """
    given = sys.argv[1:] if arguments is None else arguments
    debug = "--debug" in given
    # Python has None for a stream that was closed (`>&-`); the exit code still says what was found.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - as long as the process
    for stream in (sys.stdout, sys.stderr):
        # A terminal without UTF-8 must show an escape, not end in a traceback.
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    plain = [argument for argument in given if argument != "--debug"]
    logger = logging.getLogger("agenttrace")
    logger.addHandler(log := _Log())
    try:
        with private.own_umask():
            code: object = app(args=plain, prog_name="agenttrace", standalone_mode=False)
    except AgentTraceError as error:
        return _failed(str(error), debug)
    except typer.TyperException as error:
        return _failed(_usage_error(error, plain), debug)
    except OSError as error:
        return _failed(f"{error.filename or 'input or output'}: {error.strerror or error}", debug)
    except Exception as error:
        # A fault of our own must not end with Python's own exit code, 1, which says "findings".
        place = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        # Queries of ours find their tables and columns, unless another program has changed them.
        if type(error).__name__ in ("CatalogException", "BinderException"):
            changed = "the store's tables are not as agenttrace made them"
            return _failed(f"{changed} ({place}).\nName another store with --db, or make it anew with import.", debug)
        return _failed(f"internal error: {place}\nPlease report it with what --debug shows.", debug)
    finally:
        logger.removeHandler(log)
    return code if isinstance(code, int) else PASSED


def _usage_error(error: Exception, arguments: list[str]) -> str:
    format_message: Any = getattr(error, "format_message", error.__str__)
    # What pydantic puts before its own texts says nothing to a reader.
    message = str(format_message()).replace(": Value error, ", ": ")
    first = arguments[0] if arguments else ""
    if first.partition("=")[0] in ("--db", "--config"):
        return f"{first} stands after the command, as in: agenttrace list {first} FILE"
    known = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    return f"{message}\nSee: agenttrace {first} --help" if first in known else f"{message}\nSee: agenttrace --help"


def _failed(message: str, debug: bool) -> int:
    if debug:
        terminal.note(traceback.format_exc())
    terminal.note(f"agenttrace: {message}")
    return IMPOSSIBLE
