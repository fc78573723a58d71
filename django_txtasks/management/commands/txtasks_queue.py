"""manage.py txtasks_queue"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.conf import get_config
from django_txtasks.core.ground.wording import time_text
from django_txtasks.core.rows import workers
from django_txtasks.management.console import DatabaseCommand
from django_txtasks.models import PausedQueue
from django_txtasks.operations import pausing
from django_txtasks.operations.record import user_of_process


class Command(DatabaseCommand):
    """Exit codes: 0 done, or it was so already; 1 wrong options; 2 the database cannot be queried."""

    help = "Pauses and resumes queues. No task of a paused queue starts; running tasks continue."
    of_database = "Database of the queues"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("verb", choices=["pause", "resume", "list"])
        parser.add_argument(
            "queues", nargs="*", metavar="QUEUE", help="Queues of TXTASKS['queues']."
        )
        parser.add_argument("--reason", default="", help="A note for others.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Carry out the verb."""
        queues = options["queues"]
        if options["verb"] != "list" and not queues:
            raise CommandError(f"Say which queues to {options['verb']}.")
        if options["verb"] == "list":
            self._list(alias)
        elif options["verb"] == "pause":
            self._pause(alias, queues, options["reason"])
        else:
            self._resume(alias, queues)

    def _list(self, alias: str) -> None:
        for row in PausedQueue.objects.using(alias).order_by("pk"):
            by, why = row.paused_by or "?", f" ({row.reason})" if row.reason else ""
            self.show(f"{row.pk}: paused since {time_text(row.paused_at)} by {by}{why}")

    def _pause(self, alias: str, queues: list[str], reason: str) -> None:
        if unknown := sorted(set(queues) - set(get_config().queues)):
            known = ", ".join(sorted(get_config().queues))
            raise CommandError(f"TXTASKS['queues'] has no {', '.join(unknown)}; it has: {known}.")
        for queue in queues:
            is_new = pausing.pause(alias, queue, by=user_of_process(), reason=reason)
            self.show(f"{queue}: {'paused' if is_new else 'was paused already'}")
        if old := workers.workers_that_ignore_pauses(alias):
            self.warn(
                f"Workers of an older release ignore the pause until they are replaced: {', '.join(old)}"
            )

    def _resume(self, alias: str, queues: list[str]) -> None:
        for queue in queues:
            was_paused = pausing.resume(alias, queue, by=user_of_process())
            self.show(f"{queue}: {'resumed' if was_paused else 'was not paused'}")
