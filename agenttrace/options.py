"""Options that commands share, and how their values are read."""

import re
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import typer

from agenttrace import terminal


def show_version(wanted: bool) -> None:
    """Prints the version and ends, for --version."""
    if wanted:
        terminal.out(f"agenttrace {version('agenttrace-otel')}")
        raise typer.Exit


def _moment(text: str) -> datetime:
    try:
        if match := re.fullmatch(r"(\d{1,6})([mhdw])", text):
            unit = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}[match[2]]
            return datetime.now(UTC) - timedelta(**{unit: int(match[1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise typer.BadParameter(
            f"{text!r} is neither like 2026-01-31 or 2026-01-31T18:00+00:00 nor like 24h"
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Moment = Annotated[
    datetime | None,
    typer.Option(parser=_moment, metavar="TIME", help="ISO time (UTC unless it says otherwise) or age: 30m, 24h, 7d."),
]


Db = Annotated[
    Path | None,
    typer.Option("--db", help="The store (default: AGENTTRACE_DB, else ./agenttrace.duckdb).", show_default=False),
]
Config = Annotated[
    Path | None,
    typer.Option("--config", help="The configuration (default: agenttrace.toml or pyproject.toml, searched upwards)."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.", show_default=False)]

Events = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Also send each finding to this OTLP endpoint, as an event of its span: http://host:4318, grpc://host:4317.",
        show_default=False,
    ),
]


FileFormat = Literal["otlp", "jaeger", "tempo", "transcripts", "outcomes"]
FailOn = Literal["error", "warning", "note", "never"]
Form = Literal["table", "json", "markdown", "github", "junit", "sarif"]
