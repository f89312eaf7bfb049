"""A decorated call of each kind of function, against a hand-written span with 6 attributes and `json.dumps`.

Run: `python benchmarks/decorated_call.py [ROUNDS]` (9 by default). Both record arguments and result, and both have the
same exporter, of which each has a process of its own: spans that are discarded, our store on a disk, and OTLP over HTTP
by the SDK's own processor and exporter. A figure is the median of several such processes, for the memory layout of one
moves its ratios by up to 0.03. The exporter's work counts, for a run ends when its spans are exported; the receiver's
does not. What remains of a run without any span is its own row, and the facts say what decorating adds to one call.
Targets are for the function whose spans are discarded: 0.70 with redaction off, 1.5 with its defaults.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
from baseline_call import CALLS, UNDECORATED, Calls, by_hand, decorated, run
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from ratios import Figure, Work, measure, report

import agenttrace

TARGETS = {"off": 0.70, "default": 1.5}
TIMES = ("cpu_s", "wall_s", "cpu_ratio", "wall_ratio")
EXPORTERS = {"discarded": "no exporter", "store": "the DuckDB exporter", "otlp": "the OTLP exporter"}
ROUNDS = 9
PROCESSES = 5
MUTATING_CALLS = 50


class Discard(SpanProcessor):
    """Spans end here."""

    def on_end(self, span: ReadableSpan) -> None:
        pass


class Sink(BaseHTTPRequestHandler):
    """Takes OTLP requests, in a process of its own, and forgets them."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(rounds: int = ROUNDS) -> bool:
    """Prints the tables, each exporter measured in a process of its own; True where the targets are met."""
    tables: dict[str, list[Figure]] = {}
    facts: dict[str, str] = {}
    for exporter, name in EXPORTERS.items():
        command = program(f"measure_exporter({exporter!r}, {rounds})")
        done = [subprocess.run(command, check=True, stdout=subprocess.PIPE) for _ in range(PROCESSES)]
        found = [orjson.loads(each.stdout) for each in done]
        for title in found[0]["tables"]:
            rows = zip(*([Figure(**figure) for figure in each["tables"][title]] for each in found), strict=True)
            tables[f"{title}, {name}"] = [median(row) for row in rows]
        facts |= {f"{name}: {fact}": value for fact, value in found[-1]["facts"].items()}
    return report("decorated_call", tables, facts)


def median(figures: Sequence[Figure]) -> Figure:
    """Returns the median of one row over the processes."""
    times = {name: statistics.median(getattr(figure, name) for figure in figures) for name in TIMES}
    return Figure(**(vars(figures[0]) | times | {"rounds": sum(figure.rounds for figure in figures)}))


def program(call: str) -> list[str]:
    """Returns the command that calls a function of this module in another process."""
    path = str(Path(__file__).parent)
    return [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r}); from decorated_call import *; {call}"]


def serve_sink() -> None:
    """Prints the port of a sink, and serves until it is killed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    print(server.server_port, flush=True)
    server.serve_forever()


def measure_exporter(exporter: str, rounds: int) -> None:
    """Prints as JSON what the calls cost with one exporter."""
    with tempfile.TemporaryDirectory() as scratch:
        settle = EXPORTER_SETUPS[exporter](Path(scratch))
        bench = Bench(settle, TARGETS if exporter == "discarded" else {}, rounds)
        tables = {kind.replace("_", " "): bench.compare(kind) for kind in Calls._fields}
        facts = {f"a decorated {kind} adds": bench.added(figures) for kind, figures in tables.items()}
        if exporter == "store":
            tables["function that mutates"] = bench.compare_mutating()
            facts["spans recorded, and found in the store"] = bench.count(Path(scratch))
        print(orjson.dumps({"tables": tables, "facts": facts}).decode())


class Bench:
    """The calls to measure; all of one process have one tracer provider."""

    def __init__(self, settle: Callable[[], None], targets: dict[str, float], rounds: int) -> None:
        self._settle = settle
        self._targets = targets
        self._rounds = rounds
        self._by_hand = by_hand(trace.get_tracer("by hand"))
        self._decorated = decorated(agenttrace.tool)
        self.spans = 0

    def compare(self, kind: str) -> list[Figure]:
        """Measures one kind of function."""
        works = [
            Work("the same span by hand", self._work(self._by_hand, kind)),
            *(
                Work(
                    f"decorated, redaction {redaction}",
                    self._work(self._decorated, kind, redaction),
                    self._targets.get(redaction) if kind == "function" else None,
                )
                for redaction in TARGETS
            ),
            Work("undecorated", lambda: lambda: run(UNDECORATED, kind), repeats=4),
        ]
        return [per_call(figure, CALLS) for figure in measure(works, rounds=self._rounds)]

    def compare_mutating(self) -> list[Figure]:
        """Measures a tool that mutates: each call waits until the record of its start is on disk."""
        calls = decorated(agenttrace.tool(mutates=True))
        works = [
            Work("by hand, without a start record", self._work(self._by_hand, "function", count=MUTATING_CALLS)),
            Work("decorated, each start on disk", self._work(calls, "function", count=MUTATING_CALLS)),
        ]
        return [per_call(figure, MUTATING_CALLS) for figure in measure(works, rounds=5)]

    def added(self, figures: list[Figure]) -> str:
        """Says what decorating adds to a call, with the default redaction."""
        _hand, _off, default, undecorated = figures
        return f"{(default.cpu_s - undecorated.cpu_s) * 1e6:.1f} us to {undecorated.cpu_s * 1e6:.2f} us"

    def count(self, folder: Path) -> str:
        """Compares what was recorded with what is on disk."""
        import duckdb

        from agenttrace.store import compact_store

        agenttrace.shutdown()
        compact_store(Path(store(folder)), budget_s=60.0)
        with duckdb.connect(store(folder), read_only=True) as con:
            found = con.execute("SELECT count(*) FROM spans WHERE end_time_unix_nano IS NOT NULL").fetchone()
        return f"{self.spans:,}, {found[0] if found else 0:,}"

    def _work(self, calls: Calls, kind: str, redaction: str = "default", count: int = CALLS) -> Any:
        def prepare() -> Callable[[], None]:
            os.environ["AGENTTRACE_REDACT"] = redaction
            self.spans += count
            return work

        def work() -> None:
            run(calls, kind, count)
            self._settle()

        return prepare


def per_call(figure: Figure, calls: int) -> Figure:
    """Divides the times of a run by its calls."""
    return Figure(**(vars(figure) | {"cpu_s": figure.cpu_s / calls, "wall_s": figure.wall_s / calls}))


def store(folder: Path) -> str:
    """Names the store."""
    return str(folder / "bench.duckdb")


def discard(_folder: Path) -> Callable[[], None]:
    """Sets up a provider that exports nothing."""
    provider = TracerProvider()
    provider.add_span_processor(Discard())
    trace.set_tracer_provider(provider)
    return lambda: None


def export_to_store(folder: Path) -> Callable[[], None]:
    """Sets up our store; a run ends when its spans are in the spool."""
    agenttrace.configure(store(folder), threads=False)
    from agenttrace.configure import _batchers

    [batcher] = _batchers.values()
    return lambda: None if batcher.drain(30) else sys.exit("the spans of a run were not exported in 30 s")


def export_to_sink(_folder: Path) -> Callable[[], None]:
    """Sets up the SDK's own export over HTTP; a run ends when its spans are sent."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    sink = subprocess.Popen(program("serve_sink()"), stdout=subprocess.PIPE, text=True)
    assert sink.stdout is not None
    port = int(sink.stdout.readline())
    threading.Thread(target=_end_with_parent, args=(sink,), daemon=False).start()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces")))
    trace.set_tracer_provider(provider)
    return lambda: None if provider.force_flush() else sys.exit("the spans of a run were not exported in 30 s")


def _end_with_parent(sink: "subprocess.Popen[str]") -> None:
    threading.main_thread().join()
    sink.kill()


EXPORTER_SETUPS = {"discarded": discard, "store": export_to_store, "otlp": export_to_sink}


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
