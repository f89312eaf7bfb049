"""Runs the benchmarks one after the other, quick ones first, and ends with all targets in one table: `make bench`.

Run: `python benchmarks/bench.py [NAME...]`: all by default, which takes about an hour on two cores; the last one
installs peers in build/peers. Each is a process of its own, and each can be run alone. Ends with 1 where a target is
missed or a benchmark fails; the others run all the same.
"""

import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table
from summary import targets

HERE = Path(__file__).parent
# In their order, with arguments; the other modules here are parts of these, or (soak, verdicts) have a target of their
# own in the Makefile.
BENCHMARKS = {
    "startup": [],
    "decorated_call": [],
    "decode": [],
    "write_path": [],
    "redaction": [],
    "storage": [],
    "rebuild": [],
    "false_alarms": [],
    "receiver": [],
    "evaluators": ["10000000"],
    "peers": [],
}


def main(*names: str) -> int:
    """Runs them and prints the table of targets."""
    if unknown := set(names) - set(BENCHMARKS):
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    started, failed = time.monotonic(), list[str]()
    for name in names or BENCHMARKS:
        print(f"== {name}", flush=True)
        began = time.monotonic()
        done = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *BENCHMARKS[name]])
        failed += [name] * (done.returncode != 0)
        print(f"{name}: {_minutes(began)}\n", flush=True)
    table = Table(title="targets", title_justify="left")
    for column in ("benchmark", "of", "part"):
        table.add_column(column)
    for column in ("ratio", "target"):
        table.add_column(column, justify="right")
    found = list(targets(names or BENCHMARKS))
    for row in found:
        verdict = "met" if row.is_met else "MISSED"
        table.add_row(row.benchmark, row.table, row.part, f"{row.ratio:.2f}", f"{row.target:.2f} {verdict}")
    Console(width=140).print(table)
    missed = sum(not row.is_met for row in found)
    print(f"{len(found) - missed} of {len(found)} targets met, in {_minutes(started)}")
    if failed:
        print(f"ended with a fault or a target missed: {', '.join(failed)}")
    return int(bool(failed or missed))


def _minutes(since: float) -> str:
    seconds = time.monotonic() - since
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
