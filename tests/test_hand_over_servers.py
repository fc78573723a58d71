"""Drains behind a pooler, at a RabbitMQ that forbids, and on a MariaDB that cuts or refuses."""

import base64
import hashlib
import json
import tempfile
import threading
from collections import Counter
from pathlib import Path

import handing
import helpers
import pika
import pytest
from django.db import connection
from probe import relay
from servers import PgBouncer, RabbitMQ

from django_txtasks import enqueue_many, enqueue_task, external
from django_txtasks.conf import get_config
from django_txtasks.features.intake.loop import Intake
from django_txtasks.hints.broker import publisher
from django_txtasks.hints.broker.dead_letters import DeadLetters
from django_txtasks.hints.broker.incoming import MessageConsumer
from django_txtasks.models import FinishedTask, Task

pytestmark = pytest.mark.usefixtures("rows", "quick_target")
paid = external("billing.paid", queue_name="events")


def counted():
    """How often each number arrived."""
    return Counter(row.args[0] for rows in relay.got for row in rows)


@pytest.mark.parametrize("is_ordered", [False, True], ids=["any order", "ordered"])
def test_behind_a_pooler_that_is_killed_no_row_is_lost(txtasks, monkeypatch, is_ordered):
    if connection.vendor != "postgresql":
        pytest.skip("PgBouncer is for PostgreSQL")
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 20)
    txtasks(hand_over={"events": {"to": "probe.relay.send", "ordered": is_ordered}})
    port = int(connection.settings_dict["PORT"])
    enqueue_many([(paid, (number,)) for number in range(300)])
    with (
        PgBouncer(port) as pooler,
        helpers.second_alias(PORT=str(pooler.port), HOST="127.0.0.1"),
        handing.handing_over(alias="second") as drain,
    ):
        for number in (100, 200):
            helpers.wait_until(lambda number=number: drain.handed >= number)
            pooler.home.stop(9)
            pooler.start()
        helpers.wait_until(lambda: not Task.objects.exists())
    assert set(counted()) == set(range(300)) and FinishedTask.objects.count() == 300
    assert max(counted().values()) <= 1 + drain._outage._count


RIGHTS = {"configure": ".*", "read": ".*", "write": "^(open|orders)$"}


def user_of(name, *tags):
    """A user for RabbitMQ's definitions, with the password "guest"."""
    salt = b"salt"
    digest = base64.b64encode(salt + hashlib.sha256(salt + b"guest").digest()).decode()
    kind = "rabbit_password_hashing_sha256"
    return {"name": name, "password_hash": digest, "hashing_algorithm": kind, "tags": tags}


@pytest.fixture(scope="module")
def strict():
    """A RabbitMQ whose user "plain" may write to the exchange "open" alone; gives the URL of this user."""
    definitions = {
        "users": [user_of("guest", "administrator"), user_of("plain")],
        "vhosts": [{"name": "/"}, {"name": "closed"}],
        "permissions": [
            {"user": "guest", "vhost": "/", "configure": ".*", "read": ".*", "write": ".*"},
            {"user": "plain", "vhost": "/", **RIGHTS},
        ],
        "exchanges": [
            {"name": name, "vhost": "/", "type": "topic", "durable": True, "auto_delete": False,
             "internal": False, "arguments": {}}
            for name in ("open", "forbidden")
        ],
        "queues": [
            {"name": "orders", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
        ],
        "bindings": [
            {"source": name, "vhost": "/", "destination": "orders", "destination_type": "queue",
             "routing_key": "#", "arguments": {}}
            for name in ("open", "forbidden")
        ],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        place.chmod(0o755)  # the server may be somebody else
        (place / "definitions.json").write_text(json.dumps(definitions))
        with RabbitMQ(load_definitions=str(place / "definitions.json")) as server:
            yield server.url.replace("guest:", "plain:", 1)
            publisher.close_all()


@pytest.mark.once
def test_an_exchange_to_which_the_user_may_not_write_makes_no_row_dead(strict, txtasks):
    txtasks(
        broker_url=strict,
        queues=["default", "events", "others"],
        hand_over={"events": "exchange:forbidden", "others": "exchange:open"},
    )
    enqueue_many([(paid, (number,)) for number in range(3)])
    enqueue_task(external("billing.other", queue_name="others"), 1)
    assert handing.hand_over().handed == 0
    reasons = [row.errors[-1]["message"] for row in Task.objects.filter(queue_name="events")]
    assert len(reasons) == 3 and all(one.startswith("403 ACCESS_REFUSED") for one in reasons)
    assert handing.hand_over("others").handed == 1


@pytest.mark.once
def test_a_host_of_rabbitmq_that_the_user_may_not_enter_is_away(strict, txtasks):
    txtasks(broker_url=strict.replace("/%2F", "/closed"), hand_over={"events": "exchange:open"})
    handle = enqueue_task(paid, 1)
    drain = handing.new_drain()
    drain._turn()
    drain._turn()
    assert drain._away_count == 2 and helpers.row(handle.id).errors == []
    drain._target.close()


@pytest.mark.once
def test_refused_messages_that_the_user_may_not_send_away_stay(strict, txtasks):
    txtasks(broker_url=strict)
    with pika.BlockingConnection(pika.URLParameters(strict)) as amqp:
        properties = pika.BasicProperties(message_id="one")
        channel = amqp.channel()
        channel.queue_purge("orders")
        channel.basic_publish("open", "order", b"no JSON", properties)
    letters = DeadLetters("orders", "forbidden")
    source = MessageConsumer(get_config(), "orders", 10, letters, lambda: None)
    intake = Intake(get_config(), "default", source, letters)
    stop = threading.Event()
    with helpers.second_session(lambda: intake.run(stop.wait)):
        helpers.wait_until(lambda: intake._unsent)
        assert len(intake._refused) == 1
        stop.set()
    with pika.BlockingConnection(pika.URLParameters(strict)) as amqp:
        helpers.wait_until(lambda: amqp.channel().basic_get("orders")[0])


def test_a_session_that_waits_too_long_is_replaced_and_no_row_arrives_twice(txtasks):
    if connection.vendor != "mysql":
        pytest.skip("only MariaDB and MySQL have a wait_timeout")
    txtasks(poll_interval=60)
    options = {**connection.settings_dict["OPTIONS"], "init_command": "SET wait_timeout = 1"}
    sessions = """SELECT COUNT(*) FROM information_schema.processlist
                   WHERE db = DATABASE() AND id <> CONNECTION_ID()"""
    with (
        helpers.second_alias(OPTIONS=options),
        handing.handing_over(alias="second") as drain,
    ):
        for number in range(3):
            enqueue_task(paid, number)
            drain.inbox.wake()
            helpers.wait_until(lambda count=number + 1: drain.handed == count)
            helpers.wait_until(lambda: helpers.execute(sessions) == [(0,)])
    assert counted() == {0: 1, 1: 1, 2: 1}


def test_a_server_that_becomes_read_only_gets_no_row_sent_again_and_again():
    if connection.vendor != "mysql":
        pytest.skip("a session of PostgreSQL locks no rows while it is read-only")
    enqueue_many([(paid, (number,)) for number in range(5)])
    relay.may_go_on.clear()
    with (
        helpers.second_alias_of_plain_user(),
        handing.handing_over(alias="second") as drain,
    ):
        helpers.wait_until(lambda: relay.got)
        with helpers.read_only_server():
            relay.may_go_on.set()
            helpers.wait_until(lambda: drain._failures >= 4)
            assert set(counted().values()) == {1}
        helpers.wait_until(lambda: not Task.objects.exists())
    assert set(counted().values()) == {2}
