"""What the results say, in short: the targets, and README's tables."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ratios import RESULTS, seconds

# Of more rows of one table, or of one part in many tables, than these, the first and the worst are told.
_SHOWN_ROWS = 2

Row = dict[str, Any]


class Target(NamedTuple):
    """A promise, and what was measured."""

    benchmark: str
    table: str
    part: str
    baseline: str
    ratio: float
    target: float

    @property
    def is_met(self) -> bool:
        """Whether it was kept."""
        return round(self.ratio, 2) <= self.target


def result(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Reads what a benchmark has kept; nothing where it has not run."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def tables(name: str, folder: Path = RESULTS) -> dict[str, list[Row]]:
    """Reads the tables of a benchmark."""
    return result(name, folder).get("tables", {})


def targets(names: Iterable[str], folder: Path = RESULTS) -> Iterator[Target]:
    """Yields the rows that have a target."""
    for name in names:
        for title, rows in tables(name, folder).items():
            for row in rows:
                if row.get("target") is not None:
                    yield Target(name, title, row["part"], rows[0]["part"], _ratio(row), row["target"])


def readme(names: Iterable[str], folder: Path = RESULTS) -> str:
    """Returns README's tables, in Markdown."""
    found = list(targets(names, folder))
    tables_of_part = Counter((row.benchmark, row.part) for row in found)
    groups: dict[tuple[str, str], list[Target]] = {}
    for row in found:
        repeats = tables_of_part[row.benchmark, row.part] > 1
        groups.setdefault((row.benchmark, row.part if repeats else row.table), []).append(row)
    lines = ["| part | ratio | target | 1.00 is |", "|---|--:|--:|---|"]
    for rows in groups.values():
        worst = max(rows, key=lambda row: row.ratio / row.target)
        for row in rows if len(rows) <= _SHOWN_ROWS else dict.fromkeys((rows[0], worst)):
            of = f" (the worst of {len(rows)})" if row is worst and len(rows) > _SHOWN_ROWS else ""
            lines.append(f"| {row.table}: {row.part}{of} | {row.ratio:.2f} | {row.target:g} | {row.baseline} |")
    lines += ["", "| beside peers | ratio, and processor time |", "|---|---|"]
    for title, rows in tables("peers", folder).items():
        parts = (f"{row['part']} {_ratio(row):.2f} ({seconds(row['cpu_s'])})" for row in rows)
        lines.append(f"| {title} | {' · '.join(parts)} |")
    for title in tables("soak", folder):
        told = "; ".join(f"{fact}: {value}" for fact, value in result("soak", folder)["facts"].items())
        lines += ["", f"The receiver, {title}: {told}."]
    return "\n".join(lines)


def _ratio(row: Row) -> float:
    return row["cpu_ratio"] if "cpu_ratio" in row else row["ratio"]
