"""Write path: SDK spans -> segment, and -> table, against DuckDB's INSERT of ready Arrow columns (= 1.00).

Processor time, the median of rounds that measure all of them in turn, so that a busy machine slows all alike.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agenttrace.exporter import DuckDBSpanExporter, sdk_span_row
from agenttrace.spool import Spool, read_segment, spool_folder
from agenttrace.store import open_store

SPANS = 8_192
TARGETS = {"spans -> segment": 2.2, "spans -> table": 3.0}


def make_spans() -> list[ReadableSpan]:
    """Makes tool spans as the decorators do, in runs of eight under an agent span."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource.create({"service.name": "shop"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("agenttrace", "0.1.0")
    for run in range(SPANS // 8):
        with tracer.start_as_current_span("invoke_agent restock", attributes={"gen_ai.operation.name": "invoke_agent"}):
            for call in range(7):
                attributes = {
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "place_order",
                    "gen_ai.tool.call.id": f"call_{run}_{call}",
                    "gen_ai.tool.type": "function",
                    "gen_ai.tool.call.arguments": orjson.dumps({"item": "rice", "qty": call, "run": run}).decode(),
                }
                with tracer.start_as_current_span("execute_tool place_order", attributes=attributes) as span:
                    result = {"order_id": run * 8 + call, "status": "placed", "note": "delivery on Monday"}
                    span.set_attribute("gen_ai.tool.call.result", orjson.dumps(result).decode())
    return list(memory.get_finished_spans())


class Bench:
    """The parts to measure, each on a store of its own."""

    def __init__(self, folder: Path, spans: list[ReadableSpan]) -> None:
        self.folder = folder
        self.spans = spans
        self.round = 0
        Spool(spool_folder(folder / "source.duckdb")).write("spans", [sdk_span_row(span) for span in spans])
        [segment] = Spool(spool_folder(folder / "source.duckdb")).segments()
        self.columns = read_segment(segment).table
        self.schema = (Path(__file__).parent.parent / "agenttrace" / "schema.sql").read_text()

    def insert(self) -> Callable[[], object]:
        """The baseline: an open connection, ready columns, one transaction."""
        con = duckdb.connect(self.folder / f"insert{self.round}.duckdb")
        con.execute(self.schema)
        con.register("columns", self.columns)
        return lambda: con.execute("INSERT INTO spans BY NAME SELECT * FROM columns")

    def segment(self) -> Callable[[], object]:
        """Spans to an acknowledged segment."""
        exporter = DuckDBSpanExporter(self.folder / f"segment{self.round}.duckdb")
        return lambda: exporter.export(self.spans)

    def table(self) -> Callable[[], object]:
        """Spans to rows of a store that exists, the file opened and closed."""
        db = self.folder / f"table{self.round}.duckdb"
        exporter = DuckDBSpanExporter(db)
        exporter.export(self.spans[:1])
        exporter.force_flush()

        def run() -> None:
            exporter.export(self.spans)
            exporter.force_flush()

        return run


def main(rounds: int = 9) -> None:
    """Prints a line per part."""
    spans = make_spans()
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), spans)
        for bench.round in range(rounds):
            for name, prepare in (
                ("INSERT of ready columns", bench.insert),
                ("spans -> segment", bench.segment),
                ("spans -> table", bench.table),
            ):
                run = prepare()
                start = time.process_time()
                run()
                times.setdefault(name, []).append(time.process_time() - start)
        check = open_store(Path(folder) / "table0.duckdb")
        assert check.execute("SELECT count(*) FROM spans").fetchone() == (SPANS,)
        check.close()
    baseline = statistics.median(times["INSERT of ready columns"])
    for name, values in times.items():
        median = statistics.median(values)
        target = f"  target {TARGETS[name]}" if name in TARGETS else ""
        print(f"{name:26} {median * 1e3:8.1f} ms  {median / baseline:6.2f}{target}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
