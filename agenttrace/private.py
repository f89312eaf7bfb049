"""Files that hold prompts: for their owner alone, or for the group of a folder that an administrator has shared.

A shared folder has the set-group-id bit and lets its group write (`chmod 2770`): what is made inside belongs to the
group, too. Modes are set when something is made; what exists keeps the mode that somebody gave it.
"""

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PUBLIC: Final = stat.S_ISVTX | stat.S_IWOTH
_SHARED: Final = stat.S_ISGID | stat.S_IWGRP
# Whoever plants a link or a pipe under the name of a file of ours must neither redirect a write nor hang a reader.
_NO_TRAPS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_LAST_STREAM: Final = 2

PLANTED: Final = (
    "{}: another user has put it there, where anybody may: what you keep in it would be his. "
    "Name a store in a folder of your own, with --db or AGENTTRACE_DB."
)


def create(path: Path) -> int:
    """Makes a file that was not there, and returns its descriptor to write to.

    Raises:
        OSError: There is something of that name, or the folder cannot be written.
    """
    keep_off_streams()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_TRAPS, 0o600)
    _settle(descriptor, path.parent.stat())
    return descriptor


def keep_off_streams() -> None:
    """Opens those of the standard streams that the program has closed, to nowhere.

    The next file would take the place of one, and whatever the program or a library still prints would go into it.
    """
    with suppress(OSError):
        while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
            pass
        os.close(descriptor)


def read(path: Path) -> bytes:
    """Reads a regular file of a folder that others may write to, too.

    Raises:
        OSError: There is none, it is a link or no regular file, or it cannot be read.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | _NO_TRAPS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path}: is no regular file")
        return file.read()


def make_folder(folder: Path) -> None:
    """Makes a folder for such files where there is none; the folders above it are as the user makes his own."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        _settle(folder, folder.parent.stat(), shared=0o2770)
    if not folder.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))


def protect(path: Path, like: Path) -> None:
    """Gives a file that another library has made the mode and owner that `create` would give it beside `like`.

    Never for a file that existed before: that has the mode that somebody gave it.
    """
    path.chmod(0o600)
    _settle(path, like.parent.stat())


def follow(path: Path, leader: Path) -> None:
    """Gives a file, if it is there, the mode of another one: who may read the one may read the other.

    Not where another user may have put that one there, to read what follows it.
    """
    with suppress(OSError):
        if not _is_strange(leader, leader.parent.stat().st_mode & stat.S_IWOTH):
            path.chmod(leader.stat().st_mode & 0o666)


def is_planted(path: Path) -> bool:
    """Whether another user has put this where everybody may put something, as in /tmp.

    Linux refuses links and files by the same rule (fs.protected_symlinks, fs.protected_regular).
    """
    try:
        return _is_strange(path, path.parent.stat().st_mode & _PUBLIC == _PUBLIC)
    except OSError:
        return False


def _is_strange(path: Path, is_public: object) -> bool:
    """Whether what a public folder has here, be it a link or what it leads to, is neither ours nor the folder's."""
    owners = {path.lstat().st_uid, path.stat().st_uid} if is_public else set[int]()
    return not owners <= {os.geteuid(), path.parent.stat().st_uid}


@contextmanager
def own_umask() -> Generator[None]:
    """Makes all files for their owner alone. For a process of our own: the mask is the whole process's."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def _settle(made: int | Path, folder: os.stat_result, shared: int = 0o660) -> None:
    """Opens what was made for its owner alone to those for whom the folder is."""
    # Some file systems know neither owners nor modes.
    with suppress(OSError):
        if folder.st_mode & _SHARED == _SHARED:
            os.chmod(made, shared)
        # What root makes in somebody's folder is for him, who could not read it otherwise.
        if os.geteuid() == 0 and folder.st_uid != 0:
            os.chown(made, folder.st_uid, folder.st_gid)
