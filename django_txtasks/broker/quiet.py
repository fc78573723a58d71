"""pika's log lines about the connections of this package: its tracebacks repeat what one sentence of ours says.

Those about other connections of the process are the project's own: nothing of the logger ``pika`` is changed. To
see pika's lines about ours, too, set a level for that logger in ``LOGGING``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika  # noqa: F401 -- its modules have their loggers from here on


class _Thread(threading.local):
    """A mark of the calling thread: it works on a connection of ours."""

    is_ours = False


_thread = _Thread()


@contextmanager
def ours() -> Iterator[None]:
    """Mark what this thread does with pika inside the block as ours."""
    before, _thread.is_ours = _thread.is_ours, True
    try:
        yield
    finally:
        _thread.is_ours = before


def _is_shown(record: logging.LogRecord) -> bool:
    return not _thread.is_ours or logging.getLogger("pika").level != logging.NOTSET


for _name in [name for name in logging.root.manager.loggerDict if name.startswith("pika.")]:
    logging.getLogger(_name).addFilter(_is_shown)
