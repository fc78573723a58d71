"""A short storm with sync and async tasks: processes of both kinds are killed, frozen and stopped meanwhile."""

import os
import random
import signal
import time
from collections import Counter

import helpers
import pytest
from django.db import connection
from probe import on_loop, tasks
from probe.models import Run, wait_for_the_writer

from django_txtasks import enqueue_many
from django_txtasks.core.rows.turn import LOOP_MARK
from django_txtasks.models import FinishedTask, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows", "quick")

BATCHES, OF_EACH_KIND = 12, 25
MAY_FREEZE = connection.vendor != "sqlite"
"""A process that is frozen in a transaction of SQLite would keep all others from writing."""


def pid_of_a(loop):
    living = [one for one in Worker.objects.filter(lost=False) if one.seen_at]
    pids = [one.pid for one in living if (LOOP_MARK in one.task_names) is loop]
    return pids[-1] if pids else None


def test_a_storm_with_both_kinds_loses_nothing_and_runs_nothing_twice(processes, txtasks):
    txtasks(lease=4, clean_interval=0.2, heartbeat_interval=0.3, grace=1)
    wait_for_the_writer(connection)  # SQLite has one, and many processes want to be that
    dice = random.Random(1)
    processes.start("runcleaner")

    def start():
        return processes.start("runworkers", "--threads=3", "--async-tasks=100", "--processes=2")

    supervisor, begun = start(), []
    helpers.wait_until(lambda: Worker.objects.filter(lost=False).count() == 3)
    for number in range(BATCHES):
        keys = [f"{number}-{one}" for one in range(OF_EACH_KIND)]
        begun += keys
        enqueue_many((on_loop.nap_and_note, [f"again {key}", dice.uniform(0, 0.3)]) for key in keys)
        # No retry: the database may lose the answer to a note that it has committed.
        once = on_loop.note_and_nap_once.using(max_attempts=1)
        enqueue_many((once, [f"once {key}", dice.uniform(0, 0.2)]) for key in keys)
        enqueue_many((tasks.note, [f"sync {key}"]) for key in keys)
        time.sleep(0.3)
        if number % 3 < 2 and (pid := pid_of_a(loop=number % 3 == 0)):
            os.kill(pid, signal.SIGKILL)
        elif number == 5:
            supervisor.send_signal(signal.SIGTERM)  # a deploy
            supervisor.wait(60)
            supervisor = start()
        elif number == 8 and MAY_FREEZE and (pid := pid_of_a(loop=True)):
            os.kill(pid, signal.SIGSTOP)  # longer than its lease
            helpers.wait_until(lambda: Worker.objects.filter(pid=pid, lost=True))
            os.kill(pid, signal.SIGCONT)
    helpers.wait_until(
        lambda: not Task.objects.exclude(status=Status.DEAD), what="every task to end"
    )
    runs = Counter(Run.objects.values_list("key", flat=True))
    dead = {one.args[0] for one in Task.objects.all()}
    assert FinishedTask.objects.count() + len(dead) == 3 * len(begun)
    for key in begun:
        assert runs[f"again {key}"] >= 1 or f"again {key}" in dead, "lost"
        for kind in ("once", "sync"):
            assert runs[f"{kind} {key}"] <= 1, "ran twice"
            assert runs[f"{kind} {key}"] == 1 or f"{kind} {key}" in dead, "lost"
    again = Task.objects.filter(task_name="probe.on_loop.nap_and_note")
    assert all(one.crashes == one.max_crashes for one in again)
