"""Write path: SDK spans -> segment, and -> table, against DuckDB's INSERT of ready Arrow columns (= 1.00).

Run: `python benchmarks/write_path.py [STORED...]`: how many spans are in the store already when more come in (0 and
1,000,000 unless told otherwise; 10,000,000 take 2 minutes to make and 1 GB of disk).
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from ratios import Figure, Work, measure, report

from agenttrace.exporter import DuckDBSpanExporter, sdk_span_row
from agenttrace.segments import table_of
from agenttrace.spool import Spool, load_segment, spool_folder
from agenttrace.store import SCHEMA_VERSION, compact_store, open_store

SPANS = 8_192
SMALL = 8
STORED = (0, 1_000_000)
FILL = Path(__file__).with_name("write_path_stored.sql").read_text(encoding="utf-8")
SCHEMA = (Path(__file__).parent.parent / "agenttrace" / "schema.sql").read_text(encoding="utf-8")


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
        # What was there before them; a span that comes a second time takes longer, and is rare.
        self.earlier = make_spans()
        self.number = 0
        self.rows = [sdk_span_row(span) for span in spans]
        source = Spool(spool_folder(folder / "source.duckdb"))
        source.write("spans", self.rows)
        [segment] = source.segments()
        self.columns = table_of([(load_segment(segment), 0)])

    def db(self) -> Path:
        """Returns the path of a store that is not there yet."""
        self.number += 1
        return self.folder / f"{self.number}.duckdb"

    def insert(self) -> Callable[[], object]:
        """The baseline: an open connection, ready columns, one transaction."""
        con = duckdb.connect(self.db())
        con.execute(SCHEMA)
        con.register("columns", self.columns)
        return lambda: con.execute("INSERT INTO spans BY NAME SELECT * FROM columns")

    def segment(self) -> Callable[[], object]:
        """Spans to an acknowledged segment."""
        exporter = DuckDBSpanExporter(self.db())
        return lambda: exporter.export(self.spans)

    def table(self) -> Callable[[], object]:
        """Spans to rows of a store that exists, the file opened and closed."""
        exporter = self.flushed()

        def run() -> None:
            exporter.export(self.spans)
            exporter.force_flush()
            check(exporter.db)

        return run

    def flushed(self) -> DuckDBSpanExporter:
        """Makes an exporter whose store exists."""
        exporter = DuckDBSpanExporter(self.db())
        exporter.export(self.earlier[:1])
        exporter.force_flush()
        return exporter

    def one_span(self) -> Callable[[], object]:
        """One span to an acknowledged segment."""
        exporter = DuckDBSpanExporter(self.db())
        return lambda: exporter.export(self.spans[:1])

    def waiting(self, size: int) -> Callable[[], object]:
        """Segments of so many rows to the table."""
        exporter = self.flushed()
        spool = Spool(spool_folder(exporter.db))
        for first in range(0, SPANS, size):
            spool.write("spans", self.rows[first : first + size])
        return lambda: compact_store(exporter.db, budget_s=60)

    def stored(self, source: Path) -> Callable[[], object]:
        """Spans to rows of a store that holds others, at the second flush."""
        db = self.db()
        shutil.copy(source, db)
        exporter = DuckDBSpanExporter(db)
        exporter.export(self.earlier[: SPANS // 2])
        exporter.force_flush()

        def run() -> None:
            exporter.export(self.spans)
            exporter.force_flush()
            db.unlink()

        return run


def check(db: Path) -> None:
    """Everything has arrived, once. Few microseconds, beside what is measured: the ledger says it all."""
    assert not Spool(spool_folder(db)).segments()


def fill(db: Path, spans: int) -> Path:
    """Writes a store of so many spans."""
    with duckdb.connect(db) as con:
        con.execute(SCHEMA)
        con.execute("INSERT INTO agenttrace_meta VALUES ('schema_version', ?)", [str(SCHEMA_VERSION)])
        for first in range(0, spans, 1_000_000):
            con.execute(FILL, {"first": first, "last": min(first + 1_000_000, spans)})
    return db


def count(bench: Bench) -> None:
    """Looks into one store: each span once, those that were delivered twice, too."""
    exporter = bench.flushed()
    for _ in range(2):
        exporter.export(bench.spans)
        exporter.force_flush()
    with open_store(exporter.db) as con:
        assert con.execute("SELECT count(*), count(DISTINCT span_id) FROM spans").fetchone() == (SPANS + 1, SPANS + 1)


def main(*stored: int) -> bool:
    """Prints the tables; True where the targets are met."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), make_spans())
        count(bench)
        insert = Work("INSERT of ready columns", bench.insert)
        tables: dict[str, list[Figure]] = {
            f"{SPANS:,} spans": measure(
                [
                    insert,
                    Work("spans -> segment", bench.segment, target=2.2),
                    Work("spans -> table", bench.table, target=3.0),
                    Work("one span -> segment", bench.one_span, repeats=50),
                ]
            ),
            "Segments that wait -> table": measure(
                [
                    Work(f"{SPANS // size:,} of {size:,}", lambda size=size: bench.waiting(size))
                    for size in (SPANS, SMALL)
                ],
                rounds=3,
            ),
        }
        sources = {spans: fill(Path(folder) / f"stored{spans}.duckdb", spans) for spans in stored or STORED}
        tables[f"{SPANS:,} spans -> table that holds others"] = measure(
            [Work(f"{spans:,} spans", lambda source=source: bench.stored(source)) for spans, source in sources.items()],
            rounds=5,
        )
    return report("write_path", tables)


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
