"""Orders of a supervisor, as its child processes read them from a pipe.

``s`` = stop, ``k`` = stop now, ``r`` = retire: take nothing more, and end when the last task has ended, without a
grace. The end of the pipe means that the supervisor is gone, which is an order to stop,
too. A pipe has one reader in each process: a second one would take bytes that the first one waits for.

A supervisor that a web server has started has a pipe, too. Its end means that the web server is gone. The
supervisor has no thread that reads, because it could not fork then: its loop looks at the pipe.
"""

from __future__ import annotations

import os
import select
import threading
import time
from io import FileIO

from django_txtasks import signals
from django_txtasks.processes import signs
from django_txtasks.processes.remains import exit_now, supervisor_is_gone
from django_txtasks.processes.shutdown import Shutdown

PIPE = "TXTASKS_SUPERVISOR_FD"
PARENT_PIPE = "TXTASKS_PARENT_FD"
LOOP_END_SECONDS = 10.0
"""Seconds from the end of the grace, or from an order to stop now, to the forced end of the process."""
LAST_WORDS_SECONDS = 2.0
"""Seconds to write the log of a process that had to be ended."""


def pipe_of_supervisor() -> int | None:
    """Return the file descriptor of the orders, once; None if this process has no supervisor.

    From now on, this process writes its signs of life.
    """
    if (pipe := _pipe(signs.PIPE)) is not None:
        signs.use(pipe)
    return _pipe(PIPE)


def pipe_of_parent() -> int | None:
    """Return the file descriptor whose end means that the web server is gone, once; None = no web server."""
    if (pipe := _pipe(PARENT_PIPE)) is not None:
        os.set_blocking(pipe, False)
    return pipe


def has_ended(pipe: int) -> bool:
    """Return True if nothing can be written into the pipe any more. It does not wait."""
    try:
        return not os.read(pipe, 1)
    except BlockingIOError:
        return False


def _pipe(name: str) -> int | None:
    number = os.environ.pop(name, None)  # not for processes that tasks start
    return None if number is None else int(number)


def obey(pipe: int, stop: Shutdown) -> None:
    """Follow the orders that come through this file descriptor, in a separate thread."""
    threading.Thread(target=_listen, args=(pipe, stop), name="txtasks-orders", daemon=True).start()


def _next(orders: FileIO) -> bytes:
    """Wait for the next order, and write the signs of life meanwhile."""
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    while not poll.poll(signs.SIGN_SECONDS * 1000):
        signs.show_life()
    return orders.read(1)


def _listen(pipe: int, stop: Shutdown) -> None:
    will_end = False
    with os.fdopen(pipe, "rb", buffering=0) as orders:
        while (order := _next(orders)) != b"k":
            if order == b"r":
                stop.retire("its supervisor wants fewer processes")
                continue
            if not order:
                supervisor_is_gone()
            if not stop.is_urgent:  # a signal may have come first
                stop.request(why="its supervisor says so" if order else "its supervisor is gone")
            if not will_end:
                will_end = True
                end_soon(1, stop.deadline - time.monotonic())
            if not order:
                return
    stop.force()
    end_soon(1)


def end_soon(code: int, seconds: float = 0.0) -> None:
    """End this process after ``seconds`` + ``LOOP_END_SECONDS``, whatever its threads do.

    A loop that hangs in a database call does not notice the stop request, and Python waits for threads that tasks
    have left.

    Args:
        seconds: time that running tasks may still take.
    """

    def end() -> None:
        time.sleep(max(0, seconds) + LOOP_END_SECONDS)
        signals.flush(LAST_WORDS_SECONDS)
        exit_now(code)

    threading.Thread(target=end, name="txtasks-end", daemon=True).start()
