"""A daemon thread that does jobs in order, for work that must not hold up the agent.

It survives a fork (the child starts a thread of its own when it first needs one), and a signal handler may use it: a
handler interrupts the main thread anywhere, even inside `threading.Event.set`, so only primitives that are re-entrant
are touched: SimpleQueue, and a plain lock per job.
"""

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

Job = TypeVar("Job")

_START_WAIT_S = 0.5


class Background(Generic[Job]):
    """Hands jobs to one thread, which starts with the first of them."""

    def __init__(
        self,
        name: str,
        handle: Callable[[Job], None],
        *,
        idle_s: float | None = None,
        idle: Callable[[], None] | None = None,
    ) -> None:
        """Prepares the thread.

        Args:
            name: Name of the thread.
            handle: Does one job; must not raise.
            idle_s: After so long without a job, `idle` is called.
            idle: What to do then; must not raise.
        """
        self._name = name
        self._handle = handle
        self._idle_s = idle_s
        self._idle = idle
        self.forget()
        _all.add(self)

    def submit(self, job: Job) -> threading.Lock:
        """Queues a job and returns a lock that is released when it is done.

        Where no thread can be had, as late in the interpreter's exit, the job is done here and now.
        """
        done = threading.Lock()
        done.acquire()
        if self.start():
            self._jobs.put((job, done))
        else:
            self._handle(job)
            done.release()
        return done

    def run(self, job: Job, timeout_s: float) -> bool:
        """Does a job in the thread; False where that takes longer than `timeout_s`: it goes on behind."""
        return self.submit(job).acquire(timeout=max(0.0, timeout_s))

    @property
    def is_running(self) -> bool:
        """Whether the thread has started, and may have jobs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> bool:
        """Starts the thread where it does not run; False where none can be had."""
        if self._thread is not None and self._thread.is_alive():
            return True
        # A signal may have interrupted this very start, hence no wait without a bound.
        if not self._starting.acquire(timeout=_START_WAIT_S):
            return False
        try:
            if self._thread is None or not self._thread.is_alive():
                thread = threading.Thread(target=self._work, args=(self._jobs,), name=self._name, daemon=True)
                thread.start()
                self._thread = thread
        except RuntimeError:
            return False
        finally:
            self._starting.release()
        return True

    def stop(self) -> None:
        """Lets the thread end after the jobs that it has."""
        self._jobs.put(None)

    def forget(self) -> None:
        """Begins anew, as in a forked child: the parent's thread and jobs stay the parent's."""
        self._jobs: SimpleQueue[tuple[Job, threading.Lock] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def _work(self, jobs: "SimpleQueue[tuple[Job, threading.Lock] | None]") -> None:
        while True:
            try:
                entry = jobs.get(timeout=self._idle_s)
            except Empty:
                if self._idle is not None:
                    with suppress(BaseException):
                        self._idle()
                continue
            if entry is None:
                return
            job, done = entry
            try:
                # Whoever handles a job tells of its faults; the thread lives on for the next one.
                with suppress(BaseException):
                    self._handle(job)
            finally:
                done.release()
            # What a job holds must not live until the next one comes.
            del entry, job, done


_all: "weakref.WeakSet[Background[Any]]" = weakref.WeakSet()


def _forget_all() -> None:
    for background in list(_all):
        background.forget()


os.register_at_fork(after_in_child=_forget_all)
