"""Steps of a pass that report to people."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta

from django_txtasks import signals
from django_txtasks.core.cleaning.parts import Place, StepContext
from django_txtasks.core.cleaning.passes import Step
from django_txtasks.core.ground.wording import in_english
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.cleaning import ROWS_PER_LOOK, living_workers
from django_txtasks.database.execute import as_uuid, fetch
from django_txtasks.features.reports import names

# Claims of living workers without a time limit: they are reported, and never recovered.
LONG_CLAIMED = """
    SELECT id, attempt, worker, task_name, queue_name FROM txtasks_task {by_worker}
     WHERE status = 'claimed' AND worker {in_workers} AND timeout IS NULL AND started_at < {ago}
     LIMIT %(limit)s
"""


class Reports:
    """The steps of one cleaner. Each report comes once."""

    def __init__(self, context: StepContext) -> None:
        self._context = context
        self._running_long: set[tuple[uuid.UUID, int]] = set()
        # by queue and name: the passes in a row that have seen it
        self._undeclared: dict[tuple[str, str], int] = {}

    def tell_of_long_claims(self) -> Iterator[Counter[str]]:
        """Report each claim without a time limit that a living worker has held for too long, once."""
        with self._context.transaction():
            found = long_claimed(self._context.alias, self._context.config.long_running_after)
        for attempt, where in found:
            if (attempt.task_id, attempt.number) not in self._running_long:
                self._context.emit(signals.task_running_long, **attempt.facts, where=where)
        self._running_long = {(attempt.task_id, attempt.number) for attempt, _ in found}
        yield Counter()

    def tell_of_undeclared_names(self) -> Iterator[Counter[str]]:
        """Report names that no worker of their queue declares: in the second pass, because it may be a deploy."""
        found = names.undeclared(self._context.alias, self._context.config.queues)
        seen = [(queue, name) for queue, counts in found.items() for name in counts]
        self._undeclared = {one: self._undeclared.get(one, 0) + 1 for one in seen}
        new: names.Found = {}
        for (queue, name), passes in self._undeclared.items():
            if passes == 2:
                new.setdefault(queue, {})[name] = found[queue][name]
        if new:
            with in_english():
                text = names.listed(new)
            self._context.emit(signals.names_undeclared, names=text)
        yield Counter()


def long_claimed(alias: str, age: timedelta) -> list[tuple[Attempt, str]]:
    """Return attempts without a time limit that living workers have held for longer than ``age``, and where."""
    living = {worker.id: worker for worker in living_workers(alias)}
    if not living:
        return []
    rows = fetch(
        alias, LONG_CLAIMED,
        workers=sorted(living), age=age.total_seconds(), limit=ROWS_PER_LOOK,
    )  # fmt: skip
    found = []
    for task_id, number, worker_id, name, queue in rows:
        worker = living[as_uuid(worker_id)]
        attempt = Attempt(as_uuid(task_id), number, worker.id, task_name=name, queue_name=queue)
        found.append((attempt, f"{worker.host} (pid {worker.pid})"))
    return found


def steps(context: StepContext) -> Iterable[tuple[Place, Step]]:
    """Return the steps."""
    reports = Reports(context)
    return [
        (Place.SOON, reports.tell_of_long_claims),
        (Place.SOON, reports.tell_of_undeclared_names),
    ]
