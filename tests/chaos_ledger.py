"""What the fault campaigns count: spans that were acknowledged, and what the store holds of them.

An agent writes the id of each acknowledged span into its ledger, a file of its own, so that a kill cannot lie.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb

from agenttrace.spool import Spool, spool_folder
from agenttrace.store import open_store, refresh

WAIT_S = 60.0
_AN_HOUR_S = 3_600.0
# What may lie beside a store and in its spool when nobody works on it.
_KEPT = re.compile(r"receiver\.json|losses\.jsonl|foreign.*|.*\.bad")


@dataclass
class Tally:
    """Counts of one campaign.

    Attributes:
        acknowledged: Spans whose writer was told that they are kept.
        found: Those of them that are in the store.
        lost: Those that are not.
        twice: Spans that are in the store more than once.
        crashes: Agents that ended otherwise than they should, or with other results.
        events: What was done to them, such as kills, and how often.
        faults: What else went wrong, in words.
    """

    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    twice: int = 0
    crashes: int = 0
    events: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    @property
    def failed(self) -> bool:
        return bool(self.lost or self.twice or self.crashes or self.faults)

    def check(self, holds: object, fault: str) -> None:
        if not holds:
            self.faults.append(fault)

    def crashed(self, what: str) -> None:
        self.crashes += 1
        self.faults.append(what)

    @contextmanager
    def naming(self, what: str) -> Iterator[None]:
        """Puts the name of a case before the faults that are found in it; an exception is one of them."""
        before = len(self.faults)
        try:
            yield
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error}")
        self.faults[before:] = [f"{what}: {fault}" for fault in self.faults[before:]]

    def __iadd__(self, other: "Tally") -> "Tally":
        for name in ("acknowledged", "found", "lost", "twice", "crashes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.events += other.events
        self.faults += other.faults
        return self


class Ledger:
    """A file of acknowledged span ids; they are on disk when `add` returns."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def add(self, span_ids: Iterable[str]) -> None:
        os.write(self._descriptor, "".join(f"{span_id}\n" for span_id in span_ids).encode())
        os.fsync(self._descriptor)


def acknowledged(folder: Path, pattern: str = "*.ledger") -> list[str]:
    """Reads the ledgers of a folder; a last line without its end was being written by a killed agent."""
    found: list[str] = []
    for path in sorted(folder.glob(pattern)):
        found += path.read_text().split("\n")[:-1]
    return found


class Child:
    """A process of a campaign: a role of chaos_agent.py."""

    def __init__(self, role: str, *, within: Sequence[str] | None = None, **options: Any) -> None:
        """Starts it.

        Args:
            role: Name of the function.
            within: A command that is to run it in a new interpreter; None: a fork of one that has loaded everything,
                for a new interpreter takes a second of processor time.
            options: Its arguments.
        """
        self.role = role
        self._program: subprocess.Popen[bytes] | None = None
        if within is not None:
            command = [*within, sys.executable, str(Path(__file__).with_name("chaos_agent.py"))]
            self._program = subprocess.Popen([*command, role, json.dumps(options)])
            self.pid = self._program.pid
            return
        self._process = _server().Process(target=_play, args=(role, options))
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def code(self) -> int | None:
        """Its exit code; a negative one is a signal."""
        return self._process.exitcode if self._program is None else self._program.poll()

    def is_running(self) -> bool:
        return self.code is None

    def wait(self, timeout_s: float) -> bool:
        if self._program is None:
            self._process.join(timeout_s)
        else:
            with suppress(subprocess.TimeoutExpired):
                self._program.wait(timeout_s)
        return not self.is_running()

    def send(self, number: int) -> None:
        if self.is_running():
            os.kill(self.pid, number)

    def kill(self) -> bool:
        """Kills it; False where it had ended already."""
        self.send(signal.SIGKILL)
        self.wait(WAIT_S)
        return self.code == -signal.SIGKILL

    def ending(self, tally: Tally, *, expected: tuple[int, ...] = (0,), timeout_s: float = WAIT_S) -> int | None:
        """Waits for its end; any other than expected is a crash of the agent."""
        if not self.wait(timeout_s):
            self.kill()
            tally.crashed(f"{self.role}: still running after {timeout_s:.0f} s")
            return None
        code = self.code
        if code not in expected:
            tally.crashed(f"{self.role}: ended with {code}")
        return code


def _server() -> ForkServerContext:
    """Makes the process that forks the others; it has loaded what they need."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["chaos_agent"])
    # It looks for the module in its own path, not in ours, and is silent where there is none.
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(paths)):
        forkserver.ensure_running()
    return context


def _play(role: str, options: dict[str, Any]) -> None:
    import chaos_agent

    sys.exit(chaos_agent.ROLES[role](**options))


def until(condition: Callable[[], object], timeout_s: float = WAIT_S) -> bool:
    """Waits for a condition; False where it does not come about."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def kill_at_random(rng: random.Random, child: Child, most_s: float, tally: Tally) -> bool:
    """Kills a child within a time; False where it had ended before, which it may."""
    child.wait(rng.uniform(0.0, most_s))
    if child.kill():
        tally.events["kills"] += 1
        return True
    child.ending(tally)
    return False


def settle(db: Path) -> None:
    """Brings all that waits into the store, whoever held it until a moment ago."""
    deadline = time.monotonic() + WAIT_S
    while (refreshed := refresh(db, wait_s=WAIT_S)).busy or refreshed.pending:
        if refreshed.problem or time.monotonic() > deadline:
            raise TimeoutError(f"{db}: {refreshed.pending} segments still wait ({refreshed.problem})")


def account(tally: Tally, db: Path, ledgers: Path) -> None:
    """Counts what was acknowledged in the store, and looks at all that should hold beside that."""
    settle(db)
    expected = set(acknowledged(ledgers))
    if not expected and not db.exists():
        return
    with open_store(db, wait_s=WAIT_S) as con:
        stored = Counter(span_id for (span_id,) in con.execute("SELECT span_id FROM spans").fetchall())
    missing = expected - stored.keys()
    tally.acknowledged += len(expected)
    tally.found += len(expected) - len(missing)
    tally.lost += len(missing)
    for path in sorted(ledgers.glob("*.ledger")) if missing else ():
        if lost := missing.intersection(acknowledged(ledgers, path.name)):
            tally.faults.append(f"{path}: {len(lost)} spans are not in the store")
    tally.twice += sum(count > 1 for count in stored.values())
    _check_steps(tally, db)
    _check_leftovers(tally, db)


def query(db: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_store(db, wait_s=WAIT_S) as con:
        return con.execute(sql).fetchall()


_STEPS = (
    "SELECT * FROM steps ORDER BY ALL",
    "SELECT * EXCLUDE (complete, last_arrival, revision) FROM trajectories ORDER BY ALL",
)


def _check_steps(tally: Tally, db: Path) -> None:
    """Steps and trajectories are those that a rebuild of everything gives."""
    before = [query(db, sql) for sql in _STEPS]
    with duckdb.connect(db) as con:
        con.execute("INSERT INTO dirty_traces SELECT DISTINCT trace_id FROM spans")
    refresh(db, wait_s=WAIT_S)
    for name, old, sql in zip(("steps", "trajectories"), before, _STEPS, strict=True):
        tally.check(query(db, sql) == old, f"{db}: {name} are not those of the spans")


def _check_leftovers(tally: Tally, db: Path) -> None:
    """An hour later, the next command leaves nothing of those who died."""
    folder = spool_folder(db)
    for path in folder.iterdir() if folder.exists() else ():
        os.utime(path, (time.time() - _AN_HOUR_S,) * 2, follow_symlinks=False)
    refresh(db, wait_s=WAIT_S)
    beside = [path for path in db.parent.glob(f"{db.name}*") if path not in (db, folder)]
    key = [path for path in db.parent.glob("agenttrace.key*") if path.name != "agenttrace.key"]
    inside = list(folder.iterdir()) if folder.exists() else []
    left = sorted(path.name for path in (*beside, *key, *inside) if not _KEPT.fullmatch(path.name))
    tally.check(not left, f"{db}: left behind: {left[:5]}")


def waiting(db: Path) -> int:
    return len(Spool(spool_folder(db)).segments())
