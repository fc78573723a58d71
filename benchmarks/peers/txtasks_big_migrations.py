"""Each migration on a full table: its seconds, its locks, and how long others wait, for ``big.py``."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django

from peers.txtasks_big import Notes, execute, tell

prepare = None
# Each INSERT waits for as long as the table is locked against it.
INSERT = (
    "INSERT INTO txtasks_task (id, task_name, queue_name) VALUES (%s, 'shop.tasks.wait', 'probe')"
)
SELECT = "SELECT task_name FROM txtasks_task WHERE id = %s"
PROBE_SECONDS = 0.005
LOCKS = """
    SELECT c.relname, l.mode FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
     WHERE l.pid = pg_backend_pid() AND l.granted
       AND c.relname IN ('txtasks_task', 'txtasks_finishedtask', 'txtasks_worker')
"""
MODES = ("ShareUpdateExclusiveLock", "ShareLock", "ShareRowExclusiveLock", "AccessExclusiveLock")
"""Locks that keep anybody waiting, the strongest last."""
CAUSES = """
    UPDATE txtasks_task SET cause = MOD(attempt, 100) + 1
     WHERE status = 'dead' OR (status = 'pending' AND attempt > 0)
"""
BY_HAND = """
    CREATE INDEX CONCURRENTLY IF NOT EXISTS txtasks_cause
        ON txtasks_task (status, queue_name, cause, run_after, id)
     WHERE cause IS NOT NULL OR status IN ('dead', 'held')
"""
"""See docs/how-to/upgrades.md."""


def measure(again: str) -> None:
    """Go back to the first migration, then forward, one migration at a time."""
    django.setup()
    from django.db import connection

    notes = Notes()
    if notes["migrations"] is not None and not int(again):
        return
    found = []
    _migrate("0001")
    for name in _names()[1:]:
        if name.startswith("0003"):
            execute(CAUSES)
            if connection.vendor == "postgresql":
                found.append(_row("0003 by hand, CONCURRENTLY", lambda: execute(BY_HAND)))
                found.append(_row("0003 after that", lambda name=name: _migrate(name)))
                _migrate("0002")
                execute(CAUSES)
        found.append(_row(name, lambda name=name: _migrate(name)))
    notes["migrations"] = found
    execute("DELETE FROM txtasks_task WHERE queue_name = 'probe'")


def _row(name: str, work: Any) -> list[object]:
    """Return what one change has taken: seconds, the longest INSERT and SELECT meanwhile, and its locks."""
    with _others() as waits, _locks() as locks:
        begin = time.monotonic()
        work()
        seconds = time.monotonic() - begin
    strongest = dict(sorted(locks, key=lambda one: MODES.index(one[1])))
    held = ", ".join(f"{table}: {mode}" for table, mode in sorted(strongest.items()))
    row = [name, f"{seconds:.2f}", f"{waits['INSERT']:.2f}", f"{waits['SELECT']:.2f}", held]
    tell(" | ".join(map(str, row)))
    return row


@contextmanager
def _others() -> Iterator[dict[str, float]]:
    """Sessions that write and read rows all the time; give their longest waits in seconds."""
    waits, is_over = {"INSERT": 0.0, "SELECT": 0.0}, threading.Event()

    def work(what: str) -> None:
        from django.db import connection

        while not is_over.wait(PROBE_SECONDS):
            begin = time.monotonic()
            execute(INSERT if what == "INSERT" else SELECT, uuid.uuid4().hex)
            waits[what] = max(waits[what], time.monotonic() - begin)
        connection.close()

    threads = [threading.Thread(target=work, args=[what]) for what in waits]
    for thread in threads:
        thread.start()
    time.sleep(20 * PROBE_SECONDS)
    try:
        yield waits
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@contextmanager
def _locks() -> Iterator[set[tuple[str, str]]]:
    """The locks on our tables that a transaction of this session holds after each of its statements."""
    from django.db import connection

    found: set[tuple[str, str]] = set()

    def look(run: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        done = run(sql, params, many, context)
        if connection.vendor == "postgresql" and connection.in_atomic_block:
            with connection.cursor() as cursor:
                cursor.cursor.execute(LOCKS)
                found.update(one for one in cursor.cursor.fetchall() if one[1] in MODES)
        return done

    with connection.execute_wrapper(look):
        yield found


def _migrate(name: str) -> None:
    from django.core.management import call_command

    call_command("migrate", "txtasks", name, verbosity=0)


def _names() -> list[str]:
    from django.db import connection
    from django.db.migrations.loader import MigrationLoader

    loader = MigrationLoader(connection)
    return sorted(name for app, name in loader.graph.nodes if app == "txtasks")
