"""A storm of requests with unique keys: rollbacks, failures, holds, priorities, two queues, killed workers.

    TXTASKS_TEST_REQUESTS=100000 python tests/services.py -- pytest -s tests/test_unique_storm.py

runs the long one and prints its account; without it the storm is short.
"""

import os
import random
import signal
import threading
import time
from contextlib import suppress

import helpers
import pytest
from django.db import OperationalError, connection, transaction
from probe import tasks

from django_txtasks.models import FinishedTask, Outcome, Status, Task
from django_txtasks.operations import operators

pytestmark = pytest.mark.usefixtures("rows")

REQUESTS = int(os.environ.get("TXTASKS_TEST_REQUESTS", "600"))
SENDERS, KEYS = 4, 5
PAUSE = 0.02 if REQUESTS < 10_000 else 0.002
KILL_EVERY = 1.2 if REQUESTS < 10_000 else 3.0
PATIENCE = max(helpers.PATIENCE, REQUESTS / 50)


ISOLATION = helpers.isolation_levels(of_long_form="TXTASKS_TEST_REQUESTS" in os.environ)


@pytest.fixture(params=ISOLATION)
def crew(processes, txtasks, request):
    """Three workers and a cleaner, all real processes, at each level of isolation."""
    env = {"TXTASKS_TEST_ISOLATION": request.param}
    txtasks(
        heartbeat_interval=0.2,
        lease=3,
        poll_interval=0.1,
        clean_interval=1,
        retry_base=0.01,
        retry_ceiling=0.05,
        keep_finished=None,
    )
    workers = [processes.start("runworkers", "--threads=4", env=env) for _ in range(3)]
    processes.start("runcleaner", env=env)
    helpers.wait_until(lambda: len(helpers.worker_pids()) == 3)
    return workers


class Storm:
    """The concurrent actors of the storm."""

    def __init__(self, processes, workers):
        self.processes, self.workers = processes, workers
        self.over = threading.Event()
        self.committed, self.rolled_back, self.errors = [], [], []
        self.kills = self.holds = 0

    def run(self):
        """Return when all requests are sent and what disturbs them has ended."""
        senders = [
            threading.Thread(target=self._safely, args=(self._send,)) for _ in range(SENDERS)
        ]
        others = [
            threading.Thread(target=self._safely, args=(work,)) for work in (self._kill, self._hold)
        ]
        for one in [*senders, *others]:
            one.start()
        for one in senders:
            one.join(PATIENCE)
        self.over.set()
        for one in others:
            one.join(PATIENCE)
        assert not self.errors

    def _safely(self, work):
        try:
            work()
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            connection.close()

    def _send(self):
        chance = random.Random()
        for _ in range(REQUESTS // SENDERS):
            wanted = tasks.tidy_in_a_storm.using(
                unique_key=f"key {chance.randrange(KEYS)}",
                queue_name=chance.choice(["default", "mail"]),
                priority=chance.choice([0, 0, 5]),
            )
            fails, commits = chance.random() < 0.1, chance.random() > 0.1
            handle = helpers.patiently(lambda w=wanted, f=fails, c=commits: _request(w, f, c))
            time.sleep(PAUSE)
            (self.committed if commits else self.rolled_back).append(handle.id)

    def _kill(self):
        while not self.over.wait(KILL_EVERY):
            victim = random.choice(helpers.worker_pids() or [0])
            if victim:
                with suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                self.kills += 1

    def _hold(self):
        while not self.over.wait(0.05):
            with suppress(OperationalError):
                waiting = Task.objects.filter(status=Status.PENDING)
                ids = list(waiting.order_by("?").values_list("id", flat=True)[:3])
                self.holds += len(operators.hold("default", ids))
                time.sleep(0.02)
                self.resume()
        helpers.patiently(self.resume)

    def resume(self) -> None:
        held = Task.objects.filter(status=Status.HELD).values_list("id", flat=True)
        operators.resume("default", list(held))


def _request(wanted, fails, commits):
    with transaction.atomic():
        handle = wanted.enqueue("storm", fails=fails)
        transaction.set_rollback(not commits)
    return handle


def _left():
    columns = (
        "id",
        "status",
        "attempt",
        "failures",
        "crashes",
        "run_after",
        "expires_at",
        "worker",
    )
    return "\n".join(map(str, Task.objects.values_list(*columns)[:20]))


def test_no_request_is_lost_and_none_is_left_over(processes, crew):
    storm, began = Storm(processes, crew), time.monotonic()
    storm.run()
    sent = time.monotonic() - began
    # a person's arrow leaves out a row that somebody has locked for a moment
    helpers.wait_until(
        lambda: storm.resume() or not Task.objects.exists(), seconds=PATIENCE, what=_left
    )
    ended = {one.id: one for one in FinishedTask.objects.filter(id__in=storm.committed)}
    assert len(ended) == len(storm.committed) == len(set(storm.committed))
    assert not FinishedTask.objects.filter(id__in=storm.rolled_back).exists()
    merged = [one for one in ended.values() if one.outcome == Outcome.MERGED]
    for one in merged:
        winner = ended[one.merged_into]
        assert winner.outcome == Outcome.SUCCEEDED
        assert winner.started_at >= one.enqueued_at
        assert one.attempt == 0
    runs = [one for one in ended.values() if one.outcome == Outcome.SUCCEEDED]
    assert len(runs) + len(merged) == len(ended)
    print(
        f"{len(ended):,} requests in {sent:.0f} s, done after {time.monotonic() - began:.0f} s: "
        f"{len(runs):,} runs, "
        f"{len(merged):,} merged; {storm.kills} workers killed, {storm.holds} holds, "
        f"{sum(one.failures for one in runs)} failures, {sum(one.crashes for one in runs)} crashes; "
        f"{len(storm.rolled_back):,} rolled back"
    )
