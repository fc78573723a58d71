"""The five guarantees. Each function shows one with real processes and reports what happened.

Raises:
    Broken: the guarantee does not hold; the message says what was found instead.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Count
from orders.models import Order, Receipt
from orders.tasks import charge_card, print_receipt, send_receipt

from django_txtasks import TaskHandle
from django_txtasks.models import FinishedTask, Status, Task, Worker

RUSH = 100
EVERY = 5
"""Each fifth order of the rush is rolled back."""


class Broken(Exception):
    """A promise was not kept."""


class ChangedMind(Exception):
    """The customer's reason to roll back."""


def a_committed_task_runs() -> str:
    """A receipt follows its order."""
    wait_for(lambda: Worker.objects.count() == 2, "2 workers to start")
    order, task = place_order("Ada")
    seconds = wait_for(lambda: finished(task), "the task of a committed order", task)
    check(receipts(order) == 1, f"{receipts(order)} receipts for one order")
    return f"an order was committed: its receipt was sent {seconds:.1f} s later"


def a_rolled_back_task_never_existed() -> str:
    """Neither the order nor its task is anywhere, however long one waits."""
    order, task = place_order("Bob", rolled_back=True)
    time.sleep(2)  # ten times the poll interval
    traces = {
        "order": Order.objects.filter(pk=order.pk, customer="Bob").exists(),
        "live task": Task.objects.filter(pk=task.id).exists(),
        "finished task": finished(task) is not None,
    }
    found = [name for name, is_there in traces.items() if is_there]
    check(not found, f"of a rolled-back order there is left: {', '.join(found)}")
    return "an order was rolled back: no order, no task, and nothing ran"


def a_killed_workers_task_is_finished_by_another() -> str:
    """The worker dies after the task's effect and before its end, which is the worst moment."""
    with transaction.atomic():
        order = Order.objects.create(customer="Grace")
        task = print_receipt.enqueue(order.pk, seconds=60)
    wait_for(lambda: receipts(order), "the effect of the first attempt", task)
    first = Worker.objects.get(pk=Task.objects.get(pk=task.id).worker)
    kill(first)
    seconds = wait_for(lambda: finished(task), "another worker to finish the task", task)
    done = finished(task)
    check(done.worker != first.pk, "the killed worker finished it")
    check(receipts(order) == 1, f"{receipts(order)} receipts for one order")
    return (
        f"a worker was killed in mid-task: another one finished the task {seconds:.1f} s later, "
        f"at attempt {done.attempt}"
    )


def a_poison_task_ends_dead() -> str:
    """It neither runs for ever nor vanishes."""
    task = charge_card.enqueue("4000 0000 0000 0002")
    wait_for(lambda: live(task, Status.DEAD), "the poison task to be dead", task)
    dead = Task.objects.get(pk=task.id)
    times = [datetime.fromisoformat(error["at"].rstrip("Z")) for error in dead.errors]
    check(len(times) == 3, f"{len(times)} attempts instead of 3")
    first, second = ((b - a).total_seconds() for a, b in itertools.pairwise(times))
    check(first >= 0.25 and second >= 0.5, f"attempts came {first:.2f} and {second:.2f} s apart")
    check("no bank" in dead.errors[-1]["message"], f"its error is {dead.errors[-1]}")
    return (
        f"a poison task failed 3 times, {first:.1f} and {second:.1f} s apart: "
        "it is dead, and its errors are kept"
    )


def every_order_has_one_receipt() -> str:
    """A rush of orders, a worker killed in the midst of it, and then the account."""
    for number in range(RUSH):
        place_order(f"customer {number}", rolled_back=number % EVERY == 0)
        if number == RUSH // 2:
            kill(Worker.objects.order_by("-seen_at")[0])  # the newest beat: it surely lives
    wait_for(lambda: not Task.objects.exclude(status=Status.DEAD).exists(), "all tasks to end")
    orders, sent = Order.objects.count(), Receipt.objects.count()
    missing = Order.objects.filter(receipt=None).count()
    doubled = Order.objects.annotate(sent=Count("receipt")).filter(sent__gt=1).count()
    dead = Task.objects.count()
    found = (
        f"{orders} orders, {sent} receipts, {missing} missing, {doubled} doubled, {dead} dead tasks"
    )
    check(orders == sent and not missing and not doubled and dead == 1, found)
    return (
        f"the audit after a rush and one more kill: {orders} orders, {sent} receipts, 0 duplicates"
    )


PROMISES: list[Callable[[], str]] = [
    a_committed_task_runs,
    a_rolled_back_task_never_existed,
    a_killed_workers_task_is_finished_by_another,
    a_poison_task_ends_dead,
    every_order_has_one_receipt,
]


def place_order(customer: str, *, rolled_back: bool = False) -> tuple[Order, TaskHandle]:
    """Write an order and its task in one transaction."""
    try:
        with transaction.atomic():
            order = Order.objects.create(customer=customer)
            task = send_receipt.enqueue(order.pk)
            if rolled_back:
                raise ChangedMind
    except ChangedMind:
        pass
    return order, task


def kill(worker: Worker) -> None:
    """End a worker process as hard as can be. Only the demo's own are in the demo's table."""
    os.kill(worker.pid, signal.SIGKILL)


def wait_for(true: Callable[[], Any], what: str, task: TaskHandle | None = None) -> float:
    """Return after how many seconds it was true."""
    start = time.monotonic()
    while not true():
        if time.monotonic() > start + 30:
            raise Broken(f"waited 30 s for {what}; found {state(task)}")
        time.sleep(0.05)
    return time.monotonic() - start


def check(kept: bool, found: str) -> None:
    """Stop here if the promise is broken."""
    if not kept:
        raise Broken(found)


def receipts(order: Order) -> int:
    """How many receipts were sent for this order."""
    return Receipt.objects.filter(order_id=order.pk).count()


def live(task: TaskHandle, status: Status) -> bool:
    """Return True if the task is in this state."""
    return Task.objects.filter(pk=task.id, status=status).exists()


def finished(task: TaskHandle) -> FinishedTask | None:
    """Return the finished row of a task, if there is one."""
    return FinishedTask.objects.filter(pk=task.id).first()


def state(task: TaskHandle | None) -> str:
    """Return the content of the task's row, for a person who looks for the cause."""
    rows = Task.objects.all() if task is None else Task.objects.filter(pk=task.id)
    shown = [f"{row.task_name} {row.status} at attempt {row.attempt}" for row in rows[:5]]
    return f"{rows.count()} live tasks: {', '.join(shown)}" if shown else "no live task"
