"""manage.py runcleaner"""

from __future__ import annotations

import dataclasses
import json
import time
from argparse import ArgumentParser
from collections import Counter
from datetime import timedelta
from functools import partial
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks.conf import Config, get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows import cleaners, cleaning
from django_txtasks.database import sessions
from django_txtasks.database.errors import text_of
from django_txtasks.database.transactions import own_transaction
from django_txtasks.management.cleaning import Cleaning, in_words, notify_by, report_to_log
from django_txtasks.management.console import (
    LoopCommand,
    refuse_odd_seconds,
    served,
    switch,
)
from django_txtasks.management.probing import answering_until_stopped, loop_options
from django_txtasks.processes.probes import LivenessOfAll


class Command(LoopCommand):
    """Exit codes: 0 ended, whatever was cleaned; 1 it could not start, or ``--once`` met an error."""

    help = "Recovers the tasks of crashed workers, repeats lost hints, deletes old tasks. Run one or more."

    def add_arguments(self, parser: ArgumentParser) -> None:
        _options(parser)
        loop_options(parser, "Clean the tasks")

    def run(self, options: dict[str, Any]) -> None:
        config, dry = _config(options["interval"]), options["dry_run"]
        aliases = served(options["databases"])
        self.as_json, self.names_databases = options["json"], len(aliases) > 1
        if dry or options["once"]:
            if options["liveness_file"] or options["probe_port"] or options["probe_address"]:
                raise CommandError(
                    "--liveness-file and --probe-port are for a cleaner that keeps running: leave them out."
                )
            self._once(config, aliases, dry=dry)
            return
        loops = Cleaning(config, aliases, self._tell)
        make = partial(LivenessOfAll, list(loops.livenesses.values()))
        pages = {"/metrics": partial(_metrics, aliases)}
        with answering_until_stopped(options, make, loops.stop.request, pages) as together:
            loops.run(together.turned)

    def _once(self, config: Config, aliases: list[str], *, dry: bool) -> None:
        """Clean one database after the other; continue if one cannot be reached."""
        failed = []
        for alias in aliases:
            sessions.wait_for_any_backend(alias)
            cleaner = Cleaner(config, alias, notify=notify_by(config, alias, dry=dry), quiet=dry)
            try:
                self._report(alias, _once(cleaner, dry=dry))
            except (DatabaseError, InterfaceError) as error:
                failed.append(f"Database {alias!r} was not cleaned: {text_of(error)}")
        if failed:
            raise CommandError("\n".join(failed))

    def _tell(self, alias: str, counts: Counter[str]) -> None:
        """Log the counts of a turn, if it has done anything; print them with ``--json``."""
        if not self.as_json:
            report_to_log(alias, counts)
        elif any(counts.values()):
            self._report(alias, counts)

    def _report(self, alias: str, counts: Counter[str]) -> None:
        if self.as_json:
            text = json.dumps({"database": alias, **counts})
        else:
            text = f"{alias}: {in_words(counts)}" if self.names_databases else in_words(counts)
        self.stdout.write(text)
        self.stdout.flush()


def _metrics(aliases: list[str], authorization: str) -> tuple[int, str]:
    """Answer a request for metrics, in a thread with sessions of its own."""
    from django_txtasks import metrics  # only for who asks

    try:
        return metrics.answer(aliases, authorization)
    finally:
        connections.close_all()


def _config(interval: float | None) -> Config:
    config = get_config()
    if interval is None:
        return config
    refuse_odd_seconds("--interval", interval, may_be_zero=False)
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
    switch(
        parser,
        "--once",
        "Clean once and end; this takes as long as a lease if a worker looks silent.",
    )
    parser.add_argument(
        "--interval",
        type=float,
        metavar="S",
        help="Seconds between two passes (clean_interval).",
    )
    switch(parser, "--dry-run", "Print the result of --once without changes.")
    switch(parser, "--json", "Print the counts as JSON, one line each.")
