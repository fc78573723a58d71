"""manage.py txtasks_status"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections import Counter
from dataclasses import astuple, fields
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError, connections

from django_txtasks.inspection.status import (
    CleanerStatus,
    QueueStatus,
    Snapshot,
    lost_workers,
    snapshot,
)
from django_txtasks.lifecycle import names
from django_txtasks.management.console import (
    CHECKS,
    PrintingCommand,
    in_one_line,
    refuse_without_tables,
)
from django_txtasks.models import Worker
from django_txtasks.wording import counted, time_text

BEYOND_LIMITS, UNREACHABLE = 1, 2


class Command(PrintingCommand):
    """Exit codes: 0 within the limits; 1 beyond them, or wrong options; 2 the database cannot be queried."""

    requires_system_checks = CHECKS
    help = "Shows waiting tasks, workers and cleaners. It only reads."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print one JSON object per line.")
        parser.add_argument(
            "--watch", type=float, nargs="?", const=2.0, metavar="S",
            help="Repeat every S seconds (2), until Ctrl-C.",
        )  # fmt: skip
        parser.add_argument(
            "--lost", action="store_true", help="Also print a line for each lost worker."
        )
        parser.add_argument(
            "--max-dead", type=int, metavar="N", help="Exit code 1 if more tasks are dead."
        )
        parser.add_argument(
            "--max-age", type=float, metavar="S",
            help="Exit code 1 if a task has been due for longer, in seconds.",
        )  # fmt: skip
        parser.add_argument(
            "--min-workers", type=int, metavar="N", help="Exit code 1 if fewer workers are alive."
        )
        parser.add_argument(
            "--min-cleaners",
            type=int,
            metavar="N",
            help="Exit code 1 if fewer cleaners are at work.",
        )
        parser.add_argument(
            "--database", default="default", metavar="ALIAS", help="Database to show (default)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        alias, pause = options["database"], options["watch"]
        if alias not in connections:
            raise CommandError(f"Database {alias!r} is not in DATABASES.")
        if pause is not None and pause <= 0:
            raise CommandError(f"--watch is {pause}; it must be more than 0 seconds.")
        while True:
            try:
                refuse_without_tables(alias)
                now = snapshot(alias)
                lost = [] if options["json"] else lost_workers(alias)
            except (DatabaseError, InterfaceError) as error:
                connections[alias].close()
                text = f"Database {alias!r} cannot be queried: {in_one_line(error)}"
                if pause is None:
                    raise CommandError(text, returncode=UNREACHABLE) from None
                self.warn(text)
            else:
                self.show(*([json.dumps(now.as_json())] if options["json"] else _shown(now)))
                self.show(*_lost(lost, in_full=options["lost"]))
                self.stdout.flush()
                if pause is None:
                    _judge(now, options)
                    return
            try:
                time.sleep(pause)
            except KeyboardInterrupt:
                return


def _judge(now: Snapshot, options: dict[str, Any]) -> None:
    """Raise CommandError if a limit is exceeded."""
    beyond = []
    if options["max_dead"] is not None and now.dead > options["max_dead"]:
        beyond.append(f"Dead tasks: {now.dead}, more than {options['max_dead']}.")
    if options["max_age"] is not None and now.oldest_due > options["max_age"]:
        beyond.append(
            f"A task has been due for {now.oldest_due:.1f} s, longer than {options['max_age']:.1f}."
        )
    if options["min_workers"] is not None and now.workers.alive < options["min_workers"]:
        beyond.append(f"Living workers: {now.workers.alive}, fewer than {options['min_workers']}.")
    at_work = now.cleaners.at_work
    if options["min_cleaners"] is not None and at_work < options["min_cleaners"]:
        beyond.append(f"Cleaners at work: {at_work}, fewer than {options['min_cleaners']}.")
    if beyond:
        raise CommandError(" ".join(beyond), returncode=BEYOND_LIMITS)


def _lost(workers: list[Worker], *, in_full: bool) -> list[str]:
    if not workers:
        return []
    counts = Counter(one.host for one in workers)
    lines = [
        "Lost workers by host: " + ", ".join(f"{host} {n}" for host, n in counts.items()) + "."
    ]
    if in_full:
        lines += [
            f"  {one.host} (pid {one.pid}), last seen {time_text(one.seen_at)}" for one in workers
        ]
    return lines


def _cleaners(now: CleanerStatus) -> str:
    passed = "none yet" if now.last_pass is None else f"{now.last_pass:.0f} s ago"
    if now.only_once:
        return f"Cleaners: none keeps running; last pass by --once: {passed}. The next pass notices crashes."
    return f"Cleaners: {now.at_work} at work; last whole pass: {passed}."


def _shown(now: Snapshot) -> list[str]:
    heads = ["queue", *(one.name.replace("_", " ") for one in fields(QueueStatus))]
    rows = [[name, *map(str, astuple(queue))] for name, queue in now.queues.items()]
    widths = [max(len(row[index]) for row in [heads, *rows]) for index in range(len(heads))]
    lines = [
        "  ".join(
            text.rjust(width) if index else text.ljust(width)
            for index, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [heads, *rows]
    ]
    workers = now.workers
    lines.append(
        f"Workers: {workers.alive} alive ({workers.listening} listening for hints), {workers.silent} silent, "
        f"{workers.lost} lost. Slots in use: {workers.running} of {workers.threads}."
    )
    if workers.loops:
        lag = f"; greatest lag: {workers.lag:.1f} s" if workers.lag else ""
        lines.append(
            f"Async tasks: {workers.async_running} of {workers.async_slots} on "
            f"{counted(workers.loops, 'event loop')}{lag}."
        )
    lines.append(now.cleaners.trouble or _cleaners(now.cleaners))
    if now.undeclared:
        lines.append(names.sentence(now.undeclared))
    if now.finished is not None:
        lines.append(f"Succeeded in the last 5 minutes: {now.finished}.")
    return lines
