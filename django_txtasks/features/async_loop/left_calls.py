"""Calls in threads of the default executor that run on after the end of their attempts.

Python ends no thread. So a call that hangs keeps its thread from all other calls until the process ends.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from contextvars import Context
from typing import Any

from asgiref.sync import SyncToAsync

from django_txtasks import signals
from django_txtasks.features.async_loop.default_executor import DefaultExecutor, RunningCall

SHARE_STUCK = 0.5
"""Share of a pool's threads from which stuck calls are a reason for a new process."""
LOOKUP_SECONDS = 300.0
"""Shortest time after which a look-up of a host name is stuck. If name servers do not answer, the look-up ends by
itself, with several servers and search domains after minutes. A new process would have the same name servers.
"""
_told: set[str] = set()


class LeftCalls:
    """Looks for calls that outlive their attempts.

    Args:
        patience: seconds after which such a call is stuck.

    Attributes:
        stuck: stuck calls that have at least half of the threads of a pool; else empty.
    """

    def __init__(self, executor: DefaultExecutor, patience: float) -> None:
        self._pools, self._lookups, self._patience = executor.pools, executor.lookups, patience
        self.stuck: list[RunningCall] = []

    @property
    def may_come(self) -> bool:
        """True if a call runs now."""
        return any(pool.running for pool in self._pools)

    def look(self, has: Callable[[uuid.UUID, int], bool], now: float) -> None:
        """Find left calls and stuck calls. The log names each function once.

        Args:
            has: returns True if the attempt of this task with this number has not ended.
            now: the time, by ``time.monotonic()``.
        """
        self.stuck = []
        for pool in self._pools:
            left = [one for one in pool.running.copy().values() if _is_left(one, has)]
            for one in left:
                if one.left_at is None:
                    one.left_at = now
                else:  # for a second at least
                    _tell(one)
            patience = (
                max(self._patience, LOOKUP_SECONDS) if pool is self._lookups else self._patience
            )
            stuck = [one for one in left if now >= (one.left_at or now) + patience]
            if len(stuck) >= SHARE_STUCK * pool.size:
                self.stuck += stuck


def functions_of(calls: list[RunningCall]) -> dict[str, str]:
    """Return the task functions that have made these calls, each with its queue."""
    return {one.facts["task"]: one.facts["queue"] for one in calls if one.facts is not None}


def name_of(call: Any) -> str:
    """Return the name of the function that a call of ``asyncio.to_thread`` or ``sync_to_async`` runs."""
    owner = getattr(call, "__self__", None)
    if isinstance(owner, SyncToAsync):
        return name_of(owner.func)
    if isinstance(call, functools.partial):
        inner = call.func
        runs = isinstance(getattr(inner, "__self__", None), Context) and call.args
        return name_of(call.args[0] if runs else inner)
    name = getattr(call, "__qualname__", None) or type(call).__qualname__
    module = getattr(call, "__module__", None)
    return f"{module}.{name}" if module else name


def _is_left(one: RunningCall, has: Callable[[uuid.UUID, int], bool]) -> bool:
    facts = one.facts
    return facts is not None and not has(facts["task_id"], facts["attempt"])


def _tell(one: RunningCall) -> None:
    facts = one.facts or {}
    if facts["task"] not in _told:
        _told.add(facts["task"])
        signals.calls_left.emit(**facts, name=name_of(one.call))
