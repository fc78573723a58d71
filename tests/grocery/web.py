"""A web process of the grocery: it answers requests, which enqueue tasks, until SIGTERM.

Each request is a transaction. Before it, the process adds ``begun REQUEST`` to the file GROCERY_PROMISES, and
after it ``committed REQUEST`` or ``refused REQUEST``. Without the second line the answer to the COMMIT is unknown.
In the last quarter of each day, the night, few requests come.
"""

from __future__ import annotations

import os
import random
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

REQUESTS_A_SECOND = 6.0
NIGHT = 0.75
"""Part of a day after which the night begins."""
AT_NIGHT = 0.2
"""Part of the requests that come at night."""
ROLLED_BACK = 0.1
CANCELLED_AFTER = 0.7
SHARED_KEY_SECONDS = 3
MEMBERS, COPIES = 6, 4
ANSWER = "yes"


class Web:
    """Requests at a rate."""

    def __init__(self) -> None:
        self._begin, self._day = (
            float(os.environ["GROCERY_BEGIN"]),
            float(os.environ["GROCERY_DAY"]),
        )
        self._name, self._number, self._stopped = uuid.uuid4().hex[:12], 0, False
        self._to_cancel: list[tuple[float, uuid.UUID]] = []
        signal.signal(signal.SIGTERM, self._stop)

    def run(self) -> None:
        """Answer requests until the process is told to stop."""
        requests, weights = zip(*REQUESTS, strict=True)
        while not self._stopped:
            self._answer(random.choices(requests, weights)[0])
            self._cancel()
            self._bring_answers()
            time.sleep(random.expovariate(self._rate()))

    def _stop(self, *_: object) -> None:
        self._stopped = True

    def _rate(self) -> float:
        day = (time.time() - self._begin) / self._day % 1
        return REQUESTS_A_SECOND * (AT_NIGHT if day > NIGHT else 1)

    def _answer(self, request: Callable[[Order], None]) -> None:
        self._number += 1
        order = Order(f"{self._name}-{self._number}", self._number)
        self._note(f"begun {order.name}")
        promise = self._patiently(lambda: request(order), roll_back=random.random() < ROLLED_BACK)
        if promise != "unknown":
            self._note(f"{promise} {order.name}")
        if promise == "committed":
            self._to_cancel += [(time.monotonic(), task) for task in order.to_cancel]

    def _note(self, line: str) -> None:
        with Path(os.environ["GROCERY_PROMISES"]).open("a") as promises:
            promises.write(f"{line}\n")

    def _patiently(self, write: Callable[[], object], *, roll_back: bool = False) -> str:
        """Write in a transaction; rest for a moment if the database is away."""
        from promises import promised

        promise = promised(write, roll_back=roll_back)
        if promise != "committed" and not roll_back:
            time.sleep(0.2)
        return promise

    def _cancel(self) -> None:
        while self._to_cancel and self._to_cancel[0][0] < time.monotonic() - CANCELLED_AFTER:
            task = self._to_cancel.pop(0)[1]
            self._patiently(lambda task=task: cancel(task))

    def _bring_answers(self) -> None:
        self._patiently(answer_one)


class Order:
    """One request.

    Attributes:
        name: unique.
        number: of the request in its process.
        to_cancel: tasks to be cancelled a moment after the commit.
    """

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number
        self.to_cancel: list[uuid.UUID] = []

    def ask(self, kind: str, function: Any, *more: Any, key: str = "") -> Any:
        """Enqueue a task, whose first argument is the name of the request or ``key``."""
        handle = function.enqueue(key or self.name, *more)
        self.note(kind, handle.id, key)
        return handle

    def note(self, kind: str, task: uuid.UUID, key: str = "") -> None:
        """Write down what was asked for."""
        from grocery.models import Asked

        Asked.objects.create(request=self.name, kind=kind, key=key or self.name, task=task)


# -- requests -----------------------------------------------------------------------------------------


def one(kind: str, function: str) -> Callable[[Order], None]:
    """Return a request that enqueues one task."""

    def request(order: Order) -> None:
        from grocery import tasks

        order.ask(kind, getattr(tasks, function))

    return request


def unique(order: Order) -> None:
    """Enqueue twice under a key of this process, with the number of the request."""
    from grocery import tasks

    for _ in range(2):
        order.ask("unique", tasks.reindex, order.number, key=order.name.partition("-")[0])


def once(order: Order) -> None:
    """Enqueue under an idempotency key that other requests use, too, also in other processes."""
    from grocery import tasks

    period = int(time.time() / SHARED_KEY_SECONDS)
    order.ask("once", tasks.receive, key=f"{period} {random.randrange(2)}")


def in_lane(order: Order) -> None:
    """Enqueue into one of two lanes, several tasks at a time."""
    from grocery import tasks

    for copy in range(COPIES):
        order.ask("lane", tasks.print_bill, random.randrange(2), key=f"{order.name} {copy}")


def together(order: Order) -> None:
    """Enqueue tasks of a function that takes many; each fifth is rejected."""
    from django_txtasks import enqueue_many
    from grocery import tasks

    keys = [f"{order.name} {copy}" for copy in range(COPIES)]
    calls = [(tasks.label, [[key, random.random() < 0.2]]) for key in keys]
    for key, handle in zip(keys, enqueue_many(calls), strict=True):
        order.note("many", handle.id, key)


def group(order: Order) -> None:
    """Open a batch; in one of three, one member is rejected."""
    from django_txtasks import batch
    from grocery import tasks

    broken = random.randrange(3 * MEMBERS)
    with batch(name=order.name, on_finish=tasks.tell) as members:
        for number in range(MEMBERS):
            order.ask("member", tasks.pack, number == broken, key=f"{order.name} {number}")
    order.note("batch", members.id)


def paid(order: Order) -> None:
    """Publish an event with two subscribers."""
    from django_txtasks import publish

    for kind, handle in zip(("receipt", "carrier"), publish("order.paid", order.name), strict=True):
        order.note(kind, handle.id)


def to_cancel(order: Order) -> None:
    """Enqueue a task for later, to cancel it before or after it has begun."""
    from grocery import tasks

    handle = order.ask("later", tasks.later.using(run_after=random.uniform(0.5, 3)))
    order.to_cancel.append(handle.id)


REQUESTS: list[tuple[Callable[[Order], None], float]] = [
    (one("atomic", "book"), 3),
    (one("idempotent", "ship"), 3),
    (one("default", "call"), 2),
    (one("compensated", "charge"), 1),
    (one("failing", "fail"), 0.5),
    (one("retrying", "retry"), 0.7),
    (one("timed out", "hang"), 0.2),
    (one("mail", "mail"), 2),
    (one("snoozing", "snooze"), 0.6),
    (one("steps", "approve"), 1),
    (one("async steps", "deliver"), 0.6),
    (one("async", "ask_supplier"), 3),
    (one("async default", "pay_supplier"), 1.5),
    (one("flips", "count_stock"), 1),
    (to_cancel, 1),
    (unique, 3),
    (once, 2),
    (in_lane, 0.7),
    (together, 0.5),
    (group, 0.4),
    (paid, 1),
]
"""Requests, with the weight of each."""


def cancel(task: uuid.UUID) -> None:
    """Cancel a task, and keep the answer."""
    from django_txtasks import cancel_task
    from grocery.models import Cancelled

    Cancelled.objects.create(task=task, answer=cancel_task(task).name)


def answer_one() -> None:
    """Bring the answer for which a task waits, if one does."""
    from django_txtasks import resume
    from grocery.models import Token

    waiting = Token.objects.filter(is_silent=False, counts=None)
    token = waiting.select_for_update(skip_locked=True).order_by("id").first()
    if token is not None:
        token.counts = resume(token.token, ANSWER)
        token.save()


if __name__ == "__main__":
    import django

    django.setup()
    Web().run()
