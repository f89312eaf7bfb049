"""Rebuild of steps and trajectories: what a span costs by convention, a small store, a year's store, and long traces.

Run: `python benchmarks/rebuild.py [SPANS [A_DAY]]`: spans per convention (5,000 by default), spans of a day (5,000).
"""

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
from ratios import Figure, Work, measure, report
from rebuild_traces import CONVENTIONS, START_NS, TURNS, empty, made, mark, multiplied, recorded, rows_of

from agenttrace.rebuild import rebuild
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder
from agenttrace.store import open_store, refresh

DAYS = (1, 30, 365)
LONG_TRACE = 20_000
# The two attributes are an LLM call's largest and none at all.
SCAN = "SELECT count(attributes ->> '$.\"gen_ai.input.messages\"'), count(attributes ->> '$.x') FROM spans"


def main(spans: int = 5_000, a_day: int = 5_000) -> bool:
    """Prints and keeps the tables."""
    return report(
        "rebuild",
        {
            f"rebuild of {spans} spans; the scan of their attributes = 1": by_convention(spans),
            "one run; opening an empty store = 1": one_run(),
            f"{a_day} spans of one more day; in a store of one day = 1": one_more_day(a_day),
            f"one trace of {LONG_TRACE} spans; as many in traces of ten = 1": long_trace(),
        },
    )


def rebuilt(con: duckdb.DuckDBPyConnection) -> Work:
    """The rebuild of a store whose traces are all new."""

    def prepare() -> Callable[[], object]:
        mark(con)
        return lambda: rebuild(con)

    return Work("rebuild", prepare)


def by_convention(spans: int) -> list[Figure]:
    """A row per convention that has recordings, and per one of which traces are made here."""
    rows: list[Figure] = []
    source = recorded()
    names = [
        name
        for (name,) in source.execute(
            "SELECT DISTINCT convention FROM steps WHERE convention IS NOT NULL ORDER BY 1"
        ).fetchall()
    ]
    stores = [(f"{name}, made here", lambda name=name: made(name, spans // (2 * TURNS))) for name in CONVENTIONS]
    stores += [(name, lambda name=name: multiplied(source, name, spans)) for name in names]
    for name, store in stores:
        con = store()
        (count,) = con.execute("SELECT count(*) FROM spans").fetchone() or (0,)
        scan = Work("scan", lambda con=con: lambda: con.execute(SCAN).fetchall(), repeats=5)
        _, found = measure([scan, rebuilt(con)], rounds=3)
        more = {"us a span": found.cpu_s / count * 1e6}
        rows.append(
            Figure(name, found.cpu_s, found.wall_s, found.cpu_ratio, found.wall_ratio, None, found.rounds, more)
        )
        con.close()
    return rows


def one_run() -> list[Figure]:
    """What a command pays for the smallest change."""

    def first() -> Callable[[], object]:
        con = made("gen_ai", 1)
        mark(con)
        return lambda: rebuild(con)

    return measure(
        [Work("an empty store", lambda: lambda: empty().close()), Work("rebuild of one run", first)], rounds=9
    )


def one_more_day(a_day: int) -> list[Figure]:
    """A day comes in through the spool into stores of 1, 30 and 365 days before it."""
    query = Path(__file__).with_name("rebuild_days.sql").read_text(encoding="utf-8")
    rows = rows_of("gen_ai", a_day // (2 * TURNS))
    incoming = [SpanRow(**dict.fromkeys(SpanRow._fields) | row) for row in rows]
    with tempfile.TemporaryDirectory() as folder:

        def prepare(days: int) -> Callable[[], object]:
            db = Path(folder) / f"{days}.duckdb"
            if not db.exists():
                Spool(spool_folder(db)).write("spans", incoming[:1])
                refresh(db)
                with duckdb.connect(db) as con:
                    for statement in con.extract_statements(query):
                        values = {"days": days, "a_day": a_day, "before": START_NS}
                        con.execute(
                            statement,
                            {name: value for name, value in values.items() if name in statement.named_parameters},
                        )
            copy = Path(folder) / "copy.duckdb"
            shutil.copy(db, copy)
            Spool(spool_folder(copy)).write("spans", incoming)
            return lambda: refresh(copy)

        works = [Work(f"{days} days before it", lambda days=days: prepare(days)) for days in DAYS]
        figures = measure(works, rounds=5)
        with open_store(Path(folder) / "copy.duckdb") as con:
            (linked,) = con.execute("SELECT count(*) FROM steps WHERE turn_span_id IS NOT NULL").fetchone() or (0,)
        assert linked == a_day // (2 * TURNS) * (TURNS - 1)
    return figures


def long_trace() -> list[Figure]:
    """Nothing grows with the square of a trace's length."""
    runs = LONG_TRACE // (2 * TURNS)
    many, one = made("gen_ai", runs), made("gen_ai", runs, in_one_trace=True)
    return measure([Work("many traces", rebuilt(many).prepare), Work("one trace", rebuilt(one).prepare)], rounds=3)


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
