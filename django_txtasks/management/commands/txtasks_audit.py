"""manage.py txtasks_audit"""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError

from django_txtasks.conf import get_config
from django_txtasks.insight.audit import audit
from django_txtasks.insight.finding import Finding
from django_txtasks.management.console import (
    PrintingCommand,
    in_one_line,
    one_database,
    refuse_odd_seconds,
    refuse_without_tables,
    switch,
)


class Command(PrintingCommand):
    """Exit codes: 0 no problem; 1 a problem was found, or the command could not start; 2 wrong options."""

    help = "Looks for rows that should not be in the tables. It only reads, and may run in production at any time."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--long-running-after",
            type=float,
            metavar="S",
            help="Report a task without a time limit that a living worker has run for longer (the setting "
            "long_running_after).",
        )
        switch(parser, "--json", "Print the findings as JSON.")
        one_database(parser, "Database to audit")

    def handle(self, *args: Any, **options: Any) -> None:
        seconds = options["long_running_after"]
        refuse_odd_seconds("--long-running-after", seconds, may_be_zero=False)
        long = None if seconds is None else timedelta(seconds=seconds)
        refuse_without_tables(options["database"])
        try:
            found = audit(options["database"], get_config(), long)
        except (DatabaseError, InterfaceError) as error:
            raise CommandError(f"The database cannot be queried: {in_one_line(error)}") from error
        problems = [finding for finding in found if finding.is_problem]
        if options["json"]:
            ok = {"ok": not problems, "findings": [dataclasses.asdict(one) for one in found]}
            self.show(json.dumps(ok))
        else:
            for finding in found:
                self.show(*_shown(finding))
            if not found:
                self.show("Nothing was found.")
        if problems:
            sys.exit(1)


def _shown(finding: Finding) -> tuple[str, ...]:
    mark = "PROBLEM" if finding.is_problem else "NOTE   "
    return (
        f"{mark} {finding.line}",
        f"        means: {finding.meaning}",
        f"        do:    {finding.action}",
    )
