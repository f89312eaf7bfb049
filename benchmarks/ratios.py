"""Ratios to a baseline in the same run, which is the first work of a table: a busy machine slows both alike.

Every round runs each work once, in turn. A figure is the median of the rounds' ratios, of processor time (all threads
of this process, and what a work says its other processes took) with wall time beside it.
"""

import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rich
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("duckdb", "opentelemetry-sdk", "orjson", "protobuf", "pyarrow")


@dataclass(frozen=True)
class Work:
    """One thing to measure.

    Attributes:
        name: The row's name.
        prepare: Makes, outside of the time taken, the call to measure; what the call returns is other processes' time
            in seconds, or anything else, which is not counted.
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

    @property
    def is_met(self) -> bool:
        """Whether the target is reached; True where there is none."""
        return self.target is None or round(self.cpu_ratio, 2) <= self.target


def measure(works: Sequence[Work], *, rounds: int = 9) -> list[Figure]:
    """Measures works in turn; the first one is the baseline."""
    times = [[_timed(work) for work in works] for _ in range(rounds)]
    return [
        Figure(
            work.name,
            *(statistics.median(row[index][kind] for row in times) for kind in (0, 1)),
            *(statistics.median(row[index][kind] / row[0][kind] for row in times) for kind in (0, 1)),
            work.target,
        )
        for index, work in enumerate(works)
    ]


def _timed(work: Work) -> tuple[float, float]:
    run = work.prepare()
    gc.collect()
    cpu, wall, others = time.process_time(), time.perf_counter(), 0.0
    for _ in range(work.repeats):
        found = run()
        others += found if isinstance(found, float) else 0.0
    cpu, wall = time.process_time() - cpu + others, time.perf_counter() - wall
    return max(cpu, 1e-9) / work.repeats, max(wall, 1e-9) / work.repeats


def report(name: str, tables: dict[str, list[Figure]], facts: dict[str, Any] | None = None) -> bool:
    """Prints tables and facts, keeps them as `results/<name>.json`, and says whether all targets are met."""
    for title, figures in tables.items():
        rich.print(_table(title, figures))
    for fact, value in (facts or {}).items():
        print(f"{fact}: {value}")
    content = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            **{package: version(package) for package in _PACKAGES},
        },
        "tables": {title: [asdict(figure) for figure in figures] for title, figures in tables.items()},
        "facts": facts or {},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return all(figure.is_met for figures in tables.values() for figure in figures)


def _table(title: str, figures: list[Figure]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("part")
    for column in ("processor", "ratio", "wall", "ratio", "target"):
        table.add_column(column, justify="right")
    for figure in figures:
        target = "" if figure.target is None else f"{figure.target:.2f} {'met' if figure.is_met else 'MISSED'}"
        table.add_row(
            figure.part,
            _seconds(figure.cpu_s),
            f"{figure.cpu_ratio:.2f}",
            _seconds(figure.wall_s),
            f"{figure.wall_ratio:.2f}",
            target,
        )
    return table


def _seconds(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
