"""A person in a process of its own, who takes questions and answers them, or dies between the two."""

import os
import random
import signal
import time
from pathlib import Path

import helpers
from django.contrib.auth.models import User
from django.core.management import BaseCommand
from django.db import connection

from django_txtasks.contrib import people
from django_txtasks.contrib.people.models import Question
from probe.models import wait_for_the_writer

YES = {"approved": True, "reason": ""}


class Command(BaseCommand):
    """Work until the process is ended. Each answer that was told to count is a line of a file."""

    def add_arguments(self, parser):
        parser.add_argument("name")
        parser.add_argument("directory", type=Path)
        parser.add_argument("--pause", type=float, default=0.1, help="seconds from act to act")
        parser.add_argument("--dies-after", type=int, default=0, help="questions; 0 = never")

    def handle(self, *, name, directory, pause, dies_after, **_):
        connection.ensure_connection()
        wait_for_the_writer(connection)
        user, taken = User.objects.get(username=name), 0
        with (directory / name).open("a", buffering=1) as told:
            while True:
                time.sleep(
                    random.uniform(0, 2 * pause)
                )  # a person thinks; this machine has few cores
                question = self.next_question(user)
                if question is None:
                    continue
                taken += 1
                if taken == dies_after:
                    (directory / f"{name} died").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                refusal = helpers.patiently(lambda q=question: people.answer(q, user, YES))
                told.write(f"{question.title} {refusal.reason.value if refusal else 'counts'}\n")

    def next_question(self, user):
        """Take the next one; or, as a colleague would who works from an old page, choose any without taking it."""
        if random.random() < 0.7:
            return helpers.patiently(lambda: people.take_next(user))
        found = list(Question.objects.filter(kind="probe.storm").order_by("closed_at", "id")[:50])
        return random.choice(found) if found else None
