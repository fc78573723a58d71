"""RabbitMQ carries hints and is trusted with nothing: dead, deaf, lying or flooded, tasks run."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import quote

import helpers
import pika
import pytest
import services
import trustme
from django.db import transaction
from probe import tasks
from proxy import Proxy, before
from servers import free_port

from django_txtasks import enqueue_many, enqueue_task
from django_txtasks.conf import MAX_NAME_BYTES, get_config
from django_txtasks.hints import broker as broker_room
from django_txtasks.hints.broker import hint_queues, publisher, topology
from django_txtasks.hints.broker.consumer import HintConsumer
from django_txtasks.hints.broker.link import Link
from django_txtasks.hints.broker.will import LastWillConsumer
from django_txtasks.hints.sending import buffer as hint_buffer
from django_txtasks.hints.sending import message as hint_message
from django_txtasks.models import Task, Worker

pytestmark = pytest.mark.usefixtures("rows")

NEVER = 600  # a poll interval that no test lives to see: what runs was told by a hint


@pytest.fixture
def hints_only(broker, txtasks):
    """Tasks run by hints alone: workers scan once when they start."""
    txtasks(poll_interval=NEVER, hint_retry_interval=0.2, hint_give_up_after=5)
    return broker


def queue_name(queue="default"):
    return topology.hint_queue(get_config(), "default", queue)


def waiting(url, queue="default"):
    """How many messages wait in the queue of hints."""
    with pika.BlockingConnection(pika.URLParameters(url)) as amqp:
        return amqp.channel().queue_declare(queue_name(queue), passive=True).method.message_count


def received(url, queue):
    """Return the ids in each waiting hint, and whether there are more tasks."""
    with pika.BlockingConnection(pika.URLParameters(url)) as amqp:
        channel = amqp.channel()
        bodies = iter(lambda: channel.basic_get(queue_name(queue), auto_ack=True)[2], None)
        return [hint_message.decode(body) for body in bodies]


def send(url, *bodies):
    """Send a message, as any AMQP client can."""
    with pika.BlockingConnection(pika.URLParameters(url)) as amqp:
        channel = amqp.channel()
        for body in bodies:
            channel.basic_publish("", queue_name(), body)


def hint(*ids):
    return json.dumps({"ids": [str(task_id) for task_id in ids]}).encode()


def test_a_task_is_started_by_its_hint(hints_only):
    with helpers.working():
        for number in range(5):
            with transaction.atomic():
                enqueue_task(tasks.note, f"hinted {number}")
            helpers.wait_until(lambda n=number: helpers.runs(f"hinted {n}"))


def test_many_tasks_of_one_transaction_are_started_by_few_hints(hints_only):
    with helpers.working():
        enqueue_many((tasks.note, ()) for _ in range(250))
        helpers.wait_until(lambda: helpers.counts()["finished"] == 250)
    assert helpers.runs() == 250


def test_each_queue_has_hints_of_its_own(hints_only):
    with helpers.working(queues=["mail"]):
        tasks.note.enqueue("not mail")
        tasks.mail.enqueue("mail")
        helpers.wait_until(lambda: helpers.runs("mail"))
        assert helpers.runs("not mail") == 0


def test_the_raw_protocol_a_row_by_plain_sql_and_a_hint_by_any_client(hints_only):
    task_id = uuid.uuid4()
    with helpers.working():
        helpers.execute(
            "INSERT INTO txtasks_task (id, task_name, args) VALUES (%s, 'probe.tasks.note', %s)",
            task_id.hex, '["by hand"]',
        )  # fmt: skip
        send(hints_only, hint(task_id))
        helpers.wait_until(lambda: helpers.runs("by hand"))


def test_a_hint_for_a_rolled_back_row_runs_nothing_and_blocks_nothing(hints_only):
    with helpers.working(threads=1):
        send(hints_only, hint(uuid.uuid4()))
        tasks.note.enqueue("after it")
        helpers.wait_until(lambda: helpers.runs("after it"))
        helpers.wait_until(lambda: waiting(hints_only) == 0)
    assert helpers.runs() == 1


def test_a_hint_that_comes_before_its_row_is_committed_is_looked_up_again(hints_only):
    task_id = uuid.uuid4()
    with helpers.working(threads=1) as worker:
        send(hints_only, hint(task_id))
        helpers.wait_until(
            lambda: worker.turns.schedule.timers.next() < float("inf"),
            what="the hint to be looked up",
        )
        helpers.execute(
            "INSERT INTO txtasks_task (id, task_name) VALUES (%s, 'probe.tasks.note')", task_id.hex
        )
        helpers.wait_until(lambda: helpers.runs("note"))


def test_an_absent_row_is_forgotten_after_the_giveup_time(hints_only, txtasks):
    txtasks(hint_retry_interval=0.05, hint_give_up_after=0.2)
    with helpers.working(threads=1) as worker:
        send(hints_only, hint(uuid.uuid4()))
        helpers.wait_until(lambda: worker.turns.schedule.timers.next() < float("inf"))
        helpers.wait_until(lambda: worker.turns.schedule.timers.next() == float("inf"))


def test_a_task_due_in_a_moment_is_started_by_a_timer(hints_only):
    with helpers.working():
        handle = tasks.note.using(run_after=timedelta(seconds=1)).enqueue("later")
        helpers.wait_until(lambda: helpers.finished(handle.id))
    done = helpers.finished(handle.id)
    assert done.started_at >= done.run_after


def test_a_retry_that_is_near_is_started_by_a_timer(hints_only):
    with helpers.working():
        handle = tasks.retry_once.enqueue(0.2)
        helpers.wait_until(lambda: helpers.finished(handle.id))


GARBAGE = {
    "random bytes": os.urandom(200),
    "not UTF-8": b"\xff\xfe",
    "no object": b"[1, 2]",
    "no ids": b'{"id": 1}',
    "ids that are none": b'{"ids": ["os.system", 5, null]}',
    "deep JSON": b'{"ids":' + b"[" * 20_000,
    "a megabyte": b'{"ids": [' + b'"' + b"x" * 1_000_000 + b'"]}',
    "nothing": b"",
}


def test_garbage_is_dropped_and_nothing_is_imported(hints_only):
    with helpers.working():
        before = set(sys.modules)
        send(hints_only, *GARBAGE.values())
        tasks.note.enqueue("after the garbage")
        helpers.wait_until(lambda: helpers.runs("after the garbage"))
        helpers.wait_until(lambda: waiting(hints_only) == 0)
        assert {
            name for name in set(sys.modules) - before if not name.startswith("encodings.")
        } == set()


def test_a_thousand_copies_of_a_hint_run_its_task_once(hints_only):
    with helpers.working():
        handle = tasks.note.enqueue("once")
        send(hints_only, *[hint(handle.id)] * 1000)
        helpers.wait_until(lambda: helpers.finished(handle.id))
        helpers.wait_until(lambda: waiting(hints_only) == 0)
    assert helpers.runs("once") == 1


class Undecodable(pika.BasicProperties):
    """Properties whose header has a time that Python does not have. RabbitMQ takes it."""

    def encode(self):
        seen = struct.pack(">cQ", b"T", 0)
        return [b"".join(super().encode()).replace(seen, b"T" + b"\xff" * 8)]


def send_undecodable(url, queue, body):
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        properties = Undecodable(headers={"at": datetime(1970, 1, 1, tzinfo=timezone.utc)})
        connection.channel().basic_publish("", queue, body, properties)


@pytest.mark.parametrize("good", [True, False], ids=["a hint", "no hint"])
def test_a_header_that_cannot_be_decoded_ends_no_connection_of_a_worker(hints_only, good):
    with helpers.working() as worker:
        body = hint(tasks.note.enqueue("named").id) if good else b"garbage"
        send_undecodable(hints_only, queue_name(), body)
        tasks.note.enqueue("behind")
        helpers.wait_until(lambda: helpers.runs("behind") and helpers.runs("named") == good)
        helpers.wait_until(lambda: waiting(hints_only) == 0)
        assert worker.inbox.source.generation == 1
        assert Worker.objects.get().listening is True


def test_a_header_that_cannot_be_decoded_ends_no_connection_of_a_cleaner(hints_only):
    taken, wills = [], LastWillConsumer(get_config(), "default", lambda: None)
    wills.start()
    try:
        helpers.wait_until(lambda: wills.connected)
        lost, worker = topology.lost_queue(get_config(), "default"), uuid.uuid4()
        send_undecodable(hints_only, lost, topology.encode_will(worker, 1))
        helpers.wait_until(lambda: taken.extend(wills.take()) or taken)
        assert (taken[0].worker, wills.generation) == (worker, 1)
        taken[0].settle()
    finally:
        wills.stop()


def test_a_full_worker_leaves_hints_to_those_with_room(hints_only):
    tasks.released.clear()
    with helpers.working(threads=1, queues=["default"]):
        handle = tasks.until_released.enqueue("occupied")
        try:
            helpers.wait_until(lambda: helpers.runs("occupied"))
            tasks.note.enqueue("for others")
            # At least: if a scan was faster than the first task's hint, that one is left, too.
            helpers.wait_until(lambda: waiting(hints_only) >= 1, what="the hint to be left alone")
            with helpers.working(threads=1, queues=["default"]):
                helpers.wait_until(lambda: helpers.runs("for others"))
                assert helpers.row(handle.id).status == "claimed"
        finally:
            tasks.released.set()


@pytest.mark.once
def test_a_worker_hears_again_after_its_connection_was_cut(broker, txtasks):
    with before(broker) as (proxy, url):
        txtasks(broker_url=url, poll_interval=NEVER)
        with helpers.working() as worker:
            first = worker.inbox.source.generation
            proxy.cut_all()
            helpers.wait_until(lambda: worker.inbox.source.generation > first)
            tasks.note.enqueue("heard")
            helpers.wait_until(lambda: helpers.runs("heard"))
        publisher.close_all()


@pytest.mark.once
def test_of_several_hosts_the_next_one_is_taken_when_one_is_gone(broker, txtasks):
    """Two ways to one RabbitMQ, and a host that is never there."""
    url = pika.URLParameters(broker)
    with Proxy(url.host, url.port) as first, Proxy(url.host, url.port) as second:
        hosts = f"@127.0.0.1:1,127.0.0.1:{first.port},127.0.0.1:{second.port}/"
        txtasks(broker_url=broker.replace(f"@{url.host}:{url.port}/", hosts), poll_interval=NEVER)
        try:
            with helpers.working() as worker:
                tasks.note.enqueue("by the first")
                helpers.wait_until(lambda: helpers.runs("by the first"))
                assert first._pairs and not second._pairs
                before = worker.inbox.source.generation
                first.cut(away=NEVER)
                helpers.wait_until(lambda: worker.inbox.source.generation > before)

                def told():
                    tasks.note.enqueue("by the second")
                    return helpers.runs("by the second")

                helpers.wait_until(told)  # the first hint may have found the old connection
                assert second._pairs and not first._pairs
        finally:
            publisher.close_all()


def test_without_hints_the_scan_finds_the_task(txtasks):
    """A broker that is dead."""
    txtasks(broker_url="amqp://127.0.0.1:1", poll_interval=0.1)
    with transaction.atomic():
        enqueue_task(tasks.note, "found")
    from django.core.management import call_command

    call_command("runworkers", max_tasks=1, verbosity=0)
    assert helpers.runs("found") == 1
    publisher._publishers._senders.clear()


@pytest.mark.once
def test_a_black_hole_neither_delays_nor_fails_a_request(broker, txtasks):
    """A broker whose machine takes the connection and never says a word."""
    with Proxy("127.0.0.1", 1, swallow=True) as hole:
        txtasks(broker_url=f"amqp://guest:guest@127.0.0.1:{hole.port}/")
        for _ in range(50):
            with transaction.atomic():
                enqueue_task(tasks.note)
        assert Task.objects.count() == 50
        publisher.close_all()  # ends after its time, though nobody answers


def reader_of_any_size(url):
    """pika's own connection: that of a worker keeps no more of a body than a hint may have."""
    return pika.BlockingConnection(pika.URLParameters(url))


@pytest.mark.once
def test_what_the_socket_does_not_take_at_once_is_sent_all_the_same(broker):
    large = os.urandom(20_000_000)
    with topology.connect(get_config(), "a") as one, closing(reader_of_any_size(broker)) as other:
        sender = topology.declare(one.channel(), queue_name())
        sender.basic_publish("", queue_name(), large)
        topology.publish(sender, queue_name(), b"small")
        receiver = other.channel()
        for sent in (large, b"small"):
            got = helpers.wait_until(lambda: receiver.basic_get(queue_name(), auto_ack=True)[2])
            assert got == sent


@pytest.mark.once
def test_what_many_transactions_left_waiting_is_packed_into_few_hints(broker, txtasks):
    """Here it waits for a connection; otherwise for the hint before it to be sent."""
    url = pika.URLParameters(broker)
    with topology.connect(get_config(), "test") as connection:
        for queue in ("default", "mail"):
            topology.declare(connection.channel(), queue_name(queue))
    with Proxy(url.host, url.port, swallow=True) as proxy:
        txtasks(broker_url=broker.replace(f":{url.port}/", f":{proxy.port}/"))
        ids = [(tasks.note, tasks.mail)[number % 2].enqueue().id for number in range(220)]
        proxy.swallow = False
        helpers.wait_until(lambda: waiting(broker) > 1 and waiting(broker, "mail") > 1)
        publisher.close_all()
    got = received(broker, "default") + received(broker, "mail")
    assert [len(packed) for packed, _ in got] == [100, 10, 100, 10]
    assert {one for packed, _ in got for one in packed} == set(ids)
    assert not any(more for _, more in got)


@pytest.mark.once
def test_hints_name_so_many_ids_and_then_say_that_there_are_more(broker):
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        topology.declare(amqp.channel(), queue_name())
    number = hint_buffer.BUFFER_IDS
    handles = enqueue_many((tasks.note, ()) for _ in range(number + 50))
    publisher.close_all()
    got = received(broker, "default")
    assert [one for packed, _ in got for one in packed] == [one.id for one in handles[:number]]
    assert [(len(packed), more) for packed, more in got] == [(100, True)] * (number // 100)


@pytest.mark.once
def test_the_buffer_keeps_the_first_ids_while_rabbitmq_is_away(broker, txtasks):
    url = pika.URLParameters(broker)
    with pika.BlockingConnection(url) as amqp:
        topology.declare(amqp.channel(), queue_name())
    with Proxy(url.host, url.port, swallow=True) as proxy:
        txtasks(broker_url=broker.replace(f":{url.port}/", f":{proxy.port}/"))
        ids = [uuid.uuid4() for _ in range(hint_buffer.BUFFER_IDS + 50)]
        for one in ids:
            broker_room.notify(get_config(), "default", {"default": [one]})
        proxy.swallow = False
        helpers.wait_until(lambda: waiting(broker) == hint_buffer.BUFFER_IDS // 100)
        publisher.close_all()
    got = received(broker, "default")
    assert [one for packed, _ in got for one in packed] == ids[: hint_buffer.BUFFER_IDS]
    assert got[0][1]


def test_what_no_hint_names_is_found_at_once(hints_only, monkeypatch):
    """One worker takes all of it, in several turns."""
    monkeypatch.setattr(hint_buffer, "BUFFER_IDS", 100)
    number = hint_buffer.BUFFER_IDS + 150
    with helpers.working():
        enqueue_many((tasks.note, ()) for _ in range(number))
        helpers.wait_until(lambda: helpers.counts()["finished"] == number)


def test_a_hint_without_ids_says_only_that_there_is_something(hints_only):
    with helpers.working():
        helpers.execute(
            "INSERT INTO txtasks_task (id, task_name) VALUES (%s, %s)",
            uuid.uuid4().hex, "probe.tasks.note",
        )  # fmt: skip
        send(hints_only, b'{"ids": [], "more": true}')
        helpers.wait_until(lambda: helpers.runs("note"))


SCRIPT = """
import django, os
django.setup()
from django_txtasks.hints.sending import buffer as hint_buffer
from probe import tasks
hint_buffer.FLUSH_SECONDS = 60  # this machine may be busy
tasks.note.enqueue("parent")
{more}
"""

FORK = """
from django.db import connections
import sys
connections.close_all()
pid = os.fork()
if not pid:
    tasks.note.enqueue("child")
    import atexit
    atexit._run_exitfuncs()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""


@pytest.mark.once
@pytest.mark.parametrize(("more", "messages"), [("", 1), (FORK, 2)], ids=["exit", "fork"])
def test_hints_are_sent_before_the_process_ends_also_from_a_forked_child(
    processes, broker, more, messages
):
    environment = processes._environment()
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT.format(more=more)]
    subprocess.run(command, env={**environment, "PYTHONDEVMODE": ""}, check=True, timeout=60)
    assert Task.objects.count() == messages
    assert waiting(broker) == messages


@pytest.mark.once
def test_a_queue_that_exists_with_other_arguments_is_used_as_it_is(hints_only):
    with pika.BlockingConnection(pika.URLParameters(hints_only)) as amqp:
        amqp.channel().queue_declare(queue_name(), durable=True, arguments={"x-max-length": 7})
    with helpers.working():
        tasks.note.enqueue("all the same")
        helpers.wait_until(lambda: helpers.runs("all the same"))


@pytest.mark.once
def test_a_queue_that_rabbitmq_refuses_keeps_no_worker_from_hearing_of_others(
    hints_only, monkeypatch
):
    monkeypatch.setattr(hint_queues, "REFUSED_SECONDS", 0)
    with pika.BlockingConnection(pika.URLParameters(hints_only)) as amqp:
        amqp.channel().queue_declare(queue_name("mail"), exclusive=True)
        with helpers.working(queues=["mail", "default"]):
            tasks.note.enqueue("heard")
            helpers.wait_until(lambda: helpers.runs("heard"))
            amqp.close()

            def told():
                tasks.mail.enqueue("heard, too")
                return helpers.runs("heard, too")

            helpers.wait_until(told)


def keep_queue(channel):
    channel.queue_declare(queue_name("mail"), exclusive=True)


def keep_consumer(channel):
    topology.declare(channel, queue_name("mail"))
    channel.basic_consume(queue_name("mail"), print, exclusive=True)


@pytest.mark.once
@pytest.mark.parametrize("keep", [keep_queue, keep_consumer])
def test_who_hears_no_hint_because_rabbitmq_refuses_does_not_say_that_he_listens(
    hints_only, monkeypatch, keep
):
    monkeypatch.setattr(hint_queues, "REFUSED_SECONDS", 0)
    consumer, told = HintConsumer(get_config(), "default", ["mail"], print), []
    consumer.on_link = lambda is_there: told.append((is_there, consumer.connected))
    with pika.BlockingConnection(pika.URLParameters(hints_only)) as amqp:
        keep(amqp.channel())
        consumer.start()
        try:
            helpers.wait_until(lambda: len(told) >= 2)
            assert set(told) == {(False, False)}
            amqp.close()
            helpers.wait_until(lambda: (True, True) in told)
        finally:
            consumer.stop()


@pytest.mark.once
def test_a_name_that_is_too_long_for_rabbitmq_takes_no_hint_from_other_queues(hints_only, txtasks):
    """The name of another database's queue ends with its alias."""
    prefix, task_id, heard = get_config().queue_prefix, uuid.uuid4(), []
    long = "請" * ((MAX_NAME_BYTES - len(prefix) - 1) // 3)
    txtasks(queues=[long, "default"])
    config = get_config()
    consumer = HintConsumer(
        config, "second", [long, "default"], lambda hint: heard.extend(hint.ids)
    )
    consumer.start()
    try:

        def told():
            broker_room.notify(config, "second", {long: [uuid.uuid4()], "default": [task_id]})
            return task_id in heard

        helpers.wait_until(told)
    finally:
        consumer.stop()


@pytest.mark.once
def test_a_queue_that_is_deleted_under_a_worker_comes_back(hints_only):
    with helpers.working():
        helpers.delete_queues(hints_only, [queue_name()])
        time.sleep(0.2)
        tasks.note.enqueue("first")

        def told():
            tasks.note.enqueue("again")
            return helpers.runs()

        helpers.wait_until(told)


@pytest.mark.once
def test_quorum_queues_that_somebody_has_made_are_used(hints_only):
    config = get_config()
    names = [queue_name(), topology.lost_queue(config, "default")]
    with pika.BlockingConnection(pika.URLParameters(hints_only)) as amqp:
        for name in names:
            arguments = {"x-queue-type": "quorum"}
            amqp.channel().queue_declare(name, durable=True, arguments=arguments)
    with helpers.working() as worker:
        helpers.wait_until(
            lambda: worker.writer.registration.last_will.number_for(worker.writer.id)
        )
        tasks.note.enqueue("through a quorum queue")
        helpers.wait_until(lambda: helpers.runs("through a quorum queue"))


@pytest.fixture(scope="module")
def rabbitmq_with_tls():
    """RabbitMQ behind TLS, with a certificate of a private authority; gives its URL and that authority's file."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    port = str(free_port())
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)  # the server may be somebody else
        authority.cert_pem.write_to_path(place / "ca.pem")
        certificate.cert_chain_pems[0].write_to_path(place / "server.pem")
        certificate.private_key_pem.write_to_path(place / "key.pem")
        settings = {
            "listeners.ssl.default": f"127.0.0.1:{port}",
            "ssl_options.cacertfile": f"{place}/ca.pem",
            "ssl_options.certfile": f"{place}/server.pem",
            "ssl_options.keyfile": f"{place}/key.pem",
        }
        with services.RabbitMQ(**settings):
            yield f"amqps://guest:guest@127.0.0.1:{port}/%2F", place / "ca.pem"


@pytest.mark.once
def test_hints_go_through_tls(rabbitmq_with_tls, txtasks):
    url, authority = rabbitmq_with_tls
    tls = quote(repr({"ca_certs": str(authority)}))
    txtasks(broker_url=f"{url}?ssl_options={tls}", poll_interval=NEVER)
    try:
        with helpers.working():
            enqueue_many((tasks.note, [f"encrypted {number}"]) for number in range(30))
            helpers.wait_until(lambda: helpers.counts()["finished"] == 30)
    finally:
        publisher.close_all()


@pytest.mark.once
def test_a_certificate_that_cannot_be_verified_is_told_of_and_tasks_run(
    rabbitmq_with_tls, processes, txtasks
):
    url, _ = rabbitmq_with_tls
    txtasks(broker_url=url, poll_interval=0.1)
    worker = processes.start("runworkers")
    tasks.note.enqueue("without RabbitMQ")
    helpers.wait_until(lambda: helpers.runs("without RabbitMQ"))
    helpers.wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in processes.log_of(worker))
    publisher._publishers._senders.clear()


@pytest.mark.once
def test_the_password_of_the_broker_is_never_shown(txtasks, caplog):
    txtasks(broker_url="amqp://user:hunter2@127.0.0.1:1/vhost")
    config = get_config()
    broker_room.notify(config, "default", {"default": [uuid.uuid4()]})
    helpers.wait_until(
        lambda: "no connection to RabbitMQ at amqp://127.0.0.1:1/vhost" in caplog.text
    )
    assert "hunter2" not in caplog.text
    publisher._publishers._senders.clear()


@pytest.mark.once
def test_a_connection_that_dies_young_again_and_again_is_opened_later_and_later():
    """Such as one that is not allowed what it needs; a good one that was cut comes back at once."""
    link = Link(get_config(), "Test")
    link.ready(None)
    pauses = []
    for _ in range(4):
        link.ready(None)
        pauses.append(link.failed(ConnectionError("refused")))
    assert pauses[0] == 0
    assert 0 < pauses[1] < pauses[3]
    link.ready(None)
    link._ready_at -= 10
    assert link.failed(ConnectionError("cut")) == 0
