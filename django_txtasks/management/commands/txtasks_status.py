"""manage.py txtasks_status"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections import Counter
from dataclasses import asdict, fields
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError, connections

from django_txtasks.core.ground.wording import counted, time_text
from django_txtasks.database import side_tables
from django_txtasks.insight.history_cost import HistoryCost, history_cost
from django_txtasks.insight.late import Late, all_buckets, late
from django_txtasks.insight.status import (
    ALL_IS_WELL,
    CleanerStatus,
    QueueStatus,
    Snapshot,
    lost_workers,
)
from django_txtasks.management.console import (
    CHECKS,
    PrintingCommand,
    in_columns,
    in_one_line,
    one_database,
    refuse_odd_seconds,
    refuse_without_tables,
    switch,
)
from django_txtasks.management.looking import MOST_NAMED, look
from django_txtasks.models import Status, Task, Worker
from django_txtasks.overview.counting import MOST
from django_txtasks.signals.tracebacks import printable

BEYOND_LIMITS, UNREACHABLE = 1, 2
_HEADS = {"oldest_due": "oldest due (s)"}


class Command(PrintingCommand):
    """Exit codes: 0 within the limits; 1 beyond them, or wrong options; 2 the database cannot be queried."""

    requires_system_checks = CHECKS
    help = "Shows waiting tasks, workers and cleaners. It only reads."

    def add_arguments(self, parser: ArgumentParser) -> None:
        switch(parser, "--json", "Print one JSON object per line.")
        parser.add_argument(
            "--watch", type=float, nargs="?", const=2.0, metavar="S",
            help="Repeat every S seconds (2), until Ctrl-C.",
        )  # fmt: skip
        switch(parser, "--lost", "Also print a line for each lost worker.")
        switch(
            parser, "--history", "Also show how many MB finished tasks have added in the last day."
        )
        parser.add_argument(
            "--max-dead", type=int, metavar="N", help="Exit code 1 if more tasks are dead."
        )
        parser.add_argument(
            "--max-age", type=float, metavar="S",
            help="Exit code 1 if a task has been due for longer, in seconds.",
        )  # fmt: skip
        switch(
            parser,
            "--all",
            "--max-age: also tasks of paused queues and of lanes that let none start.",
            dest="everything",
        )
        switch(
            parser, "--exact", f"Count all tasks; otherwise up to {MOST:,} in each queue and state."
        )
        parser.add_argument(
            "--min-workers", type=int, metavar="N", help="Exit code 1 if fewer workers are alive."
        )
        parser.add_argument(
            "--min-cleaners",
            type=int,
            metavar="N",
            help="Exit code 1 if fewer cleaners are at work.",
        )
        one_database(parser, "Database to show")

    def handle(self, *args: Any, **options: Any) -> None:
        alias, pause = options["database"], options["watch"]
        if alias not in connections:
            raise CommandError(f"Database {alias!r} is not in DATABASES.")
        refuse_odd_seconds("--max-age", options["max_age"])
        refuse_odd_seconds("--watch", pause, may_be_zero=False)
        while True:
            try:
                refuse_without_tables(alias)
                now = look(alias, exact=options["exact"])
                dead = _dead(alias, now, options["max_dead"])
                old = _older(alias, options)
                lost = [] if options["json"] else lost_workers(alias)
                cost = history_cost(alias) if options["history"] else None
            except (DatabaseError, InterfaceError) as error:
                connections[alias].close()
                text = f"Database {alias!r} cannot be queried: {in_one_line(error)}"
                if pause is None:
                    raise CommandError(text, returncode=UNREACHABLE) from None
                self.warn(text)
            else:
                if options["json"]:
                    self.show(
                        json.dumps({**now.as_json(), **_beyond_age(old), **_history_json(cost)})
                    )
                else:
                    self.show(*_shown(now), *_for_people(alias))
                self.show(*_lost(lost, in_full=options["lost"]))
                if cost is not None and not options["json"]:
                    self.show(_history(cost))
                if pause is None:
                    _judge(now, old, dead, options)
                    return
                self.stdout.flush()
            try:
                time.sleep(pause)
            except KeyboardInterrupt:
                return


def _dead(alias: str, now: Snapshot, limit: int | None) -> int:
    """Return the number of dead tasks, counted up to one more than the limit if that is higher."""
    if limit is None or now.dead > limit:
        return now.dead
    dead: int = Task.objects.using(alias).in_state(Status.DEAD)[: max(0, limit) + 1].count()
    return dead


def _older(alias: str, options: dict[str, Any]) -> list[Late] | None:
    """Return the tasks that have been due for longer than ``--max-age``; None: no limit was given."""
    if options["max_age"] is None:
        return None
    age = timedelta(seconds=options["max_age"])
    return late(alias, all_buckets(alias), age, everything=options["everything"])


def _beyond_age(old: list[Late] | None) -> dict[str, Any]:
    return {} if old is None else {"beyond_max_age": [asdict(one) for one in old]}


def _judge(now: Snapshot, old: list[Late] | None, dead: int, options: dict[str, Any]) -> None:
    """Raise CommandError if a limit is exceeded."""
    beyond = []
    if options["max_dead"] is not None and dead > options["max_dead"]:
        beyond.append(f"Dead tasks: {dead}, more than {options['max_dead']}.")
    beyond += (
        f"A task has been due for {one.seconds:.1f} s, longer than {options['max_age']:.1f}: {printable(str(one))}"
        for one in (old or ())[:MOST_NAMED]
    )
    if old and len(old) > MOST_NAMED:
        beyond.append(f"More queues have such a task: {len(old) - MOST_NAMED:,}.")
    if options["min_workers"] is not None and now.workers.alive < options["min_workers"]:
        beyond.append(f"Living workers: {now.workers.alive}, fewer than {options['min_workers']}.")
    at_work = now.cleaners.at_work
    if options["min_cleaners"] is not None and at_work < options["min_cleaners"]:
        beyond.append(f"Cleaners at work: {at_work}, fewer than {options['min_cleaners']}.")
    if beyond:
        raise CommandError(" ".join(beyond), returncode=BEYOND_LIMITS)


def _history_json(cost: HistoryCost | None) -> dict[str, Any]:
    return {} if cost is None else {"history": cost.as_json()}


def _history(cost: HistoryCost) -> str:
    outcomes = [f"{name} {one.mb_a_day:.1f}" for name, one in cost.outcomes.items()]
    parts = f" ({', '.join(outcomes)})" if outcomes else ""
    return (
        f"Finished tasks: {cost.table_bytes / 1e6:.1f} MB; in the last day they have added about "
        f"{cost.mb_a_day:.1f} MB{parts}."
    )


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


def _for_people(alias: str) -> list[str]:
    """Return a line about the questions that tasks have asked, if there are any."""
    number = side_tables.waiting_for_people(alias)
    return [f"Waiting for a person: {counted(number, 'question')}."] if number else []


def _cleaners(now: CleanerStatus) -> str:
    passed = "none yet" if now.last_pass is None else f"{now.last_pass:.0f} s ago"
    if now.only_once:
        return f"Cleaners: none keeps running; last pass by --once: {passed}. The next pass notices crashes."
    return f"Cleaners: {now.at_work} at work; last whole pass: {passed}."


def _cell(status: QueueStatus, name: str) -> str:
    value = getattr(status, name)
    return f"{value:,}+" if name in status.capped else str(value)


def _shown(now: Snapshot) -> list[str]:
    columns = [one.name for one in fields(QueueStatus) if one.name != "capped"]
    heads = ["queue", *(_HEADS.get(name, name.replace("_", " ")) for name in columns)]
    rows = [
        [queue, *(_cell(status, name) for name in columns)] for queue, status in now.queues.items()
    ]
    worst, *others = now.problems or (ALL_IS_WELL,)
    lines = [worst, *(f"Also: {one}" for one in others), *in_columns([heads, *rows])]
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
    if workers.alone:
        count = counted(workers.alone, "process", "processes")
        lines.append(
            f"Last chances after a crash: {count}, each with one task and nothing beside it."
        )
    if workers.drains:
        lines.append(f"Drains: {workers.drains} alive.")
    if now.handed is not None and (now.handed or workers.drains):
        lines.append(f"Handed over in the last 5 minutes: {now.handed}.")
    if now.cleaners.trouble not in now.problems:
        lines.append(_cleaners(now.cleaners))
    if now.finished is not None:
        lines.append(f"Succeeded in the last 5 minutes: {now.finished}.")
    if now.cost.text:
        lines.append(now.cost.text)
    return lines
