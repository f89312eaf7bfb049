"""Reads segments of a spool, as the compactor does with many at once."""

from typing import NamedTuple

import pyarrow as pa

from agenttrace.segments import table_of
from agenttrace.spool import Segment, load_segment


class SegmentRows(NamedTuple):
    """What a segment holds; `table` has the columns of its kind, and `received_at`."""

    table: pa.Table
    settled: bool


def read_segment(segment: Segment) -> SegmentRows:
    """Reads a segment; it raises as `load_segment` does."""
    content = load_segment(segment)
    return SegmentRows(table_of([(content, segment.received_at_ns // 1000)]), content.settled)
