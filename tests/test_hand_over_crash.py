"""Drains as real processes, killed, frozen and stopped in the middle of a pass: each row arrives, few do twice."""

import os
import signal
from collections import Counter
from pathlib import Path

import helpers
import pytest
from django.conf import settings as django_settings
from hand_over_kills import out_of_order

from django_txtasks import enqueue_many, external
from django_txtasks.models import FinishedTask, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")
paid = external("billing.paid", queue_name="mail")
with_locks = pytest.mark.skipif(
    "sqlite3" in django_settings.DATABASES["default"]["ENGINE"],
    reason="SQLite has no locks of rows, so one drain is at work there",
)
PASS = 500
"""Most rows of a pass, which arrive twice if its drain is killed."""


@pytest.fixture
def relay(processes, txtasks, tmp_path):
    """The function ``relay.write`` as the target of queue "mail"; see ``Relay``."""
    txtasks(
        hand_over={"mail": "probe.relay.write"},
        poll_interval=0.05,
        heartbeat_interval=0.2,
        lease=3,
    )
    return Relay(processes, tmp_path / "arrived")


class Relay:
    """Drains that write what they hand over to a file."""

    def __init__(self, processes, path: Path):
        self._processes, self._path = processes, path
        path.touch()

    def start(self, *options):
        """Start a drain."""
        env = {"TXTASKS_TEST_RELAY": str(self._path), "TXTASKS_TEST_SESSION_LIMIT": "2"}
        return self._processes.start("rundrain", *options, env=env)

    def lines(self):
        """Return what has arrived: (number of the row, process id)."""
        text = self._path.read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [tuple(map(int, line.split())) for line in lines]

    def grows_by(self, count):
        """Wait until this number of further rows have arrived. Return the process that sent the last one."""
        wanted = len(self.lines()) + count
        helpers.wait_until(lambda: len(self.lines()) >= wanted, what=self.logs)
        return self.lines()[-1][1]

    def logs(self):
        return [self.log_of(one)[-500:] for one in self._processes.started]

    def log_of(self, process):
        return self._processes.log_of(process)


def ends(process, relay):
    """Wait for the end of a process, and return its code."""
    return helpers.wait_until(
        lambda: process.poll() is not None and (process.poll(),), what=lambda: relay.log_of(process)
    )[0]


def test_rows_of_killed_drains_arrive_all_the_same(relay):
    enqueue_many([(paid, (number,)) for number in range(400)])
    for _ in range(3):
        drain = relay.start()
        relay.grows_by(30)
        os.kill(drain.pid, signal.SIGKILL)
        ends(drain, relay)
    last = relay.start("--batch")
    assert ends(last, relay) == 0
    arrived = Counter(number for number, _ in relay.lines())
    assert set(arrived) == set(range(400))
    assert sum(arrived.values()) - 400 <= 3 * PASS
    assert FinishedTask.objects.filter(outcome="handed").count() == 400
    assert not Task.objects.exists()


@with_locks
def test_rows_of_a_frozen_drain_are_free_after_the_limit_of_its_session(relay):
    enqueue_many([(paid, (number,)) for number in range(300)])
    frozen = relay.start()
    relay.grows_by(30)
    os.kill(frozen.pid, signal.SIGSTOP)
    other = relay.start()
    try:
        helpers.wait_until(lambda: not Task.objects.exists(), what=lambda: relay.log_of(other))
    finally:
        other.send_signal(signal.SIGTERM)
        assert ends(other, relay) == 0
        os.kill(frozen.pid, signal.SIGCONT)
    handed = set(FinishedTask.objects.values_list("id", flat=True))
    more = enqueue_many([(paid, (number,)) for number in range(300, 310)])
    helpers.wait_until(lambda: not Task.objects.exists(), what=lambda: relay.log_of(frozen))
    assert {one.id for one in more} | handed == set(
        FinishedTask.objects.values_list("id", flat=True)
    )
    assert {number for number, _ in relay.lines()} == set(range(310))
    frozen.send_signal(signal.SIGTERM)
    assert ends(frozen, relay) == 0


def test_a_stop_signal_ends_a_drain_between_two_passes(relay):
    enqueue_many([(paid, (number,)) for number in range(300)])
    drain = relay.start()
    relay.grows_by(30)
    drain.send_signal(signal.SIGTERM)
    assert ends(drain, relay) == 0
    numbers = [number for number, _ in relay.lines()]
    assert len(numbers) == len(set(numbers)) == FinishedTask.objects.count()
    assert not Worker.objects.exists()


@with_locks
def test_an_ordered_queue_keeps_its_order_although_its_active_drain_is_killed(relay, txtasks):
    """The function takes some rows at the second try only. After a kill, the rows of one pass come again."""
    txtasks(hand_over={"mail": {"to": "probe.relay.write_at_last", "ordered": True}})
    enqueue_many([(paid, (number,)) for number in range(600)])
    drains = [relay.start() for _ in range(3)]
    for _ in range(3):
        pid = relay.grows_by(20)
        os.kill(pid, signal.SIGKILL)
        drains.append(relay.start())
    helpers.wait_until(lambda: not Task.objects.exists())
    numbers = [number for number, _ in relay.lines()]
    assert list(dict.fromkeys(numbers)) == list(range(600))
    assert out_of_order(numbers, kills=3) == 0
