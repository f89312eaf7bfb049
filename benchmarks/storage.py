"""Bytes of a span on disk: as a segment, in the store, with its steps; against OTLP protobuf as it was received.

Run: `python benchmarks/storage.py [SPANS]`. Spans are runs of an agent with random words, and those of recordings of
real frameworks (tests/traces), each once.
"""

import gzip
import json
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from otlp_requests import request, spans_of
from ratios import Amount, amounts, report

from agenttrace.collectors.decode import decode_traces_protobuf
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import compact_store, refresh

SPANS = 20_480
BATCH = 512
# Runs that arrive in the course of time, each with a compaction and a rebuild of its own.
PARTS = 10
TRACES = Path(__file__).parent.parent / "tests" / "traces"


def generated(spans: int) -> Iterator[ExportTraceServiceRequest]:
    """Requests of a batch each, no two alike."""
    for first in range(0, spans, BATCH):
        message = request(min(BATCH, spans - first), seed=first)
        for span in spans_of(message):
            span.trace_id = (first + 1).to_bytes(8) + span.trace_id[8:]
            span.start_time_unix_nano += first * 1_000_000
            span.end_time_unix_nano += first * 1_000_000
        yield message


def recorded() -> Iterator[ExportTraceServiceRequest]:
    """Requests of real frameworks; those in which protobuf's own reader finds a fault are left out."""
    for path in sorted(TRACES.glob("*/*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                yield ParseDict(_with_base64(json.loads(line)), ExportTraceServiceRequest(), ignore_unknown_fields=True)
            except (ParseError, ValueError):
                continue


def _with_base64(value: Any) -> Any:
    """OTLP's JSON has ids in hex, where protobuf's has base64."""
    if isinstance(value, list):
        return [_with_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        key: b64encode(bytes.fromhex(item)).decode() if key in ids else _with_base64(item)
        for key, item in value.items()
    }


def sizes(bodies: list[bytes], folder: Path) -> tuple[int, list[Amount]]:
    """Writes the requests as segments, moves these into a store, rebuilds; returns spans and rows of bytes each."""
    db = folder / "at-once.duckdb"
    spool = Spool(spool_folder(db))
    write(bodies, spool)
    segments = sum(segment.size_bytes for segment in spool.segments())
    assert compact_store(db, budget_s=600) is not None
    spans, compacted = stored(db)
    refresh(db)
    _, rebuilt = stored(db)
    parts = folder / "in-parts.duckdb"
    for first in range(PARTS):
        write(bodies[first::PARTS], Spool(spool_folder(parts)))
        refresh(parts)
    values = {
        "OTLP protobuf": sum(map(len, bodies)),
        "OTLP protobuf, gzip of each request": sum(len(gzip.compress(body)) for body in bodies),
        "spool: a segment for each request": segments,
        "store: spans": compacted,
        "store: spans, steps and trajectories": rebuilt,
        f"the same, brought in in {PARTS} parts": stored(parts)[1],
    }
    return spans, amounts("bytes", {part: value / spans for part, value in values.items()})


def write(bodies: list[bytes], spool: Spool) -> None:
    """Writes a segment for each request that holds spans."""
    for body in bodies:
        if rows := decode_traces_protobuf(body).spans:
            spool.write("spans", rows)


def stored(db: Path) -> tuple[int, int]:
    """Returns the spans and the size of the file, when it is at rest."""
    with duckdb.connect(str(db)) as con:
        con.execute("CHECKPOINT")
        (spans,) = con.execute("SELECT count(*) FROM spans").fetchone() or (0,)
    return spans, db.stat().st_size


def main(spans: int = SPANS, recordings: bool = True) -> bool:
    """Prints the tables."""
    sources = {"runs of an agent": generated(spans)} | ({"recordings of frameworks": recorded()} if recordings else {})
    tables: dict[str, list[Amount]] = {}
    for name, messages in sources.items():
        with tempfile.TemporaryDirectory() as folder:
            bodies = [message.SerializeToString() for message in messages]
            count, rows = sizes(bodies, Path(folder))
            tables[f"{name}: bytes per span ({count:,} spans in {len(bodies):,} requests)"] = rows
    return report("storage", tables)


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
