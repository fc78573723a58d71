"""A worker that finds itself suspected lives: a new last will makes the forged one void at once."""

import json
import os
import signal
import threading
import uuid

import helpers
import pika
import pytest
from probe import tasks
from test_two_signals import Clock, lost

from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.failure_detector import FailureDetector
from django_txtasks.core.rows import cleaning
from django_txtasks.database import sessions
from django_txtasks.hints.broker.will import LastWillConnection, LastWillConsumer
from django_txtasks.models import Worker

pytestmark = pytest.mark.usefixtures("rows")

NEVER = 600


@pytest.fixture
def wills(broker):
    """A cleaner's connection to RabbitMQ."""
    wills = LastWillConsumer(get_config(), "default", lambda: None)
    wills.start()
    helpers.wait_until(lambda: wills.unbroken)
    yield wills
    wills.stop()


def forge(broker, worker):
    """Publish what RabbitMQ would deliver if the worker's connection had ended."""
    body = json.dumps({"worker": str(worker.id), "will": worker.will}).encode()
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        amqp.channel().basic_publish("", f"{get_config().queue_prefix}.@lost", body)


def worker_with_a_will():
    return helpers.wait_until(Worker.objects.filter(will__gt=0, beat__gt=3).first)


def has_a_new_will(seen):
    """Return True if the worker beats under a new number and is no longer suspected."""
    now = Worker.objects.get(pk=seen.pk)
    return now.will > seen.will and now.suspected_at is None


@pytest.mark.parametrize(
    "ageing", [None, NEVER], ids=["whole turns", "turns of several statements"]
)
def test_a_suspected_worker_writes_a_new_will_at_once(ageing, broker, txtasks):
    txtasks(ageing=ageing, poll_interval=NEVER, lease=NEVER)  # no turn for reconciliation
    with helpers.working():
        seen = worker_with_a_will()
        assert cleaning.suspect("default", seen.id, seen.will)
        helpers.wait_until(lambda: has_a_new_will(seen), 40)
        assert cleaning.suspect("default", seen.id, seen.will) is False
        assert not Worker.objects.filter(lost=True).exists()


def test_a_forged_will_an_ended_session_and_a_pause_end_no_living_worker(
    wills, broker, processes, txtasks
):
    """The worker is stopped and its sessions are ended, as a switch that restarts would do."""
    txtasks(heartbeat_interval=0.5, lease=NEVER, grace=1)
    clock = Clock()
    detector = FailureDetector(get_config(), "default", wills, clock)
    list(detector.lost())
    processes.start("runworkers", "--threads=1")
    seen = worker_with_a_will()
    Worker.objects.update(host="elsewhere")
    handle = tasks.slow_once.enqueue("naps", seconds=3)
    helpers.wait_until(lambda: helpers.runs("naps"))
    list(detector.lost())
    forge(broker, seen)
    helpers.wait_until(lambda: list(detector.lost()) or has_a_new_will(seen), 40)
    os.kill(seen.pid, signal.SIGSTOP)
    try:
        sessions.end("default", Worker.objects.get().sessions)
        assert lost(detector, clock, 10) == set()
    finally:
        os.kill(seen.pid, signal.SIGCONT)
    assert helpers.wait_until(lambda: helpers.finished(handle.id)).attempt == 1
    processes.end()


def test_a_flood_of_forged_wills_has_a_worker_write_new_ones_seldom(broker, monkeypatch):
    """Each will has a queue of its own, which stays for a minute."""
    monkeypatch.setattr("django_txtasks.hints.broker.will.RENEW_PAUSE_SECONDS", NEVER)
    me = uuid.uuid4()
    will = LastWillConnection(get_config(), "default", lambda: None)
    will.start()
    helpers.wait_until(lambda: will.number_for(me) == 1)
    will.renew()
    helpers.wait_until(lambda: will.number_for(me) == 2)
    for _ in range(100):
        will.renew()
    done = threading.Event()
    will.soon(will.channel, done.set)
    assert done.wait(20)
    assert will.number_for(me) == 2
    will.stop()
