"""A storm of ticks: real cleaners, one of them killed again and again, and exactly one task for each tick.

    TXTASKS_TEST_TICKS=600 python tests/services.py -- pytest -s -o faulthandler_timeout=0 \
        tests/test_schedule_storm.py

runs the long one and prints its account; without it the storm is short.
"""

import os
import random
import signal
import time
from datetime import timedelta

import helpers
import pytest

from django_txtasks.features.schedules.rules import tick_of_id
from django_txtasks.models import Cleaner, FinishedTask, Schedule, Task

pytestmark = pytest.mark.usefixtures("rows")

TICKS = int(os.environ.get("TXTASKS_TEST_TICKS", "8"))
ISOLATION = helpers.isolation_levels(of_long_form="TXTASKS_TEST_TICKS" in os.environ)


@pytest.mark.parametrize("isolation", ISOLATION)
def test_each_tick_has_one_task_while_cleaners_are_killed(processes, txtasks, isolation):
    txtasks(
        heartbeat_interval=0.2, lease=3, poll_interval=0.1, clean_interval=1, keep_finished=None
    )
    env = {"TXTASKS_TEST_ISOLATION": isolation}
    processes.start("runworkers", "--threads=2", env=env)
    crew = [processes.start("runcleaner", env=env) for _ in range(3)]
    helpers.wait_until(lambda: Cleaner.objects.count() == 3 and helpers.worker_pids())
    Schedule(name="s", task_name="probe.tasks.nothing", every=1.0, catch_up="all").save()
    kills, newest = 0, crew[0]
    while FinishedTask.objects.count() < TICKS:
        time.sleep(1)
        helpers.wait_until(lambda one=newest: "started" in processes.log_of(one))
        victim = random.randrange(3)
        os.kill(crew[victim].pid, signal.SIGKILL)
        crew[victim].wait()
        crew[victim] = newest = processes.start("runcleaner", env=env)
        kills += 1
    Schedule.objects.update(enabled=False)
    helpers.wait_until(lambda: not Task.objects.exists())
    done = list(FinishedTask.objects.order_by("run_after"))
    at = [task.run_after for task in done]
    assert at == [at[0] + number * timedelta(seconds=1) for number in range(len(at))]
    assert [tick_of_id(task.pk) for task in done] == at
    late = sorted((task.started_at - task.run_after).total_seconds() for task in done)
    assert late[0] >= 0
    assert kills
    print(
        f"{len(at)} ticks, {kills} kills: late p50 {late[len(late) // 2] * 1000:.0f} ms, "
        f"p99 {late[len(late) * 99 // 100] * 1000:.0f} ms, most {late[-1] * 1000:.0f} ms"
    )
