"""The spool: a folder of immutable segments beside the store, written by any number of processes without a lock.

One open DuckDB writer shuts every other process out of the file, so producers never touch it. A segment is written
under a temporary name, synced and renamed; the rename is the acknowledgement. The compactor moves it into the store.
"""

import errno
import fcntl
import os
import re
import shutil
import time
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from agenttrace import private
from agenttrace.errors import OtherReleaseError, SpoolError, SpoolFullError
from agenttrace.guard import warn_once
from agenttrace.places import default_db, real_path
from agenttrace.segments import Content, Encoded, EvaluationRow, check_known, decode, encode

__all__ = [
    "CAP_BYTES",
    "SPILL",
    "EvaluationRow",
    "Pending",
    "Segment",
    "Spool",
    "default_db",
    "load_segment",
    "locked_folder",
    "real_path",
    "spool_folder",
    "sync_folder",
]


# Folders in the spool for what DuckDB cannot keep in memory, one a user.
SPILL = "spill-"
CAP_BYTES = 2 << 30

# Writers lock their temporary file, so an unlocked one is of a dead process; the age covers the moment before the lock.
_TEMPORARY_AGE_S = 600.0
_SIZE_AGE_S = 30.0
_FULL_SIZE_AGE_S = 1.0

_BAD = ".bad"

# What is under a segment's name is no file with rows, and never will be; every other error may pass.
_NO_FILE = (None, errno.ELOOP, errno.EISDIR, errno.ENXIO)

_NAME = re.compile(
    r"(?P<time_ns>\d{20})-[0-9a-f]{16}\.(?P<rows>\d+)\.(?P<kind>[a-z][a-z0-9_]*)\."
    r"(?:(?P<checksum>[0-9a-f]{8})\.)?(?P<ending>[a-z][a-z0-9]*)"
)


class Segment(NamedTuple):
    """An acknowledged file of the spool; segments sort by the time of their arrival."""

    path: Path
    kind: str
    rows: int
    size_bytes: int
    received_at_ns: int


class Pending(NamedTuple):
    """What waits to be compacted; `oldest_s` is 0 where nothing does."""

    segments: int
    rows: int
    bytes: int
    oldest_s: float


def spool_folder(db: Path) -> Path:
    """Returns the spool of a store; two paths to one store, as through a symbolic link, have one spool."""
    real = real_path(db)
    return real.with_name(real.name + ".spool")


class Spool:
    """Writes segments, and lists them for the compactor.

    Any number of threads and processes may use one folder; a `Spool` survives a fork.
    """

    def __init__(self, folder: Path, *, cap_bytes: int = CAP_BYTES) -> None:
        self.folder = folder
        self._cap_bytes = cap_bytes
        self._known_bytes = 0
        self._measured_at = float("-inf")

    def write(self, kind: str, rows: Sequence[tuple[Any, ...]], *, settled: bool = False) -> Path:
        """Writes rows and returns the path of their segment once it is on disk: from here on they are acknowledged.

        Very long rows become several segments; the last one's path is returned. Where one of these fails, those before
        it stay: whoever writes the rows again repeats them, and the store takes each span and log record once.

        Args:
            kind: "spans", "logs", "outcomes" or "evaluation".
            rows: SpanRow, LogRow, OutcomeRow or EvaluationRow, at least one. A lone surrogate becomes "?".
            settled: The rows are whole traces of the past (an import): nothing more is waited for.

        Raises:
            SpoolFullError: The spool is at its cap.
            SpoolError: A row has a value that its column cannot hold, or the folder is a trap of another user.
            OSError: The disk is full or the folder cannot be written.
        """
        if not rows:
            raise SpoolError(f"{self.folder}: a segment needs at least one row.")
        *_, path = [self._write_part(kind, part) for part in encode(kind, rows, settled)]
        return path

    def _write_part(self, kind: str, part: Encoded) -> Path:
        self._reserve(len(part.payload))
        # The kernel's random bytes differ between threads, processes and forks without any shared state.
        unique = f"{max(0, time.time_ns()):020d}-{os.urandom(8).hex()}"
        name = f"{unique}.{part.rows}.{kind}.{zlib.crc32(part.payload):08x}.{part.ending}"
        try:
            return self._store(name, part.payload)
        except FileNotFoundError:
            private.make_folder(self.folder)
            sync_folder(self.folder.parent)
            return self._store(name, part.payload)

    def segments(self) -> list[Segment]:
        """Lists acknowledged segments, oldest first."""
        found: list[Segment] = []
        for name, size in self._files():
            if match := _NAME.fullmatch(name):
                path = self.folder / name
                found.append(Segment(path, match["kind"], int(match["rows"]), size, int(match["time_ns"])))
        return sorted(found)

    def pending(self) -> Pending:
        """Counts what waits."""
        segments = self.segments()
        oldest_s = max(0.0, time.time() - segments[0].received_at_ns / 1e9) if segments else 0.0
        rows = sum(segment.rows for segment in segments)
        return Pending(len(segments), rows, sum(segment.size_bytes for segment in segments), oldest_s)

    def set_aside(self, segment: Segment, reason: str) -> None:
        """Renames a segment that cannot be read to `.bad`: it neither blocks the others nor is it lost."""
        bad = segment.path.with_name(segment.path.name + _BAD)
        try:
            segment.path.rename(bad)
        except FileNotFoundError:
            return
        except OSError as err:
            warn_once(f"{bad}", "%s: can neither be read (%s) nor set aside: %s", segment.path, reason, err.strerror)
        else:
            warn_once(f"{bad}", "%s: set aside, its %d rows are not in the store: %s", bad, segment.rows, reason)

    def set_aside_paths(self) -> list[Path]:
        """Lists the segments that were set aside."""
        return sorted(self.folder / name for name, _ in self._files() if name.endswith(_BAD))

    def set_aside_bytes(self) -> int:
        """Measures the segments that were set aside."""
        return sum(size for name, size in self._files() if name.endswith(_BAD))

    def take_back(self) -> None:
        """Gives what was set aside another try."""
        for path in self.set_aside_paths():
            plain = path.with_suffix("")
            if _NAME.fullmatch(plain.name) and not plain.exists():
                with suppress(OSError):
                    path.rename(plain)

    def is_writable(self) -> bool:
        """Tells whether this user may list the folder and delete what is in it; False where there is none."""
        effective = os.access in os.supports_effective_ids
        return os.access(self.folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=effective)

    def remove(self, segments: Iterable[Segment]) -> None:
        """Deletes segments that are in the store, durably: their ledger rows may go afterwards."""
        for segment in segments:
            try:
                segment.path.unlink(missing_ok=True)
            except PermissionError as err:
                # The ledger knows it for as long as it is there.
                warn_once(
                    f"remove {self.folder}", "%s: in the store, but cannot be deleted: %s", segment.path, err.strerror
                )
        sync_folder(self.folder)

    def clean(self) -> None:
        """Deletes temporary files of dead writers; they were never acknowledged. Only for who holds the store."""
        for name, _ in self._files():
            # DuckDB adds its own ending to the name of a store that was being made.
            if name.endswith((".tmp", ".tmp.wal")):
                with suppress(OSError):
                    _remove_abandoned(self.folder / name)
            elif name.startswith(SPILL):
                # Whoever cleans holds the store alone, so nobody uses it: a killed process has left it.
                shutil.rmtree(self.folder / name, ignore_errors=True)

    def _files(self) -> Iterator[tuple[str, int]]:
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    # Another process may delete it between the listing and the stat.
                    with suppress(FileNotFoundError):
                        yield entry.name, entry.stat(follow_symlinks=False).st_size
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            # A store may be open to more users than its spool; they see what is in it.
            return

    def _reserve(self, size: int) -> None:
        """Counts the folder at most every half minute: the spool of a day has tens of thousands of files."""
        age_s = time.monotonic() - self._measured_at
        is_full = self._known_bytes + size > self._cap_bytes
        if age_s > (_FULL_SIZE_AGE_S if is_full else _SIZE_AGE_S):
            if private.is_planted(self.folder):
                raise SpoolError(private.PLANTED.format(self.folder))
            # What was set aside waits for people, and must not keep new spans out meanwhile.
            self._known_bytes = sum(size for name, size in self._files() if not name.endswith(_BAD))
            self._measured_at = time.monotonic()
        if self._known_bytes + size > self._cap_bytes:
            raise SpoolFullError(
                f"{self.folder}: {self._known_bytes} bytes wait, the cap is {self._cap_bytes}. "
                "Any agenttrace command, such as `agenttrace list`, moves them into the store."
            )
        self._known_bytes += size

    def _store(self, name: str, payload: memoryview) -> Path:
        path = self.folder / name
        with _temporary_file(self.folder / f"{name}.tmp") as (temporary, descriptor):
            while payload:
                payload = payload[os.write(descriptor, payload) :]
            os.fsync(descriptor)
            temporary.rename(path)
        sync_folder(self.folder)
        return path


def load_segment(segment: Segment) -> Content:
    """Reads a segment, and leaves it to `table_of` to make a table of many.

    Raises:
        OSError: It cannot be read for the moment: another compactor has taken it, it is another user's, no handles are
            left.
        MemoryError: It does not fit for the moment.
        OtherReleaseError: It is whole, but not what this release writes.
        SpoolError: It is torn, corrupt, or of another shape than its kind.
    """
    ending = segment.path.suffix.removeprefix(".")
    check_known(segment.kind, ending)
    try:
        content = private.read(segment.path)
    except OSError as err:
        if err.errno not in _NO_FILE:
            raise
        raise SpoolError(f"not a readable segment: {type(err).__name__}: {err}") from err
    is_whole = _check_content(segment, content)
    try:
        return decode(segment.kind, ending, content, segment.rows)
    except SpoolError as err:
        if is_whole:
            raise OtherReleaseError(str(err)) from err
        raise


def _check_content(segment: Segment, content: bytes) -> bool:
    """Tells bits that have changed since: most of them would only be another letter of a text, or of an id.

    Returns:
        Whether they are known to be those that were written: names of other programs may say no checksum.
    """
    match = _NAME.fullmatch(segment.path.name)
    if match is None or not match["checksum"]:
        return False
    if int(match["checksum"], 16) != zlib.crc32(content):
        raise SpoolError("not a readable segment: it has changed since it was written.")
    return True


@contextmanager
def _temporary_file(path: Path) -> Generator[tuple[Path, int]]:
    descriptor = private.create(path)
    try:
        with suppress(OSError):  # Some network file systems know no flock: their leftovers stay until someone looks.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path, descriptor
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    if time.time() - path.lstat().st_mtime < _TEMPORARY_AGE_S:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)


@contextmanager
def locked_folder(folder: Path, wait_s: float) -> Generator[bool]:
    """Keeps out other processes that ask for the same, while writers of segments go on; False where one has it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield _lock(descriptor, wait_s)
    finally:
        with suppress(OSError):
            # A child of a fork may have the descriptor, too, so that closing it is not enough.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _lock(descriptor: int, wait_s: float) -> bool:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        except OSError:  # Some network file systems know no flock.
            return True
        else:
            return True


def sync_folder(folder: Path) -> None:
    """Makes what was done in a folder durable, as far as its file system and this user's rights allow."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, PermissionError):
        # Who may not list a folder may write into it all the same; what he did is then as durable as it gets.
        return
    try:
        os.fsync(descriptor)
    except OSError as err:
        # Some file systems cannot sync a folder; there the rename is as durable as it gets.
        if err.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
