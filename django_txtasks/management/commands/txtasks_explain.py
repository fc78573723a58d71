"""manage.py txtasks_explain"""

from __future__ import annotations

import json
import time
import uuid
from argparse import ArgumentParser
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError

from django_txtasks.exceptions import NotRunning
from django_txtasks.features.lanes.buckets import LaneBucket
from django_txtasks.features.stacks.requests import request_stack, stack_of
from django_txtasks.insight.explain import Reason, explain
from django_txtasks.insight.last_log import log_of_last_failure
from django_txtasks.insight.late import all_buckets, late
from django_txtasks.management.console import DatabaseCommand, switch
from django_txtasks.management.nothing_due import nothing_due
from django_txtasks.operations.record import user_of_process

POLL_SECONDS = 0.2
"""Seconds between two looks for the answer of a worker."""


class Command(DatabaseCommand):
    """Exit codes: 0 the reasons were printed; 1 wrong options; 2 the database cannot be queried."""

    help = "Explains why a task is not running, and how to let it run. It changes no task."
    of_database = "Database of the task"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "id", nargs="?",
            help="Id of the task, as the log and the admin show it (the oldest due task of each queue).",
        )  # fmt: skip
        switch(
            parser,
            "--stack",
            "Ask the worker of a running task where the task is now, and wait up to 5 s for the answer.",
        )
        switch(parser, "--json", "Print one JSON object per line.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Print each reason."""
        if options["id"] is None and options["stack"]:
            raise CommandError("--stack needs the id of a running task, and nothing was asked.")
        if options["id"] is None:
            self._explain_oldest(alias, as_json=options["json"])
            return
        try:
            task_id = uuid.UUID(options["id"])
        except ValueError:
            raise CommandError(
                f"{options['id']!r} is not the id of a task, which is a UUID."
            ) from None
        for reason in explain(alias, task_id):
            self._print(reason, {} if options["json"] else None)
        if lines := log_of_last_failure(alias, task_id):
            self._show_text(
                "log", "Last lines of the log of its last failure, in UTC", lines, options
            )
        if options["stack"]:
            self._show_stack(alias, task_id, options)

    def _explain_oldest(self, alias: str, *, as_json: bool) -> None:
        buckets = all_buckets(alias)
        found = late(alias, buckets, timedelta(0), everything=True)
        if not found:
            self._explain_rest(alias, buckets, as_json=as_json)
        for one in found:
            place = {
                "queue": one.queue,
                "id": one.task_id,
                "task": one.task,
                "due_for": one.seconds,
            }
            if not as_json:
                self.show(f"{one.queue}: {one.task_id} ({one.task}), due for {one.seconds:.1f} s")
            for reason in one.reasons:
                self._print(reason, place if as_json else None)

    def _explain_rest(self, alias: str, buckets: list[LaneBucket], *, as_json: bool) -> None:
        """Print where the tasks are while none is due."""
        if not as_json:
            self.show("No task is due.")
        for reason in nothing_due(alias, buckets):
            self._print(reason, {} if as_json else None)

    def _print(self, reason: Reason, place: dict[str, Any] | None) -> None:
        """Print a reason as text; with a place, as JSON with its values."""
        if place is not None:
            self.show(json.dumps({**place, **asdict(reason)}))
            return
        self.show(f"{reason.gate}: {reason.text}")
        if reason.lift:
            self.show(f"    {reason.lift}")

    def _show_stack(self, alias: str, task_id: uuid.UUID, options: dict[str, Any]) -> None:
        """Ask for the stack of the task, wait for the answer, and print it, or the reason why it is missing."""
        try:
            request_stack(task_id, using=alias, by=user_of_process())
            answer = stack_of(task_id, using=alias)
            while answer is not None and answer.is_awaited:
                time.sleep(POLL_SECONDS)
                answer = stack_of(task_id, using=alias)
        except NotRunning as error:
            self._show_text("stack", str(error), [], options)
            return
        if answer is None:
            self._show_text("stack", "The request was removed meanwhile. Ask again.", [], options)
            return
        title = answer.trouble or f"Stack of attempt {answer.attempt}"
        self._show_text("stack", title, answer.text.splitlines(), options)

    def _show_text(self, gate: str, title: str, lines: list[str], options: dict[str, Any]) -> None:
        """Print a text of several lines; with ``--json`` one object in the form of a reason."""
        if options["json"]:
            self.show(json.dumps({"gate": gate, "text": "\n".join([title, *lines]), "lift": ""}))
        else:
            self.show(f"{gate}: {title}", *(f"    {line}" for line in lines))
