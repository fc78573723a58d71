"""MariaDB and MySQL keep each character of a text, whatever the character set of the database."""

import json
from contextlib import contextmanager
from io import StringIO

import helpers
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from probe import asking, tasks

from django_txtasks import batch
from django_txtasks.contrib import people
from django_txtasks.contrib.people.models import Question
from django_txtasks.features.stacks.requests import request_stack
from django_txtasks.models import (
    Batch,
    FinishedTask,
    Lane,
    Once,
    PausedQueue,
    Schedule,
    StackRequest,
    Step,
    Worker,
)

TEXT = "Привет, Łódź \N{THUMBS UP SIGN} \N{SNOWMAN}"
pytestmark = [
    pytest.mark.skipif(connection.vendor != "mysql", reason="others have one encoding for all text")
]


@contextmanager
def in_database_of(character_set):
    """Make a database of this character set, and let the default alias mean it."""
    entry = connection.settings_dict
    former, name = entry["NAME"], f"{entry['NAME']}_{character_set}"
    helpers.execute(f"CREATE DATABASE {name} CHARACTER SET {character_set}")
    try:
        connection.close()
        entry["NAME"] = name
        yield
    finally:
        connection.close()
        entry["NAME"] = former
        helpers.execute(f"DROP DATABASE {name}")


@pytest.fixture(params=["latin1", "utf8mb3"])
def narrow(request, rows):
    """A migrated database whose character set lacks most letters."""
    with in_database_of(request.param):
        call_command("migrate", run_syncdb=True, verbosity=0, skip_checks=True)
        yield


def text_columns():
    return helpers.execute(
        "SELECT table_name, column_name, character_set_name FROM information_schema.columns WHERE table_schema ="
        " DATABASE() AND table_name LIKE 'txtasks%%' AND data_type IN ('varchar', 'longtext') ORDER BY 1, 2"
    )


def test_each_text_of_the_package_takes_each_character(narrow, quick, txtasks):
    tasks.released.clear()
    txtasks(release=TEXT, lanes={TEXT: {"at_most": 1}})
    assert {charset for _, _, charset in text_columns()} == {"utf8mb4"}
    merged = [tasks.tidy.using(run_after=60).enqueue("k", shelf=TEXT) for _ in range(2)]
    tasks.give.using(once=TEXT, run_after=60).enqueue(1)
    with batch(name=TEXT):
        given = tasks.give.using(lane=TEXT).enqueue(TEXT)
    failed, stepped = tasks.fail.enqueue(TEXT), tasks.two_steps.enqueue("k", repr(TEXT))
    asking.approve.enqueue(TEXT)
    with helpers.working():
        busy = tasks.tell_progress.enqueue("busy", (1, 2, TEXT))
        helpers.wait_until(lambda: helpers.runs("busy"))
        helpers.wait_until(lambda: TEXT in str(Worker.objects.get().progress))
        assert Worker.objects.get().release == TEXT
        question = helpers.wait_until(Question.objects.first)
        request_stack(busy.id, by=TEXT)
        helpers.wait_until(lambda: StackRequest.objects.get().text)
        helpers.wait_until(lambda: FinishedTask.objects.filter(pk=stepped.id))
        helpers.wait_until(lambda: TEXT in helpers.row(failed.id).errors[-1]["message"])
        tasks.released.set()
    assert StackRequest.objects.get().asked_by == TEXT
    assert {helpers.row(one.id).unique_text for one in merged} == {f"shelf {TEXT}"}
    assert Once.objects.get().text == TEXT
    assert Batch.objects.get().name == TEXT
    assert helpers.finished(given.id).result == TEXT
    assert json.loads(Step.objects.get(task_id=stepped.id, name="first").value) == TEXT
    ada = User.objects.create(username="ada", first_name="Ada")
    assert question.title == TEXT
    assert people.write_note(question, ada, TEXT) is None
    assert Question.objects.get().note == TEXT
    assert people.answer(question, ada, {"approved": True, "reason": TEXT}) is None
    for command, name in (("txtasks_queue", "default"), ("txtasks_lane", TEXT)):
        call_command(command, "pause", name, reason=TEXT, stdout=StringIO())
    assert {PausedQueue.objects.get().reason, Lane.objects.get().reason} == {TEXT}
    Schedule.objects.create(name=TEXT, task_name=TEXT, every=60, error=TEXT)
    assert Schedule.objects.get().error == TEXT
