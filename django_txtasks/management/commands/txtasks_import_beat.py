"""manage.py txtasks_import_beat"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.exceptions import LibraryMissing
from django_txtasks.management.console import DatabaseCommand, switch
from django_txtasks.operations.record import user_of_process
from django_txtasks.signals.tracebacks import printable

REFUSED = 1


class Command(DatabaseCommand):
    """Exit codes: 0 done; 1 some are refused, or have a name that may be misspelt; 2 the database cannot be
    queried.
    """

    help = (
        "Imports the periodic tasks of django-celery-beat as schedules, which are off until you turn them on "
        "(txtasks_schedules on NAME). Without --write it only shows what it would write."
    )
    of_database = "Database of the schedules"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        switch(parser, "--write", "Write them.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Show or write each periodic task."""
        try:
            from django_txtasks.contrib.celery import beat
        except ModuleNotFoundError as error:
            raise CommandError(f"{error}: install Celery and django-celery-beat.") from None
        refused, doubtful = [], []
        try:
            for found in beat.periodic_tasks(alias):
                if found.why_not:
                    refused.append(f"{found.name}: refused: {found.why_not}.")
                    continue
                text = f"{found.name}: {beat.line_of(found)}"
                if options["write"] and not found.is_over:
                    text += f": {beat.save(alias, found, by=user_of_process())}"
                self.show(text)
                if found.meant:
                    doubtful.append(
                        f"{found.name}: no code here has the task {found.task_name!r}; did you mean "
                        f"{found.meant!r}? Each "
                        "tick would send a task that no worker knows."
                    )
        except LibraryMissing as error:
            raise CommandError(str(error)) from None
        if refused or doubtful:
            lines = map(printable, [*refused, *doubtful])
            raise CommandError("\n".join(lines), returncode=REFUSED)
