"""Time that a test skips: for one database in the test's own thread, and for ``timezone.now()`` in attempts.

The database's clock itself does not change. Statements that read it, of this package and of Django's
``Now()``, are sent with the skipped time added. So a session keeps no trace of it, and other databases,
other threads, column defaults and waits use the real time.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.utils import timezone

_CLOCKS = {
    "postgresql": re.compile(r"statement_timestamp\(\)", re.IGNORECASE),
    "mysql": re.compile(r"(?:UTC|CURRENT)_TIMESTAMP\(6\)", re.IGNORECASE),
    # only where 'now' is an argument of a time function, not in other text
    "sqlite": re.compile(
        r"(?:strftime\s*\(\s*'[^']*'\s*,|\b(?:julianday|datetime|date|time|unixepoch)\s*\()\s*'now'",
        re.IGNORECASE,
    ),
}
_ADDED = {
    "postgresql": "({clock} + interval '{seconds:.6f} seconds')",
    "mysql": "({clock} + INTERVAL {microseconds} MICROSECOND)",
    "sqlite": "{clock}, '{seconds:+.6f} seconds'",
}
_shown: ContextVar[Clock | None] = ContextVar("shown", default=None)
_patching = threading.Lock()
_patches: list[Any] = []
"""The original ``datetime`` that each open patch of ``django.utils.timezone`` replaced."""


class Clock:
    """The clock of one database as a test sees it; an execute wrapper of its connection.

    Attributes:
        skipped: difference to the real clock. It only grows.
    """

    def __init__(self, vendor: str) -> None:
        self.skipped = timedelta(0)
        self._vendor = vendor

    def __call__(
        self, execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Any
    ) -> Any:
        """Send a statement with the skipped time added."""
        if self.skipped and isinstance(sql, str):
            sql = _CLOCKS[self._vendor].sub(self._later, sql)
        return execute(sql, params, many, context)

    def _later(self, clock: re.Match[str]) -> str:
        return _ADDED[self._vendor].format(
            clock=clock[0],
            seconds=self.skipped.total_seconds(),
            microseconds=self.skipped // timedelta(microseconds=1),
        )

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Let ``timezone.now()`` return this time in this context only, not in threads that a task starts."""
        token = _shown.set(self)
        try:
            yield
        finally:
            _shown.reset(token)


@contextmanager
def clock_of(alias: str) -> Iterator[Clock]:
    """Yield the clock of this thread's connection; inside another such block yield that block's clock."""
    connection: Any = connections[alias]
    for wrapper in connection.execute_wrappers:
        if isinstance(wrapper, Clock):
            yield wrapper
            return
    clock = Clock(connection.vendor)
    with connection.execute_wrapper(clock), _patched_timezone():
        yield clock


class _Type(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, datetime)


class _Datetime(datetime, metaclass=_Type):
    """``datetime`` in ``django.utils.timezone`` during the patch, so that ``from … import now`` uses it, too."""

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        found: Any = _patches[0].now(tz)
        clock = _shown.get()
        return found if clock is None else found + clock.skipped


@contextmanager
def _patched_timezone() -> Iterator[None]:
    module: Any = timezone
    with _patching:
        if not _patches:
            _patches.append(module.datetime)
            module.datetime = _Datetime
        else:
            _patches.append(None)
    try:
        yield
    finally:
        with _patching:
            if len(_patches) == 1:
                module.datetime = _patches[0]
            _patches.pop()
