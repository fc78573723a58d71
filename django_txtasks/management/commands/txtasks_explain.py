"""manage.py txtasks_explain"""

from __future__ import annotations

import json
import uuid
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, InterfaceError, connections

from django_txtasks.inspection.explain import explain
from django_txtasks.lifecycle.database_errors import text_of
from django_txtasks.management.console import CHECKS, refuse_without_tables

UNREACHABLE = 2


class Command(BaseCommand):
    """Exit codes: 0 it says why; 1 wrong options; 2 the database cannot be asked."""

    requires_system_checks = CHECKS
    help = "Says why a task is not running, and what would let it run. It changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("id", help="The id of the task, as the log and the admin show it.")
        parser.add_argument("--json", action="store_true", help="One JSON object per line.")
        parser.add_argument(
            "--database", default="default", metavar="ALIAS", help="Whose task (default)."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"]
        if alias not in connections:
            raise CommandError(f"Database {alias!r} is not in DATABASES.")
        try:
            task_id = uuid.UUID(options["id"])
        except ValueError:
            raise CommandError(f"{options['id']!r} is no id of a task, which is a UUID.") from None
        try:
            refuse_without_tables(alias)
            reasons = explain(alias, task_id)
        except (DatabaseError, InterfaceError) as error:
            text = f"Database {alias!r} cannot be asked: {text_of(error)}"
            raise CommandError(text, returncode=UNREACHABLE) from None
        for reason in reasons:
            if options["json"]:
                self.stdout.write(json.dumps(asdict(reason)))
            else:
                self.stdout.write(f"{reason.gate}: {reason.text}")
                if reason.lift:
                    self.stdout.write(f"    {reason.lift}")
