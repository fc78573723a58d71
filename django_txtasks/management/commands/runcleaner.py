"""manage.py runcleaner"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks import hints, signals
from django_txtasks.cleaner import Cleaner
from django_txtasks.cleaner.renotifier import Notify
from django_txtasks.conf import Config, get_config
from django_txtasks.database import sessions
from django_txtasks.database.errors import text_of
from django_txtasks.database.transactions import own_transaction
from django_txtasks.enqueueing.commit_hints import notify_now
from django_txtasks.lifecycle import cleaners, cleaning
from django_txtasks.management.console import (
    CHECKS,
    database_option,
    log_json_option,
    served,
    show_log,
    signals_in_background,
    stop_signals,
)
from django_txtasks.management.probing import liveness_at, probe_options, probes_at
from django_txtasks.wakeup import WakeUp
from django_txtasks.worker.process.probes import Liveness, LivenessOfAll
from django_txtasks.worker.process.shutdown import Shutdown

STOP_TIMEOUT_SECONDS = 10.0
"""Longest time for a pass to end after the command was told to stop."""
DEAF_SECONDS = 1.0
"""Longest time until a signal is noticed. Python's handlers run in the main thread, and a signal does not wake
it if it arrives as that thread begins to wait, or in another thread.
"""


class Command(BaseCommand):
    """Exit codes: 0 ended, whatever was cleaned; 1 it could not start, or ``--once`` met an error."""

    requires_system_checks = CHECKS
    _called_from_command_line: bool  # Django sets it
    help = "Recovers the tasks of crashed workers, repeats lost hints, deletes old tasks. Run one or more."

    def add_arguments(self, parser: ArgumentParser) -> None:
        _options(parser)
        probe_options(parser)
        database_option(parser, "Clean the tasks")
        log_json_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        show_log(options["verbosity"], as_json=options["log_json"])
        with signals_in_background(own_process=self._called_from_command_line):
            self._handle(options)

    def _handle(self, options: dict[str, Any]) -> None:
        config, dry = _config(options["interval"]), options["dry_run"]
        aliases = served(options["databases"])
        self.as_json, self.names_databases = options["json"], len(aliases) > 1
        file, port = options["liveness_file"], options["probe_port"]
        if dry or options["once"]:
            if file or port or options["probe_address"]:
                raise CommandError(
                    "--liveness-file and --probe-port are for a cleaner that keeps running: leave them out."
                )
            self._once(config, aliases, dry=dry)
            return
        livenesses = {alias: _liveness(config) for alias in aliases}
        together = liveness_at(file, lambda: LivenessOfAll(list(livenesses.values()), file))
        probes = probes_at(port, options["probe_address"], together)
        try:
            self._run(config, livenesses, together)
        finally:
            if probes is not None:
                probes.close()

    def _once(self, config: Config, aliases: list[str], *, dry: bool) -> None:
        """Clean one database after the other; continue if one cannot be reached."""
        failed = []
        for alias in aliases:
            sessions.wait_for_any_backend(alias)
            cleaner = Cleaner(config, alias, notify=_notify(config, alias, dry=dry), quiet=dry)
            try:
                self._report(alias, _once(cleaner, dry=dry))
            except (DatabaseError, InterfaceError) as error:
                failed.append(f"Database {alias!r} was not cleaned: {text_of(error)}")
        if failed:
            raise CommandError("\n".join(failed))

    def _run(
        self, config: Config, livenesses: dict[str, Liveness], together: LivenessOfAll
    ) -> None:
        """Clean each database in a thread of its own, so that a slow or missing one delays no other.

        An error in one thread ends the process; its supervisor restarts all of it.
        """
        over, wake_ups = WakeUp(), {alias: WakeUp() for alias in livenesses}
        broken: list[BaseException] = []

        def wake() -> None:
            for wake_up in (over, *wake_ups.values()):
                wake_up.wake()

        def clean(alias: str) -> None:
            try:
                self._clean(config, alias, wake_ups[alias], stop, livenesses[alias])
            except BaseException as error:
                broken.append(error)
                over.wake()

        stop = Shutdown(0.0, wake)
        threads = [
            threading.Thread(
                target=clean, args=[alias], name=f"txtasks-cleaner-{alias}", daemon=True
            )
            for alias in livenesses
        ]
        with stop_signals(stop.request):
            for thread in threads:
                thread.start()
            while not (stop.asked or broken):
                together.turned()
                over.wait(DEAF_SECONDS)
            stop.request()
            end = time.monotonic() + STOP_TIMEOUT_SECONDS
            for thread in threads:  # a thread whose database does not answer is left behind
                thread.join(max(0.0, end - time.monotonic()))
        if broken:
            raise broken[0]

    def _clean(
        self, config: Config, alias: str, wake_up: WakeUp, stop: Shutdown, liveness: Liveness
    ) -> None:
        """Clean until told to stop. A last will wakes the cleaner."""
        wills = None
        if config.broker_url is not None:
            from django_txtasks.broker.will import LastWillConsumer  # imports pika

            wills = LastWillConsumer(config, alias, wake_up.wake)
            wills.start()
        cleaner = Cleaner(
            config, alias, notify=_notify(config, alias), wills=wills, liveness=liveness
        )

        def wait(seconds: float) -> bool:
            wake_up.wait(seconds)
            return stop.asked

        signals.cleaner_started.emit(
            database=alias,
            beat=config.heartbeat_interval.total_seconds(),
            interval=config.clean_interval.total_seconds(),
            broker=config.broker_address,
        )
        try:
            cleaner.run(wait, lambda counts: self._tell(alias, counts))
        finally:
            connections.close_all()
        signals.cleaner_stopped.emit(database=alias)
        if wills is not None:
            wills.stop()

    def _tell(self, alias: str, counts: Counter[str]) -> None:
        """Log the counts of a turn; print them with ``--json``."""
        if not any(counts.values()):
            return
        if self.as_json:
            self._report(alias, counts)
        else:
            # a schedule of every second would log a line each second, and its tasks log their own
            level = logging.DEBUG if set(+counts) == {"scheduled"} else None
            signals.cleaned.emit(
                level=level, database=alias, done=_text(+counts), counts=dict(counts)
            )

    def _report(self, alias: str, counts: Counter[str]) -> None:
        if self.as_json:
            text = json.dumps({"database": alias, **counts})
        else:
            text = f"{alias}: {_text(counts)}" if self.names_databases else _text(counts)
        self.stdout.write(text)
        self.stdout.flush()


def _text(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in counts.items())


def _liveness(config: Config) -> Liveness:
    """Return the liveness of one database's cleaner, which is ready if a pass has ended lately."""
    patience = cleaners.MAX_SILENT_INTERVALS * config.clean_interval + config.lease
    return Liveness(patience, unready="no pass has ended for three intervals; the log says why")


def _notify(config: Config, alias: str, *, dry: bool = False) -> Notify | None:
    """Return the function that sends hints; None if hints are off."""
    if not hints.can_notify(config, connections[alias].vendor):
        return None
    return lambda tasks: None if dry else notify_now(config, alias, tasks)


def _config(interval: float | None) -> Config:
    config = get_config()
    if interval is None:
        return config
    if interval <= 0:
        raise CommandError(f"--interval is {interval}; it must be more than 0 seconds.")
    return dataclasses.replace(config, clean_interval=timedelta(seconds=interval))


def _once(cleaner: Cleaner, *, dry: bool) -> Counter[str]:
    """Make one pass. If a worker looks silent, watch it for a lease first."""
    list(cleaner.workers.lost())
    if cleaning.seems_silent(cleaner.alias):
        lease = max(worker.lease for worker in cleaning.living_workers(cleaner.alias))
        while cleaner.workers.looked_for < lease:
            time.sleep(cleaner.config.heartbeat_interval.total_seconds())
            list(cleaner.workers.lost())
    if not dry:
        counts = cleaner.run_once()
        with own_transaction(cleaner.alias, limit=cleaner.config.lease / 2):
            cleaners.note_once(cleaner.alias, lease=cleaner.config.lease)
        return counts
    with transaction.atomic(using=cleaner.alias):
        counts = cleaner.run_once()
        transaction.set_rollback(True, using=cleaner.alias)
    return counts


def _options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--once",
        action="store_true",
        help="Clean once and end; this takes as long as a lease if a worker looks silent.",
    )
    parser.add_argument(
        "--interval",
        type=float,
        metavar="S",
        help="Seconds between two passes (clean_interval).",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="Print the result of --once without changes."
    )
    parser.add_argument(
        "--json", action="store_true", help="Print the counts as JSON, one line each."
    )
