"""The options ``--processes``, ``--within`` and ``--threads`` of runworkers."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connections

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.core.ground.wording import counted
from django_txtasks.guards.server_kind import max_connections
from django_txtasks.management.console import look_at
from django_txtasks.management.probing import positive
from django_txtasks.processes.cpus import Cpus, cpus
from django_txtasks.processes.scaling import Limits

AUTO = "auto"
LEAST_WITHIN, MOST_WITHIN = 2, 86_400
"""Limits of ``--within`` in seconds. The load is looked at every 2 seconds."""
SHARE_OF_CONNECTIONS = 3
"""``--processes auto`` warns if its workers may use more than one part in this number of ``max_connections``."""


def processes(text: str) -> int | str | Limits:
    """Parse ``--processes``: a whole number, ``auto``, or a range; 0 = only an event loop, see ``async_tasks``."""
    least, dots, most = text.partition("..")
    if not dots:
        return AUTO if text == AUTO else 0 if text == "0" else positive(text)
    limits = Limits(positive(least), positive(most))
    if limits.least >= limits.most:
        raise ArgumentTypeError(
            f"{text!r} is no range: the second number must be the greater one, as in 1..8"
        )
    return limits


def within(text: str) -> float:
    """Parse ``--within``, a number of seconds of at least ``LEAST_WITHIN``."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not LEAST_WITHIN <= seconds <= MOST_WITHIN:
        raise ArgumentTypeError(
            f"{text!r} is not a number of seconds from {LEAST_WITHIN} to {MOST_WITHIN:,}"
        )
    return seconds


def limits_of(options: dict[str, Any], *, has_parent: bool) -> Limits | None:
    """Return the range of ``--processes``, if it is one; then ``options`` have the number to begin with.

    Args:
        has_parent: this process is a supervisor or has one.

    Raises:
        CommandError: other options contradict it.
    """
    limits, seconds = options["processes"], options["within"]
    if not isinstance(limits, Limits):
        if seconds is not None:
            raise CommandError("--within is only for a range, such as --processes 1..8.")
        return None
    for option in ("batch", "max_tasks"):
        if options[option]:
            raise CommandError(
                f"With --{option.replace('_', '-')} a process ends when its work is done, so the number of "
                "processes does not follow the load. Give --processes a number."
            )
    if not has_parent:
        raise CommandError(
            "Only the command line starts processes. Without it, give --processes a number, not a range."
        )
    options["processes"] = limits.least
    return limits if seconds is None else limits._replace(within=seconds)


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
