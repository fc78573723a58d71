"""A thread for code that is not ours, with a time limit for each call.

Such code may hang, end the thread, or leave its database session in any state. The session of the drain, which has
locked the rows, is not touched.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from django.db import close_old_connections, connections

from django_txtasks.database.errors import text_of
from django_txtasks.exceptions import Away


class Caller:
    """Calls a function in a thread with database sessions of its own.

    The thread may be stuck in the function, and then keeps no process from ending.

    Args:
        name: name of the queue.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._function, self._name = function, f"txtasks-hand-over-{name}"
        self._asked: queue.SimpleQueue[Any] | None = None
        self._is_busy = False

    def look_after(self) -> None:
        """Do nothing, if the last call has returned.

        Raises:
            Away: it has not.
        """
        if self._is_busy:
            raise Away("the last call has not returned")

    def call(self, *args: Any, seconds: float) -> Any:
        """Return the value of the function, or raise its error.

        Raises:
            Away: it has not returned in time. Then ``look_after`` raises until it has: another call would run
                behind it, when its rows are no longer locked.
        """
        if self._asked is None:
            self._asked = queue.SimpleQueue()
            threading.Thread(
                target=self._run, args=[self._asked], name=self._name, daemon=True
            ).start()
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._is_busy = True
        self._asked.put((args, answer))
        try:
            said, error = answer.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise Away(f"the call has not returned within {seconds:.1f} s") from None
        if error is not None and not isinstance(error, Exception):  # it must not end the drain
            raise RuntimeError(f"it raised {text_of(error)}") from error
        if error is not None:
            raise error
        return said

    def end(self) -> None:
        """Let the thread end after its present call."""
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.put(None)

    def _run(self, asked: queue.SimpleQueue[Any]) -> None:
        while (call := asked.get()) is not None:
            args, answer = call
            close_old_connections()
            result: tuple[Any, BaseException | None]
            try:
                result = self._function(*args), None
            except BaseException as error:  # also SystemExit: without this thread nothing would go
                result = None, error
            self._is_busy = False
            answer.put(result)
        connections.close_all()
