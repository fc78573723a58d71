"""Drains behind a pooler, before an exchange that is forbidden, and on a MariaDB that cuts or refuses."""

import uuid
from collections import Counter

import handing
import helpers
import pika
import pytest
from django.db import connection
from probe import relay
from servers import PgBouncer

from django_txtasks import enqueue_many, enqueue_task, external
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
    monkeypatch.setattr("django_txtasks.hand_over.drain.MOST_ROWS", 20)
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


@pytest.mark.once
def test_an_exchange_to_which_the_user_may_not_write_makes_no_row_dead(broker, txtasks):
    """RabbitMQ gives the same answer for an internal exchange as for a user without the permission."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        channel = amqp.channel()
        channel.exchange_declare(name, "topic", internal=True)
        txtasks(hand_over={"events": f"exchange:{name}"})
        enqueue_many([(paid, (number,)) for number in range(3)])
        handing.hand_over()
        reasons = [row.errors[-1]["message"] for row in Task.objects.filter(status="pending")]
        assert len(reasons) == 3 and all(one.startswith("403 ACCESS_REFUSED") for one in reasons)
        channel.exchange_delete(name)


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
    user = f"plain_{uuid.uuid4().hex[:8]}"
    helpers.execute(f"CREATE USER {user}@'%%' IDENTIFIED BY 'x'")
    helpers.execute(f"GRANT ALL ON `{connection.settings_dict['NAME']}`.* TO {user}@'%%'")
    enqueue_many([(paid, (number,)) for number in range(5)])
    try:
        relay.may_go_on.clear()
        with (
            helpers.second_alias(USER=user, PASSWORD="x", HOST="127.0.0.1"),
            handing.handing_over(alias="second") as drain,
        ):
            helpers.wait_until(lambda: relay.got)
            helpers.execute("SET GLOBAL read_only = 1")
            relay.may_go_on.set()
            helpers.wait_until(lambda: drain._failures >= 4)
            assert set(counted().values()) == {1}
            helpers.execute("SET GLOBAL read_only = 0")
            helpers.wait_until(lambda: not Task.objects.exists())
    finally:
        helpers.execute("SET GLOBAL read_only = 0")
        helpers.execute(f"DROP USER {user}@'%%'")
    assert set(counted().values()) == {2}
