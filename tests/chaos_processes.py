"""Many at once: agents of every make on one store, a lock that another program keeps, clocks that are wrong, containers
that share a volume and a process id."""

import os
import random
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from chaos_faults import held
from chaos_ledger import Child, Tally, account, acknowledged, query, until

_MAKES = ("turn", "threads", "tasks", "forks", "fork", "spawn", "forkserver")
_HOUR_S, _DAY_S = 3_600.0, 86_400.0
_NEW_INTERPRETERS = ("spawn", "forkserver")
_LOCKED_S = 30.0
_SPANS_OF_AN_ORDER = 4


def run(folder: Path, seed: int, *, agents: int = 16, orders: int = 20, short: bool = False) -> Tally:
    """Lets agents work at once.

    Args:
        folder: Where the stores go.
        seed: Of all that is random.
        agents: How many.
        orders: How many each of them serves.
        short: One store for all, and no new interpreters.
    """
    tally, rng = Tally(), random.Random(seed)
    crowd = Crowd(tally, rng, agents, orders, short)
    for part in (_crowd, _locked, _clocks, _containers):
        name = part.__name__.strip("_")
        place = folder / ("shared" if short else name)
        place.mkdir(exist_ok=True)
        with tally.naming(name):
            part(crowd, place / "agenttrace.duckdb")
    for place in folder.iterdir():
        account(tally, place / "agenttrace.duckdb", place)
        negative = query(place / "agenttrace.duckdb", "SELECT count(*) FROM steps WHERE duration_ms < 0")
        tally.check(negative == [(0,)], f"{place}: {negative[0][0]} steps end before they begin")
    return tally


class Crowd(NamedTuple):
    """How many agents of which kinds."""

    tally: Tally
    rng: random.Random
    agents: int
    orders: int
    short: bool

    def start(self, db: Path, name: str, **options: Any) -> Child:
        ledger = str(db.with_name(f"{name}.ledger"))
        return Child("agent", db=str(db), ledger=ledger, **{"orders": self.orders} | options)


def _crowd(crowd: Crowd, db: Path) -> None:
    tally = crowd.tally
    makes = [_MAKES[number % len(_MAKES)] for number in range(crowd.agents)]
    if crowd.short:
        makes = [make for make in makes if make not in _NEW_INTERPRETERS]
    names = list(enumerate(crowd.rng.sample(makes, len(makes))))
    children = [crowd.start(db, f"{make}-{n}", first=1_000 * n, how=make) for n, make in names]
    for child in children:
        child.ending(tally)
    # The first order of each, and those of which every one is at least one span.
    least = len(makes) * (crowd.orders + _SPANS_OF_AN_ORDER)
    found = len(acknowledged(db.parent))
    tally.check(found >= least, f"{found} spans were acknowledged, at least {least} ended")
    tally.events["agents at once"] += len(makes)


def _locked(crowd: Crowd, db: Path) -> None:
    """Another program keeps the file: agents work, flush and end as if nobody did."""
    if not db.exists():
        crowd.start(db, "first", orders=2).ending(crowd.tally)
    with held(db):
        for number in range(max(1, crowd.agents // 4)):
            pair = [crowd.start(db, f"locked-{number}-{n}", first=1_000 * number) for n in range(2)]
            for child in pair:
                child.ending(crowd.tally, timeout_s=_LOCKED_S)
            crowd.tally.events["agents beside a lock"] += 2


def _clocks(crowd: Crowd, db: Path) -> None:
    """Clocks that jump by hours and days in either direction, and hosts that never agreed."""
    steps = (0.0, -_HOUR_S, _HOUR_S, -3 * _DAY_S, 30 * _DAY_S, -0.5, 0.5)
    for number in range(max(2, crowd.agents // 4)):
        jumps = crowd.rng.sample(steps, 4) if number % 2 else [crowd.rng.choice(steps)]
        make = crowd.rng.choice(("turn", "threads"))
        child = crowd.start(db, f"clock-{number}", jumps=jumps, first=1_000 * number, how=make)
        child.ending(crowd.tally)
        crowd.tally.events["wrong clocks"] += 1


def _containers(crowd: Crowd, db: Path) -> None:
    """Process 1 of two containers, on one volume; the second pair is ended by SIGTERM, as containers are."""
    within = None if crowd.short else container()
    options: dict[str, Any] = {"orders": 10 * crowd.orders, "flush_every": 5, "within": within}
    if within is None:
        options["before"] = _be_process_1
        crowd.tally.events["containers only pretended"] += 1
    for number in range(max(1, crowd.agents // 8)):
        pair = [crowd.start(db, f"container-{number}-{side}", **options) for side in range(2)]
        is_ended = number % 2 == 1
        for side, child in enumerate(pair if is_ended else ()):
            ledger = db.with_name(f"container-{number}-{side}.ledger")
            until(lambda ledger=ledger: ledger.exists() and ledger.stat().st_size > 0)
            child.send(signal.SIGTERM)
        for child in pair:
            # unshare says 128 + 15 for a child that a signal has ended.
            child.ending(crowd.tally, expected=(0, -signal.SIGTERM, 128 + signal.SIGTERM) if is_ended else (0,))
        crowd.tally.events["containers"] += 2


def container() -> list[str] | None:
    """A command that makes its program process 1 of a world of its own; None where that is not permitted."""
    if shutil.which("unshare") is None:
        return None
    for options in (
        ["--pid", "--fork", "--kill-child"],
        ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"],
    ):
        command = ["unshare", *options]
        if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return None


def _be_process_1() -> None:
    os.getpid = lambda: 1
