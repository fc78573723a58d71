"""manage.py txtasks_preflight"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError, connections

from django_txtasks.core.ground.wording import counted
from django_txtasks.features.reports.whose import Whose
from django_txtasks.insight.preflight import NOT_ALL, Finding, Report, preflight
from django_txtasks.insight.preflight.cases import Kind
from django_txtasks.management.console import (
    PrintingCommand,
    in_one_line,
    one_database,
    refuse_odd_seconds,
    switch,
)

_ELSEWHERE = {
    Whose.HANDED: "Tasks of queues that are handed over, which were not compared: {:,}.",
    Whose.FOREIGN: "Tasks that living workers in other languages run, which were not compared: {:,}.",
}


class Command(PrintingCommand):
    """Exit codes: the sum of 1 unknown names, 2 arguments that do not fit, 4 not all was read or wrong options."""

    requires_system_checks = ()

    help = (
        "Checks before a deploy that this code can run the waiting tasks: it declares their functions, and these "
        "take their arguments. The command only reads, and may run in production at any time."
    )

    def run_from_argv(self, argv: list[str]) -> None:
        """End with 4 if an option is wrong: the usual exit code for this, 2, has another meaning here."""
        self._called_from_command_line = True
        try:
            self.create_parser(argv[0], argv[1]).parse_args(argv[2:])
        except SystemExit as end:
            sys.exit(NOT_ALL if end.code else 0)
        super().run_from_argv(argv)

    def add_arguments(self, parser: ArgumentParser) -> None:
        one_database(parser, "Database to check")
        parser.add_argument(
            "--seconds",
            type=float,
            default=60.0,
            metavar="S",
            help="Longest time to read the waiting tasks (60).",
        )
        switch(parser, "--json", "Print the result as JSON.")

    def handle(self, *args: Any, **options: Any) -> None:
        alias, seconds = options["database"], options["seconds"]
        if alias not in connections:
            raise CommandError(f"Database {alias!r} is not in DATABASES.", returncode=NOT_ALL)
        refuse_odd_seconds("--seconds", seconds, returncode=NOT_ALL)
        if seconds == 0:
            raise CommandError(
                f"--seconds is {seconds:g}; it must be more than 0.", returncode=NOT_ALL
            )
        try:
            report = preflight(alias, seconds)
        except (DatabaseError, InterfaceError) as error:
            text = f"Database {alias!r} cannot be queried: {in_one_line(error)}"
            raise CommandError(text, returncode=NOT_ALL) from None
        if options["json"]:
            self.show(json.dumps(_as_json(alias, report)))
        else:
            self._show(report)
        if report.exit_code:
            sys.exit(report.exit_code)

    def _show(self, report: Report) -> None:
        found = report.sorted()
        for one in found:
            self.show(*_lines(one))
        if report.left_out:
            self.show(f"Rows with further findings: {report.left_out:,}.")
        if report.trouble:
            self.show(report.trouble)
        self.show(*(_ELSEWHERE[one].format(count) for one, count in report.elsewhere.items()))
        tasks, schedules = counted(report.tasks, "live task"), counted(report.schedules, "schedule")
        problems = [one for one in found if one.case.kind is not Kind.NOTE]
        what = "do not all fit" if problems or report.exit_code else "fit"
        self.show(f"Checked {tasks} and {schedules}: they {what} this code.")


def _lines(one: Finding) -> tuple[str, str]:
    case = one.case
    counts = ", ".join(f"{count:,} {state}" for state, count in sorted(one.counts.items()))
    return (
        f"{case.kind.name:<9} {case.task_name} ({case.where}): {case.text}. Rows: {counts}; one is {one.sample}.",
        f"          do: {case.action}",
    )


def _as_json(alias: str, report: Report) -> dict[str, Any]:
    return {
        "database": alias,
        "exit_code": report.exit_code,
        "tasks": report.tasks,
        "schedules": report.schedules,
        "left_out": report.left_out,
        "trouble": report.trouble,
        "findings": [
            {
                "kind": one.case.kind.name.lower(),
                "task": one.case.task_name,
                "where": one.case.where,
                "text": one.case.text,
                "action": one.case.action,
                "rows": dict(one.counts),
                "sample": one.sample,
            }
            for one in report.sorted()
        ],
    }
