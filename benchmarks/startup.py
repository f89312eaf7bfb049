"""What starting costs: commands and imports, and the memory of an agent, a collector and an evaluation.

Run: `python benchmarks/startup.py [ROUNDS]`. Commands are whole processes, against a Python that does nothing; an
import is what passes between the line before and the line after it, against that of OpenTelemetry's SDK.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bare_server import start
from processes import AGENTTRACE, Server, command, peak_mb
from ratios import Amount, Rows, Taken, Work, amounts, measure, report

ROUNDS = 15
IMPORTS = ("opentelemetry.sdk.trace", "agenttrace", "duckdb")
TIMED = """
import sys, time
cpu, wall = time.process_time(), time.perf_counter()
__import__(sys.argv[1])
print(time.process_time() - cpu, time.perf_counter() - wall)
"""
SDK = """
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
"""
AGENT = """
import agenttrace
agenttrace.configure("traces.duckdb")
@agenttrace.tool
def tool(text): return text
tool("x")
"""
EVALUATE = "from agenttrace.cli import main; sys.argv = ['agenttrace', 'evaluate', '--db', 'small.duckdb']; main()"


def imported(module: str) -> Callable[[], Taken]:
    """Returns a call that imports a module in a fresh process."""

    def run() -> Taken:
        done = subprocess.run([sys.executable, "-c", TIMED, module], check=True, capture_output=True, text=True)
        return Taken(*map(float, done.stdout.split()))

    return run


def commands(folder: Path) -> list[Work]:
    """The commands, over a store that is up to date."""
    python, db = sys.executable, ["--db", "small.duckdb"]
    lines = {
        "python -c pass": [python, "-c", "pass"],
        'python -c "import duckdb"': [python, "-c", "import duckdb"],
        "agenttrace --version": [AGENTTRACE, "--version"],
        "agenttrace --help": [AGENTTRACE, "--help"],
        "agenttrace list": [AGENTTRACE, "list", *db],
        "agenttrace evaluate": [AGENTTRACE, "evaluate", *db, "--fail-on", "never"],
    }
    return [Work(name, lambda line=line: command(line, cwd=folder)) for name, line in lines.items()]


def small_store(folder: Path) -> None:
    """Two runs, as the demo makes them."""
    subprocess.run([AGENTTRACE, "demo", "demo"], cwd=folder, check=False, capture_output=True)
    [db] = (folder / "demo").glob("*.duckdb")
    db.rename(folder / "small.duckdb")


def memory(folder: Path) -> list[Amount]:
    """The most that each held."""
    idle = [AGENTTRACE, "collect", "--http-port", "0", "--grpc-port", "0", "--db", "idle.duckdb"]
    with Server(idle, r"(http://\S+)", cwd=folder) as collector, start("parse", folder) as bare:
        collecting, serving = collector.memory_mb("VmHWM"), bare.memory_mb("VmHWM")
    return amounts(
        "MB",
        {
            "OpenTelemetry SDK with its OTLP exporter": peak_mb(SDK, cwd=folder),
            "agent: import, configure, one tool call": peak_mb(AGENT, cwd=folder),
            "bare uvicorn that parses OTLP, at rest": serving,
            "agenttrace collect, at rest": collecting,
            "agenttrace evaluate, small store": peak_mb(EVALUATE, cwd=folder),
        },
    )


def main(rounds: int = ROUNDS) -> bool:
    """Prints the tables."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small_store(folder)
        tables: dict[str, Rows] = {
            "commands, whole processes": measure(commands(folder), rounds=rounds),
            "imports": measure([Work(f"import {it}", lambda it=it: imported(it)) for it in IMPORTS], rounds=rounds),
            "peak memory": memory(folder),
        }
    return report("startup", tables)


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
