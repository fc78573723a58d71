"""manage.py txtasks_schedules"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.conf import get_config
from django_txtasks.core.enqueueing.calls import check_queue
from django_txtasks.exceptions import TxTasksError
from django_txtasks.features.schedules import changes as schedule_changes
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.features.schedules.status import (
    ScheduleStatus,
    differences,
    next_ticks,
    status_of_schedules,
)
from django_txtasks.management.console import DatabaseCommand, switch
from django_txtasks.models import Schedule
from django_txtasks.operations.record import user_of_process
from django_txtasks.signals.tracebacks import printable

UNWELL = 1


class Command(DatabaseCommand):
    """Exit codes: 0 done, and no problem; 1 a problem, or wrong options; 2 the database cannot be queried."""

    help = (
        "Schedules: sync copies the declarations of @periodic into the database, as a step of each deploy; list "
        "shows all; check ends with 1 if one is late, broken, or not done by its hour, or if sync would change "
        "something."
    )
    of_database = "Database of the schedules"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("verb", choices=["sync", "list", "check", "on", "off", "run"])
        parser.add_argument("names", nargs="*", metavar="NAME", help="Names of schedules.")
        parser.add_argument(
            "--release", type=int, default=0, metavar="N",
            help="sync: number of this code's release; schedules of a higher release are kept, with exit code 1.",
        )  # fmt: skip
        switch(parser, "--dry-run", "sync: print the changes, and make none.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Carry out the verb."""
        verb, names = options["verb"], options["names"]
        if verb == "sync":
            self._sync(alias, options["release"], dry=options["dry_run"])
        elif verb == "list":
            for status in status_of_schedules(alias, names or None):
                self.show(line_of(status))
        elif verb == "check":
            self._check(alias, names)
        elif not names:
            raise CommandError(
                f"Say which schedules to turn {verb}." if verb != "run" else "Say which."
            )
        for name in names if verb in ("on", "off", "run") else ():
            self._change(alias, verb, name)

    def _sync(self, alias: str, release: int, *, dry: bool) -> None:
        declared = scheduling.declared(alias)
        try:
            for one in declared.values():
                check_queue(one.queue_name)
                scheduling.check(one)
            done = schedule_changes.sync(
                alias, declared, release=release, keep=get_config().keeps("cancelled"), dry=dry
            )
        except TxTasksError as error:
            raise CommandError(str(error)) from None
        text = ", ".join(f"{count} {what}" for what, count in done.items()) or "nothing to do"
        self.show(f"Schedules in the code: {len(declared)}; {text}.")

    def _check(self, alias: str, names: list[str]) -> None:
        seen = status_of_schedules(alias, names or None)
        found = [line_of(one) for one in seen if not one.is_well]
        if not names:
            rows = Schedule.objects.using(alias).all()
            found += differences(rows, scheduling.declared(alias))
        if found:
            raise CommandError("\n".join(map(printable, found)), returncode=UNWELL)
        self.show(f"Schedules that are well: {len(seen)}.")

    def _change(self, alias: str, verb: str, name: str) -> None:
        if not Schedule.objects.using(alias).filter(pk=name).exists():
            raise CommandError(f"There is no schedule {name!r}: see txtasks_schedules list.")
        by, keep = user_of_process(), get_config().keeps("cancelled")
        try:
            if verb == "run":
                task = scheduling.run_now(alias, name, by=by)
                self.show(f"{name}: task {task} is enqueued")
                return
            change = schedule_changes.enable if verb == "on" else schedule_changes.disable
            is_new = change(alias, name, keep=keep, by=by)
        except TxTasksError as error:
            raise CommandError(f"{name}: {error}") from None
        self.show(f"{name}: {'is' if is_new else 'was'} {verb}{'' if is_new else ' already'}")


def line_of(status: ScheduleStatus) -> str:
    """Return a schedule as one line for people."""
    row = status.row
    when = row.cron or f"every {row.every:.12g} s" if row.cron or row.every else "never"
    parts = [f"{when} ({row.tz})" if row.cron else when, "on" if row.enabled else "off"]
    if ticks := next_ticks(row, 1):
        parts.append(f"next {ticks[0]:%Y-%m-%d %H:%M:%S} UTC")
    if status.state:
        parts.append(f"last {status.state}")
    if status.late:
        parts.append(f"late by {status.late:.0f} s: is a cleaner of this code running?")
    if status.unready:
        parts.append(f"not done by {row.ready_by}: {status.unready:%Y-%m-%d %H:%M} UTC")
    if status.unsettled:
        parts.append(str(status.unsettled))
    if row.edited:
        parts.append("changed by people")
    if status.problem:
        parts.append(status.problem)
    return f"{row.pk}: {', '.join(parts)}"
