r"""A storm of batches: workers in processes of their own, killed one by one, while members add members.

    TXTASKS_TEST_BATCH_MEMBERS=10000 python tests/restarting.py 5 30 \
        pytest -s -o faulthandler_timeout=0 tests/test_batch_storm.py

runs the long one on PostgreSQL, restarts that, and prints its account; without it the storm is short.
"""

import os
import random
import signal
import threading
import time
from contextlib import suppress

import helpers
import pytest
from django.db import InterfaceError, OperationalError, connection
from probe import tasks
from probe.models import Run

from django_txtasks import batch, enqueue_many
from django_txtasks.models import Batch, FinishedTask, Outcome, Status, Task

pytestmark = pytest.mark.usefixtures("rows")

MEMBERS = int(os.environ.get("TXTASKS_TEST_BATCH_MEMBERS", "120"))
BATCHES = 4
KILL_EVERY = 1.2 if MEMBERS < 1000 else 2.0
KILLS = 15 if MEMBERS < 1000 else 50
"""No more: where workers die young, the supervisor starts the next one half a minute later, to be killed, too."""
PATIENCE = max(helpers.PATIENCE, MEMBERS / 10)
ISOLATION = helpers.isolation_levels(of_long_form="TXTASKS_TEST_BATCH_MEMBERS" in os.environ)


@pytest.fixture(params=ISOLATION)
def crew(processes, txtasks, request):
    """Three workers and a cleaner, at each level of isolation."""
    env = {"TXTASKS_TEST_ISOLATION": request.param}
    txtasks(
        heartbeat_interval=0.2, lease=3, poll_interval=0.1, clean_interval=1, keep_finished=None
    )
    for _ in range(3):
        processes.start("runworkers", "--threads=3", env=env)
    processes.start("runcleaner", env=env)
    helpers.wait_until(lambda: len(helpers.worker_pids()) == 3)


def kill_until(over):
    kills = 0
    while kills < KILLS and not over.wait(KILL_EVERY):
        with suppress(ProcessLookupError):
            os.kill(random.choice(unless_away(helpers.worker_pids) or [2**22]), signal.SIGKILL)
            kills += 1
    return kills


def unless_away(look):
    """Return the function's result; None while the database restarts."""
    try:
        return look()
    except (OperationalError, InterfaceError):
        connection.close()
        return None


def is_over():
    return not Task.objects.exclude(status=Status.DEAD).exists()


def told():
    return FinishedTask.objects.filter(
        task_name="probe.tasks.tell_of_batch", outcome=Outcome.SUCCEEDED
    )


def test_each_batch_is_told_of_once_after_its_last_member(crew):
    over, kills, began = threading.Event(), [], time.monotonic()
    for number in range(BATCHES):
        with batch(name=f"{number}", on_finish=tasks.tell_of_batch):
            enqueue_many([(tasks.step_of_batch, [f"{number} {n}"]) for n in range(MEMBERS)])
            enqueue_many([(tasks.grow, [3])] * 3)
            tasks.fragile.enqueue()
    with helpers.second_session(lambda: kills.append(kill_until(over))):
        try:
            helpers.wait_until(
                lambda: unless_away(lambda: told().count() >= BATCHES), seconds=PATIENCE
            )
            helpers.wait_until(lambda: unless_away(is_over), seconds=PATIENCE)
        finally:
            over.set()
    seconds = time.monotonic() - began
    assert told().count() == BATCHES
    ends = {one.result["batch_id"]: one.enqueued_at for one in told()}
    assert len(ends) == BATCHES
    members = FinishedTask.objects.filter(batch__isnull=False)
    assert all(ends[f"{one.batch}"] >= one.finished_at for one in members)
    dead = Task.objects.filter(status=Status.DEAD)
    for one in Batch.objects.all():
        mine = members.filter(batch=one.pk).count() + dead.filter(batch=one.pk).count()
        assert mine >= MEMBERS + 4
        assert one.failed is dead.filter(batch=one.pk).exists()
    grown = members.filter(task_name="probe.tasks.grow").count()
    assert grown + dead.filter(task_name="probe.tasks.grow").count() >= 3 * BATCHES
    print(
        f"{BATCHES} batches of {MEMBERS:,} and {grown} that members have added: {seconds:.1f} s; {kills[0]} "
        f"workers killed; {dead.count()} dead, {Run.objects.count():,} runs; each batch told of once"
    )
