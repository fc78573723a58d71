"""From a call of Celery to its row, in the caller's transaction."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from celery.utils.time import maybe_iso8601, maybe_make_aware
from django.db import connections
from django.utils.module_loading import import_string

from django_txtasks import signals
from django_txtasks.conf import Config, get_config
from django_txtasks.contrib.celery.checks import setting_for
from django_txtasks.contrib.celery.messages import Template, encode
from django_txtasks.contrib.celery.outgoing import Outgoing
from django_txtasks.core.declaring.values import moment_of
from django_txtasks.core.enqueueing import is_near
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground import payload
from django_txtasks.core.rows.enqueueing import NewTask, RowDefaults, insert, new_id
from django_txtasks.exceptions import InvalidOption
from django_txtasks.features.hand_over.rows import MESSAGE

if TYPE_CHECKING:
    from django_txtasks.contrib.celery.app import Celery


class NewRow(NamedTuple):
    """A row to be written, before its message is known."""

    id: uuid.UUID
    alias: str
    task_name: str
    queue_name: str
    run_after: datetime | timedelta | None


def new_row(app: Celery, name: str, countdown: float | None, eta: Any) -> NewRow:
    """Return the row of one call.

    Raises:
        InvalidOption: an impossible time, or no queue is handed over to this app.
    """
    if countdown:
        later = moment_of(name, "countdown", countdown)
    else:  # Celery reads text, and takes a time without zone as UTC
        later = moment_of(name, "eta", maybe_make_aware(maybe_iso8601(eta)) if eta else None)
    return NewRow(new_id(), app.using, name, queue_of(app), later)


_queues: dict[tuple[int, int], tuple[Config, Any, str]] = {}


def queue_of(app: Celery) -> str:
    """Return the queue whose rows are handed over to this app.

    Raises:
        InvalidOption: no entry of ``TXTASKS["hand_over"]`` names the app.
    """
    config = get_config()
    key = (id(config), id(app))
    known = _queues.get(key)
    if known is None:
        queues = queues_of(app, config)
        if not queues:
            raise InvalidOption(
                f"A task of the Celery app {app.main!r} is sent inside a transaction, and no queue is handed over "
                f"to this app. Add one: {setting_for(app)}"
            )
        known = _queues[key] = config, app, queues[0]  # the first two stay alive, and so their id()
    return known[2]


def queues_of(app: Any, config: Config) -> list[str]:
    """Return the queues that are handed over to this app."""
    return [queue for queue, entry in config.hand_over.items() if target_of(entry.to) is app]


def target_of(to: Any) -> Any:
    """Return the object that an entry of ``TXTASKS["hand_over"]`` names; an exchange as text.

    None: it cannot be imported here. Only a drain needs the targets of other queues, and tells it.
    """
    if not isinstance(to, str) or ":" in to:
        return to
    try:
        return import_string(to)
    except ImportError:
        return None


def write(row: NewRow, outgoing: Outgoing, template: Template) -> None:
    """Write a row in the open transaction, and send its hint after the commit.

    Raises:
        InvalidArguments: the message is too large, or has values that are not JSON.
    """
    args, kwargs, message = encode(outgoing, template)
    defaults = RowDefaults(
        task_name=row.task_name,
        queue_name=row.queue_name,
        run_after=row.run_after,
        headers=payload.encode({MESSAGE: message}, name="the message"),
    )
    task = NewTask(row.id, defaults, args, kwargs)
    insert(connections[row.alias], [task])
    if row.run_after is None or is_near(row.run_after):
        notify_on_commit(row.alias, [task.hint])
    if signals.task_enqueued.has_observers:
        signals.task_enqueued.emit(task_id=row.id, task=row.task_name, queue=row.queue_name)
