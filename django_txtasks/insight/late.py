"""The task of each queue that has been due for longest, and why it waits."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django_txtasks.core.rows.buckets import paused_queues
from django_txtasks.database.execute import as_uuid
from django_txtasks.features.lanes import buckets as lane_buckets
from django_txtasks.features.lanes.buckets import LaneBucket
from django_txtasks.features.lanes.status import status_of_lanes
from django_txtasks.insight.explain import Reason, explain
from django_txtasks.models import Task

LANES_SECONDS = 1.0
"""Time for the search for lanes. Lanes that are not found in this time are left out."""


@dataclass(frozen=True)
class Late:
    """A task that has been due for some time.

    Attributes:
        seconds: for how long.
        reasons: why it does not start.
    """

    queue: str
    task_id: str
    task: str
    seconds: float
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        why = " ".join(reason.text for reason in self.reasons)
        return f"{self.task_id} ({self.task}) in queue {self.queue}: {why}"


def all_buckets(alias: str) -> list[LaneBucket]:
    """Return the first pending task of each lane, queue and priority."""
    in_lanes, _ = lane_buckets.look(alias, "", LANES_SECONDS)
    return [*lane_buckets.buckets_of(alias, ""), *in_lanes]


def oldest_due(buckets: Sequence[LaneBucket]) -> dict[str, LaneBucket]:
    """Return by queue the bucket whose first task was due first. Queues without due tasks are left out."""
    due = sorted((one for one in buckets if one.wait <= 0), key=lambda one: -one.wait)
    return {one.queue_name: one for one in due}


def late(
    alias: str, buckets: Sequence[LaneBucket], age: timedelta, *, everything: bool = False
) -> list[Late]:
    """Return the task of each queue that has been due for longest, if longer than ``age``, the oldest first.

    Args:
        everything: also tasks of paused queues, and of lanes that let no task start now.
    """
    old = [one for one in buckets if -one.wait > age.total_seconds()]
    if not everything and old:
        paused = paused_queues(alias)
        lanes = status_of_lanes(alias, {one.lane for one in old if one.lane})
        shut = {
            one.name
            for one in lanes
            if one.paused_at is not None or one.is_full or one.held_for or one.opens_in
        }
        old = [one for one in old if one.queue_name not in paused and one.lane not in shut]
    found = sorted(oldest_due(old).values(), key=lambda one: one.wait)
    return [_late(alias, one) for one in found]


def _late(alias: str, bucket: LaneBucket) -> Late:
    task_id: uuid.UUID = as_uuid(bucket.first_id)
    names = Task.objects.using(alias).filter(pk=task_id).values_list("task_name", flat=True)
    reasons = tuple(one for one in explain(alias, task_id) if one.gate != "suspect")
    name = str(names.first() or "?")
    return Late(bucket.queue_name, str(task_id), name, round(-bucket.wait, 3), reasons)
