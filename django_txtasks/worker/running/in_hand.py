"""Tasks that a worker has in hand: none of them runs a second time beside itself."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from django_txtasks import signals
from django_txtasks.lifecycle.attempts import Attempt

Key = tuple[uuid.UUID, int]


class InHand:
    """The attempts that slots were handed and that were not collected. For the loop alone.

    A database that has lost a commit offers a task again that runs here, and so does a cleaner that has declared
    this worker lost. Its claim is kept back, so that nobody else runs it, and released when the first has ended.

    Attributes:
        attempts: by the id of their task as a number, which is quicker to look up.
        kept_back: claims of tasks that are in hand already.
    """

    def __init__(self) -> None:
        self.attempts: dict[int, Attempt] = {}
        self.kept_back: list[Attempt] = []

    def without_second(self, claimed: list[Attempt], unrecorded: set[Key]) -> list[Attempt]:
        """Return what may start.

        Args:
            unrecorded: (id, attempt) of those that have ended.
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
        """Return claims that were kept back and whose tasks are in hand no more; forget them."""
        busy = self.attempts.keys() | {task_id.int for task_id, _ in unrecorded}
        back = [one for one in self.kept_back if one.task_id.int not in busy]
        self.kept_back = [one for one in self.kept_back if one.task_id.int in busy]
        return back
