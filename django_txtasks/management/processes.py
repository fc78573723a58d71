"""The options ``--processes`` and ``--threads`` of runworkers."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from contextlib import suppress

from django.db import Error, connections

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.database.server_kind import max_connections
from django_txtasks.management.console import look_at
from django_txtasks.management.probing import positive
from django_txtasks.wording import counted
from django_txtasks.worker.process.cpus import Cpus, cpus

AUTO = "auto"
SHARE_OF_CONNECTIONS = 3
"""``--processes auto`` warns if its workers may use more than one part in this number of ``max_connections``."""


def processes(text: str) -> int | str:
    """Parse ``--processes``: a whole number, or ``auto``; 0 = only an event loop, see ``async_tasks``."""
    return AUTO if text == AUTO else 0 if text == "0" else positive(text)


def threads(text: str) -> int:
    """Parse ``--threads``, a whole number of at least 1."""
    if text == AUTO:
        raise ArgumentTypeError(
            "'auto' is only for --processes. Threads wait for databases and networks, and the number of CPUs does "
            "not say how long they wait. Give a number"
        )
    return positive(text)


def for_each_database(
    config: Config, aliases: Sequence[str], threads: int, own: Cpus | None = None
) -> int:
    """Return the number of worker processes for each database with ``--processes auto``; write the log.

    Args:
        threads: threads of each process.
        own: the CPUs of this process. None = read them.
    """
    own = own or cpus()
    number = max(1, own.processes // len(aliases))
    shared = f", for {counted(len(aliases), 'database')}" if aliases[1:] else ""
    signals.processes_chosen.emit(count=number, reason=f"{own.reason}{shared}")

    def look(alias: str) -> None:
        with suppress(Error):  # workers wait for the database
            most = max_connections(alias)
            needed = number * _sessions(config, alias, threads)
            if most is not None and needed * SHARE_OF_CONNECTIONS > most:
                signals.sessions_near_limit.emit(count=needed, most=most, database=alias)

    look_at(aliases, look)
    return number


def _sessions(config: Config, alias: str, threads: int) -> int:
    """Return the highest number of sessions of one worker: its threads, its loop, and the listener for hints."""
    listens = connections[alias].vendor == "postgresql" and config.may_hint_by_database
    return threads + 1 + listens
