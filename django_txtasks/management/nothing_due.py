"""Where the tasks of a database are while none is due: for ``txtasks_explain`` without an id."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from django_txtasks.core.ground.wording import counted, span
from django_txtasks.database import side_tables
from django_txtasks.database.execute import as_uuid
from django_txtasks.features.lanes.buckets import LaneBucket
from django_txtasks.insight.explain import Reason, facts_of_pause
from django_txtasks.insight.finding import manage
from django_txtasks.insight.forgotten import FAR
from django_txtasks.insight.status import QueueStatus
from django_txtasks.management.looking import look
from django_txtasks.models import PausedQueue
from django_txtasks.overview import Count


def nothing_due(alias: str, buckets: Sequence[LaneBucket]) -> Iterator[Reason]:
    """Yield where tasks are: waiting for their time, running, held or dead; then the paused queues.

    Args:
        buckets: the first pending task of each lane, queue and priority.
    """
    queues = look(alias, exact=False).queues
    later, running = _in(queues, "later"), _in(queues, "claimed")
    held, dead = _in(queues, "held"), _in(queues, "dead")
    if later:
        tried = _in(queues, "retrying")
        again = f" Of them after a failed attempt: {tried}." if tried else ""
        text = f"Waiting for their time, or for an answer: {later}.{again}{_next(buckets)}"
        yield Reason("later", text)
    if questions := side_tables.waiting_for_people(alias):
        text = f"Waiting for a person: {counted(questions, 'question')}."
        yield Reason("person", text, "Answer them in the list of questions.")
    if running:
        yield Reason("claimed", f"Running: {running}.")
    if held:
        command = manage("txtasks_task resume --queue QUEUE", alias)
        yield Reason("held", f"Held by a person: {held}.", command)
    if dead:
        command = manage("txtasks_task revive --queue QUEUE", alias)
        yield Reason("dead", f"Dead: {dead}.", f"Fix the cause, then {command}")
    if not (later or running or held or dead):
        text = "There is no live task: none was enqueued, its transaction has not committed, or all have finished."
        yield Reason("absent", text)
    for pause in PausedQueue.objects.using(alias).order_by("pk"):
        text = "Queue %(queue)s was paused by %(by)s at %(at)s%(why)s: a new task of this queue will wait."
        facts = {"queue": pause.pk, **facts_of_pause(pause)}
        command = manage(f"txtasks_queue resume {shlex.quote(pause.pk)}", alias)
        yield Reason("paused", text % facts, command)


def _in(queues: Mapping[str, QueueStatus], state: str) -> str:
    """Return the numbers of tasks in a state, by queue, such as ``2 in default, 2,000+ in mail``."""
    found = {name: Count(getattr(one, state), state in one.capped) for name, one in queues.items()}
    return ", ".join(f"{count} in {name}" for name, count in sorted(found.items()) if count)


def _next(buckets: Sequence[LaneBucket]) -> str:
    """Return the task that is due first, as a sentence; empty = it is due meanwhile, or waits for an answer."""
    waiting = [one for one in buckets if 0 < one.wait < FAR.total_seconds()]
    if not waiting:
        return ""
    first = min(waiting, key=lambda one: one.wait)
    wait = span(timedelta(seconds=first.wait))
    return f" The first is due in {wait}: {as_uuid(first.first_id)} in queue {first.queue_name}."
