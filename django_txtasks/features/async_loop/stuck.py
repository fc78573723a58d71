"""The end of a process whose loop does not turn, or whose task ignores its cancel."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from django_txtasks import signals
from django_txtasks.core.ground.wording import counted
from django_txtasks.core.working.running.slot_pool import Overrunning
from django_txtasks.core.working.running.stuck import StuckTasks
from django_txtasks.features.async_loop.left_calls import functions_of, name_of

if TYPE_CHECKING:
    from django_txtasks.features.async_loop.default_executor import RunningCall
    from django_txtasks.features.async_loop.slots import LoopSlots


class StuckLoop(StuckTasks):
    """Like ``StuckTasks``. If the loop is blocked, the other tasks cannot end, and the process need not wait.

    Calls that ended attempts have left in half of the default executor's threads are a reason, too.
    """

    def __init__(self, slots: LoopSlots, patience: float) -> None:
        super().__init__(slots, patience)
        self._loop, self._watch = slots, slots.watch
        self._calls: list[str] = []  # names of the stuck calls

    @property
    def reason(self) -> str:
        """Reason for a new process; empty = nothing is stuck."""
        if self._calls:
            return "calls in threads did not end after their attempts"
        reason = super().reason
        return "the event loop was blocked" if reason and self._watch.is_blocked else reason

    def enforce_limits(self, worker: uuid.UUID | str) -> Sequence[Overrunning]:
        """Return the attempts that no exception ends; none if code of no attempt blocks the loop."""
        stuck = super().enforce_limits(worker)
        if self._since is None and (calls := self._watch.stuck_calls):
            self._note(calls, worker)
        if self._watch.is_stuck and self._since is None:
            self._since = time.monotonic()
            tasks = "code of no task, such as a callback,"
            signals.worker_stuck.emit(worker=worker, tasks=tasks, others=self._loop.running)
        return stuck

    def is_too_long(self, stuck: Sequence[Overrunning]) -> bool:
        """Return True if the other tasks have had their time to end, or cannot end."""
        if self._watch.is_stuck:
            return True
        if self._watch.stuck_calls and time.monotonic() >= self.next_look:
            return True
        return bool(stuck) and (self._watch.is_blocked or super().is_too_long(stuck))

    def _note(self, calls: list[RunningCall], worker: uuid.UUID | str) -> None:
        self._since, self.suspects = time.monotonic(), functions_of(calls)
        self._calls = sorted({name_of(one.call) for one in calls})
        tasks = (
            f"{counted(len(calls), 'call')} ({', '.join(self._calls)}) in threads, made by ended attempts of "
            f"{', '.join(self.suspects)},"
        )
        signals.worker_stuck.emit(worker=worker, tasks=tasks, others=self._loop.running)
