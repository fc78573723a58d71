"""Time limits of attempts, and the interruption of running tasks."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time

from django_txtasks.exceptions import TimedOut

NEVER = float("inf")
forking: list[None] = []
"""One entry for each thread of this process that is inside ``os.fork``, if a guard watches forks."""
FORK_SECONDS = 3.0
"""Longest wait for the end of a fork: three times as long as the fork itself waits for the log."""


class Interruption:
    """Raises an exception in the thread that runs a task, at most once, and only inside its ``with`` block.

    C code does not see the exception before it returns to Python.

    Attributes:
        interrupts: False = the task itself notices when it has to end, as a coroutine can.
    """

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error
        self.interrupts = True
        self._raised_at = NEVER
        self._over = False
        self._thread: int | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._thread = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._over = True
        if self._raised_at != NEVER:
            # The exception may still be on its way. It must arrive here, not in the code that comes next. To take
            # it back does not work: up to Python 3.12 the interpreter then looks for it for ever, and 3.11 then
            # hangs if a tracer is active.
            with contextlib.suppress(self._error):
                for _round in range(10):
                    time.sleep(0)

    def interrupt(self) -> None:
        """Raise the exception now, if it was not raised before."""
        with self._lock:
            self._interrupt(time.monotonic())

    def _interrupt(self, now: float) -> None:
        if self._raised_at == NEVER and not self._over:
            self._raised_at = now
            if self._thread is not None and self.interrupts:
                _raise_in(self._thread, self._error)


class TimeLimit(Interruption):
    """Raises TimedOut in the thread that runs a task. The time begins with the ``with`` block.

    A task that is stuck in C code stays ``overrun``; only the end of the process ends it.

    Args:
        seconds: None = no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        super().__init__(TimedOut)
        self.seconds = seconds
        self._deadline = NEVER

    def __enter__(self) -> None:
        if self.seconds is not None:
            super().__enter__()
            self._deadline = time.monotonic() + self.seconds

    def __exit__(self, *error: object) -> None:
        if self.seconds is not None:
            super().__exit__(*error)

    @property
    def left(self) -> float | None:
        """Seconds left; None = no limit."""
        return None if self.seconds is None else max(0.0, self._deadline - time.monotonic())

    def next(self, patience: float) -> float:
        """Return the time at which to call ``enforce`` or ``overrun``, by ``time.monotonic()``."""
        now = time.monotonic()
        if self.seconds is None or self._over or self.overrun(patience, now):
            return NEVER
        if self._deadline == NEVER:  # the task has not begun
            return now + self.seconds
        return self._deadline if self._raised_at == NEVER else self._raised_at + patience

    def enforce(self, now: float) -> None:
        """Raise TimedOut in the task, if its time is over."""
        with self._lock:
            if now >= self._deadline:
                self._interrupt(now)

    def overrun(self, patience: float, now: float) -> bool:
        """Return True if the task still runs ``patience`` seconds after the exception."""
        return not self._over and now >= self._raised_at + patience

    def error(self) -> TimedOut:
        """Return the exception with its text for the task's errors."""
        return TimedOut(f"the attempt has taken longer than its timeout of {self.seconds:g} s")


NO_LIMIT = TimeLimit(None)


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise an exception in another thread, but not while a thread of this process forks.

    Python swallows an exception that is raised in a fork hook. The hook of ``logging`` would then keep the lock
    of the log.
    """
    arguments = ctypes.c_ulong(thread), ctypes.py_object(error)
    raises = ctypes.pythonapi.PyThreadState_SetAsyncExc
    _wait_for_forks()
    raises(*arguments)  # no other thread gets a turn between the check of the list and this call


class _ForkWait:
    """A wait for the end of a fork. All limits that pass during one fork share ``FORK_SECONDS``.

    A fork that hangs must not keep the worker's loop from its beats.
    """

    def __init__(self) -> None:
        self._until = NEVER

    def __call__(self) -> None:
        """Wait while a thread of this process forks."""
        if forking and self._until == NEVER:
            self._until = time.monotonic() + FORK_SECONDS
        while forking and time.monotonic() < self._until:
            time.sleep(0.001)
        if not forking:
            self._until = NEVER


_wait_for_forks = _ForkWait()
