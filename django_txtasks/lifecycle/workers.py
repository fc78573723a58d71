"""A worker's row: registered, beating, gone."""

from __future__ import annotations

import json
import os
import socket
import uuid
from datetime import timedelta

from django_txtasks.lifecycle import statements
from django_txtasks.lifecycle.dialect import run


def register(
    alias: str, *, queues: list[str], threads: int, listening: bool | None, lease: timedelta
) -> uuid.UUID:
    """Write a row for this process and return its new id. Ids are never used again."""
    worker = uuid.uuid4()
    run(
        alias,
        statements.REGISTER,
        worker=worker,
        host=socket.gethostname()[:200],
        pid=os.getpid(),
        queues=json.dumps(queues),
        threads=threads,
        listening=listening,
        lease=lease.total_seconds(),
    )
    return worker


def beat(alias: str, worker: uuid.UUID, *, running: int, listening: bool | None) -> bool:
    """Renew the lease. False = declared lost: roll back and claim nothing under this id."""
    count, _ = run(alias, statements.BEAT, worker=worker, running=running, listening=listening)
    return count == 1


def unregister(alias: str, worker: uuid.UUID) -> None:
    """Remove the row of a worker that stops, unless it still holds claims."""
    run(alias, statements.UNREGISTER, worker=worker)


def give_up(alias: str, worker: uuid.UUID) -> None:
    """Declare oneself lost: a worker that must stop now leaves its claims to the cleaner."""
    run(alias, statements.MARK_LOST, worker=worker)
