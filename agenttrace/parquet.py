"""A store -> a folder of Parquet files: what an engine beyond one machine reads.

`spans`, `log_records`, `steps` and `trajectories` are cut by day and bucket, as in `steps/day=2026-11-30/bucket=7/`;
each other table is one file. No type is one that only DuckDB has: JSON is text, times are microseconds UTC.
"""

import os
import shutil
from importlib import resources
from pathlib import Path

import duckdb

from agenttrace import private
from agenttrace.connect import Connection, attach_to_read, first_line, start
from agenttrace.errors import UsageError
from agenttrace.places import real_path
from agenttrace.store import open_store

# Of these, the rows of a place are in a file of their own; of the others, all rows are in one.
_OF_TRACES = ("spans", "log_records")
_OF_RUNS = ("steps", "trajectories")
_WHOLE = ("findings", "measurements", "not_evaluable", "outcomes", "evaluation_runs", "judgements", "faults")
_WAIT_S = 10.0


def write_parquet(db: Path, folder: Path) -> dict[str, int]:
    """Writes a store into a folder, which appears when it is whole.

    Args:
        db: The store, with all that has arrived.
        folder: It must not be there yet.

    Returns:
        Rows by table.

    Raises:
        UsageError: The folder is there, or cannot be written.
        StoreError: The store cannot be read.
    """
    if folder.exists():
        raise UsageError(f"export: {folder}: is there already; name a new folder, or delete it.")
    # An older store has no tables of today, and says so.
    open_store(db).close()
    part = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.part")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        private.make_folder(part)
        counts = _write(real_path(db), part.resolve())
        part.rename(folder)
    except duckdb.Error as err:
        raise UsageError(f"export: {folder}: cannot be written: {first_line(err)}") from err
    except OSError as err:
        raise UsageError(f"export: {folder}: cannot be written: {err.strerror}.") from err
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return counts


def _write(db: Path, folder: Path) -> dict[str, int]:
    con = start(db, db.parent, folder, is_agent=False)
    try:
        attach_to_read(con, db, _WAIT_S)
        places = (resources.files("agenttrace") / "parquet_places.sql").read_text(encoding="utf-8")
        con.execute(places)
        return {table: _copy(con, table, folder) for table in (*_OF_TRACES, *_OF_RUNS, *_WHOLE)}
    finally:
        con.close()


def _copy(con: Connection, table: str, folder: Path) -> int:
    columns = con.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = 'store' AND table_name = $table"
        " AND schema_name = 'main' ORDER BY column_index",
        {"table": table},
    ).fetchall()
    names = ", ".join(f"t.{name}::VARCHAR AS {name}" if kind == "JSON" else f"t.{name}" for name, kind in columns)
    target = str(folder / table).replace("'", "''")
    form = "FORMAT parquet, COMPRESSION zstd, PARTITION_BY (day, bucket)"
    if table in _OF_TRACES:
        query = f"SELECT {names}, p.day, p.bucket FROM {table} AS t JOIN trace_places AS p USING (trace_id)"  # noqa: S608
    elif table in _OF_RUNS:
        query = (
            f"SELECT {names}, coalesce(r.day, p.day) AS day, coalesce(r.bucket, p.bucket) AS bucket FROM {table} AS t"  # noqa: S608
            " LEFT JOIN run_places AS r USING (trajectory_id) JOIN trace_places AS p ON p.trace_id = t.trace_id"
        )
    else:
        query = f"SELECT {names} FROM {table} AS t"  # noqa: S608 - names of ours
        form = "FORMAT parquet, COMPRESSION zstd"
        target += ".parquet"
    return int(con.execute(f"COPY ({query}) TO '{target}' ({form})").fetchall()[0][0])
