"""What `agenttrace demo` records and judges: two small agents with known faults, no network and no key."""

import shutil
from pathlib import Path

import agenttrace
from agenttrace.config import Budget, Settings
from agenttrace.examples import grocery, refunds
from agenttrace.spool import spool_folder


def run(folder: Path) -> Path:
    """Runs both agents, which print what they answer, and records them in a store of their own.

    Returns:
        The database; that of an earlier demo in the same folder is replaced, so that its runs are not judged again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    db = folder / "agenttrace-demo.duckdb"
    for left_over in (db, db.with_name(f"{db.name}.wal")):
        left_over.unlink(missing_ok=True)
    shutil.rmtree(spool_folder(db), ignore_errors=True)
    agenttrace.configure(db)
    grocery.main()
    refunds.main()
    agenttrace.shutdown()
    return db


def settings() -> Settings:
    """Limits that one of the agents breaks."""
    return Settings(budgets={"default": Budget(max_tool_calls=5, max_cost_usd=0.01)})
