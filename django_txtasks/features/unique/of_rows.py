"""Due rows with equal keys are merged when one of them is claimed."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import connections

from django_txtasks.core.rows.arrow_parts import ArrowPart
from django_txtasks.core.rows.attempts import Arrow, Attempt, Counted, Ended, FollowUps
from django_txtasks.core.rows.claim_parts import ClaimPart, Picked
from django_txtasks.core.rows.enqueueing import insert
from django_txtasks.core.rows.follow_ups import follow_up, hook_data, read_hooks
from django_txtasks.core.rows.turn import Candidate, Subscription
from django_txtasks.database.execute import as_uuid, fetch_as
from django_txtasks.features.unique import merging
from django_txtasks.models import Outcome, Status

ABSORBERS = """
    SELECT id, attempt, task_name, queue_name, args, kwargs, failures, crashes, hooks FROM txtasks_task
     WHERE id {in_ids} AND absorbed > 0
"""


class Merges(ClaimPart):
    """Claims the first row of each key, and merges the others into it."""

    def pick(
        self, subscription: Subscription, candidates: Sequence[Candidate]
    ) -> tuple[list[Picked], int]:
        return merging.pick(subscription, candidates)

    def absorb(
        self, alias: str, to_claim: Sequence[Attempt], keys: dict[uuid.UUID, Any]
    ) -> tuple[list[Attempt], set[uuid.UUID]]:
        return merging.absorb(alias, to_claim, keys)


class FailsAbsorbers(ArrowPart):
    """Enqueues the ``on_failure`` of rows that have absorbed others and leave the table without a run.

    Otherwise the callers of the merged tasks would not learn that their request has failed. (For a discarded row,
    this was done when it died.)
    """

    def leaving(
        self, alias: str, ids: Sequence[uuid.UUID], status: Status, outcome: Outcome
    ) -> FollowUps:
        if outcome not in (Outcome.CANCELLED, Outcome.EXPIRED):
            return []
        tasks = []
        for row in fetch_as(_Absorber, alias, ABSORBERS, ids=sorted(set(ids))):
            attempt, why = row.attempt_of(), outcome.value
            error = {"type": why, "message": f"the task, into which others were merged, was {why}"}
            hook = read_hooks(attempt.hooks).get("on_failure")
            if hook is not None:
                ended = Ended(attempt, Arrow.BURY, error=error, counted=Counted.NOTHING)
                tasks.append(follow_up(hook, args=hook_data(ended)))
        insert(connections[alias], tasks)
        return [task.hint for task in tasks]


class _Absorber(NamedTuple):
    """The columns of ``ABSORBERS``."""

    id: Any
    attempt: int
    task_name: str
    queue_name: str
    args: str
    kwargs: str
    failures: int
    crashes: int
    hooks: str

    def attempt_of(self) -> Attempt:
        return Attempt(
            task_id=as_uuid(self.id),
            number=self.attempt,
            worker=uuid.UUID(int=0),
            task_name=self.task_name,
            queue_name=self.queue_name,
            args=self.args,
            kwargs=self.kwargs,
            failures=self.failures,
            crashes=self.crashes,
            hooks=self.hooks,
        )


PARTS = (Merges(), FailsAbsorbers())
