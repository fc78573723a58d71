"""Hints that reach a worker which does not declare their task are sent on to a worker that does.

Otherwise the task waits for that worker's scan. This happens if workers on one queue have different code, such as
during a deployment. Full workers give hints back unchanged, and hints without RabbitMQ reach every worker, so
neither needs this.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable

from django_txtasks.core.declaring import registry
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows.turn import Subscription, TurnResult
from django_txtasks.core.rows.workers import texts
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.core.working.running.limits import NEVER
from django_txtasks.models import Status, Task, Worker

MAX_IDS = 10_000
"""Number of ids to remember."""


class Rerouting(Part):
    """Sends hints again for tasks that another living worker declares, and this one does not.

    Each worker sends an id on once, and only if another living worker declares its task. So a hint is sent on at
    most as many times as there are workers.

    Args:
        inbox: says whether its hints reach all workers.
    """

    def __init__(self, config: CoreConfig, subscription: Subscription, inbox: HintInbox) -> None:
        self._inbox = inbox
        self._alias, self._names = subscription.alias, frozenset(subscription.names)
        self._reach_all = config.has_database_hints
        self._interval = config.poll_interval.total_seconds()
        self._next_look = 0.0
        self._elsewhere: set[tuple[str, str]] = set()
        self._sent: dict[uuid.UUID, None] = {}
        self._noted: list[uuid.UUID] = []
        self.looks = (self,)

    @property
    def next(self) -> float:
        """Time of the next look: after a turn with such hints."""
        return 0.0 if self._noted else NEVER

    def turned(self, result: TurnResult, *, alone: bool) -> None:
        """Note the hinted rows of a turn that this worker may not claim."""
        if not alone:
            self.note(result.not_ours)

    def note(self, ids: Iterable[uuid.UUID]) -> None:
        """Note ids of existing rows that this worker could not claim."""
        # Other hints have reached all workers already.
        if not self._reach_all and not self._inbox.follows_commits:
            self._noted += [one for one in ids if one not in self._sent]

    def look(self) -> bool:
        """Send on the ids of pending tasks that another worker declares. Return False: this look finds no work.

        Costs a look at the workers' rows each ``poll_interval``, and a statement only if their code differs.

        Raises:
            DatabaseError, InterfaceError: the scans of other workers find the tasks.
        """
        noted, self._noted = self._noted, []
        if noted and self._declared_elsewhere():
            self._send(noted)
        return False

    def _send(self, ids: Iterable[uuid.UUID]) -> None:
        # By primary key alone, so that no statistics make the database read the whole backlog.
        rows = Task.objects.using(self._alias).filter(pk__in=ids)
        found = [
            (task_id, registry.hint_queue(name, queue))
            for task_id, status, queue, name in rows.values_list(
                "pk", "status", "queue_name", "task_name"
            )
            if status == Status.PENDING and (queue, name) in self._elsewhere
        ]
        if len(self._sent) + len(found) > MAX_IDS:
            self._sent.clear()
        self._sent.update(dict.fromkeys(task_id for task_id, _ in found))
        notify_on_commit(self._alias, found)

    def _declared_elsewhere(self) -> set[tuple[str, str]]:
        """Return the (queue, name) pairs that other workers declare and this one does not."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self._interval
            living = Worker.objects.using(self._alias).filter(lost=False)
            self._elsewhere = {
                (queue, name)
                for queues, names in living.values_list("queues", "task_names")
                for name in texts(names) - self._names
                for queue in texts(queues)
            }
        return self._elsewhere


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker."""
    return [Rerouting(context.config, context.subscription, context.inbox)]
