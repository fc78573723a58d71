"""The tasks that a worker holds. No task runs twice at the same time in one worker."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django_txtasks import signals
from django_txtasks.core.rows.attempts import Attempt

Key = tuple[uuid.UUID, int]


class InHand:
    """The attempts that slots have and that are not collected yet. Only the loop uses it.

    A worker may claim a task that it already runs: because the database has lost a commit, or because a cleaner
    has declared this worker lost. The new claim is kept back, so that no other worker runs the task, and is
    released when the first attempt has ended.

    Attributes:
        attempts: by the id of their task as a number, because the look-up of a number is quicker.
        kept_back: claims of tasks that already run here.
    """

    def __init__(self) -> None:
        self.attempts: dict[int, Attempt] = {}
        self.kept_back: list[Attempt] = []

    def without_second(self, claimed: list[Attempt], unrecorded: set[Key]) -> list[Attempt]:
        """Return the attempts that may start.

        Args:
            unrecorded: (id, attempt) of attempts that have ended.
        """
        if not unrecorded and self.attempts.keys().isdisjoint(one.task_id.int for one in claimed):
            return claimed  # the usual case
        unrecorded_ids = {task_id for task_id, _ in unrecorded}
        may_start = []
        for one in claimed:
            first = self.attempts.get(one.task_id.int)
            is_again = first is not None and first.fence == one.fence
            if first is None and one.task_id not in unrecorded_ids:
                may_start.append(one)
            elif is_again or (one.task_id, one.number) in unrecorded:
                signals.second_claim.emit(**one.facts, what="that one holds its claim again")
            else:
                self.kept_back.append(one)
                what = "it is given back when that one has ended"
                signals.second_claim.emit(**one.facts, what=what)
        return may_start

    def release_kept_back(self, unrecorded: Iterable[Key]) -> list[Attempt]:
        """Return, and forget, the kept-back claims of tasks that no longer run here."""
        busy = self.attempts.keys() | {task_id.int for task_id, _ in unrecorded}
        back = [one for one in self.kept_back if one.task_id.int not in busy]
        self.kept_back = [one for one in self.kept_back if one.task_id.int in busy]
        return back
