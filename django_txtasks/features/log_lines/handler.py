"""The last log lines of each running attempt. If the attempt fails, its error entry keeps them.

One handler at the root logger collects the lines while slots run. It takes no lock, so a process that a task forks
inherits none, and a slow log handler of another thread delays no task.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from django_txtasks.core.ground.payload import last_lines_within
from django_txtasks.exceptions import INTERRUPTIONS
from django_txtasks.signals.logs import current
from django_txtasks.signals.tracebacks import printable

MAX_LINE_CHARACTERS = 300
MAX_ENTRY_BYTES = 8_000
"""Bytes of log lines in one error entry."""
MAX_BYTES = 32 * 1024 * 1024
"""Bytes of the lines of all attempts of a process. Each attempt that logs has an equal share."""
LINE_BYTES = 1_400
"""Bytes that a line takes at most, with four bytes for each character and the objects around it."""
OURS = "django_txtasks"
"""Logger of this package, whose lines are about tasks, not from them."""

Key = tuple[int, int]
"""The id of a task as a number, because its look-up is quicker, and the number of an attempt."""


_Line = tuple[float, str, str, str]
"""Time of the record, as ``time.time()``, its level, its logger and its text."""


class LastLines(logging.Handler):
    """Keeps the last lines of each running attempt.

    Args:
        lines: the highest number of lines of one attempt.
    """

    def __init__(self, lines: int) -> None:
        super().__init__()
        self._most = self._share = lines
        self._running: set[Key] = set()
        self._kept: dict[Key, deque[_Line]] = {}

    def handle(self, record: logging.LogRecord) -> bool:
        """Keep a record of a running attempt. Raise nothing, except an interruption of the task from outside."""
        if len(logging.root.handlers) == 1:
            _write_if_alone(record)
        facts = current.get()
        if facts is None or record.name == OURS:
            return True
        key = facts["task_id"].int, facts["attempt"]
        lines = self._kept.get(key)
        if lines is None and (lines := self._begun(key)) is None:
            return True
        lines.append((record.created, record.levelname, record.name, _text_of(record)))
        if len(lines) > self._share:
            _cut(lines, self._share)
        return True

    def begin(self, key: Key) -> None:
        """Keep the lines of this attempt from now on."""
        self._running.add(key)

    def end(self, key: Key) -> None:
        """Forget the lines of this attempt. Threads that outlive it may log on; such lines are left out."""
        self._running.discard(key)
        if self._kept.pop(key, None) is not None:
            self._divide()

    def text(self, key: Key) -> str:
        """Return the newest lines of this attempt, in their order, up to ``MAX_ENTRY_BYTES``."""
        lines = self._kept.get(key)
        return (
            "" if lines is None else last_lines_within(map(_shown, lines.copy()), MAX_ENTRY_BYTES)
        )

    def _begun(self, key: Key) -> deque[_Line] | None:
        """Return the lines of an attempt that logs for the first time; None if it does not run."""
        if key not in self._running:
            return None
        lines = self._kept.setdefault(key, deque())
        if key not in self._running:  # it has ended in another thread since
            self._kept.pop(key, None)
            return None
        self._divide()
        return lines

    def _divide(self) -> None:
        """Compute the share of each attempt. It changes when the number of attempts has doubled or halved."""
        attempts = 1 << max(0, len(self._kept) - 1).bit_length()
        share = min(self._most, max(1, MAX_BYTES // (LINE_BYTES * attempts)))
        is_less, self._share = share < self._share, share
        for lines in list(self._kept.values()) if is_less else ():
            _cut(lines, share)


class _Installed:
    """The handler of this process; None = no lines are kept. Several workers of a process share it."""

    handler: LastLines | None = None
    users = 0
    lock = threading.Lock()


@contextmanager
def kept(lines: int) -> Iterator[LastLines | None]:
    """Keep the last lines of each attempt inside the block. Of several workers in a process the first decides.

    Args:
        lines: see ``LastLines``; 0 = keep none, and install no handler.

    Yields:
        The handler, whose ``begin`` and ``end`` must be called for each attempt.
    """
    if not lines:
        yield None
        return
    with _Installed.lock:
        _Installed.users += 1
        handler = _Installed.handler = _Installed.handler or LastLines(lines)
        logging.root.addHandler(handler)  # no effect if it is there already
    try:
        yield handler
    finally:
        with _Installed.lock:
            _Installed.users -= 1
            if not _Installed.users:
                _Installed.handler = None
                logging.root.removeHandler(handler)


def entry(task_id: uuid.UUID, attempt: int) -> dict[str, str]:
    """Return the part of an error entry that has the lines of an attempt; empty if it has logged nothing."""
    handler = _Installed.handler
    text = "" if handler is None else handler.text((task_id.int, attempt))
    return {"log": text} if text else {}


def _shown(line: _Line) -> str:
    created, level, logger, text = line
    at = time.strftime("%H:%M:%S", time.gmtime(created))
    return printable(f"{at}.{int(created % 1 * 1000):03} {level} {logger}: {text}")


def _text_of(record: logging.LogRecord) -> str:
    """Return the message of a record, with its exception. A record that cannot be formatted has a text, too."""
    try:
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text = f"{text[:MAX_LINE_CHARACTERS]} ({type(error).__name__}: {error})"
    except INTERRUPTIONS:  # raised in the task from outside
        raise
    except Exception as problem:
        text = f"(its text cannot be formatted: {type(problem).__name__})"
    return text[:MAX_LINE_CHARACTERS]


def _write_if_alone(record: logging.LogRecord) -> None:
    """Write a record to stderr if no other handler gets it, as Python does without this handler."""
    last = logging.lastResort
    logger = logging.root.manager.loggerDict.get(record.name)
    while isinstance(logger, logging.Logger) and logger is not logging.root:
        if logger.handlers:
            return
        logger = logger.parent
    if last is not None and record.levelno >= last.level:
        last.handle(record)


def _cut(lines: deque[_Line], share: int) -> None:
    """Drop the oldest lines. Another thread may do the same at this moment."""
    while len(lines) > share:
        try:
            lines.popleft()
        except IndexError:
            return
