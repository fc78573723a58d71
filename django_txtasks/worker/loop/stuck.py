"""The end of a process whose loop does not turn, or whose task ignores its cancel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django_txtasks.worker.running.slot_pool import Overrunning
from django_txtasks.worker.running.stuck import StuckTasks

if TYPE_CHECKING:
    from django_txtasks.worker.loop.slots import LoopSlots


class StuckLoop(StuckTasks):
    """Like ``StuckTasks``. If the loop is blocked, the other tasks cannot end, and the process need not wait."""

    def __init__(self, slots: LoopSlots, patience: float) -> None:
        super().__init__(slots, patience)
        self._loop = slots

    @property
    def reason(self) -> str:
        """Reason for a new process; empty = nothing is stuck."""
        reason = super().reason
        return "a task has blocked the event loop" if reason and self._loop.is_blocked else reason

    def is_too_long(self, stuck: Sequence[Overrunning]) -> bool:
        """Return True if the other tasks have had their time to end, or cannot end."""
        return bool(stuck) and (self._loop.is_blocked or super().is_too_long(stuck))
