"""Agents that are starved of room, rights, handles, threads, memory, of their very folder and streams; and a spool or
a store that is damaged under them.

Each agent must go on with the right results and end by itself, what it could not keep is counted and said once, and all
that was acknowledged and not destroyed is in the store in the end.
"""

import random
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import chaos_faults as faults
from chaos_ledger import Child, Tally, account, acknowledged

from agenttrace.spool import Spool, spool_folder

# What is done to an agent before it configures its tracing, and after its first order.
_STARVED: dict[str, tuple[Callable[..., None] | None, Callable[..., None] | None]] = {
    "no streams": (faults.close_streams, None),
    "streams closed": (None, faults.close_streams_and_talk),
    "folder deleted": (faults.delete_folder, None),
    "folder deleted later": (None, faults.delete_folder),
    "no HOME, no TMPDIR": (faults.lose_home, None),
    "no rights": (faults.become_nobody, None),
    "no rights later": (None, faults.become_nobody),
    "no threads": (faults.have_no_threads, None),
    "no more threads": (faults.become_nobody, faults.have_no_threads),
    "few handles": (partial(faults.have_few_handles, 40), None),
    "no handles": (None, partial(faults.have_few_handles, 0)),
    "two handles": (None, partial(faults.have_few_handles, 2)),
    "nine handles": (None, partial(faults.have_few_handles, 9)),
    "little memory": (None, partial(faults.have_little_memory, 30)),
    "no memory": (None, partial(faults.have_little_memory, 1)),
    "small files": (None, faults.write_small_files),
}
_SHORT = ("streams closed", "folder deleted", "no rights", "no threads", "no handles", "two handles", "small files")
# These agents are another user's, in a folder of his own.
_OF_NOBODY = ("no threads", "no more threads")


def run(folder: Path, seed: int, *, only: str = "", rounds: int = 4, orders: int = 20) -> Tally:
    tally, rng = Tally(), random.Random(seed)
    for name, case in CASES.items():
        if only in ("", name):
            place = folder / name.replace(" ", "-")
            place.mkdir()
            # An agent of another user must reach it.
            place.chmod(0o755)
            with tally.naming(name):
                case(tally, rng, place, orders, rounds)
            tally.events[name] += 1
    return tally


def _starved(tally: Tally, _rng: random.Random, folder: Path, orders: int, rounds: int) -> None:
    """All of them at once on one store, but for those of another user, who have one of their own; 0 rounds: a few."""
    for number in range(max(1, rounds)):
        children: list[tuple[str, Child]] = []
        for name in _STARVED if rounds else _SHORT:
            before, after = _STARVED[name]
            place = folder / ("of-nobody" if name in _OF_NOBODY else "of-root")
            place.mkdir(exist_ok=True)
            place.chmod(0o777 if name in _OF_NOBODY else 0o755)
            ledger = place / f"{name.replace(' ', '-')}-{number}.ledger"
            options = {"db": str(place / "agenttrace.duckdb"), "ledger": str(ledger), "orders": orders}
            children.append((name, Child("agent", before=before, after=after, **options)))
            tally.events["starved agents"] += 1
        for name, child in children:
            with tally.naming(name):
                child.ending(tally)
    for place in folder.iterdir():
        account(tally, place / "agenttrace.duckdb", place)


def _deleted_spool(tally: Tally, _rng: random.Random, folder: Path, orders: int, _rounds: int) -> None:
    """What the agent had written before is destroyed, and is not asked for."""
    db, ledger = folder / "agenttrace.duckdb", folder / "a.ledger"
    after = partial(faults.delete_spool, str(db), str(ledger))
    Child("agent", db=str(db), ledger=str(ledger), orders=orders, after=after).ending(tally)
    account(tally, db, folder)


def _full(tally: Tally, _rng: random.Random, folder: Path, orders: int, _rounds: int) -> None:
    """A disk that fills up under two agents, and has room again for a third."""
    with small_disk(folder / "disk") as disk:
        if disk is None:
            tally.events["no small disk to be had"] += 1
            return
        db = disk / "agenttrace.duckdb"
        filler = disk / "filler"
        pair = [
            Child(
                "agent",
                db=str(db),
                ledger=str(folder / f"{n}.ledger"),
                orders=orders,
                first=1_000 * n,
                after=partial(faults.fill, str(filler)),
            )
            for n in range(2)
        ]
        for child in pair:
            child.ending(tally)
        filler.unlink()
        Child("agent", db=str(db), ledger=str(folder / "3.ledger"), orders=orders, first=3_000).ending(tally)
        tally.check(acknowledged(folder), f"{db}: nothing was acknowledged")
        account(tally, db, folder)


def _read_only(tally: Tally, _rng: random.Random, folder: Path, orders: int, _rounds: int) -> None:
    """A file system that turns read-only, as one does after an error."""
    with small_disk(folder / "disk") as disk:
        if disk is None:
            tally.events["no small disk to be had"] += 1
            return
        db = disk / "agenttrace.duckdb"
        after = partial(faults.turn_read_only, str(disk))
        Child("agent", db=str(db), ledger=str(folder / "a.ledger"), orders=orders, after=after).ending(tally)
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        account(tally, db, folder)


def _damaged_spool(tally: Tally, rng: random.Random, folder: Path, orders: int, rounds: int) -> None:
    """Segments that are cut or changed, and things that are none: the others come in, and nothing waits for them."""
    for number in range(rounds):
        place = folder / str(number)
        place.mkdir()
        db, ledger = place / "agenttrace.duckdb", place / "a.ledger"
        # Without a flush each batch stays where it is.
        with faults.held(db):
            Child("agent", db=str(db), ledger=str(ledger), orders=orders, flush_every=3).ending(tally)
        segments = Spool(spool_folder(db)).segments()
        chosen = rng.sample(segments, max(1, len(segments) // 3))
        for segment in chosen:
            faults.damage(rng, segment.path)
        spared = faults.span_ids([segment for segment in segments if segment not in chosen])
        ledger.write_text("".join(f"{span_id}\n" for span_id in acknowledged(place) if span_id in spared))
        faults.litter(spool_folder(db))
        Child("agent", db=str(db), ledger=str(place / "b.ledger"), orders=2, first=1_000).ending(tally)
        account(tally, db, place)


def _damaged_store(tally: Tally, rng: random.Random, folder: Path, orders: int, rounds: int) -> None:
    """A store that is cut or changed: agents go on, and their spans come into the next store."""
    for number in range(rounds):
        place = folder / str(number)
        place.mkdir()
        db = place / "agenttrace.duckdb"
        Child("agent", db=str(db), ledger=str(folder / "a.spoilt"), orders=orders).ending(tally)
        what = rng.choice(("store", "log"))
        if what == "log":
            Child("killed_with_log", db=str(db)).ending(tally, expected=(-9,))
        path = db if what == "store" else db.with_name(f"{db.name}.wal")
        tally.check(path.exists(), f"{path}: is not there to be damaged")
        faults.damage(rng, path)
        Child("agent", db=str(db), ledger=str(place / "b.ledger"), orders=orders, first=1_000).ending(tally)
        # What has come into the damaged file is gone with it; what waits is not.
        waiting = faults.span_ids(Spool(spool_folder(db)).segments())
        ledger = place / "b.ledger"
        ledger.write_text("".join(f"{span_id}\n" for span_id in acknowledged(place) if span_id in waiting))
        for old in place.glob(f"{db.name}*"):
            if old.is_file():
                old.rename(old.with_name(f"old-{old.name}"))
        account(tally, db, place)


CASES: dict[str, Callable[[Tally, random.Random, Path, int, int], None]] = {
    "starved": _starved,
    "disk full": _full,
    "read-only": _read_only,
    "spool deleted": _deleted_spool,
    "spool damaged": _damaged_spool,
    "store damaged": _damaged_store,
}


@contextmanager
def small_disk(folder: Path, size: str = "4m") -> Iterator[Path | None]:
    """A file system of 4 MiB; None where this process may not mount one."""
    folder.mkdir()
    folder.chmod(0o777)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def reached_by_others() -> Path:
    """A folder that an agent of another user may enter; pytest's are for their owner alone."""
    folder = Path(tempfile.mkdtemp(prefix="agenttrace-chaos-"))
    folder.chmod(0o755)
    return folder
