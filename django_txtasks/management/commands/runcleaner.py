"""manage.py runcleaner"""

from __future__ import annotations

import dataclasses
import json
import time
from argparse import ArgumentParser
from collections import Counter
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from django_txtasks import broker
from django_txtasks.broker.will import LastWills
from django_txtasks.cleaner import Cleaner
from django_txtasks.cleaner.cleaner import Notify
from django_txtasks.conf import Config, get_config
from django_txtasks.doorbell import Doorbell
from django_txtasks.lifecycle import recovery
from django_txtasks.management.console import (
    CHECKS,
    log_json_option,
    refuse_without_tables,
    show_log,
    stop_signals,
)
from django_txtasks.worker.stopping import Stop


class Command(BaseCommand):
    """Exit code 0, also when there was something to clean; 1 if the command could not start."""

    requires_system_checks = CHECKS
    help = "Recovers the tasks of crashed workers, renotifies overlooked ones, prunes old ones. Run one or more."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--once",
            action="store_true",
            help="Clean once and end; takes a lease if a worker looks silent.",
        )
        parser.add_argument(
            "--interval",
            type=float,
            metavar="S",
            help="Seconds between two passes (clean_interval).",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="Say what --once would do, and change nothing."
        )
        parser.add_argument(
            "--json", action="store_true", help="Print the counts as JSON, a line each."
        )
        parser.add_argument(
            "--database", default="default", metavar="ALIAS", help="Whose tasks to clean (default)."
        )
        log_json_option(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        show_log(options["verbosity"], as_json=options["log_json"])
        config, alias, dry = _config(options["interval"]), options["database"], options["dry_run"]
        refuse_without_tables(alias)
        self.as_json = options["json"]
        notify = None
        if config.broker_url is not None:
            notify = lambda tasks: None if dry else broker.notify(config, alias, tasks)  # noqa: E731 -- one line
        if dry or options["once"]:
            cleaner = Cleaner(config, alias, notify=notify, quiet=dry)
            self._report(_once(cleaner, dry=dry), always=True)
        else:
            self._run(config, alias, notify)

    def _run(self, config: Config, alias: str, notify: Notify | None) -> None:
        """Clean until told to stop; a last will wakes it."""
        doorbell = Doorbell()
        stop = Stop(0.0, doorbell.ring)
        wills = None
        if config.broker_url is not None:
            wills = LastWills(config, alias, doorbell.ring)
            wills.start()
        cleaner = Cleaner(config, alias, notify=notify, wills=wills)
        with stop_signals(stop.request):
            cleaner.run(lambda seconds: _wait(doorbell, stop, seconds), self._report)
        if wills is not None:
            wills.stop()

    def _report(self, counts: Counter[str], *, always: bool = False) -> None:
        if always or any(counts.values()):
            text = (
                json.dumps(counts)
                if self.as_json
                else ", ".join(f"{name} {n}" for name, n in counts.items())
            )
            self.stdout.write(text)
            self.stdout.flush()


def _config(interval: float | None) -> Config:
    config = get_config()
    if interval is None:
        return config
    if interval <= 0:
        raise CommandError(f"--interval is {interval}; it must be more than 0 seconds.")
    return dataclasses.replace(config, clean_interval=timedelta(seconds=interval))


def _once(cleaner: Cleaner, *, dry: bool) -> Counter[str]:
    """One pass; if some worker looks silent, watch it for a lease first."""
    list(cleaner.workers.lost())
    if recovery.seems_silent(cleaner.alias):
        lease = max(worker.lease for worker in recovery.living_workers(cleaner.alias))
        while cleaner.workers.looked_for < lease:
            time.sleep(cleaner.config.beat.total_seconds())
            list(cleaner.workers.lost())
    if not dry:
        return cleaner.run_once()
    with transaction.atomic(using=cleaner.alias):
        counts = cleaner.run_once()
        transaction.set_rollback(True, using=cleaner.alias)
    return counts


def _wait(doorbell: Doorbell, stop: Stop, seconds: float) -> bool:
    doorbell.wait(seconds)
    return stop.asked
