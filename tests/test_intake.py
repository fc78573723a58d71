"""Messages of an AMQP queue become tasks, each id once; refused messages are kept with their reason."""

import json
import struct
import threading
import urllib.request
import uuid
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import helpers
import pika
import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, transaction
from probe import tasks
from proxy import Alarm, before
from servers import free_port

from django_txtasks import signals, task
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.exceptions import InvalidDeclaration
from django_txtasks.features.intake import loop, reading, writing
from django_txtasks.hints.broker.dead_letters import CAME_FROM, REASON, DeadLetters
from django_txtasks.hints.broker.incoming import MessageConsumer
from django_txtasks.models import Once, Task
from django_txtasks.processes.probes import Liveness

pytestmark = pytest.mark.usefixtures("rows")

TAKEN = "probe.tasks.taken"
AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


class Queue:
    """A queue of another application."""

    def __init__(self, url):
        self.url, self.name = url, f"orders-{uuid.uuid4().hex[:8]}"
        self.refused = f"{self.name}.refused"

    @contextmanager
    def channel(self):
        with pika.BlockingConnection(pika.URLParameters(self.url)) as amqp:
            yield amqp.channel()

    def declare(self):
        with self.channel() as channel:
            channel.queue_declare(self.name, durable=True)

    def send(self, *messages):
        """Send messages: pairs of body and properties."""
        with self.channel() as channel:
            channel.confirm_delivery()
            for body, properties in messages:
                channel.basic_publish("", self.name, body, properties, mandatory=True)

    def count(self, name=None):
        """Return how many messages wait, without those that an intake holds."""
        with self.channel() as channel:
            found = channel.queue_declare(name or self.name, passive=True)
            return found.method.message_count

    def dead_letters(self, name=None):
        """Take the refused messages: pairs of body and properties."""
        found = []
        with suppress(pika.exceptions.ChannelClosedByBroker), self.channel() as channel:
            while True:
                method, properties, text = channel.basic_get(name or self.refused, auto_ack=True)
                if method is None:
                    break
                found.append((text, properties))
        return found

    def wait_for_refused(self, count, name=None):
        found = []

        def all_there():
            found.extend(self.dead_letters(name))
            return len(found) >= count

        helpers.wait_until(all_there, what="the refused messages")
        assert len(found) == count
        return found


def body(key="key", name=TAKEN, **more):
    return json.dumps({"task": name, "args": [key], **more}).encode()


def with_id(message_id=None, **more):
    return WithDoubles(message_id=message_id or uuid.uuid4().hex, delivery_mode=2, **more)


class WithDoubles(pika.BasicProperties):
    """Properties whose floats are doubles of AMQP, which other libraries send and pika cannot."""

    def encode(self):
        doubles = {k: one for k, one in (self.headers or {}).items() if type(one) is float}
        places = {name: 2**60 + number for number, name in enumerate(doubles)}
        headers, self.headers = self.headers, {**(self.headers or {}), **places} or None
        text = b"".join(super().encode())
        self.headers = headers
        for name, place in places.items():
            seen = struct.pack(">cq", b"l", place)
            assert seen in text
            text = text.replace(seen, struct.pack(">cd", b"d", doubles[name]))
        return [text]


def message(key="key", message_id=None, **more):
    return body(key), with_id(message_id, **more)


def keys():
    return sorted(task.args[0] for task in Task.objects.all())


@pytest.fixture
def queue(broker):
    queue = Queue(broker)
    queue.declare()
    yield queue
    helpers.delete_queues(broker, [queue.name, queue.refused])


def intake_of(queue, exchange="", prefetch=200, liveness=None):
    wake_up = WakeUp()
    letters = DeadLetters(queue.name, exchange)
    source = MessageConsumer(get_config(), queue.name, prefetch, letters, wake_up.wake)
    return loop.Intake(get_config(), "default", source, letters, liveness), wake_up


@contextmanager
def taking(queue, **more):
    """An intake in a thread of this process; gives the function that ends it."""
    intake, wake_up = intake_of(queue, **more)
    over = threading.Event()

    def wait(seconds):
        wake_up.wait(0 if over.is_set() else seconds)
        return over.is_set()

    def end():
        over.set()
        wake_up.wake()

    with helpers.second_session(lambda: intake.run(wait)):
        try:
            yield intake
        finally:
            end()


@contextmanager
def received(queue):
    """The messages of a queue as an intake receives them, and which nobody acknowledges."""
    source = MessageConsumer(get_config(), queue.name, 200, DeadLetters(queue.name), lambda: None)
    source.start()
    found = []

    def some():
        found.extend(source.take())
        return found

    helpers.wait_until(some, what="a message")
    try:
        yield found
    finally:
        source.stop()


# ---- once


def test_a_message_becomes_a_task_that_runs(queue):
    queue.send((body("first", kwargs={"more": [1, None]}), with_id()), message("second"))
    with taking(queue), helpers.working():
        helpers.wait_until(lambda: helpers.counts()["finished"] == 2)
    assert helpers.runs("first") == helpers.runs("second") == 1
    assert queue.count() == 0


def test_the_row_is_that_of_the_function_s_declaration(queue):
    queue.send((body("key", "probe.tasks.taken_first"), with_id("order-1")))
    with taking(queue):
        helpers.wait_until(Task.objects.exists)
    assert Task.objects.get().priority == 7
    key = Once.objects.get()
    assert (key.text, key.task_name) == ("order-1", "probe.tasks.taken_first")
    assert timedelta(minutes=55) < key.until - datetime.now(timezone.utc) < timedelta(minutes=65)


def test_messages_with_one_id_are_one_task(queue):
    queue.send(message("first", "one"), message("second", "one"), message("third", "two"))
    queue.send(message("fourth", "one"), message("last"))
    with taking(queue, prefetch=3):
        helpers.wait_until(lambda: "last" in keys())
    assert keys() == ["first", "last", "third"]
    assert queue.count() == 0


def test_a_message_whose_acknowledgement_was_lost_is_not_taken_twice(queue):
    queue.send(message("lost ack"))
    with received(queue) as (incoming,):
        call = reading.read("default", incoming)
        assert writing.write("default", [call], timedelta(seconds=5)).new == 1
    helpers.wait_until(queue.count, what="the message to be back")
    queue.send(message("next"))
    with taking(queue):
        helpers.wait_until(lambda: "next" in keys())
    assert keys() == ["lost ack", "next"]
    assert queue.count() == 0


def test_two_intakes_share_a_queue(queue):
    queue.send(*(message(f"{n:03}", f"id {n}") for n in range(300)))
    queue.send(*(message(f"{n:03}", f"id {n}") for n in reversed(range(300))))
    with taking(queue, prefetch=20), taking(queue, prefetch=20):
        helpers.wait_until(lambda: len(keys()) == 300 and not queue.count())
    queue.send(message("last"))
    with taking(queue):  # what the two had not acknowledged comes before it
        helpers.wait_until(lambda: "last" in keys())
    assert keys() == [*(f"{n:03}" for n in range(300)), "last"]
    assert queue.count() == 0


def test_an_id_counts_again_when_its_time_is_over(queue):
    queue.send(message("first", "one"))
    with taking(queue):
        helpers.wait_until(lambda: len(keys()) == 1)
        Once.objects.update(until=datetime(2020, 1, 1, tzinfo=timezone.utc))
        queue.send(message("second", "one"))
        helpers.wait_until(lambda: len(keys()) == 2)


def test_tasks_have_the_order_of_the_queue(queue):
    queue.send(*(message(f"{n:03}") for n in range(100)))
    with taking(queue):
        helpers.wait_until(lambda: len(keys()) == 100)
    rows = Task.objects.order_by("run_after", "id")
    assert [row.args[0] for row in rows] == [f"{n:03}" for n in range(100)]


# ---- what is read


@pytest.mark.parametrize(
    "said",
    [
        "2030-01-02T03:04:05Z", "2030-01-02T04:04:05+01:00", "2030-01-02 03:04:05+00:00",
        int(AT.timestamp()), AT,
    ],
)  # fmt: skip
def test_perform_at_is_the_earliest_start(queue, said):
    queue.send(message("later", headers={"perform_at": said}))
    with taking(queue):
        helpers.wait_until(Task.objects.exists)
    assert Task.objects.get().run_after == AT


@pytest.mark.parametrize(
    "said",
    [
        AT.timestamp() + 0.75,
        f"{int(AT.timestamp())}.75",
        (AT + timedelta(seconds=0.75)).isoformat(),
    ],
    ids=["double", "decimal text", "ISO"],
)
def test_perform_at_keeps_the_fraction_of_a_second(queue, said):
    """pika reads a double without its fraction, and the task would start too early."""
    headers = {"before": "perform_at", "perform_at": said, "weight": 1.5, "count": 7}
    queue.send(message("later", headers=headers))
    with taking(queue):
        helpers.wait_until(Task.objects.exists)
    assert Task.objects.get().run_after == AT + timedelta(seconds=0.75)


def test_a_message_takes_no_fraction_from_the_next_one(queue):
    whole, part = int(AT.timestamp()), AT.timestamp() + 0.75
    for number in range(10):
        for name, said in (("whole", whole), ("part", part)):
            queue.send(message(f"{name} {number}", headers={"perform_at": said}))
    with taking(queue):
        helpers.wait_until(lambda: Task.objects.count() == 20)
    for row in Task.objects.all():
        fraction = 0.75 if "part" in str(row.args) else 0
        assert row.run_after == AT + timedelta(seconds=fraction)


@pytest.mark.parametrize(
    "said",
    ["1970-01-01T00:00:00Z", 0, 0.5, "1000000000.5", datetime(1990, 1, 1, tzinfo=timezone.utc),
     Decimal(1_000_000_000)],
    ids=["ISO", "number", "double", "decimal text", "timestamp", "decimal"],
)  # fmt: skip
def test_a_perform_at_that_has_passed_is_now_and_overtakes_nobody(queue, said):
    own = [tasks.note.enqueue(f"{number}") for number in range(3)]
    queue.send(message("theirs", headers={"perform_at": said}))
    with taking(queue):
        helpers.wait_until(lambda: Task.objects.count() == 4)
    rows = list(Task.objects.order_by("run_after"))
    assert [row.pk for row in rows[:3]] == [one.id for one in own]
    assert rows[0].enqueued_at <= rows[3].run_after


class Undecodable(pika.BasicProperties):
    """Properties whose header has a time that Python does not have. RabbitMQ takes it."""

    def encode(self):
        seen = struct.pack(">cQ", b"T", int(AT.timestamp()))
        return [b"".join(super().encode()).replace(seen, b"T" + b"\xff" * 8)]


BAD = [
    (b"not JSON", {}, "its body is not JSON"),
    (b"\xff\xfe\xfd", {}, "its body is not JSON"),
    (b"[" * 100_000, {}, "its body is not JSON: RecursionError"),
    (b"[]", {}, "its body is a JSON list"),
    (b"9" * 5000, {}, "its body is not JSON"),
    (body(kwarg={}), {}, "the unknown key 'kwarg'"),
    (b"{}", {}, "names no task"),
    (json.dumps({"task": ["os.system"]}).encode(), {}, "names no task"),
    (body("x", "os.system"), {}, "no installed app declares a task function 'os.system'"),
    (body("x", "probe.tasks.note"), {}, "probe.tasks.note is not declared with @task(intake=True)"),
    (body("x" * 300_000), {}, "more than 262,144"),
    (body("x" * 600_000), {}, "its body has 600,0"),
    (body("a\0b"), {}, "NUL"),
    (b'{"task": "probe.tasks.taken", "args": [NaN]}', {}, "is nan"),
    (b'{"task": "probe.tasks.taken", "args": [1' + b"0" * 400 + b"]}", {}, "300 digits"),
    (json.dumps({"task": TAKEN, "args": {"key": 1}}).encode(), {}, "args is dict"),
    (json.dumps({"task": TAKEN, "kwargs": [1]}).encode(), {}, "kwargs is list"),
    (json.dumps({"task": TAKEN, "args": [1, 2, 3]}).encode(), {}, "taken"),
    (body(), {"message_id": None}, "it has no message_id"),
    (body(), {"message_id": ""}, "it has no message_id"),
    (body(), {"message_id": "x" * 201}, "once="),
    (body(), {"message_id": "a\nb"}, "once="),
    (body(), {"headers": {"perform_at": "tomorrow"}}, "perform_at is 'tomorrow'"),
    (body(), {"headers": {"perform_at": "2030-13-01T00:00:00Z"}}, "perform_at is '2030-13"),
    (body(), {"headers": {"perform_at": "2030-01-01T00:00:00"}}, "naive"),
    (body(), {"headers": {"perform_at": True}}, "perform_at is True"),
    (body(), {"headers": {"perform_at": 1_900_000_000_000}}, "perform_at is"),
    (body(), {"headers": {"perform_at": 2**62}}, "perform_at is"),
    (body(), {"headers": {"perform_at": {"at": 1}}}, "perform_at is {'at': 1}"),
    (body(), {"headers": {"perform_at": "1900000000000"}}, "not milliseconds"),
    (body(), {"headers": {"perform_at": "20301231"}}, "perform_at is"),
    (body(), {"headers": {"perform_at": "2030-01-01T00:00:00 Europe/Berlin"}}, "perform_at is"),
    (body(), {"headers": {"perform_at": "nan"}}, "perform_at is"),
    (body(), {"headers": {"perform_at": -1.5}}, "between the years 1970 and 9000"),
    (body(), {"headers": {"perform_at": "9999-12-31T23:59:59Z"}}, "between the years 1970 and 9000"),
]  # fmt: skip


def test_a_message_that_cannot_be_a_task_goes_away_with_its_reason_and_keeps_no_other(queue):
    bad = [(text, with_id(**more) if "message_id" not in more else pika.BasicProperties(**more))
           for text, more, _ in BAD]  # fmt: skip
    queue.send(message("before"), *bad, message("after"))
    with taking(queue):
        found = queue.wait_for_refused(len(BAD))
        helpers.wait_until(lambda: len(keys()) == 2)
    assert queue.count() == 0
    for (text, sent), (_, _, reason), (returned, properties) in zip(bad, BAD, found, strict=True):
        assert returned == text
        assert properties.message_id == sent.message_id
        assert reason in properties.headers[REASON]
        assert len(properties.headers[REASON]) < 1100
        assert properties.headers[CAME_FROM] == queue.name
        assert properties.delivery_mode == 2
        for name, value in (sent.headers or {}).items():
            assert properties.headers[name] == (repr(value) if type(value) is float else value)


def test_a_message_whose_properties_cannot_be_decoded_ends_no_connection(queue):
    queue.send(message("before"), (body("bad"), Undecodable(message_id="x", headers={"at": AT})))
    queue.send(message("after"))
    with taking(queue) as intake:
        ((text, properties),) = queue.wait_for_refused(1)
        helpers.wait_until(lambda: len(keys()) == 2)
        assert intake._source.generation == 1
    assert text == body("bad")
    assert "its properties cannot be read" in properties.headers[REASON]


def test_a_refused_message_takes_along_nothing_on_which_rabbitmq_acts(queue):
    elsewhere = f"{queue.name}.elsewhere"
    properties = with_id(
        headers={"CC": [elsewhere], "kept": 1}, expiration="3600000", user_id="guest", reply_to="x"
    )
    queue.send((b"bad", properties))
    with queue.channel() as channel:
        channel.queue_declare(elsewhere)
    with taking(queue):
        ((_, found),) = queue.wait_for_refused(1)
    assert found.expiration is found.user_id is found.reply_to is None
    assert found.headers["kept"] == 1
    assert queue.count(elsewhere) == 0
    helpers.delete_queues(queue.url, [elsewhere])


def test_headers_that_are_too_long_for_a_frame_are_left_out(queue):
    queue.send((b"bad", with_id(headers={"long": "x" * 100_000})))
    with taking(queue):
        ((_, found),) = queue.wait_for_refused(1)
    assert set(found.headers) == {REASON, CAME_FROM}


# ---- where refused messages go


@pytest.fixture
def exchange(queue):
    name = f"{queue.name}.dead"
    yield name
    with queue.channel() as channel:
        channel.exchange_delete(name)
        channel.queue_delete(name)


@pytest.fixture
def unsent():
    found = []

    def note(**facts):
        found.append(facts)

    signals.refusals_unsent.connect(note)
    yield found
    signals.refusals_unsent.disconnect(note)


def test_refused_messages_stay_until_somebody_gets_them(queue, exchange, unsent):
    with queue.channel() as channel:
        channel.exchange_declare(exchange)
    queue.send((b"bad", with_id("bad")), message("good"))
    with taking(queue, exchange=exchange):
        helpers.wait_until(lambda: unsent and keys() == ["good"])
        assert unsent[0]["place"] == f"exchange {exchange!r}"
        with queue.channel() as channel:
            channel.queue_declare(exchange)
            channel.queue_bind(exchange, exchange, queue.name)
        ((text, _),) = queue.wait_for_refused(1, exchange)
    assert text == b"bad"
    assert len(unsent) == 1
    assert queue.count() == 0


def test_an_alarm_of_the_broker_leaves_one_copy_of_a_refused_message(queue, broker, txtasks):
    """It takes what it was sent after the alarm, also that of connections that are gone."""
    with before(broker, Alarm) as (proxy, url):
        txtasks(broker_url=url)
        with taking(queue) as intake:
            helpers.wait_until(lambda: intake._source.connected)
            proxy.is_on = True
            queue.send((b"first", with_id()), (b"second", with_id()), message("good"))
            helpers.wait_until(lambda: intake._unsent >= 3 and keys() == ["good"])
            assert proxy.connections_with(b"first") == 1
            assert proxy.connections_with(b"second") == 0
            proxy.end()
            found = queue.wait_for_refused(2)
            queue.send(message("last"))
            helpers.wait_until(lambda: keys() == ["good", "last"])
    assert [text for text, _ in found] == [b"first", b"second"]
    assert queue.count() == queue.count(queue.refused) == 0


def test_an_intake_ends_during_an_alarm_of_the_broker(queue, broker, txtasks):
    with before(broker, Alarm) as (proxy, url):
        txtasks(broker_url=url)
        with taking(queue) as intake:
            helpers.wait_until(lambda: intake._source.connected)
            proxy.is_on = True
            queue.send((b"bad", with_id()))
            helpers.wait_until(lambda: intake._unsent)
    helpers.wait_until(queue.count, what="the message to be back")


def test_a_queue_that_is_deleted_under_an_intake_is_waited_for(queue):
    queue.send(message("before"))
    with taking(queue) as intake:
        helpers.wait_until(lambda: keys() == ["before"])
        with queue.channel() as channel:
            channel.queue_delete(queue.name)
        helpers.wait_until(lambda: not intake._source.connected)
        queue.declare()
        queue.send(message("after"))
        helpers.wait_until(lambda: keys() == ["after", "before"])
    assert queue.count() == 0


def test_without_the_exchange_no_message_is_taken(queue, exchange):
    queue.send(message("good"))
    with taking(queue, exchange=exchange) as intake:
        helpers.wait_until(lambda: intake._source._link._failures)
        assert not intake._source.connected
        assert keys() == []
        with queue.channel() as channel:
            channel.exchange_declare(exchange)
        helpers.wait_until(lambda: keys() == ["good"])


def test_a_queue_is_waited_for(broker):
    queue, seen = Queue(broker), []

    def note(error, **facts):
        seen.append(error)

    signals.broker_failed.connect(note)
    try:
        with taking(queue) as intake:
            helpers.wait_until(lambda: seen)
            assert not intake._source.connected
            queue.declare()
            queue.send(message("late"))
            helpers.wait_until(lambda: keys() == ["late"])
    finally:
        signals.broker_failed.disconnect(note)
        helpers.delete_queues(broker, [queue.name, queue.refused])
    assert f"there is no queue {queue.name!r}" in seen[0]


# ---- the database


TRIGGERS = {
    "postgresql": (
        """CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN IF {when} THEN RAISE EXCEPTION 'no such order'; END IF; RETURN NEW; END $$""",
        "CREATE TRIGGER refuse BEFORE INSERT ON txtasks_task FOR EACH ROW EXECUTE FUNCTION refuse()",
    ),
    "mysql": (
        """CREATE TRIGGER refuse BEFORE INSERT ON txtasks_task FOR EACH ROW
           IF {when} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no such order'; END IF""",
    ),
    "sqlite": (
        """CREATE TRIGGER refuse BEFORE INSERT ON txtasks_task FOR EACH ROW WHEN {when}
           BEGIN SELECT RAISE(ABORT, 'no such order'); END""",
    ),
}


@contextmanager
def refusing(when):
    """A trigger of the site that refuses some tasks."""
    cast = "CAST(NEW.args AS text)" if connection.vendor == "postgresql" else "NEW.args"
    with connection.cursor() as cursor:
        for sql in TRIGGERS[connection.vendor]:
            cursor.execute(sql.replace("{when}", when.replace("args", cast)))
    try:
        yield
    finally:
        on = " ON txtasks_task" if connection.vendor == "postgresql" else ""
        helpers.execute(f"DROP TRIGGER refuse{on}")
        if connection.vendor == "postgresql":
            helpers.execute("DROP FUNCTION refuse()")


def test_a_message_that_the_database_alone_refuses_keeps_no_other(queue):
    with refusing("args LIKE '%%poison%%'"):
        queue.send(message("poison"))
        with taking(queue) as intake:
            helpers.wait_until(lambda: intake._failures)  # alone, it may be the database's fault
            assert not intake._refused
            queue.send(
                *(message(f"good {n}") for n in range(3)), message("poison"), message("last")
            )
            found = queue.wait_for_refused(2)
            helpers.wait_until(lambda: len(keys()) == 4)
    assert keys() == ["good 0", "good 1", "good 2", "last"]
    assert all("the database refuses its task" in one.headers[REASON] for _, one in found)
    assert all("no such order" in one.headers[REASON] for _, one in found)
    assert queue.count() == 0


def test_while_the_database_refuses_everything_no_message_is_refused(queue):
    with refusing("1 = 1"):
        queue.send(*(message(f"{n}") for n in range(5)))
        with taking(queue) as intake:
            helpers.wait_until(lambda: intake._failures > 1)
    assert queue.count(queue.refused) == 0
    assert queue.count() == 5
    with taking(queue):
        helpers.wait_until(lambda: len(keys()) == 5)


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_a_key_that_an_open_transaction_has_taken_is_waited_for(queue, commits):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer")
    with taking(queue) as intake:
        with transaction.atomic():
            tasks.taken.using(once="one").enqueue("by hand")
            queue.send(message("by message", "one"), message("beside"))
            # PostgreSQL ends the wait after a second
            waits = (
                helpers.somebody_waits if connection.vendor == "mysql" else lambda: intake._failures
            )
            helpers.wait_until(waits)
            assert not intake._refused
            transaction.set_rollback(not commits)
        queue.send(message("last"))
        helpers.wait_until(lambda: "last" in keys())
    assert keys() == ["beside", "by hand" if commits else "by message", "last"]
    assert queue.count() == queue.count(queue.refused) == 0


def test_a_lock_is_no_fault_of_a_message_although_the_others_of_its_write_could_go():
    if connection.vendor != "postgresql":
        pytest.skip("PostgreSQL ends the wait for a lock after a second")
    calls = [(tasks.taken.using(once=key), [f"by message {key}"], {}) for key in ("one", "two")]

    def write():
        with pytest.raises(DatabaseError, match="lock timeout"):
            writing.write("default", calls, timedelta(seconds=10))

    with transaction.atomic():
        tasks.taken.using(once="one").enqueue("by hand")
        with helpers.second_session(write):
            pass
    assert keys() == ["by hand"]
    written = writing.write("default", calls, timedelta(seconds=10))
    assert (written.committed, written.new, written.refused) == ([0, 1], 1, {})


def test_messages_of_a_connection_that_is_gone_come_again_and_are_held_once(queue):
    with refusing("1 = 1"):
        queue.send(*(message(f"{n}") for n in range(5)))
        with taking(queue) as intake:
            helpers.wait_until(lambda: len(intake._waiting) == 5)
            channel = intake._source.channel
            intake._source.soon(channel, channel.connection.close)
            helpers.wait_until(
                lambda: any(one.channel is not channel for one, _ in intake._waiting)
            )
            helpers.wait_until(lambda: len(intake._waiting) >= 5)
            assert len(intake._waiting) == 5


def test_a_session_that_the_server_has_ended_costs_nothing(queue):
    """As MySQL's wait_timeout ends the session of an intake that has waited for long."""
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no sessions")
    with taking(queue):
        queue.send(message("before"))
        helpers.wait_until(lambda: keys() == ["before"])
        helpers.end_other_sessions()
        queue.send(message("after"))
        helpers.wait_until(lambda: keys() == ["after", "before"])


def test_a_session_that_can_only_read_is_replaced(queue):
    if connection.vendor != "postgresql":
        pytest.skip("it makes a session of PostgreSQL read-only, as that of an old primary is")
    name = connection.ops.quote_name(connection.settings_dict["NAME"])
    helpers.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    queue.send(message("late"))
    try:
        with taking(queue) as intake:
            helpers.wait_until(lambda: intake._failures)
            helpers.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            helpers.wait_until(lambda: keys() == ["late"])
    finally:
        helpers.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    assert queue.count(queue.refused) == 0


def test_a_write_that_takes_too_long_is_made_smaller(queue):
    if connection.vendor != "postgresql":
        pytest.skip("it locks a table of PostgreSQL")
    with taking(queue) as intake:
        with helpers.locked("LOCK TABLE txtasks_task IN SHARE MODE"):
            queue.send(*(message(f"{n}") for n in range(8)))
            helpers.wait_until(lambda: intake._most == 1)
            assert not intake._refused
        helpers.wait_until(lambda: len(keys()) == 8)
        assert intake._most > 1


# ---- the command


def test_probes_tell_whether_it_takes_messages(queue):
    liveness = Liveness(timedelta(seconds=60), unready="not yet")
    assert not liveness.is_ready()
    with taking(queue, liveness=liveness):
        helpers.wait_until(liveness.is_ready)


def test_the_command_takes_messages_and_ends_when_it_is_told_to(queue, processes):
    port = free_port()
    command = processes.start("runintake", f"--queue={queue.name}", f"--probe-port={port}")

    def is_ready():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready") as answer:
                return answer.status == 200
        except OSError:
            return False

    helpers.wait_until(is_ready)
    queue.send(*(message(f"{n:02}") for n in range(50)), (b"bad", with_id()))
    helpers.wait_until(lambda: len(keys()) == 50)
    queue.wait_for_refused(1)
    command.terminate()
    assert command.wait(helpers.PATIENCE) == 0
    assert queue.count() == 0
    log = processes.log_of(command)
    assert f"Intake of queue {queue.name} stopped." in log
    assert "number of messages refused: 1" in log


def refuses(text, **options):
    with pytest.raises(CommandError, match=text):
        call_command("runintake", **{"queue": "orders", **options})


def test_the_command_says_what_it_cannot_do(broker, txtasks, monkeypatch):
    refuses("name a queue", queue="")
    refuses("name a queue", queue="x" * 250)
    refuses("at most", prefetch=70_000)
    refuses("'other' is not in DATABASES|other", database="other")
    refuses("--probe-address", probe_address="127.0.0.1")
    txtasks(queues=["mail"])
    refuses("Queue 'default' is not served")
    txtasks(queues=["default", "mail"])
    known = {name: one for name, one in registry._declarations.items() if not one.intake}
    monkeypatch.setattr(registry, "_declarations", known)
    refuses("No installed app declares a task function with @task")
    refuses("carry hints for workers", queue=f"{get_config().queue_prefix}.default")
    txtasks(broker_url=None)
    refuses("no 'broker_url'")


def test_the_key_of_a_message_is_its_id_alone():
    with pytest.raises(InvalidDeclaration, match="the key of a message is its message_id"):
        task(once="key", intake=True)(tasks.taken.function)
