"""Queues that a person has paused: no worker claims their tasks, and running tasks go on.

Each paused queue has a row. Each claim reads these rows in its own statement or transaction, so a pause holds for
all workers from its commit on, without a message.
"""

from __future__ import annotations

from django_txtasks import signals
from django_txtasks.core.ground import payload
from django_txtasks.models import Lane, PausedQueue


def pause(alias: str, queue: str, *, by: str = "", reason: str = "") -> bool:
    """Pause a queue. False = it was paused already, and nothing changes.

    Args:
        by: the person who pauses it. This and ``reason`` are cut to the width of their columns.
    """
    row = who_and_why(PausedQueue, by, reason)
    _, is_new = PausedQueue.objects.using(alias).get_or_create(pk=queue, defaults=row)
    if is_new:
        signals.queue_paused.emit(database=alias, queue=queue, by=by or "?", reason=reason)
    return is_new


def resume(alias: str, queue: str, *, by: str = "") -> bool:
    """Let workers claim a queue's tasks again, from their next scan on. False = it was not paused."""
    count, _ = PausedQueue.objects.using(alias).filter(pk=queue).delete()
    if count:
        signals.queue_resumed.emit(database=alias, queue=queue, by=by or "?")
    return bool(count)


def who_and_why(model: type[PausedQueue | Lane], by: str, reason: str) -> dict[str, str]:
    """Return the columns of a pause, in text that each database stores, cut to their widths."""
    by, reason = payload.storable(by), payload.storable(reason)
    columns = model._meta
    return {
        "paused_by": by[: columns.get_field("paused_by").max_length],
        "reason": reason[: columns.get_field("reason").max_length],
    }
