"""manage.py txtasks_explain"""

from __future__ import annotations

import json
import uuid
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.inspection.explain import explain
from django_txtasks.management.console import DatabaseCommand


class Command(DatabaseCommand):
    """Exit codes: 0 the reasons were printed; 1 wrong options; 2 the database cannot be queried."""

    help = "Explains why a task is not running, and how to let it run. It changes nothing."
    of_database = "Database of the task"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id", help="Id of the task, as the log and the admin show it.")
        parser.add_argument("--json", action="store_true", help="Print one JSON object per line.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Print each reason."""
        try:
            task_id = uuid.UUID(options["id"])
        except ValueError:
            raise CommandError(
                f"{options['id']!r} is not the id of a task, which is a UUID."
            ) from None
        for reason in explain(alias, task_id):
            if options["json"]:
                self.show(json.dumps(asdict(reason)))
            else:
                self.show(f"{reason.gate}: {reason.text}")
                if reason.lift:
                    self.show(f"    {reason.lift}")
