"""Tasks that no exception ends after their time limit. Only a new process frees their slots."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from django_txtasks import signals
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.core.working.running.slot_pool import Overrunning, SlotPool


class StuckTasks:
    """Enforces time limits, and decides when a process has waited long enough for stuck tasks.

    Args:
        patience: seconds that the other tasks then have to end.

    Attributes:
        reason: reason for a new process; empty = nothing is stuck.
        suspects: the task functions of the stuck attempts, each with its queue; empty = unknown.
    """

    def __init__(self, slots: SlotPool, patience: float) -> None:
        self._slots, self._patience = slots, patience
        self._since: float | None = None
        self.suspects: dict[str, str] = {}

    @property
    def reason(self) -> str:
        return "" if self._since is None else "a task did not end after its timeout"

    @property
    def next_look(self) -> float:
        """End of the patience, by ``time.monotonic()``."""
        return NEVER if self._since is None else self._since + self._patience

    def enforce_limits(self, worker: uuid.UUID | str) -> Sequence[Overrunning]:
        """Raise TimedOut in attempts whose time is over. Return the attempts that no exception could end."""
        stuck = self._slots.enforce_limits()
        if stuck and self._since is None:
            self._since = time.monotonic()
            self.suspects = {one.attempt.task_name: one.attempt.queue_name for one in stuck}
            signals.worker_stuck.emit(
                worker=worker,
                tasks=", ".join(
                    f"{one.attempt.task_id} ({one.attempt.task_name})" for one in stuck
                ),
                others=self._slots.running - len(stuck),
            )
        return stuck

    def is_too_long(self, stuck: Sequence[Overrunning]) -> bool:
        """Return True if the other tasks have had their time to end, too."""
        if not stuck:
            return False
        return self._slots.running == len(stuck) or time.monotonic() >= self.next_look
