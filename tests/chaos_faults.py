"""What is done to the agents of chaos_disk.py, in their process or to their files."""

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from segment_rows import read_segment

from agenttrace.spool import Segment

NOBODY = 65_534


def close_streams() -> None:
    """A daemon that has closed what it does not need: the next files that it opens are 0, 1 and 2."""
    for descriptor in range(3):
        os.close(descriptor)


def close_streams_and_talk() -> None:
    """The same, with a library that goes on writing to 1 and 2, whatever these are by now."""
    close_streams()

    def talk() -> None:
        while True:
            for descriptor in (1, 2):
                with suppress(OSError):
                    os.write(descriptor, b"progress: 42 %\n")
            time.sleep(0)

    threading.Thread(target=talk, daemon=True).start()


def delete_folder() -> None:
    """The folder that the agent works in is gone."""
    os.chdir(folder := tempfile.mkdtemp())
    os.rmdir(folder)


def lose_home() -> None:
    os.environ.pop("HOME", None)
    os.environ["TMPDIR"] = "/nowhere"


def become_nobody() -> None:
    """Another user, whom nothing here belongs to; as an ordinary user, the folder is closed instead."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def have_no_threads() -> None:
    """No thread can be started any more; root has no such limit."""
    become_nobody()
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))


def have_few_handles(more: int) -> None:
    """So many files may be opened beside those that are."""
    used = max(int(name) for name in os.listdir("/dev/fd"))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(used - len(os.listdir("/dev/fd")) + 1)]
    limit = max(int(name) for name in os.listdir("/dev/fd")) + more
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    _kept.extend(taken)


_kept: list[int] = []


def have_little_memory(mb: int) -> None:
    """So much more address space than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    if pages:
        limit = pages * resource.getpagesize() + (mb << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def write_small_files() -> None:
    """A quota: no file may be larger."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))


def fill(path: str) -> None:
    """Leaves no room on a disk."""
    with suppress(OSError), open(path, "ab", buffering=0) as file:
        while True:
            file.write(bytes(4_096))


def have_slow_disk() -> None:
    """Each file takes a tenth of a second to be on it."""
    fsync = os.fsync

    def slowly(descriptor: int) -> None:
        time.sleep(0.1)
        fsync(descriptor)

    os.fsync = slowly


def turn_read_only(disk: str) -> None:
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)


def delete_spool(db: str, ledger: str) -> None:
    """What was acknowledged so far goes with it, if it was not in the store yet."""
    shutil.rmtree(f"{db}.spool", ignore_errors=True)
    os.truncate(ledger, 0)


def damage(rng: random.Random, path: Path) -> None:
    """Cuts a file, or changes bits of it."""
    content = bytearray(path.read_bytes())
    if rng.random() < 0.5 or not content:
        del content[rng.randrange(len(content) + 1) :]
    else:
        for _ in range(rng.choice((1, 8, 64))):
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def litter(spool: Path) -> None:
    """Things that have no place there, some under the name of a segment."""
    name = f"{time.time_ns():020d}-{os.urandom(8).hex()}.3.spans"
    (spool / f"{name}.json").mkdir()
    (spool / f"{name}.arrow").write_text("not Arrow")
    (spool / f"1{name[1:]}.json").symlink_to("/nowhere")
    os.mkfifo(spool / f"2{name[1:]}.json")
    (spool / "foreign.txt").write_text("buy milk")
    (spool / "foreign").mkdir()


def span_ids(segments: Iterable[Segment]) -> set[str]:
    return {span_id for each in segments for span_id in read_segment(each).table.column("span_id").to_pylist()}


_HOLD = """
import sys, time, duckdb
until = time.monotonic() + float(sys.argv[2])
while True:
    try:
        with duckdb.connect(sys.argv[1]):
            print("holds it", flush=True)
            sys.stdin.read()
            break
    except duckdb.IOException:
        if time.monotonic() > until:
            raise
        time.sleep(0.001)
"""


@contextmanager
def held(db: Path, *, wait_s: float = 5.0) -> Iterator[None]:
    """Another program holds the store, so that segments wait."""
    command = [sys.executable, "-c", _HOLD, str(db), str(wait_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        holder.stdout.readline()
        try:
            yield
        finally:
            holder.stdin.close()
