"""Builds the site: `make docs`. The reference is made of the code, and nothing of it is written twice."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from sphinx.cmd.build import main as sphinx

import agenttrace
from agenttrace import config, query, self_metrics
from agenttrace.cli import app
from agenttrace.collectors import receiver_metrics
from agenttrace.evaluators import catalog

ROOT = Path(__file__).parent.parent
# A page may refer to what stands beside the docs in the repository.
BESIDE = ("examples/nightly.yml",)
TOP = ("README.md", "CHANGELOG.md")
# What the functions of the API return, and what the fixture of the pytest plugin is.
CLASSES = (
    *(
        "agenttrace.runs.Run",
        "agenttrace.runs.ModelCall",
        "agenttrace.runs.ToolCall",
        "agenttrace.configure.FlushResult",
    ),
    *("agenttrace.trajectory.Trajectory", "agenttrace.trajectory.Calls", "agenttrace.trajectory.Call"),
)
REMOTE = re.compile(r"""(?:src|href)=["'](?:https?:)?//[^"']+["'][^>]*>""")


def cell(text: object) -> str:
    """Returns a text for a cell of a table."""
    line = str(text).replace("|", "\\|").replace("\n", " ")
    return line if line.startswith("`") else line.replace("<", "&lt;")


def table(header: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    """Returns a Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join(f"| {' | '.join(map(cell, line))} |" for line in lines) + "\n"


def api() -> Iterator[str]:
    """The names that a program imports."""
    yield "# Python API\n\n```{eval-rst}"
    for name in agenttrace.__all__:
        kind = "autoclass" if isinstance(getattr(agenttrace, name), type) else "autofunction"
        yield f".. {kind}:: agenttrace.{name}\n" + ("   :members:\n" if kind == "autoclass" else "")
    for name in CLASSES:
        yield f".. autoclass:: {name}\n   :members:\n"
    yield "```"


def cli() -> Iterator[str]:
    """Every command with its options."""
    yield "# Command line\n"
    commands: dict[str, Any] = getattr(typer.main.get_command(app), "commands", {})
    for name, command in commands.items():
        yield f"## {name}\n\n{command.help}\n"
        rows: list[tuple[object, ...]] = []
        for parameter in command.params:
            record = getattr(parameter, "get_help_record", lambda _: None)(
                command.make_context(name, [], resilient_parsing=True)
            )
            if record and parameter.name != "help":
                rows.append((f"`{record[0].strip()}`", record[1]))
        yield table(("option", "meaning"), rows)


def configuration() -> Iterator[str]:
    """Every key of agenttrace.toml."""
    yield "# Configuration\n"
    yield "Keys of `agenttrace.toml`, or of `[tool.agenttrace]` in `pyproject.toml`. Unknown ones are refused.\n"
    yield from section("", config.Settings)


def section(name: str, model: type[BaseModel]) -> Iterator[str]:
    """A table of the configuration, and those within it."""
    about, _, attributes = (model.__doc__ or "").partition("Attributes:")
    meanings = dict(re.findall(r"^ +(\w+): ((?:.+\n?(?: {12}.+\n?)*))", attributes, re.MULTILINE))
    title = f"`[{name}]`" if name else "Top level"
    yield f"## {title}\n\n{' '.join(about.split())}\n"
    rows: list[tuple[object, ...]] = []
    inner: list[tuple[str, type[BaseModel]]] = []
    for key, field in model.model_fields.items():
        found = [each for each in config.__dict__.values() if isinstance(each, type) and issubclass(each, BaseModel)]
        below = [each for each in found if re.search(rf"\b{each.__name__}\b", str(field.annotation))]
        path = f"{name}.{key}".lstrip(".")
        inner += [(path if field.annotation is each else f"{path}.NAME", each) for each in below]
        rows += [] if below else [(f"`{key}`", f"`{field.default!r}`", " ".join(meanings.get(key, "").split()))]
    if rows:
        yield table(("key", "default", "meaning"), rows)
    for path, each in inner:
        yield from section(path, each)


def schema() -> Iterator[str]:
    """Every table and column of a store."""
    yield "# Schema\n"
    with query.described_store(None) as con:
        tables = con.execute("SELECT table_name, comment FROM duckdb_tables() ORDER BY table_oid").fetchall()
        for name, comment in tables:
            yield f"## {name}\n\n{comment}\n"
            columns = con.execute(
                "SELECT '`' || column_name || '`', '`' || data_type || '`', comment FROM duckdb_columns()"
                " WHERE table_name = ? ORDER BY column_index",
                [name],
            ).fetchall()
            yield table(("column", "type", "meaning"), columns)


def evaluators() -> Iterator[str]:
    """The catalogue."""
    yield "# Evaluators\n"
    for evaluator in catalog.load().values():
        yield f"## {evaluator.name}\n\n{evaluator.question}\n"
        severity = f"of severity {evaluator.severity} at most, " if evaluator.severity else ""
        yield f"Returns {evaluator.returns}, {severity}scope {evaluator.scope}.\n"
        yield f"**Limits.** {evaluator.limits}\n"
        if evaluator.params:
            rows = [(f"`{name}`", f"`{each.default!r}`", each.help) for name, each in evaluator.params.items()]
            yield table(("parameter", "default", "meaning"), rows)
        yield table(("column", "meaning"), [(f"`{name}`", text) for name, text in evaluator.columns.items()])
        if evaluator.references:
            yield "References: " + "; ".join(map(cell, evaluator.references)) + "\n"


def metrics() -> Iterator[str]:
    """What the receiver and the exporter count of themselves."""
    yield "# Metrics of our own\n"
    places = {
        "Of the receiver": ("At `GET /metrics`, and through OpenTelemetry.", receiver_metrics.METRICS),
        "Of an agent's process": (
            "Through OpenTelemetry, where the program has a meter provider.",
            (*self_metrics.exports.metrics, *self_metrics.exporters.metrics, *self_metrics.processors.metrics),
        ),
    }
    for title, (about, found) in places.items():
        yield f"## {title}\n\n{about}\n"
        rows = [(f"`{each.name}`", each.kind, f"`{each.unit}`", each.description) for each in found]
        yield table(("metric", "instrument", "unit", "meaning"), rows)


PAGES = {
    "api": api,
    "cli": cli,
    "configuration": configuration,
    "schema": schema,
    "evaluators": evaluators,
    "metrics": metrics,
}


def main(folder: Path) -> int:
    """Lays out the pages in `folder/source` and builds them into `folder/html`; returns the exit code."""
    source, html = folder / "source", folder / "html"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("build.py", "__pycache__"))
    for name in BESIDE:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    for name in TOP:
        # Links there are those of the repository's top; a folder is no page.
        text = (ROOT / name).read_text(encoding="utf-8").replace("](docs/", "](")
        (source / name).write_text(re.sub(r"\[([^\]]+)\]\(benchmarks/\w+\)", r"\1", text), encoding="utf-8")
    (source / "reference").mkdir()
    for name, page in PAGES.items():
        (source / "reference" / f"{name}.md").write_text("\n".join(page()), encoding="utf-8")
    code = sphinx(["-q", "-W", "--keep-going", "-b", "html", str(source), str(html)])
    remote = sorted({found[:120] for page in html.rglob("*.html") for found in loads(page.read_text("utf-8"))})
    for found in remote:
        print(f"loads from elsewhere: {found}", file=sys.stderr)
    return code or bool(remote)


def loads(page: str) -> Iterator[str]:
    """Yields what a page would load from another place; a link that a reader follows is none."""
    for tag in re.findall(r"<(?:script|img|link|iframe)\b[^>]*>", page):
        if REMOTE.search(tag) and 'rel="canonical"' not in tag:
            yield tag


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
