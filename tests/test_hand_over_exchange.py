"""Rows go to an exchange of the real RabbitMQ, whatever it answers, and good rows beside bad ones arrive."""

import json
import pickle
import uuid
from contextlib import contextmanager
from io import StringIO

import handing
import helpers
import pika
import pytest
from django.core.management import call_command
from django.db import transaction
from probe import tasks
from proxy import Alarm, SilentProxy, Withholding, before

from django_txtasks import enqueue_many, enqueue_task, external
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.features.hand_over.target import OVERTAKEN
from django_txtasks.features.hand_over.targets import exchanges
from django_txtasks.models import FinishedTask, Task

pytestmark = pytest.mark.usefixtures("rows", "exchange")
good = external("good", queue_name="events")
bad = external("bad", queue_name="events")


@contextmanager
def channel_to(url):
    """A channel of the test's own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection.channel()
    finally:
        connection.close()


@pytest.fixture
def exchange(broker, txtasks, monkeypatch):
    """An exchange, the target of queue "events", whose messages of task "good" arrive in a queue of this name."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.REST_SECONDS", 0.01)
    with channel_to(broker) as channel:
        channel.exchange_declare(name, "topic", durable=True)
        channel.queue_declare(name)
        channel.queue_bind(name, name, "good")
    txtasks(
        queues=["default", "events"],
        hand_over={"events": f"exchange:{name}"},
        poll_interval=0.05,
    )
    yield name
    prefix = txtasks_prefix()
    with channel_to(broker) as channel:
        channel.exchange_delete(name)
        for queue in (name, f"{name}-bad"):
            channel.queue_delete(queue)
    helpers.delete_queues(broker, [f"{prefix}.events", f"{prefix}.@async.events"])


def txtasks_prefix():
    from django_txtasks.conf import get_config

    return get_config().queue_prefix


def arrived(url, queue):
    """Return the messages in a queue: properties and body."""
    found = []
    with channel_to(url) as channel:
        while True:
            method, properties, body = channel.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append((properties, json.loads(body)))


def bind_bad(url, name, **arguments):
    """Let messages of task "bad" arrive in a queue of their own, with these arguments."""
    with channel_to(url) as channel:
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        channel.queue_declare(f"{name}-bad", arguments=given)
        channel.queue_bind(f"{name}-bad", name, "bad")


def test_each_row_is_a_persistent_message_with_its_id(broker, exchange):
    handle = enqueue_task(good.using(priority=3), 7, to="süß")
    enqueue_many([(good, (number,)) for number in range(700)])
    handing.hand_over()
    (properties, body), *others = arrived(broker, exchange)
    assert properties.message_id == body["id"] == str(handle.id)
    assert (properties.delivery_mode, properties.priority) == (2, 3)
    assert (body["task"], body["args"], body["kwargs"]) == ("good", [7], {"to": "süß"})
    assert [one["args"][0] for _, one in others] == list(range(700))
    assert not Task.objects.exists()


def test_a_big_row_arrives_whole(broker, exchange):
    enqueue_task(good, "x" * 250_000)
    enqueue_task(good, "y")
    handing.hand_over()
    assert [len(body["args"][0]) for _, body in arrived(broker, exchange)] == [250_000, 1]


def test_a_full_queue_postpones_what_it_refuses(broker, exchange):
    bind_bad(broker, exchange, max_length=5, overflow="reject-publish")
    enqueue_many([(one, (number,)) for number in range(20) for one in (bad, good)])
    handing.hand_over()
    assert len(arrived(broker, exchange)) == 20
    assert len(arrived(broker, f"{exchange}-bad")) == 5
    left = list(Task.objects.all())
    assert len(left) == 15
    assert {(one.status, one.snoozes) for one in left} == {("pending", 1)}
    assert "full queue" in left[0].errors[-1]["message"]


def test_what_no_queue_takes_is_postponed(broker, exchange):
    enqueue_many([(one, (number,)) for number in range(20) for one in (bad, good)])
    handing.hand_over()
    assert len(arrived(broker, exchange)) == 20
    assert {one.task_name for one in Task.objects.all()} == {"bad"}
    assert "NO_ROUTE" in Task.objects.first().errors[-1]["message"]
    bind_bad(broker, exchange)
    Task.objects.update(run_after="2020-01-01 00:00Z")
    handing.hand_over()
    assert len(arrived(broker, f"{exchange}-bad")) == 20


def test_a_message_that_closes_the_channel_is_postponed_alone(broker, exchange):
    """406: RabbitMQ refuses a header CC that is no list, and closes the channel."""
    enqueue_many([(good, (number,)) for number in range(30)])
    Task(
        id=uuid.UUID(int=7),
        task_name="good",
        queue_name="events",
        run_after="2020-01-01 00:00Z",
        headers={"tracer": {"CC": "no list"}},
    ).save(force_insert=True)
    handing.hand_over()
    ids = {properties.message_id for properties, _ in arrived(broker, exchange)}
    assert len(ids) == 30 and FinishedTask.objects.count() == 30
    (left,) = Task.objects.all()
    assert left.snoozes == 1 and left.errors[-1]["message"].startswith("406")


def test_an_exchange_that_is_missing_postpones_its_rows(broker, exchange, txtasks):
    txtasks(hand_over={"events": f"exchange:{exchange}-missing"})
    handles = [enqueue_task(good, number) for number in range(3)]
    handing.hand_over()
    left = list(Task.objects.all())
    assert len(left) == 3 and all(one.errors[-1]["message"].startswith("404") for one in left)
    with channel_to(broker) as channel:
        channel.exchange_declare(f"{exchange}-missing", "topic", auto_delete=True)
        channel.queue_bind(exchange, f"{exchange}-missing", "good")
    Task.objects.update(run_after="2020-01-01 00:00Z")
    handing.hand_over()
    assert {body["id"] for _, body in arrived(broker, exchange)} == {str(one.id) for one in handles}


def test_what_cannot_be_written_as_amqp_is_dead_at_once(broker, exchange):
    enqueue_many([(good, (number,)) for number in range(5)])
    long_name = "ü" * 200  # more than the 255 bytes of a routing key
    for number, (name, headers) in enumerate(
        [("good", {"tracer": {"n": 2**70}}), (long_name, None)], start=1
    ):
        Task(id=uuid.UUID(int=number), task_name=name, queue_name="events", headers=headers).save(
            force_insert=True
        )
    handing.hand_over()
    assert len(arrived(broker, exchange)) == 5
    dead = {one.id.int: one for one in Task.objects.all()}
    assert {one.status for one in dead.values()} == {"dead"}
    assert "struct.error" in dead[1].errors[-1]["message"] or "error" in str(dead[1].errors)
    assert dead[2].errors[-1]["type"] == "Refused"


def test_a_priority_beyond_amqp_is_the_nearest_one(broker, exchange):
    for priority in (999, -5):
        handle = enqueue_task(good, priority)
        Task.objects.filter(pk=handle.id).update(priority=priority)
    handing.hand_over()
    found = {body["args"][0]: properties.priority for properties, body in arrived(broker, exchange)}
    assert found == {999: 255, -5: None}


def test_headers_of_a_tracer_travel_along(broker, exchange):
    sent = {"otel": {"traceparent": "00-1-2-01"}, "message": {"not": "for an exchange"}}
    Task(id=uuid.uuid4(), task_name="good", queue_name="events", headers=sent).save(
        force_insert=True
    )
    handing.hand_over()
    ((properties, _),) = arrived(broker, exchange)
    assert properties.headers == {"traceparent": "00-1-2-01"}


def test_a_broker_that_is_away_keeps_all_rows_untouched(broker, exchange, txtasks, told):
    with before(broker) as (proxy, url):
        txtasks(broker_url=url)
        proxy.move("127.0.0.1", 1)  # where nothing listens
        enqueue_many([(good, (number,)) for number in range(10)])
        with handing.handing_over() as drain:
            helpers.wait_until(lambda: drain._away_count >= 3)
            assert {(one.snoozes, str(one.errors)) for one in Task.objects.all()} == {(0, "[]")}
            home = pika.URLParameters(broker)
            proxy.move(home.host, home.port)
            helpers.wait_until(lambda: not Task.objects.exists())
    assert len(arrived(broker, exchange)) == 10


def test_an_alarm_of_the_broker_gets_each_row_once_more_at_most(
    broker, exchange, txtasks, monkeypatch
):
    """It keeps what it was sent, and takes it after the alarm: also that of connections that are gone."""
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.LONGEST_DELAY_SECONDS", 0.01)
    with before(broker, Alarm) as (proxy, url):
        txtasks(broker_url=url)
        with handing.handing_over() as drain:
            enqueue_task(good, 1)
            helpers.wait_until(lambda: drain.handed == 1)
            proxy.is_on = True
            enqueue_task(good, 2)
            helpers.wait_until(lambda: drain._away_count >= 5)
            (left,) = Task.objects.all()
            assert (left.status, left.snoozes, left.errors) == ("pending", 0, [])
            assert proxy.connections_with(b'"task":"good"') == 1
            proxy.end()
            helpers.wait_until(lambda: not Task.objects.exists())
    assert [body["args"] for _, body in arrived(broker, exchange)] == [[1], [2], [2]]


def test_a_drain_ends_during_an_alarm_of_the_broker(broker, exchange, txtasks):
    with before(broker, Alarm) as (proxy, url):
        proxy.is_on = True
        txtasks(broker_url=url)
        with handing.handing_over() as drain:
            enqueue_task(good, 1)
            helpers.wait_until(lambda: drain._away_count >= 2)
    assert Task.objects.count() == 1


def test_a_message_that_ends_the_connection_is_postponed_alone(broker, exchange):
    """Headers that fit into no frame. Otherwise the same rows would end each connection, for ever."""
    with handing.handing_over() as drain:
        with transaction.atomic():
            worst = enqueue_task(good, "bad")
            Task.objects.update(headers={"tracer": {"baggage": "x" * 200_000}})
            enqueue_many([(good, (number,)) for number in range(3)])
        helpers.wait_until(lambda: drain.handed == 3)
        helpers.wait_until(lambda: helpers.row(worst.id).errors)
    assert "FRAME_ERROR" in helpers.row(worst.id).errors[-1]["message"]
    assert sorted(body["args"] for _, body in arrived(broker, exchange)) == [[0], [1], [2]]


def test_a_connection_that_is_cut_between_passes_is_opened_again(broker, exchange, txtasks):
    with before(broker) as (proxy, url):
        txtasks(broker_url=url)
        with handing.handing_over() as drain:
            for number in range(3):
                enqueue_task(good, number)
                helpers.wait_until(lambda: not Task.objects.exists())
                proxy.cut_all()
            helpers.wait_until(lambda: drain.handed == 3)  # counted after the COMMIT
    assert [body["args"] for _, body in arrived(broker, exchange)] == [[0], [1], [2]]


def test_a_lost_answer_sends_the_rows_again(broker, exchange, txtasks):
    with before(broker) as (proxy, url):
        txtasks(broker_url=url)
        handles = [enqueue_task(good, number) for number in range(5)]
        proxy.cut_when(lambda data: b'"task":"good"' in data, delivered=True)
        with handing.handing_over():
            helpers.wait_until(lambda: not Task.objects.exists())
        assert proxy.cuts == 1
    ids = [body["id"] for _, body in arrived(broker, exchange)]
    assert set(ids) == {str(one.id) for one in handles}
    assert len(ids) > 5


def test_a_broker_that_confirms_nothing_lets_the_rows_wait(broker, exchange, txtasks, monkeypatch):
    monkeypatch.setattr(exchanges, "CONFIRM_SECONDS", 0.2)
    with before(broker, SilentProxy) as (proxy, url):
        txtasks(broker_url=url)
        with handing.handing_over() as drain:
            enqueue_task(good, 1)
            helpers.wait_until(lambda: drain.handed == 1)
            proxy.is_silent = True
            enqueue_task(good, 2)
            helpers.wait_until(lambda: drain._away_count >= 1)
            (left,) = Task.objects.all()
            assert (left.status, left.snoozes, left.errors) == ("pending", 0, [])
            proxy.is_silent = False
            helpers.wait_until(lambda: not Task.objects.exists())
    assert {body["args"][0] for _, body in arrived(broker, exchange)} == {1, 2}


def test_a_message_that_is_never_confirmed_keeps_no_other_row_back(
    broker, exchange, txtasks, monkeypatch
):
    monkeypatch.setattr(exchanges, "CONFIRM_SECONDS", 0.5)
    bind_bad(broker, exchange)
    with before(broker, Withholding) as (_, url):
        txtasks(broker_url=url)
        worst = enqueue_task(bad, 1)
        enqueue_many([(good, (number,)) for number in range(3)])
        drain = handing.new_drain()
        assert drain._turn() == 0
        assert (drain.handed, drain._away_count, drain.away) == (3, 0, "")
        last = enqueue_task(bad, 2)  # nothing behind it shows that it is the reason
        drain._turn()
    assert helpers.row(worst.id).errors[-1]["message"] == OVERTAKEN
    assert (helpers.row(last.id).snoozes, drain._away_count) == (0, 1)


@contextmanager
def waiting_client(url, exchange):
    """A client with a temporary queue. Gives its routing key, and a function that returns the next reply."""
    key = f"reply.{uuid.uuid4().hex}"
    with channel_to(url) as channel:
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, exchange, key)

        def reply():
            for _method, _properties, body in channel.consume(
                queue, inactivity_timeout=helpers.PATIENCE
            ):
                return json.loads(body)

        yield key, reply


def test_a_reply_reaches_the_client_that_waits_and_ends_soon_without_it(broker, exchange):
    with waiting_client(broker, exchange) as (key, reply):
        answer = external(key, queue_name="events", expires=60)
        first = tasks.give.using(on_success=answer).enqueue(7)
        with handing.handing_over(), helpers.working():
            (data,) = reply()["args"]
        assert (data["task_id"], data["result"]) == (str(first.id), 7)
    tasks.give.using(on_success=answer).enqueue(8)
    with handing.handing_over(), helpers.working():
        helpers.wait_until(lambda: Task.objects.filter(snoozes__gt=0).exists())
    (late,) = Task.objects.all()
    assert "no queue takes it" in late.errors[-1]["message"]
    assert (late.expires_at - late.enqueued_at).total_seconds() == pytest.approx(60, abs=1)
    Task.objects.update(expires_at=late.enqueued_at, run_after=late.enqueued_at)
    handing.hand_over()
    Cleaner(get_config()).run_once()
    assert helpers.finished(late.id).outcome == "expired"


def test_the_time_of_a_reply_survives_using_and_pickling(exchange):
    answer = external("reply.1", queue_name="events", expires=60)
    copied = pickle.loads(pickle.dumps(answer))  # noqa: S301 -- written a moment ago
    for one in (answer, answer.using(priority=3), copied):
        assert one.declaration.task_spec["expires"] == 60
    row = helpers.row(answer.enqueue(1).id)
    assert row.expires_at is not None
    assert "expires" not in external("reply.1", queue_name="events").declaration.task_spec
    with pytest.raises(InvalidDeclaration, match="more than zero"):
        external("reply.1", queue_name="events", expires=0)


@pytest.mark.parametrize("forged", ["x", [], -1, True, 1e300])
def test_a_forged_time_of_a_reply_drops_the_reply_and_stops_nothing(exchange, forged):
    answer = external("reply.1", queue_name="events", expires=60)
    handle = tasks.give.using(on_success=answer).enqueue(7)
    hook = {**answer.declaration.task_spec, "expires": forged}
    Task.objects.update(hooks={"on_success": hook})
    with helpers.working():
        helpers.wait_until(lambda: not Task.objects.exists())
    assert helpers.finished(handle.id).outcome == "succeeded"


def test_status_says_how_many_tasks_were_handed_over(exchange):
    enqueue_many([(good, (number,)) for number in range(3)])
    handing.hand_over()
    out = StringIO()
    call_command("txtasks_status", stdout=out)
    assert "Handed over in the last 5 minutes: 3." in out.getvalue()
    out = StringIO()
    call_command("txtasks_status", json=True, stdout=out)
    assert json.loads(out.getvalue())["handed"] == 3


def test_an_ordered_queue_keeps_its_order_at_a_full_queue(broker, exchange, txtasks):
    txtasks(hand_over={"events": {"to": f"exchange:{exchange}", "ordered": True}})
    bind_bad(broker, exchange, max_length=3, overflow="reject-publish")
    enqueue_many([(bad, (number,)) for number in range(12)])
    got = []
    with handing.handing_over() as drain:
        while len(got) < 12:
            before = len(got)
            helpers.wait_until(lambda before=before: drain.handed > before)
            got += [body["args"][0] for _, body in arrived(broker, f"{exchange}-bad")]
    assert got == list(range(12))
