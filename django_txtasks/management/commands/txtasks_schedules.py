"""manage.py txtasks_schedules"""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.conf import get_config
from django_txtasks.core.enqueueing.calls import check_queue
from django_txtasks.core.ground.wording import span
from django_txtasks.exceptions import TxTasksError
from django_txtasks.features.schedules import changes as schedule_changes
from django_txtasks.features.schedules import periodic as scheduling
from django_txtasks.features.schedules.off import is_new_import, said_when_off
from django_txtasks.features.schedules.status import (
    ScheduleStatus,
    differences,
    next_ticks,
    status_of_schedules,
    with_authors,
)
from django_txtasks.insight.finding import manage
from django_txtasks.management.console import DatabaseCommand, near, switch
from django_txtasks.models import Schedule
from django_txtasks.operations.record import MAX_CHARACTERS, note_act, user_of_process
from django_txtasks.signals.tracebacks import printable

UNWELL = 1


class Command(DatabaseCommand):
    """Exit codes: 0 done, and no problem; 1 a problem, or wrong options; 2 the database cannot be queried."""

    help = (
        "Schedules: sync copies the declarations of @periodic into the database, as a step of each deploy; list "
        "shows all; check ends with 1 if one is late, broken, or not done by its hour, or if sync would change "
        "something; reset gives a schedule that people have changed back to the code."
    )
    of_database = "Database of the schedules"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("verb", choices=["sync", "list", "check", "on", "off", "run", "reset"])
        parser.add_argument("names", nargs="*", metavar="NAME", help="Names of schedules.")
        parser.add_argument(
            "--release", type=int, default=0, metavar="N",
            help="sync: number of this code's release; schedules of a higher release are kept, with exit code 1.",
        )  # fmt: skip
        switch(parser, "--dry-run", "sync: print the changes, and make none.")
        parser.add_argument(
            "--reason", default="", metavar="TEXT",
            help=f"off: a note for people who find the schedule off, at most {MAX_CHARACTERS} characters.",
        )  # fmt: skip

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Carry out the verb."""
        verb, names = options["verb"], options["names"]
        if options["reason"] and verb != "off":
            raise CommandError(f"--reason is for off, not for {verb}.")
        if len(options["reason"]) > MAX_CHARACTERS:
            raise CommandError(f"The reason has more than {MAX_CHARACTERS} characters.")
        self._refuse_unknown(alias, names)
        if verb == "sync":
            self._sync(alias, options["release"], dry=options["dry_run"])
        elif verb == "list":
            for status in with_authors(status_of_schedules(alias, names or None)):
                self.show(line_of(status))
        elif verb == "check":
            self._check(alias, names)
        elif not names:
            raise CommandError(
                f"Say which schedules to turn {verb}." if verb in ("on", "off") else "Say which."
            )
        for name in names if verb in ("on", "off", "run", "reset") else ():
            self._change(alias, verb, name, options["reason"])

    def _refuse_unknown(self, alias: str, names: list[str]) -> None:
        """Refuse names that no schedule has, before anything is changed or found to be well."""
        known = set(Schedule.objects.using(alias).values_list("pk", flat=True)) if names else set()
        for name in names:
            if name not in known:
                raise CommandError(
                    f"There is no schedule {name!r}{near(name, known)}: see txtasks_schedules list."
                )

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
        off = [one for one in seen if not one.row.enabled]
        self.show(f"Schedules that are well: {len(seen) - len(off)}, off: {len(off)}.")
        for one in with_authors(off):
            self.show(f"{'Warning: ' if one.is_off_for_long else ''}{line_of(one)}")

    def _change(self, alias: str, verb: str, name: str, reason: str) -> None:
        by, keep = user_of_process(), get_config().keeps("cancelled")
        try:
            done = self._carry_out(alias, verb, name, reason, by=by, keep=keep)
        except TxTasksError as error:
            raise CommandError(f"{name}: {error}") from None
        if not done:
            self.show(f"{name}: was {verb} already.")
        elif not note_act(Schedule(pk=name), done, by) and verb == "off":
            self.warn(
                f"{name}: the admin's log could not be written, so no page says who turned it off, and why."
            )

    def _carry_out(
        self, alias: str, verb: str, name: str, reason: str, *, by: str, keep: bool
    ) -> str:
        """Change a schedule; return what the admin's log says of it, empty if nothing was changed."""
        if verb == "run":
            task = scheduling.run_now(alias, name, by=by)
            self.show(f"{name}: task {task} is enqueued.")
            return "runs now"
        if verb == "reset":
            return self._reset(alias, name, by=by, keep=keep)
        if verb == "on":
            is_new, said = schedule_changes.enable(alias, name, keep=keep, by=by), "turned on"
        else:
            is_new = schedule_changes.disable(alias, name, keep=keep, by=by, reason=reason)
            said = said_when_off(reason)
        if is_new:
            self.show(f"{name}: is {verb}.")
        return said if is_new else ""

    def _reset(self, alias: str, name: str, *, by: str, keep: bool) -> str:
        one = scheduling.declared(alias).get(name)
        if one is None:
            raise CommandError(
                f"{name}: this code declares no such schedule, so it cannot follow the code."
            )
        schedule_changes.follow_code(alias, name, one, keep=keep, by=by)
        is_on = Schedule.objects.using(alias).filter(pk=name, enabled=True).exists()
        off = (
            ""
            if is_on
            else f" It stays off, until {manage(f'txtasks_schedules on {shlex.quote(name)}', alias)}"
        )
        self.show(f"{name}: is as in the code.{off}")
        return "as in the code"


def line_of(status: ScheduleStatus) -> str:
    """Return a schedule as one line for people."""
    row = status.row
    when = row.cron or f"every {row.every:.12g} s" if row.cron or row.every else "never"
    parts = [f"{when} ({row.tz})" if row.cron else when, "on" if row.enabled else _off(status)]
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
    if row.edited and row.from_code:
        parts.append("changed by people")
    if status.problem:
        parts.append(status.problem)
    return f"{row.pk}: {', '.join(parts)}"


def _off(status: ScheduleStatus) -> str:
    if is_new_import(status.row):
        return "off (imported, and not turned on yet)"
    if status.off is None:
        return "off"
    return f"off for {span(status.off)} ({status.author or 'nothing tells by whom'})"
