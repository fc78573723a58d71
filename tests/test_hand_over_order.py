"""Ordered queues, looked at by the receiver: what it got, in which order, and how often."""

import json
import uuid

import handing
import helpers
import pytest
from django.db import transaction
from probe import relay
from test_hand_over_exchange import arrived, channel_to, exchange  # noqa: F401

from django_txtasks import Refused, enqueue_many, enqueue_task, external
from django_txtasks.exceptions import Away
from django_txtasks.models import Task

pytestmark = pytest.mark.usefixtures("rows", "quick_target")
paid = external("good", queue_name="events")
LATE, NEVER = 3, 5
"""Numbers of the row that does not go at first, and of the row that never goes."""
IN_ORDER = [0, 1, 2, 3, 4, 6, 7]


class Receiver:
    """A function that takes no late row in the first two tries, and never the row that never goes.

    Attributes:
        asked: number of each row, each time that it came.
        got: number of each row that it took.
    """

    def __init__(self, answer):
        self._answer, self.asked, self.got = answer, [], []

    def send(self, rows):
        left = {}
        for row in rows:
            (number,) = row.args
            self.asked.append(number)
            if number == NEVER:
                left[row.id] = Refused("never")
            elif number == LATE and self.asked.count(LATE) <= 2:
                if isinstance(self._answer, Exception):
                    raise self._answer
                left[row.id] = self._answer
            else:
                self.got.append(number)
        return left


@pytest.mark.parametrize(
    "answer",
    ["full", ValueError("odd"), Away("closed"), ConnectionResetError("cut"), Exception("\x00")],
    ids=["reason", "error", "away", "network", "NUL"],
)
def test_a_function_gets_no_row_before_an_earlier_one_is_taken(answer, txtasks, monkeypatch):
    receiver = Receiver(answer)
    monkeypatch.setattr(relay, "send", receiver.send)
    txtasks(hand_over={"events": {"to": "probe.relay.send", "ordered": True}})
    enqueue_many([(paid, (number,)) for number in range(8)])
    with handing.handing_over():
        helpers.wait_until(lambda: not Task.objects.exclude(status="dead").exists())
    assert receiver.got == IN_ORDER
    assert receiver.asked == [0, 1, 2, 3, 3, 3, 4, 5, 6, 7]
    assert [row.args for row in Task.objects.all()] == [[NEVER]]


def test_an_exchange_gets_no_row_before_an_earlier_one_is_taken(broker, exchange, txtasks):  # noqa: F811
    txtasks(hand_over={"events": {"to": f"exchange:{exchange}", "ordered": True}})
    names = {LATE: "late", NEVER: "é" * 130}  # more bytes than a routing key can have
    for number in range(8):
        enqueue_task(external(names.get(number, "good"), queue_name="events"), number)
    with handing.handing_over() as drain:
        helpers.wait_until(lambda: drain._away_count >= 2)
        with channel_to(broker) as channel:
            channel.queue_bind(exchange, exchange, "late")
        helpers.wait_until(lambda: not Task.objects.exclude(status="dead").exists())
    assert [body["args"][0] for _, body in arrived(broker, exchange)] == IN_ORDER
    assert [row.args for row in Task.objects.all()] == [[NEVER]]


def test_celery_gets_no_row_before_an_earlier_one_is_taken(txtasks, tmp_path):
    pytest.importorskip("celery", reason="celery is not installed")
    import celery_site
    from probe import on_celery

    txtasks(**celery_site.SETTINGS)
    txtasks(hand_over={"celery": {"to": "probe.on_celery.app", "ordered": True}})
    key = f"late-{uuid.uuid4().hex[:8]}"
    with celery_site.here("rabbitmq", tmp_path) as site:
        for number in range(8):
            options = {"exchange": "amq.direct", "routing_key": key} if number == LATE else {}
            with transaction.atomic():
                on_celery.run.apply_async((str(number),), **options)
        text = json.dumps({"message": {"id": 1}})  # by hand: no message of Celery
        helpers.execute("UPDATE txtasks_task SET headers = %s WHERE id = %s", text, id_of(NEVER))
        with (
            channel_to(helpers.url_of("AMQP")) as channel,
            handing.handing_over("celery") as drain,
        ):
            helpers.wait_until(lambda: drain._away_count >= 2)
            channel.queue_bind(site.queue, "amq.direct", key)
            helpers.wait_until(lambda: not Task.objects.exclude(status="dead").exists())
        bodies = [body for _, body in arrived(helpers.url_of("AMQP"), site.queue)]
    assert [int(args[0]) for args, _, _ in bodies] == IN_ORDER
    assert [row.args for row in Task.objects.all()] == [[str(NEVER)]]


def id_of(number):
    (found,) = [row.pk for row in Task.objects.all() if row.args == [str(number)]]
    return found.hex
