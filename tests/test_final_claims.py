"""Recovery that cannot be undone waits for proof: a worker with such a claim is lost by proof or after its
lease.

A proxy that restarts cuts both links of each worker behind it, and all of these workers live on.
"""

import json
import os
from urllib.parse import urlsplit

import helpers
import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test.utils import CaptureQueriesContext
from probe import tasks
from proxy import Proxy
from test_rescue_without_broker import HALF_A_LEASE
from test_rescue_without_broker import SHORT as SHORT_OF_PROCESS
from test_two_signals import (
    Clock,
    Wills,
    beat,
    crashed_worker,
    listens_for_wills,
    lost,
    on_server,
    through,
)

from django_txtasks import enqueue_task, handles
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.cleaning.failure_detector import FailureDetector
from django_txtasks.models import FinishedTask, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")

TWO_BEATS = 3.0
"""Seconds in which two signs are enough, on any database."""
TO_THE_LEASE, OVER_IT = 14, 2


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def wills():
    return Wills()


@pytest.fixture
def detector(wills, clock):
    """Of a cleaner with a broker, that has looked."""
    detector = FailureDetector(get_config(), "default", wills, clock)
    list(detector.lost())
    return detector


@pytest.fixture
def without_broker(clock):
    """Of a cleaner without a broker, that has looked."""
    detector = FailureDetector(get_config(), "default", None, clock)
    list(detector.lost())
    return detector


def last_crash():
    handle = tasks.slow_once.enqueue("last crash")
    Task.objects.filter(pk=handle.id).update(crashes=2)
    return handle


def asked_to_stop():
    return tasks.slow_once.enqueue("asked to stop")


def expires_soon():
    return tasks.slow_once.using(expires=10).enqueue("expires")


FINAL = {
    "default": lambda: tasks.slow.enqueue("default"),
    "compensated": lambda: tasks.pay.enqueue("compensated", amount=1),
    "at its last crash": last_crash,
    "may not start again": expires_soon,
    "asked to stop": asked_to_stop,
}
AGAIN = {
    "none": lambda: None,
    "idempotent": lambda: tasks.slow_once.enqueue("idempotent"),
    "atomic": lambda: tasks.atomic_note.enqueue("atomic"),
    "retried, then compensated": lambda: tasks.try_to_pay.enqueue("undoable", amount=1),
    "expires later": lambda: tasks.slow_once.using(expires=3600).enqueue("later"),
}


def holding(worker, *enqueued):
    """Have the worker claim what these enqueue."""
    for enqueue in enqueued:
        handle = enqueue()
        if handle is not None:
            assert helpers.claim(worker).claimed
            if enqueue is asked_to_stop:
                handles.get_handle(handle.id).cancel()


@pytest.mark.parametrize("policy", FINAL)
def test_a_worker_that_holds_what_cannot_be_taken_back_has_its_lease(
    policy,
    detector,
    wills,
    clock,
):
    """Its will has come and its session is gone: that may be a proxy, behind which it lives."""
    worker = crashed_worker(detector)
    holding(worker, AGAIN["idempotent"], FINAL[policy])
    wills.deliver(worker, 1)
    assert lost(detector, clock, TO_THE_LEASE, step=0.5) == set()
    assert lost(detector, clock, OVER_IT, step=0.5) == {worker}


@pytest.mark.parametrize("policy", AGAIN)
def test_a_worker_that_holds_nothing_of_the_kind_is_lost_by_two_signals(
    policy,
    detector,
    wills,
    clock,
):
    worker = crashed_worker(detector)
    holding(worker, AGAIN[policy])
    wills.deliver(worker, 1)
    assert lost(detector, clock, TWO_BEATS) == {worker}


@on_server
@pytest.mark.parametrize(("policy", "is_lost"), [("default", False), ("idempotent", True)])
def test_the_same_holds_for_silence_without_a_broker(policy, is_lost, without_broker, clock):
    worker = crashed_worker(without_broker)
    holding(worker, {**FINAL, **AGAIN}[policy])
    assert lost(without_broker, clock, HALF_A_LEASE + 4, step=0.5) == (
        {worker} if is_lost else set()
    )
    assert lost(without_broker, clock, TO_THE_LEASE, step=0.5) == {worker}


@pytest.mark.parametrize("policy", FINAL)
def test_a_process_that_has_ended_here_is_proof_whatever_it_held(policy, without_broker, clock):
    worker = crashed_worker(without_broker)
    holding(worker, FINAL[policy])
    helpers.end_process_of_worker()
    assert lost(without_broker, clock, SHORT_OF_PROCESS, step=0.05) == {worker}


def test_several_wills_at_once_do_not_overrule_that_processes_have_ended(detector, wills, clock):
    """The machine of both is this one, and all of its workers were killed together."""
    both = {crashed_worker(detector) for _ in range(2)}
    for worker in both:
        holding(worker, FINAL["default"])
        wills.deliver(worker, 1)
    helpers.end_process_of_worker()
    assert lost(detector, clock, TWO_BEATS) == both


@on_server
def test_several_wills_at_once_are_the_end_of_a_host_where_nothing_final_is_held(
    detector,
    wills,
    clock,
):
    """One of them holds a default task, and only that one waits."""
    one, other = crashed_worker(detector), crashed_worker(detector)
    holding(one, FINAL["default"])
    holding(other, AGAIN["idempotent"])
    for worker in (one, other):
        wills.deliver(worker, 1)
    assert lost(detector, clock, TO_THE_LEASE - 2, step=0.5) == {other}
    assert lost(detector, clock, TO_THE_LEASE, step=0.5) == {one, other}


def test_a_claim_after_the_look_saves_the_worker(detector, wills, clock):
    """It has come back, and claimed a default task, since this cleaner has read its beat."""
    worker = crashed_worker(detector)
    wills.deliver(worker, 1)
    cleaner = Cleaner(get_config(), wills=wills, clock=clock)
    found = []
    while not found:
        clock.now += 0.05
        found = list(detector.lost())
    beat(worker, 1)
    holding(worker, FINAL["default"])
    cleaner.workers = type("Seen", (), {"lost": lambda self: iter(found)})()
    assert cleaner.find_lost()["lost"] == 0
    assert not Worker.objects.filter(lost=True).exists()


@on_server
def test_it_is_looked_at_no_more_often_than_others(detector, wills, clock):
    worker = crashed_worker(detector)
    holding(worker, FINAL["default"])
    wills.deliver(worker, 1)
    assert lost(detector, clock, 2, step=0.1) == set()
    for _ in range(5):
        clock.now += 1
        with CaptureQueriesContext(connection) as asked:
            assert not list(detector.lost())
        assert detector.pause(1.0) == 1.0
        assert len([one for one in asked if "txtasks_task" in one["sql"]]) == 1


@on_server
def test_when_it_holds_nothing_final_any_more_it_is_lost_at_once(detector, wills, clock):
    """Somebody has taken the task away by hand."""
    worker = crashed_worker(detector)
    holding(worker, FINAL["default"])
    wills.deliver(worker, 1)
    assert lost(detector, clock, 3, step=0.1) == set()
    Task.objects.all().delete()
    assert lost(detector, clock, 1, step=0.5) == {worker}


# -- a real proxy ----------------------------------------------------------------------------------------

AWAY = 3.0


@on_server
def test_a_proxy_that_restarts_buries_no_healthy_task(processes, broker, txtasks):
    """One proxy carries both links of a worker's host. The cleaner, on another host, goes past it."""
    amqp, rows = urlsplit(broker), urlsplit(os.environ["TXTASKS_DATABASE_URL"])
    times = {
        "heartbeat_interval": 1,
        "lease": 15,
        "poll_interval": 1,
        "clean_interval": 1,
        "grace": 1,
    }
    txtasks(**times)
    with Proxy(amqp.hostname, amqp.port) as to_broker, Proxy(rows.hostname, rows.port) as to_rows:
        env = {
            "TXTASKS_SETTINGS": json.dumps(
                {**django_settings.TXTASKS, "broker_url": through(broker, to_broker)}
            ),
            "TXTASKS_DATABASE_URL": through(os.environ["TXTASKS_DATABASE_URL"], to_rows),
        }
        processes.start("runcleaner")
        helpers.wait_until(lambda: listens_for_wills(broker))
        processes.start("runworkers", "--threads=3", env=env)
        worker = helpers.wait_until(Worker.objects.filter(will__gt=0, beat__gt=3).first)
        Worker.objects.update(host="elsewhere")
        nap = enqueue_task(tasks.doze, "default", 2 * AWAY)
        compensated = enqueue_task(tasks.doze_or_undo, "compensated", amount=2 * AWAY)
        helpers.wait_until(lambda: helpers.runs("default") and helpers.runs("compensated"))
        seen = Worker.objects.get(pk=worker.pk)
        for proxy in (to_broker, to_rows):
            proxy.cut(away=AWAY)
        for handle in (nap, compensated):
            helpers.wait_until(
                lambda handle=handle: helpers.finished(handle.id),
                what=lambda: "\n".join(map(processes.log_of, processes.started)),
            )
        assert Worker.objects.get(pk=worker.pk).will > seen.will
        assert not Worker.objects.filter(lost=True).exists()
        assert set(FinishedTask.objects.values_list("attempt", "crashes")) == {(1, 0)}
        assert not Task.objects.filter(status=Status.DEAD).exists()
        processes.end()
