"""A hint is sent by the thread that has committed if nothing is in its way, else by the publisher's thread."""

import select
import threading

import helpers
import pika
import pytest
from django.db import connection, transaction
from probe import tasks
from proxy import before
from test_broker import queue_name, received, waiting

from django_txtasks import enqueue_many, enqueue_task, signals
from django_txtasks.conf import get_config
from django_txtasks.hints.broker import publisher
from django_txtasks.hints.sending import lock as brief_lock
from django_txtasks.hints.sending import rest as resting

pytestmark = [pytest.mark.usefixtures("rows"), pytest.mark.once]


def ready():
    """This process's publisher, connected, with a queue that it has sent a hint to, and at rest."""
    enqueue_task(tasks.note)
    ours = publisher.of_process(get_config())
    helpers.wait_until(lambda: queue_name() in ours._queues and not ours._woken)
    helpers.wait_until(ours._rest.is_over)
    return ours


def packed(url):
    return [one for ids, _ in received(url, "default") for one in ids]


@pytest.fixture
def through_proxy(broker, txtasks):
    """A proxy on the way to RabbitMQ."""
    with before(broker) as (proxy, url):
        txtasks(broker_url=url)
        yield proxy
        publisher.close_all()


def test_a_hint_needs_no_other_thread(broker, monkeypatch):
    ours = ready()
    monkeypatch.setattr(ours, "_have_it_sent", None)  # a call would fail
    task_id = enqueue_task(tasks.note).id
    helpers.wait_until(lambda: waiting(broker) == 2)
    assert packed(broker)[-1] == task_id


def test_a_hint_waits_for_the_other_thread_while_that_uses_the_connection(broker):
    ours = ready()
    with ours._in_use.held():
        task_id = enqueue_task(tasks.note).id
        assert ours._woken
    helpers.wait_until(lambda: waiting(broker) == 2)
    assert packed(broker)[-1] == task_id


def test_hints_that_come_quickly_are_packed_together(broker, monkeypatch):
    monkeypatch.setattr(resting, "REST", 1e9)
    monkeypatch.setattr(resting, "LONGEST_REST_SECONDS", 1)
    monkeypatch.setattr(resting, "BUSY_PER_SECOND", 0.001)  # also where both cores are busy
    ready()
    ids = [enqueue_task(tasks.note).id for _ in range(50)]
    publisher.close_all()
    hints = received(broker, "default")[1:]
    assert [one for found, _ in hints for one in found] == ids
    assert len(hints) < 25


def test_one_transaction_tells_all_its_queues_at_once(broker, monkeypatch):
    with transaction.atomic():
        enqueue_many([(tasks.note, ()), (tasks.mail, ())])
    ours = publisher.of_process(get_config())
    helpers.wait_until(lambda: len(ours._queues._declared) == 2 and not ours._woken)
    helpers.wait_until(ours._rest.is_over)
    monkeypatch.setattr(ours, "_have_it_sent", None)  # a call would fail
    with transaction.atomic():
        enqueue_many([(tasks.note, ()), (tasks.mail, ())])
    helpers.wait_until(lambda: waiting(broker) == waiting(broker, "mail") == 2)


def test_hints_of_many_threads_all_arrive_once_each(broker):
    ready()
    ids = []

    def enqueue_some():
        ids.extend(enqueue_task(tasks.note).id for _ in range(25))
        connection.close()

    threads = [threading.Thread(target=enqueue_some) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    publisher.close_all()
    got = packed(broker)[1:]
    assert sorted(got) == sorted(ids)


def test_a_queue_that_rabbitmq_refuses_stops_no_other_one(broker, caplog):
    """One of another connection alone, or in a cluster one whose node is away."""
    ours = ready()
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        amqp.channel().queue_declare(queue_name("mail"), exclusive=True)
        for number in (2, 3):
            with transaction.atomic():
                enqueue_many([(tasks.note, ()), (tasks.mail, ())])
            helpers.wait_until(lambda n=number: waiting(broker) == n)
        helpers.wait_until(lambda: not ours._buffer)
    ours._queues._refused_until.clear()  # as after its 30 seconds
    tasks.mail.enqueue()
    helpers.wait_until(lambda: queue_name("mail") in ours._queues)
    helpers.wait_until(lambda: waiting(broker, "mail") == 1)
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(told) == 1 and "RESOURCE_LOCKED" in told[0] and queue_name("mail") in told[0]


def test_a_thread_that_ends_with_the_connection_in_hand_stops_no_hint(broker, monkeypatch):
    """A time limit may end it in the moment in which it has taken it."""
    monkeypatch.setattr(brief_lock, "PATIENCE_SECONDS", 0.1)
    ours = ready()
    helpers.wait_until(ours._in_use.take_at_once)  # the publisher's thread has it at times
    for number in (2, 3):
        enqueue_task(tasks.note)
        helpers.wait_until(lambda n=number: waiting(broker) == n)
    assert not ours._in_use.is_held()


def test_a_session_that_a_receiver_has_opened_in_the_publisher_s_thread_is_closed(
    broker, through_proxy
):
    """Django's requests never use that thread, so Django would never close or check the session."""
    seen = []

    def receive(**_):
        seen.extend(helpers.execute("SELECT pg_backend_pid()"))

    ready()
    signals.broker_failed.connect(receive)
    try:
        through_proxy.reset_all()
        enqueue_task(tasks.note)
        ((number,), *_) = helpers.wait_until(lambda: seen)
    finally:
        signals.broker_failed.disconnect(receive)
    helpers.wait_until(
        lambda: not helpers.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", number)
    )


def test_no_hint_is_given_to_a_connection_that_has_ended(broker, through_proxy):
    ours = ready()
    sock = ours._link.connection._impl._transport._sock
    helpers.wait_until(lambda: waiting(broker) == 1)
    through_proxy.cut_all()
    helpers.wait_until(lambda: sock.fileno() < 0 or select.select([sock], [], [], 0)[0])
    task_id = enqueue_task(tasks.note).id
    helpers.wait_until(lambda: waiting(broker) == 2)
    assert packed(broker)[-1] == task_id
