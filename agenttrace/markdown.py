"""Texts of traces as Markdown that shows them and does nothing else."""

import re
from collections.abc import Sequence

from agenttrace import terminal

_WIDTH = 500
_CELL_WIDTH = 120


def code(text: str, width: int = _WIDTH) -> str:
    """Returns a code span, inside of which neither HTML, links, mentions, references nor emphasis work."""
    line = terminal.cut(text, width) or " "
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}" if longest else f"{fence}{line}{fence}"


def cell(text: str, width: int = _CELL_WIDTH) -> str:
    """Returns a code span for a cell of a table, where a pipe would end the cell even inside of it."""
    return code(text, width).replace("|", "\\|")


def block(text: str) -> str:
    """Returns a block of code, which ends where it is meant to."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table; `header` is text of ours, or was made with `cell`."""
    lines = [" | ".join(header), " | ".join("---" for _ in header)]
    lines += [" | ".join(map(cell, row)) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)
