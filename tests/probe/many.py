"""Functions of many tasks."""

import os
import signal
import threading
import time

from django_txtasks import Item, Reject, Retry, Snooze, TaskCancelled, task
from probe.models import Run

DOOR = threading.Event()
CALLS: list[list] = []
"""The values of each call of this process."""
DONE: list = []
"""What a test wants to know."""


def act(item):
    """Do what the value says, such as ``{"raise": "Reject"}``; anything else is only noted."""
    value = item.value
    if not isinstance(value, dict):
        Run.objects.create(key=str(value), attempt=item.attempt)
    elif "raise" in value:
        raise ERRORS[value["raise"]]()
    elif "result" in value:
        item.finish(value["result"])
    else:
        raise KeyError(str(value))


ERRORS = {
    "ValueError": lambda: ValueError("no such product"),
    "Reject": lambda: Reject("it was sold"),
    "Retry": lambda: Retry("the index is full", after=3600),
    "Snooze": lambda: Snooze(after=3600),
    "TaskCancelled": TaskCancelled,
}


@task(many=100, idempotent=True)
def index(items: list[Item]):
    """Each item decides by itself; the value "door" waits for the test."""
    CALLS.append([item.value for item in items])
    for item in items:
        if item.value == "door":
            DOOR.wait(60)
        with item:
            act(item)


@task(many=10, idempotent=True)
def kill(items: list[Item]):
    """The value "kill" ends the process, as the kernel does when memory runs out."""
    time.sleep(0.5)
    if "kill" in [item.value for item in items]:
        os.kill(os.getpid(), signal.SIGKILL)
    for item in items:
        Run.objects.create(key=str(item.value))


@task(many=5, idempotent=True, max_attempts=3)
def mail(items: list[Item]):
    """One effect for all; a value "poison" fails the call, wherever it is."""
    values = [item.value for item in items]
    CALLS.append(values)
    if "door" in values:
        DOOR.wait(60)
    if "poison" in values:
        raise ValueError("poison")
    for value in values:
        Run.objects.create(key=str(value))


@task(many=100, idempotent=True, max_attempts=2)
def play(items: list[Item]):
    """Call the function that a test has put into PLAYS."""
    CALLS.append([item.value for item in items])
    if items[0].value == "door":
        DOOR.wait(60)
        return None
    return PLAYS[0](items)


PLAYS: list = []


@task(many=50, idempotent=True)
def hang_at(items: list[Item]):
    """Note each run, and hang at the value "hang" in its first attempt, and after the value "goodbye"."""
    for item in items:
        with item:
            Run.objects.create(key=str(item.value), attempt=item.attempt, pid=os.getpid())
            if item.value == "hang" and item.attempt == 1:
                time.sleep(600)
    if items[-1].value == "goodbye":
        time.sleep(600)
