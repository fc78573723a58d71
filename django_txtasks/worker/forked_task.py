"""A task function that forks: its child ends where the function ends, and touches nothing that is its parent's."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Coroutine
from typing import Any


def call_in_this_process(call: Callable[[], Any]) -> Any:
    """Return what the call returns, in this process; in one that ``os.fork`` has made meanwhile, end that.

    The child has copies of the sockets to the database, in the parent's transaction: it must not commit there, nor
    take the parent's next task.
    """
    pid = os.getpid()
    try:
        return call()
    finally:
        _end_child_of(pid, sys.exc_info()[1])


async def await_in_this_process(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Await a coroutine as ``call_in_this_process`` calls: the child has the thread of the event loop alone."""
    pid = os.getpid()
    try:
        return await coroutine
    finally:
        _end_child_of(pid, sys.exc_info()[1])


def _end_child_of(pid: int, error: BaseException | None) -> None:
    """End a child of this process as an interpreter would, but without the ``atexit`` functions of its parent."""
    if os.getpid() == pid:
        return
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    elif error is not None:
        code = 1
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none
            stream.flush()
    os._exit(code & 0xFF)
