"""A task function that forks: its child ends where the function ends, and touches nothing that is its parent's."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
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
        if os.getpid() != pid:
            _end(sys.exc_info()[1])


def _end(error: BaseException | None) -> None:
    """End this process as an interpreter would, but for what its parent has registered for its own end."""
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        code = 1
        traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none
            stream.flush()
    os._exit(code & 0xFF)
