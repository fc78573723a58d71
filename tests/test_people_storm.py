"""A storm of people in processes of their own, who take, answer and die, beside workers that are killed.

    TXTASKS_TEST_PEOPLE=40 TXTASKS_TEST_QUESTIONS=300 python tests/services.py -- \
        python tests/every_database.py -s -o faulthandler_timeout=0 tests/test_people_storm.py

runs the long one on each database, and prints its account; without it the storm is short.
"""

import os
import signal
import time
from collections import Counter
from contextlib import suppress

import helpers
import pytest
from django.contrib.auth.models import User
from django.db import connection
from probe import asking
from probe.models import Run

from django_txtasks import enqueue_many
from django_txtasks.contrib.people.models import Question
from django_txtasks.models import FinishedTask, Task

PEOPLE = int(os.environ.get("TXTASKS_TEST_PEOPLE", "6"))
QUESTIONS = int(os.environ.get("TXTASKS_TEST_QUESTIONS", "40"))
IS_LONG = "TXTASKS_TEST_PEOPLE" in os.environ
ACTS_A_SECOND = 60
"""Of all people together: more would leave nothing of two cores to the workers."""
KILLED_PEOPLE = PEOPLE // 3
KILLED_WORKERS = 2 if IS_LONG else 1
PATIENCE = max(helpers.PATIENCE, QUESTIONS)
DEADLOCKS = {
    "postgresql": "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    "mysql": "SELECT variable_value FROM information_schema.global_status"
    " WHERE variable_name = 'Innodb_deadlocks'",
}


@pytest.fixture
def crew(processes, txtasks):
    """Workers and a cleaner."""
    txtasks(
        heartbeat_interval=0.2, lease=3, poll_interval=0.1, clean_interval=1, keep_finished=None
    )
    for _ in range(2):
        processes.start("runworkers", "--threads=4")
    processes.start("runcleaner")
    helpers.wait_until(lambda: len(helpers.worker_pids()) == 2)
    yield processes
    processes.end()
    Question.objects.all().delete()
    User.objects.filter(username__startswith="person ").delete()


def start_people(processes, directory):
    for number in range(PEOPLE):
        User.objects.create(username=f"person {number}")
        dies = ["--dies-after", str(1 + number % 3)] if number < KILLED_PEOPLE else []
        pause = f"--pause={PEOPLE / ACTS_A_SECOND}"
        processes.start("person", f"person {number}", str(directory), pause, *dies)
    helpers.wait_until(lambda: len(list(directory.iterdir())) == PEOPLE, seconds=PATIENCE)


def kill_workers():
    for number in range(1, KILLED_WORKERS + 1):
        goal = number * QUESTIONS // (KILLED_WORKERS + 1)
        helpers.wait_until(lambda goal=goal: Run.objects.count() >= goal, seconds=PATIENCE)
        with suppress(ProcessLookupError):
            os.kill(helpers.worker_pids()[0], signal.SIGKILL)


def deadlocks():
    sql = DEADLOCKS.get(connection.vendor)
    found = helpers.execute(sql) if sql else []
    return int(found[0][0]) if found else 0


def told_by_people(directory):
    """Return who was told that the answer counts, by question, and the number of each refusal."""
    counted, refusals = {}, Counter()
    for path in directory.iterdir():
        if path.name.endswith(" died"):
            continue
        for line in path.read_text().splitlines():
            key, _, told = line.partition(" ")
            if told == "counts":
                assert key not in counted, f"{key}: both {counted[key]} and {path.name} were told"
                counted[key] = path.name
            else:
                refusals[told] += 1
    return counted, refusals


def check(directory, began, before, kind):
    effects = {}
    for key in Run.objects.values_list("key", flat=True):
        name, _, who = key.partition(": ")
        assert name not in effects, f"{name}: a second effect"
        effects[name] = who
    counted, refusals = told_by_people(directory)
    answered = {key: who for key, who in effects.items() if who != "nobody"}
    assert len(effects) == QUESTIONS
    assert answered == counted
    assert not Question.objects.filter(closed_at=None).exists()
    died = len(list(directory.glob("* died")))
    print(
        f"\n{connection.display_name}, {kind}: {PEOPLE} people, {QUESTIONS} questions: {len(effects)} effects, 0 "
        f"double, 0 lost; {len(answered)} answered, each by the person who was told that it counts; {died} people "
        f"and {KILLED_WORKERS} workers killed; refused: {dict(refusals)}; {deadlocks() - before} deadlocks; "
        f"{time.monotonic() - began:.1f} s"
    )
    return answered, died


def is_over():
    return not Task.objects.exists() and FinishedTask.objects.count() == QUESTIONS


@pytest.mark.parametrize("timeout", [None, 0.4], ids=["no limit", "limits of 0.4 to 1 s"])
def test_each_question_gets_the_one_answer_that_was_told_to_count(crew, tmp_path, timeout):
    start_people(crew, tmp_path)
    began, before = time.monotonic(), deadlocks()
    limits = [timeout and timeout + 0.6 * number / QUESTIONS for number in range(QUESTIONS)]
    enqueue_many((asking.ask_in_a_storm, (f"q{n}", limit)) for n, limit in enumerate(limits))
    kill_workers()
    helpers.wait_until(lambda: helpers.patiently(is_over), seconds=PATIENCE)
    crew.end()
    answered, died = check(tmp_path, began, before, f"timeout {timeout}")
    if timeout is None:
        assert len(answered) == QUESTIONS
        assert died == KILLED_PEOPLE
