"""Kills: of drains while a real Celery worker runs what they hand over, and of a web process after its COMMIT.

The long form:

    TXTASKS_TEST_CELERY_ROWS=10000 TXTASKS_TEST_CELERY_KILLS=20 python tests/services.py -- \\
        python tests/every_database.py tests/test_celery_kills.py -k drain -m "" -s
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter

import handing
import helpers
import pytest
from django.db import connection, transaction

pytest.importorskip("celery", reason="celery is not installed")
import celery_site
from probe import on_celery
from probe.models import Run

from django_txtasks.features.hand_over.drain import MOST_ROWS
from django_txtasks.models import Task

pytestmark = pytest.mark.once
ROWS = int(os.environ.get("TXTASKS_TEST_CELERY_ROWS", "300"))
KILLS = int(os.environ.get("TXTASKS_TEST_CELERY_KILLS", "3"))
LONGEST_LIFE_SECONDS = 1.0
"""A drain is struck at some moment of this time after its registration: idle, sending, or writing."""


@pytest.fixture
def site(rows, txtasks, tmp_path):
    txtasks(**celery_site.SETTINGS)
    with celery_site.here("rabbitmq", tmp_path) as found:
        yield found


def keys():
    return Counter(Run.objects.values_list("key", flat=True))


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="rows have no locks: see test_hand_over.py"
)
def test_killed_drains_lose_nothing(site, processes):
    site.start_worker()
    env = site.environment()
    with transaction.atomic():
        for number in range(ROWS):
            on_celery.run.delay(str(number))
    for number in range(KILLS):
        drain = processes.start("rundrain", env=env)
        helpers.wait_until(lambda pid=drain.pid: pid in helpers.worker_pids())
        time.sleep(random.Random(number).uniform(0, LONGEST_LIFE_SECONDS))
        drain.kill()
        drain.wait()
    left = Task.objects.count()
    assert processes.start("rundrain", "--batch", env=env).wait(helpers.PATIENCE) == 0
    sent = set(map(str, range(ROWS)))
    helpers.wait_until(lambda: keys().keys() >= sent)
    assert keys().keys() == sent and not Task.objects.exists()
    twice = sum(keys().values()) - ROWS
    print(f"{ROWS} tasks, {KILLS} kills, after which {left} were left: all ran, {twice} ran twice")
    assert twice <= KILLS * MOST_ROWS


WEB_PROCESS = """
import os, signal, sys
import django
django.setup()
import celery
from django.db import transaction
from probe.models import Run
from probe import on_celery

app = on_celery.app
if sys.argv[1] == "before":  # plain Celery, with the same tasks and the same broker
    app = celery.Celery("plain", changes=dict(on_celery.app.conf.changes), set_as_current=False)
def run(key): pass
task = app.task(name="probe.on_celery.run")(run)
with transaction.atomic():
    Run.objects.create(key="order")
    if sys.argv[1] == "before":
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        task.delay_on_commit("sent")
    else:
        task.delay("sent")
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
"""


def strike_after_commit(site, when):
    """Let a web process send a task in a transaction, and kill it right after the COMMIT."""
    command = [sys.executable, "-c", WEB_PROCESS, when]
    ended = subprocess.run(command, env=site.environment(), check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert keys() == {"order": 1}


def test_plain_celery_loses_the_task_of_a_web_process_that_dies_after_its_commit(site):
    celery_site.declare(site.queue)
    strike_after_commit(site, "before")
    assert celery_site.messages_in(site.queue) == 0
    assert not Task.objects.exists()  # the order is there, and nothing will ever run for it


def test_the_task_of_a_web_process_that_dies_after_its_commit_runs(site):
    strike_after_commit(site, "after")
    assert Task.objects.count() == 1
    assert handing.hand_over("celery").handed == 1
    site.start_worker()
    helpers.wait_until(lambda: keys() == {"order": 1, "sent": 1})
