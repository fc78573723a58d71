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

from django_txtasks.core.ground.wording import time_text
from django_txtasks.exceptions import NotRunning
from django_txtasks.features.lanes.buckets import LaneBucket
from django_txtasks.features.stacks.requests import request_stack, stack_of
from django_txtasks.insight.explain import Reason, explain
from django_txtasks.insight.last_log import log_of_last_failure
from django_txtasks.insight.late import all_buckets, late
from django_txtasks.insight.story import story
from django_txtasks.insight.twice import ran_twice
from django_txtasks.management.console import DatabaseCommand, switch
from django_txtasks.management.finding_tasks import id_of, tasks_of_object
from django_txtasks.management.nothing_due import nothing_due
from django_txtasks.models import label_of
from django_txtasks.operations.record import user_of_process

POLL_SECONDS = 0.2
"""Seconds between two looks for the answer of a worker."""
MOST_TASKS = 10
"""Number of tasks of a business object that are explained."""


class Command(DatabaseCommand):
    """Exit codes: 0 the reasons were printed; 1 wrong options; 2 the database cannot be queried."""

    help = (
        "Explains why a task is not running, and how to let it run; of an ended task, what has happened to it. It "
        "changes no task."
    )
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
        parser.add_argument(
            "--of", nargs=2, metavar=("MODEL", "KEY"),
            help="The newest tasks that are linked to a business object, such as --of shop.order 31.",
        )  # fmt: skip
        switch(
            parser,
            "--ran-twice",
            "List the tasks of which an attempt finished although another one was to replace it.",
        )
        switch(parser, "--json", "Print one JSON object per line.")

    def run(self, alias: str, options: dict[str, Any]) -> None:
        """Print each reason."""
        given = [name for name in ("id", "of", "ran_twice") if options[name]]
        if len(given) > 1:
            raise CommandError("Give one of: an id, --of, --ran-twice.")
        if options["stack"] and options["id"] is None:
            raise CommandError("--stack needs the id of a running task, and nothing was asked.")
        if options["of"] is not None:
            self._explain_of(alias, *options["of"], as_json=options["json"])
        elif options["ran_twice"]:
            self._list_twice(alias, as_json=options["json"])
        elif options["id"] is not None:
            self._explain_one(alias, id_of(options["id"], alias), options)
        else:
            self._explain_oldest(alias, as_json=options["json"])

    def _explain_one(self, alias: str, task_id: uuid.UUID, options: dict[str, Any]) -> None:
        for reason in [*explain(alias, task_id), *story(alias, task_id)]:
            self._print(reason, {} if options["json"] else None)
        if lines := log_of_last_failure(alias, task_id):
            self._show_text(
                "log", "Last lines of the log of its last failure, in UTC", lines, options
            )
        if options["stack"]:
            self._show_stack(alias, task_id, options)

    def _explain_of(self, alias: str, model: str, key: str, *, as_json: bool) -> None:
        """Print the newest tasks of a business object, each with the reasons why it does not run, or its end."""
        found = tasks_of_object(alias, model, key, MOST_TASKS + 1)
        for task_id, name in found[:MOST_TASKS]:
            place = {"id": str(task_id), "task": name}
            if not as_json:
                self.show(f"{task_id} ({name or 'its row is gone'})")
            for reason in explain(alias, task_id):
                self._print(reason, place if as_json else None)
        if len(found) > MOST_TASKS and not as_json:
            self.show(
                f"These are the newest {MOST_TASKS}. The object's page in the admin may show more."
            )

    def _list_twice(self, alias: str, *, as_json: bool) -> None:
        found = ran_twice(alias)
        for row, reason in found.reasons():
            state = getattr(row, "status", None) or row.outcome
            place = {"id": str(row.pk), "task": row.task_name, "state": state}
            if not as_json:
                self.show(f"{row.pk} ({row.task_name}), {label_of(state)}")
            self._print(reason, place if as_json else None)
        if as_json:
            return
        before = (
            "."
            if found.since is None
            else f"; those that finished before {time_text(found.since)} were not read."
        )
        self.show(
            f"Tasks with a late finish: {len(found.rows)}{before} A task that has finished and is not kept "
            "(TXTASKS['keep_finished']) has no row; then only the log of its worker tells it."
        )

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
