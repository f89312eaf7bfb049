"""Ratios to a baseline in the same run, which is the first work of a table: a busy machine slows both alike.

Every round runs each work once, in turn. A figure is the median of the rounds' ratios, of processor time (all threads
of this process, and what a work says its other processes took) with wall time beside it.
"""

import gc
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("duckdb", "opentelemetry-sdk", "orjson", "protobuf", "pyarrow")
_WIDTH = 140


class Taken(NamedTuple):
    """What a run took in other processes, while this one only waited: it stands in place of this one's time.

    Attributes:
        cpu_s: Processor time, of whatever the table counts: a run, a request, a span.
        wall_s: Wall time of the same.
        more: What else was measured, each a column of the table; the name ends with the unit.
    """

    cpu_s: float
    wall_s: float
    more: Mapping[str, float] = {}


@dataclass(frozen=True)
class Work:
    """One thing to measure.

    Attributes:
        name: The row's name.
        prepare: Makes, outside of the time taken, the call to measure; what the call returns is `Taken`, or seconds of
            other processes to add, or anything else, which is not counted.
        target: The highest ratio that is good enough; None where nothing was promised.
        repeats: Runs within a round, for what is too short to time.
    """

    name: str
    prepare: Callable[[], Callable[[], object]]
    target: float | None = None
    repeats: int = 1


@dataclass(frozen=True)
class Figure:
    """One row: seconds per run (medians), and ratios to the baseline of the same round (medians)."""

    part: str
    cpu_s: float
    wall_s: float
    cpu_ratio: float
    wall_ratio: float
    target: float | None
    rounds: int = 1
    more: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def is_met(self) -> bool:
        """Whether the target is reached; True where there is none."""
        return self.target is None or round(self.cpu_ratio, 2) <= self.target


@dataclass(frozen=True)
class Amount:
    """One row of what is no time: bytes on disk, memory."""

    part: str
    amount: float
    unit: str
    ratio: float
    target: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the target is reached; True where there is none."""
        return self.target is None or round(self.ratio, 2) <= self.target


# A mapping is a row of other columns, without a target.
Cells = Mapping[str, float | str]
Row = Figure | Amount | Cells
Rows = Sequence[Figure] | Sequence[Amount] | Sequence[Cells]


def measure(works: Sequence[Work], *, rounds: int = 9) -> list[Figure]:
    """Measures works in turn; the first one is the baseline."""
    times = [[_timed(work) for work in works] for _ in range(rounds)]
    return [
        figure(work.name, [row[index] for row in times], [row[0] for row in times], work.target)
        for index, work in enumerate(works)
    ]


def figure(part: str, taken: Sequence[Taken], baseline: Sequence[Taken], target: float | None = None) -> Figure:
    """Makes a row of what the rounds took; for what another program has measured, else see `measure`."""
    pairs = list(zip(taken, baseline, strict=True))
    return Figure(
        part,
        statistics.median(run.cpu_s for run in taken),
        statistics.median(run.wall_s for run in taken),
        statistics.median(run.cpu_s / base.cpu_s for run, base in pairs),
        statistics.median(run.wall_s / base.wall_s for run, base in pairs),
        target,
        len(taken),
        {name: statistics.median(run.more[name] for run in taken) for name in taken[0].more},
    )


def amounts(unit: str, values: Mapping[str, float], targets: Mapping[str, float] | None = None) -> list[Amount]:
    """Makes rows of amounts; the first one is the baseline."""
    base = next(iter(values.values()))
    return [Amount(part, value, unit, value / base, (targets or {}).get(part)) for part, value in values.items()]


def _timed(work: Work) -> Taken:
    run = work.prepare()
    gc.collect()
    cpu, wall, others, found = time.process_time(), time.perf_counter(), 0.0, None
    for _ in range(work.repeats):
        found = run()
        others += found if isinstance(found, float) else 0.0
    cpu, wall = time.process_time() - cpu + others, time.perf_counter() - wall
    if isinstance(found, Taken):
        return Taken(max(found.cpu_s, 1e-9), max(found.wall_s, 1e-9), found.more)
    return Taken(max(cpu, 1e-9) / work.repeats, max(wall, 1e-9) / work.repeats)


def report(name: str, tables: Mapping[str, Rows], facts: Mapping[str, Any] | None = None) -> bool:
    """Prints tables and facts, keeps them as `results/<name>.json`, and says whether all targets are met."""
    console = Console(width=_WIDTH)
    for title, rows in tables.items():
        console.print(_table(title, rows))
    for fact, value in (facts or {}).items():
        console.print(f"{fact}: {value}", markup=False, highlight=False)
    content = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
        "tables": {title: [_plain(row) for row in rows] for title, rows in tables.items()},
        "facts": facts or {},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(f"kept as {RESULTS.name}/{name}.json; `cog -r README.md` brings README's tables up to date", file=sys.stderr)
    return all(isinstance(row, Mapping) or row.is_met for rows in tables.values() for row in rows)


def _plain(row: Row) -> dict[str, Any]:
    return dict(row) if isinstance(row, Mapping) else asdict(row)


def _table(title: str, rows: Rows) -> Table:
    table = Table(title=title, title_justify="left")
    if isinstance(rows[0], Mapping):
        for column, cell in rows[0].items():
            table.add_column(column, justify="left" if isinstance(cell, str) else "right")
        for row in rows:
            table.add_row(*(cell if isinstance(cell, str) else _number(cell) for cell in row.values()))
        return table
    table.add_column("part", no_wrap=True)
    more = list(dict.fromkeys(name for row in rows if isinstance(row, Figure) for name in row.more))
    is_time = isinstance(rows[0], Figure)
    for column in (*(("processor", "ratio", "wall", "ratio") if is_time else ("amount", "ratio")), *more, "target"):
        table.add_column(column, justify="right")
    for row in rows:
        target = "" if row.target is None else f"{row.target:.2f} {'met' if row.is_met else 'MISSED'}"
        if isinstance(row, Figure):
            cells = [seconds(row.cpu_s), f"{row.cpu_ratio:.2f}", seconds(row.wall_s), f"{row.wall_ratio:.2f}"]
            cells += [_number(row.more[name]) if name in row.more else "" for name in more]
        else:
            cells = [f"{_number(row.amount)} {row.unit}", f"{row.ratio:.2f}"]
        table.add_row(row.part, *cells, target)
    return table


def seconds(value: float) -> str:
    """Returns a time with its unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * factor >= 1:
            return f"{value * factor:.1f} {unit}"
    return f"{value * 1e9:.0f} ns"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
