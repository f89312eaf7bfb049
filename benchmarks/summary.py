"""What the results say, in short: the targets, and README's tables."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ratios import RESULTS, seconds

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


def tables(name: str, folder: Path = RESULTS) -> dict[str, list[Row]]:
    """Reads the tables of a benchmark; none where it has not run."""
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["tables"] if path.exists() else {}


def targets(names: Iterable[str], folder: Path = RESULTS) -> Iterator[Target]:
    """Yields the rows that have a target; the first row is the baseline, unless the title says to what they are set."""
    for name in names:
        for title, rows in tables(name, folder).items():
            for row in rows:
                if row.get("target") is not None:
                    about, _, baseline = title.partition(", to ")
                    yield Target(name, about, row["part"], baseline or rows[0]["part"], _ratio(row), row["target"])


def readme(names: Iterable[str], folder: Path = RESULTS) -> str:
    """Returns README's tables, in Markdown."""
    parts = [_targets(names, folder), *_peers(tables("peers", folder))]
    return "\n\n".join("\n".join(lines) for lines in parts)


def _targets(names: Iterable[str], folder: Path) -> list[str]:
    """A row per target: where one is for many parts of a table, the worst of them."""
    worst: dict[tuple[str, float], Target] = {}
    for row in targets(names, folder):
        key = (row.table, row.target)
        worst[key] = max(worst.get(key, row), row, key=lambda each: each.ratio)
    rows = ([f"{row.table}: {row.part}", f"{row.ratio:.2f}", f"{row.target:g}", row.baseline] for row in worst.values())
    return _table(["part", "ratio", "target", "1.00 is"], rows)


def _peers(found: dict[str, list[Row]]) -> Iterator[list[str]]:
    """A table for each comparison; tables of the same parts stand side by side."""
    groups: dict[str, dict[str, list[Row]]] = {}
    for title, rows in found.items():
        caption, _, column = title.partition(": ")
        groups.setdefault(caption, {})[column] = rows
    for caption, columns in groups.items():
        first = next(iter(columns.values()))
        if "spans/s" in first[0]["more"]:
            lines = ([row["part"], seconds(row["cpu_s"]), f"{row['more']['spans/s']:,.0f}"] for row in first)
            yield _table([caption, "processor per span", "spans/s acknowledged"], lines)
        else:
            sides = zip(*columns.values(), strict=True)
            lines = ([side[0]["part"], *map(_cell, side)] for side in sides)
            yield _table([caption, *columns], lines)


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    rule = ["---", *("--:" if name != "1.00 is" else "---" for name in head[1:])]
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]


def _cell(row: Row) -> str:
    return f"{_ratio(row):.2f} ({seconds(row['cpu_s'])})"


def _ratio(row: Row) -> float:
    return row["cpu_ratio"] if "cpu_ratio" in row else row["ratio"]
