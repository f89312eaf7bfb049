"""Programs that a benchmark starts: how much processor time and memory each takes. Reads /proc, so Linux only."""

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ratios import Taken

AGENTTRACE = str(Path(sys.executable).with_name("agenttrace"))
# Before the program itself, in one process with it: the most memory that it ever held, in kB.
PEAK = "import atexit, sys; atexit.register(lambda: print(open('/proc/self/status').read(), file=sys.stderr));"

_TICKS = os.sysconf("SC_CLK_TCK")
_START_S = 120.0
_STOP_S = 120.0


def command(arguments: Sequence[str], *, cwd: Path | None = None, code: Sequence[int] = (0,)) -> Callable[[], Taken]:
    """Returns a call that runs a program to its end and says what that took; its exit code must be among `code`."""

    def run() -> Taken:
        started = time.perf_counter()
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(arguments, cwd=cwd, stdout=subprocess.DEVNULL, stderr=errors)
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - started
            process.returncode = os.waitstatus_to_exitcode(status)
            said = os.pread(errors.fileno(), 1_000, 0).decode(errors="replace")
        assert process.returncode in code, f"{arguments}: exit code {process.returncode}: {said}"
        return Taken(used.ru_utime + used.ru_stime, wall_s)

    return run


def peak_mb(code: str, *arguments: str, cwd: Path | None = None) -> float:
    """Runs Python code and returns the most memory that it held."""
    done = subprocess.run([sys.executable, "-c", PEAK + code, *arguments], cwd=cwd, capture_output=True, text=True)
    return _memory_mb(done.stderr, "VmHWM")


def free_port() -> int:
    """Returns a port on which nothing listens at present, for programs that take no port 0."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


class Server:
    """A server, in a process group of its own; what it and the processes that it started have used."""

    def __init__(
        self, arguments: Sequence[str], ready: str, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        """Starts it and waits until it prints what matches `ready`, whose first group is its address."""
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - closed when the server stops
        self._process = subprocess.Popen(
            arguments, cwd=cwd, env=env, stdout=self._log, stderr=self._log, start_new_session=True
        )
        atexit.register(self._end, signal.SIGKILL)
        self.pid = self._process.pid
        self.address = self._await(ready)

    def _await(self, ready: str) -> str:
        deadline = time.monotonic() + _START_S
        while not (found := re.search(ready, self.printed())):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._end(signal.SIGKILL)
                raise RuntimeError(f"{self._process.args}: did not start: {self.printed()[-500:]}")
            time.sleep(0.02)
        return found[1]

    def printed(self) -> str:
        """Returns what it has printed so far."""
        return os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")

    def cpu_s(self) -> float:
        """Processor time so far, to a hundredth of a second, of the whole tree."""
        return sum(_cpu_s(pid) for pid in _tree(self.pid))

    def memory_mb(self, kind: str = "VmRSS") -> float:
        """Memory of the whole tree: VmRSS at present, VmHWM the most so far."""
        return sum(_memory_mb(_read(f"/proc/{pid}/status"), kind) for pid in _tree(self.pid))

    def stop(self) -> float:
        """Ends it in good order and returns the processor time that it took in all."""
        before = self.cpu_s()
        self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while True:
            pid, status, used = os.wait4(self.pid, os.WNOHANG)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                break
            if time.monotonic() > deadline:
                self._end(signal.SIGKILL)
                raise RuntimeError(f"{self._process.args}: did not stop within {_STOP_S:.0f} s")
            time.sleep(0.01)
        self._log.close()
        # Of children that it has not waited for, only what they had used before.
        return max(used.ru_utime + used.ru_stime, before)

    def _end(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self.pid, number)
            self._process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._end(signal.SIGKILL)


def _tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in _list(f"/proc/{parent}/task"):
            found += [int(child) for child in _read(f"/proc/{parent}/task/{task}/children").split()]
    return found


def _cpu_s(pid: int) -> float:
    # After the name, which may hold spaces: fields 14 to 17 are user and system time, own and of children waited for.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _memory_mb(status: str, kind: str) -> float:
    found = re.search(rf"^{kind}:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except (FileNotFoundError, ProcessLookupError):
        return []
