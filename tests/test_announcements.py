"""Messages to an exchange of other programs: the load of each queue, and the life of workers and tasks."""

import json
import uuid

import helpers
import pika
import pytest
from django.core.management import CommandError, call_command
from probe import tasks

from django_txtasks import signals
from django_txtasks.conf import get_config, parse
from django_txtasks.exceptions import ConfigError
from django_txtasks.hints.broker import announcing
from django_txtasks.models import Worker

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.once]


@pytest.fixture
def exchange(broker):
    """An exchange, and a function that returns the next message: routing key and data."""
    name = f"announcements-{uuid.uuid4().hex[:8]}"
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        channel = amqp.channel()
        channel.exchange_declare(name, "topic", auto_delete=True)
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, name, "#")

        def take():
            method, _, body = helpers.wait_until(
                lambda: (got := channel.basic_get(queue, auto_ack=True))[0] and got
            )
            return method.routing_key, json.loads(body)

        yield name, take
        announcing.close_all()


@pytest.fixture
def lifecycle(exchange, txtasks):
    name, take = exchange
    txtasks(lifecycle_exchange=name)
    announcing.announce(get_config(), name, "connected", {})  # a busy machine may need a second try
    assert take() == ("connected", {})
    return take


def test_the_life_of_a_worker_and_the_death_of_a_task_are_announced(lifecycle):
    handle = tasks.fail.using(queue_name="mail", max_attempts=1).enqueue("no paper " + 2_000 * "x")
    call_command("runworkers", batch=True)
    started, dead, ended = (lifecycle() for _ in range(3))
    assert [key for key, _ in (started, dead, ended)] == [
        "worker.started",
        "task.dead",
        "worker.ended",
    ]
    worker = started[1]["worker"]
    assert started[1]["event"] == "worker.started"
    assert started[1]["threads"] == 4
    assert started[1]["queues"] == "default, mail"
    assert dead[1]["task_id"] == str(handle.id)
    assert (dead[1]["task"], dead[1]["queue"], dead[1]["attempt"]) == (
        "probe.tasks.fail",
        "mail",
        1,
    )
    assert dead[1]["error"].startswith("ValueError: no")
    assert len(dead[1]["error"]) == 1_000
    assert "args" not in dead[1]
    assert (ended[1]["worker"], ended[1]["pid"]) == (worker, started[1]["pid"])


def test_a_lost_worker_is_announced(lifecycle):
    lost = Worker(pk=uuid.uuid4(), host="h", pid=1, queues=[], threads=1, lease=0.001)
    lost.save()
    helpers.execute("UPDATE txtasks_worker SET seen_at = '2020-01-01 00:00:00'")
    call_command("runcleaner", once=True, verbosity=0)
    key, data = lifecycle()
    assert (key, data["worker"], data["host"], data["pid"]) == ("worker.lost", str(lost.pk), "h", 1)
    assert data["reason"]


def test_one_end_is_announced_once(lifecycle):
    first, second = uuid.uuid4(), uuid.uuid4()
    signals.worker_stopped.emit(worker=first, count=0)  # its start was not announced
    for worker in (first, second):
        signals.worker_started.emit(worker=worker, queues="default", threads=1, broker="")
        signals.worker_cut_short.emit(worker=worker, running=1)
        signals.worker_recycled.emit(worker=worker, reason="")
    found = [(key, data["worker"]) for key, data in (lifecycle() for _ in range(4))]
    assert found == [
        (key, str(worker))
        for worker in (first, second)
        for key in ("worker.started", "worker.ended")
    ]


def test_without_an_exchange_nothing_is_announced(exchange, txtasks):
    name, take = exchange
    call_command("runworkers", batch=True)
    assert not announcing._announcements._senders
    txtasks(lifecycle_exchange=name)
    call_command("runworkers", batch=True)
    assert [take()[0] for _ in range(2)] == ["worker.started", "worker.ended"]


def test_a_missing_exchange_harms_nothing(lifecycle, txtasks, caplog):
    txtasks(lifecycle_exchange="missing")
    handle = tasks.note.enqueue("x")
    call_command("runworkers", batch=True)
    assert helpers.finished(handle.id).outcome == "succeeded"
    helpers.wait_until(lambda: "no exchange 'missing'" in caplog.text)


def test_what_waits_for_the_broker_is_bounded():
    waiting = announcing.Announcements(announcing.Announcer(get_config(), "x"))._waiting
    waiting.extend(("key", {"number": number}) for number in range(announcing.MOST_WAITING + 5))
    assert len(waiting) == announcing.MOST_WAITING
    assert waiting[0] == ("key", {"number": 5})


def test_the_load_is_published_by_queue(exchange, capsys):
    name, take = exchange
    tasks.note.enqueue("x")
    tasks.note.using(queue_name="mail").enqueue("y")
    call_command("txtasks_load", exchange=name)
    found = dict(take() for _ in range(2))
    assert set(found) == {"default", "mail"}
    assert (found["mail"]["database"], found["mail"]["due"]) == ("default", 1)
    assert set(found["mail"]) >= {"wanted_threads", "oldest_seconds", "running", "due_in_lanes"}


def test_the_command_says_if_there_is_no_such_exchange(broker):
    tasks.note.enqueue("x")
    with pytest.raises(CommandError, match="Exchange 'missing' of RabbitMQ got no message"):
        call_command("txtasks_load", exchange="missing")


def test_a_watch_goes_on_if_there_is_no_such_exchange(broker, processes):
    tasks.note.enqueue("x")
    command = processes.start("txtasks_load", "--watch=0.5", "--exchange=missing")
    helpers.wait_until(lambda: processes.log_of(command).count("got no message") >= 2)
    command.terminate()
    assert command.wait(60) == 0


@pytest.mark.parametrize("value", [7, None, "x" * 256])
def test_the_name_of_the_exchange_must_be_one(value):
    with pytest.raises(ConfigError, match="lifecycle_exchange"):
        parse({"lifecycle_exchange": value, "broker_url": "amqp://localhost"})


def test_an_exchange_needs_a_broker():
    with pytest.raises(ConfigError, match=r"there is no TXTASKS\['broker_url'\]"):
        parse({"lifecycle_exchange": "x"})
