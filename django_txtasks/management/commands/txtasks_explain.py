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
    """Exit codes: 0 it says why; 1 wrong options; 2 the database cannot be asked."""

    help = "Says why a task is not running, and what would let it run. It changes nothing."
    of_database = "Whose task"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id", help="The id of the task, as the log and the admin show it.")
        parser.add_argument("--json", action="store_true", help="One JSON object per line.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Print each reason."""
        try:
            task_id = uuid.UUID(options["id"])
        except ValueError:
            raise CommandError(f"{options['id']!r} is no id of a task, which is a UUID.") from None
        for reason in explain(alias, task_id):
            if options["json"]:
                self.show(json.dumps(asdict(reason)))
            else:
                self.show(f"{reason.gate}: {reason.text}")
                if reason.lift:
                    self.show(f"    {reason.lift}")
