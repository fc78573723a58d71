r"""A storm of an intake: it is killed again and again, RabbitMQ restarts, and each message has its effect once.

The suite runs the short form. The long form has 10,000 messages, 20 kills and 5 restarts of a RabbitMQ of its own:

    TXTASKS_TEST_INTAKE_MESSAGES=10000 python tests/services.py -- sh -c \
        'TXTASKS_DATABASE_URL=$TXTASKS_TEST_POSTGRES_URL pytest -s -o faulthandler_timeout=0 \
             tests/test_intake_storm.py'
"""

import contextlib
import json
import os
import random
import re
import signal
import time
import uuid

import helpers
import pika
import pytest
import services
from probe.models import Run

from django_txtasks.hints.broker.dead_letters import REASON
from django_txtasks.models import Once

pytestmark = pytest.mark.usefixtures("rows")

LONG = int(os.environ.get("TXTASKS_TEST_INTAKE_MESSAGES", "0"))
MESSAGES, KILLS, RESTARTS = (LONG, 20, 5) if LONG else (300, 3, 0)
EACH_BAD = 20  # one message of so many is refused
TAKEN = re.compile(r"messages taken: (\d+); of new tasks: (\d+)")


@pytest.fixture
def rabbitmq(broker, txtasks):
    """The server of the suite; for the long form one that can restart."""
    if not RESTARTS:
        yield None, broker
        return
    with services.RabbitMQ() as server:
        txtasks(broker_url=server.url)
        yield server, server.url


class Producer:
    """Another application: it sends each message until RabbitMQ confirms it."""

    def __init__(self, url, queue):
        self.url, self.queue, self.sent = url, queue, 0

    def send(self, numbers):
        """Send these messages; after a cut connection, those again that were not confirmed."""
        left = list(numbers)
        while left:
            with (
                contextlib.suppress(pika.exceptions.AMQPError, OSError),
                pika.BlockingConnection(pika.URLParameters(self.url)) as amqp,
            ):
                channel = amqp.channel()
                channel.queue_declare(self.queue, durable=True)
                channel.confirm_delivery()
                while left:
                    properties = pika.BasicProperties(message_id=f"id {left[0]}", delivery_mode=2)
                    channel.basic_publish(
                        "", self.queue, body_of(left[0]), properties, mandatory=True
                    )
                    self.sent += 1
                    del left[0]

    def waiting(self):
        with pika.BlockingConnection(pika.URLParameters(self.url)) as amqp:
            return amqp.channel().queue_declare(self.queue, passive=True).method.message_count

    def refused(self):
        """Take the refused messages; return their ids."""
        with pika.BlockingConnection(pika.URLParameters(self.url)) as amqp:
            channel, found = amqp.channel(), []
            while True:
                method, properties, _ = channel.basic_get(f"{self.queue}.refused", auto_ack=True)
                if method is None:
                    return found
                assert "unknown key" in properties.headers[REASON]
                found.append(properties.message_id)


def is_bad(number):
    return number % EACH_BAD == EACH_BAD - 1


def body_of(number):
    more = {"typo": 1} if is_bad(number) else {}
    return json.dumps({"task": "probe.tasks.taken", "args": [f"message {number}"], **more}).encode()


def test_each_message_has_its_effect_once(rabbitmq, processes, txtasks):
    server, url = rabbitmq
    txtasks(poll_interval=0.1)
    producer = Producer(url, f"storm-{uuid.uuid4().hex[:8]}")
    producer.send([])
    command = ["runintake", f"--queue={producer.queue}", "--prefetch=20"]
    intakes = [processes.start(*command) for _ in range(2)]
    logs = list(intakes)
    processes.start("runworkers", "--threads=4")
    portion, begun = MESSAGES // (KILLS + 1) + 1, time.monotonic()
    for kill, first in enumerate(range(0, MESSAGES, portion)):
        numbers = range(first, min(first + portion, MESSAGES))
        before = Once.objects.count()
        producer.send(numbers)
        helpers.wait_until(lambda before=before: Once.objects.count() > before)
        if kill < KILLS:
            time.sleep(random.uniform(0, 0.03))  # somewhere in a batch
            victim = intakes.pop(0)
            os.kill(victim.pid, signal.SIGKILL)
            intakes.append(processes.start(*command))
            logs.append(intakes[-1])
        if server and kill % (KILLS // RESTARTS) == 1:
            server.stop()
            server.start()
    good = {f"message {n}" for n in range(MESSAGES) if not is_bad(n)}
    bad = {f"id {n}" for n in range(MESSAGES) if is_bad(n)}
    helpers.wait_until(
        lambda: Run.objects.values("key").distinct().count() == len(good),
        what=lambda: f"{Run.objects.count()} of {len(good)} effects; {helpers.counts()}",
    )
    refused = []

    def all_refused():
        refused.extend(producer.refused())
        return set(refused) >= bad and not producer.waiting()

    helpers.wait_until(all_refused, what=lambda: f"{len(set(refused))} of {len(bad)} refused")
    for one in intakes:
        one.terminate()
    assert [one.wait(helpers.PATIENCE) for one in intakes] == [0, 0]
    refused += producer.refused()
    helpers.wait_until(lambda: helpers.counts()["finished"] == len(good))
    assert producer.waiting() == 0  # all were acknowledged
    assert set(refused) == bad
    assert sorted(Run.objects.values_list("key", flat=True)) == sorted(good)
    counts = helpers.counts()
    assert counts["finished"] == len(good)
    assert not any(count for state, count in counts.items() if state != "finished")
    took = [TAKEN.findall(processes.log_of(one)) for one in logs]
    again = sum(int(count) - int(new) for found in took for count, new in found)
    print(
        f"{MESSAGES} messages ({producer.sent} sent), {KILLS} kills, {RESTARTS} restarts of RabbitMQ, "
        f"{time.monotonic() - begun:.0f} s: {len(good)} effects, each once; {again} messages were delivered "
        f"again after their COMMIT; {len(refused)} refusals of {len(bad)} messages"
    )
    helpers.delete_queues(url, [producer.queue, f"{producer.queue}.refused"])
