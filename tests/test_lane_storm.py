"""A storm of lanes: workers in processes of their own, killed one by one, and never more at once than may.

    TXTASKS_TEST_LANE_TASKS=2000 python tests/services.py -- pytest -s tests/test_lane_storm.py

runs the long one and prints its account; without it the storm is short. So does TXTASKS_TEST_RATE_SECONDS=600 for
the rate, with -o faulthandler_timeout=0.
"""

import os
import random
import signal
import threading
import time
from contextlib import suppress

import helpers
import pytest
from django.db import OperationalError
from probe import tasks
from probe.models import Run

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.models import FinishedTask, Outcome, Status, Task

pytestmark = pytest.mark.usefixtures("rows")

TASKS = int(os.environ.get("TXTASKS_TEST_LANE_TASKS", "90"))
SECONDS, AT_MOST = 0.05, 3
KILL_EVERY = 1.2 if TASKS < 1000 else 3.0
RATE_SECONDS = float(os.environ.get("TXTASKS_TEST_RATE_SECONDS", "5"))
CLAIM_SECONDS = 0.2
"""Seconds that a claim may come after the look at the lane that has counted for it, on a busy machine."""
RATE = "100/m" if RATE_SECONDS > 60 else "600/m"
PATIENCE = max(helpers.PATIENCE, TASKS / 4)
ISOLATION = helpers.isolation_levels(of_long_form="TXTASKS_TEST_LANE_TASKS" in os.environ)


@pytest.fixture(params=ISOLATION)
def crew(processes, txtasks, request):
    """Four workers and a cleaner, at each level of isolation."""
    env = {"TXTASKS_TEST_ISOLATION": request.param}
    txtasks(
        lanes={"api": {"at_most": AT_MOST}, "tenant:*": {"weight": 1}},
        heartbeat_interval=0.2,
        lease=3,
        poll_interval=0.1,
        clean_interval=1,
        keep_finished=None,
    )
    for _ in range(4):
        processes.start("runworkers", "--threads=4", env=env)
    processes.start("runcleaner", env=env)
    helpers.wait_until(lambda: len(helpers.worker_pids()) == 4)


def test_a_rate_holds_across_a_kill_of_everything(processes, txtasks):
    txtasks(
        lanes={"slow": {"rate": RATE}},
        heartbeat_interval=0.2,
        lease=3,
        poll_interval=0.1,
        keep_finished=None,
    )
    rule = get_config().lanes.find("slow")
    enqueue_many([(tasks.nothing.using(lane="slow"), [])] * int(2 * rule.rate * RATE_SECONDS))
    workers = [processes.start("runworkers", "--threads=4") for _ in range(2)]
    helpers.wait_until(FinishedTask.objects.exists)
    time.sleep(RATE_SECONDS / 2)
    for pid in [*helpers.worker_pids(), *[one.pid for one in workers]]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    processes.start("runworkers", "--threads=4")
    time.sleep(RATE_SECONDS / 2)
    starts = sorted(FinishedTask.objects.values_list("started_at", flat=True))
    for first, begun in enumerate(starts):
        for number, at in enumerate(starts[first:], 1):
            seconds = (at - begun).total_seconds() + CLAIM_SECONDS
            assert number <= rule.most_permits + rule.rate * seconds
    took = (starts[-1] - starts[0]).total_seconds()
    print(
        f"{len(starts)} starts in {took:.1f} s, where {rule.rate * took + 1:.1f} may be, at {RATE}"
    )
    assert len(starts) > 5


class Watch:
    """Looks how many are claimed in the lane, again and again: each look is one snapshot."""

    def __init__(self):
        self.most, self.looks, self.over = 0, 0, threading.Event()

    def __call__(self):
        while not self.over.wait(0.02):
            with suppress(OperationalError):
                count = Task.objects.filter(status=Status.CLAIMED, lane="api").count()
                self.most, self.looks = max(self.most, count), self.looks + 1


def kill_until(over):
    kills = 0
    while not over.wait(KILL_EVERY):
        with suppress(ProcessLookupError, OperationalError):
            os.kill(random.choice(helpers.worker_pids() or [0]) or 2**22, signal.SIGKILL)
            kills += 1
    return kills


def enqueue(count):
    calls = [(tasks.call_api, [f"{n}", SECONDS]) for n in range(count)]
    others = [(tasks.serve_tenant, [f"x{n}"], {"tenant": f"{n % 7}"}) for n in range(count // 3)]
    enqueue_many(calls)
    enqueue_many(others)


def most_at_once():
    """Return the highest number that ran at one time, from the records of tasks; killed tasks wrote no end."""
    starts = {}
    moves = []
    for run in Run.objects.order_by("id").exclude(key__startswith="x"):
        if run.key.endswith(" ended"):
            begun = starts.pop((run.key.removesuffix(" ended"), run.pid), None)
            if begun is not None:
                moves += [(begun, 1), (run.at, -1)]
        else:
            starts[run.key, run.pid] = run.at
    now = most = 0
    for _, one in sorted(moves):
        now += one
        most = max(most, now)
    return most


def test_never_more_at_once_and_no_place_is_lost(processes, crew):
    watch, kills, began = Watch(), [], time.monotonic()
    enqueue(TASKS)
    with (
        helpers.second_session(watch),
        helpers.second_session(lambda: kills.append(kill_until(watch.over))),
    ):
        try:
            helpers.wait_until(
                lambda: not Task.objects.exclude(status=Status.DEAD).exists(), seconds=PATIENCE
            )
        finally:
            watch.over.set()
    seconds = time.monotonic() - began
    succeeded = FinishedTask.objects.filter(outcome=Outcome.SUCCEEDED)
    dead = Task.objects.filter(status=Status.DEAD)
    assert succeeded.count() + dead.count() == TASKS + TASKS // 3
    assert not dead.exclude(crashes__gt=0).exists()
    assert watch.looks > 10
    assert 0 < watch.most <= AT_MOST
    assert most_at_once() <= AT_MOST
    print(
        f"{TASKS:,} tasks of {SECONDS * 1000:.0f} ms, {AT_MOST} at once: {seconds:.1f} s, "
        f"{TASKS * SECONDS / AT_MOST / seconds:.0%} of the slots; {kills[0]} workers killed; at most {watch.most} "
        f"claimed in {watch.looks:,} looks; {dead.count()} dead by crashes"
    )
