"""pika's log lines about this package's connections are dropped, because one sentence of this package says the
same.

Lines about other connections of the process belong to the project: the logger ``pika`` is not changed for them. To
see pika's lines about this package, too, set a level for that logger in ``LOGGING``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika  # noqa: F401 -- its modules have their loggers from here on


class _Thread(threading.local):
    """A mark of the calling thread: it works on a connection of this package."""

    is_ours = False


_thread = _Thread()


@contextmanager
def ours() -> Iterator[None]:
    """Mark pika's log lines of this thread, inside the block, as this package's."""
    before, _thread.is_ours = _thread.is_ours, True
    try:
        yield
    finally:
        _thread.is_ours = before


def _is_shown(record: logging.LogRecord) -> bool:
    return not _thread.is_ours or logging.getLogger("pika").level != logging.NOTSET


for _name in [name for name in logging.root.manager.loggerDict if name.startswith("pika.")]:
    logging.getLogger(_name).addFilter(_is_shown)
