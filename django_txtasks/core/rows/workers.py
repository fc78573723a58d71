"""A worker's row: registration, beat, and how its process ended, for ``insight.deaths``."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import TextField
from django.db.models.functions import Cast

from django_txtasks.core.ground import payload
from django_txtasks.core.rows import statements
from django_txtasks.database import processes
from django_txtasks.database.errors import ends_session
from django_txtasks.database.execute import execute, fetch
from django_txtasks.database.sessions import session_of_thread
from django_txtasks.models import DatabaseNow, Worker

PAUSES, LANES = 1, 2
"""Protocol versions of workers: 1 = the worker obeys paused queues, 2 = lanes, too."""
PROTOCOL = LANES
"""Protocol version of this release, which is in its workers' rows."""

DRAIN_MARK = "@drain"
"""The only name in the row of a drain, which runs no task function: it hands over the rows of its queues."""

AWAY = "@away "
"""Begin of the key, before the name of a queue, under which a drain's row has the reason why its target takes
nothing."""


UNKNOWN = "unknown"
"""A cleaner has declared the worker lost, and no supervisor has told how its process ended."""
MEMORY, STUCK = "memory", "stuck"
"""The process was replaced: because of ``--max-rss``, or because a task, or calls in threads, did not end."""
MOST_CLAIMS, MOST_NAMES = 10_000, 100
"""Number of claims of one worker that are read, and number of task functions that are kept."""
MOST_ROWS = 100
"""Number of workers to which the end of one process may belong."""


class End(NamedTuple):
    """The end of a worker.

    Attributes:
        how: ``unknown``, ``memory``, ``stuck``, ``signal 9``, ``exit code 1``; empty = it stopped in good order.
        held: the task functions that it held, each with the queue of one of its tasks.
    """

    how: str = ""
    held: Mapping[str, str] = MappingProxyType({})


IN_ORDER = End()


class Beat(NamedTuple):
    """A beat that was written.

    Attributes:
        is_suspected: whether RabbitMQ has delivered the last will with this beat's number to a cleaner.
    """

    is_suspected: bool = False


def register(
    alias: str,
    *,
    queues: list[str],
    threads: int,
    listening: bool | None,
    lease: timedelta,
    task_names: Sequence[str] = (),
    release: str = "",
) -> uuid.UUID:
    """Write a row for this process and return its new id. Ids are never used again.

    Args:
        task_names: names of the task functions that its code declares.
        release: the release of its code; empty = not known.
    """
    worker = uuid.uuid4()
    execute(
        alias,
        statements.REGISTER,
        worker=worker,
        host=host_name(),
        pid=os.getpid(),
        queues=json.dumps(queues),
        task_names=json.dumps(list(task_names)),
        threads=threads,
        listening=listening,
        lease=lease.total_seconds(),
        sessions=_signs(alias),
        protocol=PROTOCOL,
        release=release,
    )
    return worker


def host_name() -> str:
    """Return the name of this machine in workers' rows."""
    return payload.storable(socket.gethostname())[:200]


def beat(
    alias: str,
    worker: uuid.UUID,
    *,
    running: int,
    listening: bool | None,
    will: int = 0,
    slot_sessions: Sequence[str] = (),
) -> Beat | None:
    """Renew the lease. None = the worker is declared lost: roll back, and claim nothing under this id.

    Args:
        will: number of the last will that RabbitMQ holds; 0 = none.
        slot_sessions: database sessions of the threads that run tasks.
    """
    state = state_of(
        alias, running=running, listening=listening, will=will, slot_sessions=slot_sessions
    )
    if connections[alias].vendor == "postgresql":
        sql = f"{statements.BEAT} RETURNING {statements.IS_SUSPECTED}"
        return next((Beat(row[0]) for row in fetch(alias, sql, worker=worker, **state)), None)
    if not execute(alias, statements.BEAT, worker=worker, **state):
        return None
    # a worker without a last will is never suspected
    rows = fetch(alias, statements.SUSPECTED_WORKER, worker=worker) if will else []
    return Beat(any(bool(suspected) for (suspected,) in rows))


def state_of(
    alias: str,
    *,
    running: int,
    listening: bool | None,
    will: int = 0,
    slot_sessions: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the values that a beat writes into a worker's row: see ``beat``."""
    signs = _signs(alias, slot_sessions)
    return {"running": running, "listening": listening, "will": will, "sessions": signs}


def _signs(alias: str, slot_sessions: Sequence[str] = ()) -> str:
    """Return the signs of life that others can check: the database sessions, and at the end the process's mark."""
    marks = [mark] if (mark := processes.own_mark()) else []
    return json.dumps([session_of_thread(alias), *slot_sessions, *marks])


def keep(alias: str, ids: Sequence[uuid.UUID], end: End = IN_ORDER) -> None:
    """Keep host, times and end of these workers. A row that is kept already stays as it is."""
    held = dict(list(end.held.items())[:MOST_NAMES])
    execute(alias, statements.KEEP_WORKERS, ids=ids, how=end.how, held=json.dumps(held))


def in_hand(alias: str, worker: uuid.UUID) -> dict[str, str]:
    """Return the task functions of a worker's claims, each with the queue of one of them."""
    rows = fetch(alias, statements.IN_HAND, worker=worker, limit=MOST_CLAIMS, names=MOST_NAMES)
    return dict(rows)


def note_ends(alias: str, ends: Mapping[int, str]) -> None:
    """Note how processes of this machine ended, in the rows of their workers.

    Args:
        ends: how each process ended, by process id. An id may have been used again since.
    """
    rows = Worker.objects.using(alias).filter(host=host_name(), pid__in=list(ends), how="")
    signs = rows.annotate(signs=Cast("sessions", TextField())).order_by("-started_at")
    for worker, pid, text in signs.values_list("pk", "pid", "signs")[:MOST_ROWS]:
        if _has_ended(pid, text):
            execute(alias, statements.NOTE_END, worker=worker, how=ends[pid])
            execute(alias, statements.NOTE_END_OF_LOST, worker=worker, how=ends[pid])


def _has_ended(pid: int, signs: str) -> bool:
    """Return True unless the row belongs to a living process, or to another container with the same host name."""
    _, has_mark, rest = signs.partition(processes.PREFIX)
    mark = processes.PREFIX + rest.partition('"')[0] if has_mark else ""
    is_there = processes.is_there(pid, mark)
    return is_there is False or (is_there is None and not mark)


def unregister(alias: str, worker: uuid.UUID, end: End = IN_ORDER) -> None:
    """Delete the row of a worker that stops, unless it still holds claims; keep its host, times and end."""
    fetch(alias, statements.LOCK_LEAVING, worker=worker)
    if not fetch(alias, statements.HELD_BY, worker=worker, limit=1):
        keep(alias, [worker], end)
        execute(alias, statements.UNREGISTER, worker=worker)


def forget_ended(alias: str, age: timedelta) -> int:
    """Delete the hosts and times of workers that ended more than ``age`` ago; return their number."""
    return execute(alias, statements.FORGET_ENDED_WORKERS, age=age.total_seconds())


def give_up(alias: str, worker: uuid.UUID) -> None:
    """Declare this worker lost, because it must stop now and leave its claims to the cleaner."""
    execute(alias, statements.MARK_LOST, worker=worker)


def workers_that_ignore_pauses(alias: str) -> list[str]:
    """Return the living workers of an older release that claims from paused queues, as text for people."""
    return workers_before(alias, PAUSES)


def workers_before(alias: str, protocol: int) -> list[str]:
    """Return the living workers whose protocol is older than this one (see ``PROTOCOL``), as text for people."""
    living = Worker.objects.using(alias).filter(lost=False, protocol__lt=protocol)
    seen = living.annotate(now=DatabaseNow())
    return [str(one) for one in seen if not one.is_silent(one.now)]


def can_write(alias: str, error: DatabaseError) -> bool:
    """Say whether the session in which this error was raised accepts writes.

    After a failover, an old session may only read. A session that the error has ended accepts none, although the
    next statement would open another session.
    """
    if connections[alias].vendor != "sqlite" and ends_session(error):
        return False
    try:
        execute(alias, statements.TRY_TO_WRITE)
    except (DatabaseError, InterfaceError):
        return False
    return True


def texts(value: Any) -> set[str]:
    """Return the texts of a list; empty for any other value, which a person may have written."""
    return {one for one in value if isinstance(one, str)} if isinstance(value, list) else set()


def texts_in(text: str | None) -> set[str]:
    """Return the texts of a JSON list; empty if Python cannot parse it, such as 5,000 nested lists."""
    try:
        return texts(json.loads(text or "null"))
    except (ValueError, RecursionError):
        return set()
