"""Calls a target in a thread, with a time limit for each call.

A target runs code that is not ours: a function of the project, Celery's signals, a driver. Such code may hang, end
the thread, or leave its database session in any state. The session of the drain, which has locked the rows, is not
touched.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.db import close_old_connections, connections

from django_txtasks.database.errors import text_of
from django_txtasks.features.hand_over.rows import Row
from django_txtasks.features.hand_over.target import Answers, NotReturned, Target

CALL_SECONDS = 10.0
"""Longest time of one call. The rows are locked meanwhile."""
MORE_SECONDS = 1.0
"""Time for the answers that are known when the time of a pass is over."""
GIVE_UP_SECONDS = 30.0
"""Time since the begin of a call after which it is given up: another thread sends the next rows."""
MOST_GIVEN_UP = 8
"""Number of calls that were given up with which the process ends. Each keeps a thread and its connections."""
CLOSE_SECONDS = 3.0
"""Longest time for a target to close its connections."""


class TooManyHang(RuntimeError):
    """Too many calls of a target have not returned, so the process must end."""


class CalledTarget:
    """A target that is called in a thread of its own.

    If a call does not return, the target and its thread are given up after ``GIVE_UP_SECONDS``, and a new target
    in a new thread takes their place. A later answer is dropped.

    Args:
        make: makes the target; called again after a call that was given up.
        name: name of the queue.

    Raises:
        Exception: the error of ``make``.
    """

    def __init__(self, make: Callable[[], Target], name: str) -> None:
        self._make, self._name = make, name
        self._caller = _Caller(make(), name)
        self._given_up: list[_Caller] = []

    def look_after(self) -> None:
        """Let the target connect if necessary; see ``Target``.

        Raises:
            NotReturned: the last call has not returned, and is not yet given up: another call would run beside it.
            TooManyHang: too many calls were given up.
        """
        began = self._caller.began
        if began is not None:
            if time.monotonic() < began + GIVE_UP_SECONDS:
                raise NotReturned("the last call has not returned")
            self._give_up()
        self._caller.call("look_after", seconds=CALL_SECONDS)

    def send(self, rows: Sequence[Row], until: float) -> Answers:
        """Send rows; see ``Target``.

        Raises:
            NotReturned: the call has not returned in time.
        """
        seconds = min(CALL_SECONDS, until + MORE_SECONDS - time.monotonic())
        answers: Answers = self._caller.call("send", rows, until, seconds=seconds)
        return answers

    def close(self) -> None:
        """End the thread, without waiting for a call that has not returned."""
        self._caller.end()

    def _give_up(self) -> None:
        self._caller.end()
        self._given_up = [one for one in [*self._given_up, self._caller] if one.began is not None]
        if len(self._given_up) >= MOST_GIVEN_UP:
            raise TooManyHang(
                f"{len(self._given_up)} calls of the target of queue {self._name!r} have not returned. The "
                "process ends, so that a service manager starts it anew. Tasks that were sent alone have the "
                "reason in their errors. Give the target time limits of its own, such as timeout= of its HTTP "
                "client."
            )
        self._caller = _Caller(self._make(), self._name)


class _Caller:
    """A thread with database sessions of its own, and the target that it calls.

    The thread may be stuck in a call, and then keeps no process from ending.

    Attributes:
        began: time by ``time.monotonic()`` at which the present call began; None = none runs.
    """

    def __init__(self, target: Target, name: str) -> None:
        self._target, self._name = target, f"txtasks-hand-over-{name}"
        self._asked: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.began: float | None = None

    def call(self, method: str, *args: Any, seconds: float) -> Any:
        """Return the value of a method of the target, or raise its error.

        Raises:
            NotReturned: it has not returned in time.
        """
        if self.began is not None:
            raise NotReturned("the last call has not returned")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.began = time.monotonic()
        self._asked.put((method, args, answer))
        try:
            said, error = answer.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise NotReturned(f"the call has not returned within {seconds:.1f} s") from None
        if error is not None and not isinstance(error, Exception):  # it must not end the drain
            raise RuntimeError(f"it raised {text_of(error)}") from error
        if error is not None:
            raise error
        return said

    def end(self) -> None:
        """Let the thread close the target and end, after its present call. Wait for it only without a call."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._asked.put(None)
            thread.join(CLOSE_SECONDS if self.began is None else 0)

    def _run(self) -> None:
        while (call := self._asked.get()) is not None:
            method, args, answer = call
            close_old_connections()
            result: tuple[Any, BaseException | None]
            try:
                result = getattr(self._target, method)(*args), None
            except BaseException as error:  # also SystemExit: without this thread nothing would go
                result = None, error
            self.began = None
            answer.put(result)
        with contextlib.suppress(Exception):  # each target has its own
            self._target.close()
        connections.close_all()
