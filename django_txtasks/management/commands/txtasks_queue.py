"""manage.py txtasks_queue"""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, connections

from django_txtasks.conf import get_config
from django_txtasks.lifecycle import pausing
from django_txtasks.lifecycle.database_errors import text_of
from django_txtasks.management.console import CHECKS, refuse_without_tables
from django_txtasks.models import PausedQueue

UNREACHABLE = 2


class Command(BaseCommand):
    """Exit codes: 0 done; 1 wrong options; 2 the database cannot be asked. To pause what is paused is no error."""

    requires_system_checks = CHECKS
    help = "Pauses queues and resumes them: of a paused one no task starts, and what runs goes on."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", choices=["pause", "resume", "list"])
        parser.add_argument(
            "queues", nargs="*", metavar="QUEUE", help="Queues of TXTASKS['queues']."
        )
        parser.add_argument("--reason", default="", help="For whoever finds it paused.")
        parser.add_argument(
            "--database", default="default", metavar="ALIAS", help="Whose queues (default)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        alias, queues = options["database"], options["queues"]
        if alias not in connections:
            raise CommandError(f"Database {alias!r} is not in DATABASES.")
        if options["verb"] != "list" and not queues:
            raise CommandError(f"Say which queues to {options['verb']}.")
        try:
            refuse_without_tables(alias)
            if options["verb"] == "list":
                self._list(alias)
            elif options["verb"] == "pause":
                self._pause(alias, queues, options["reason"])
            else:
                self._resume(alias, queues)
        except (DatabaseError, InterfaceError) as error:
            text = f"Database {alias!r} cannot be asked, or not written: {text_of(error)}"
            raise CommandError(text, returncode=UNREACHABLE) from None

    def _list(self, alias: str) -> None:
        for row in PausedQueue.objects.using(alias).order_by("pk"):
            by, why = row.paused_by or "?", f" ({row.reason})" if row.reason else ""
            self.stdout.write(
                f"{row.pk}: paused since {row.paused_at:%Y-%m-%d %H:%M:%S} by {by}{why}"
            )

    def _pause(self, alias: str, queues: list[str], reason: str) -> None:
        if unknown := sorted(set(queues) - set(get_config().queues)):
            known = ", ".join(sorted(get_config().queues))
            raise CommandError(f"TXTASKS['queues'] has no {', '.join(unknown)}; it has: {known}.")
        for queue in queues:
            is_new = pausing.pause(alias, queue, by=_user(), reason=reason)
            self.stdout.write(f"{queue}: {'paused' if is_new else 'was paused already'}")
        if old := pausing.workers_that_ignore_it(alias):
            self.stderr.write(
                f"Workers of an older release go on with it until they are replaced: {', '.join(old)}"
            )

    def _resume(self, alias: str, queues: list[str]) -> None:
        for queue in queues:
            was_paused = pausing.resume(alias, queue, by=_user())
            self.stdout.write(f"{queue}: {'resumed' if was_paused else 'was not paused'}")


def _user() -> str:
    """Return who runs this process, if the system knows a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""
