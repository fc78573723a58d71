"""A target of ``TXTASKS["hand_over"]``: a function that remembers what it got, and does what a test asks of it."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from django_txtasks.features.hand_over import passes
from django_txtasks.features.hand_over.targets import calling

if limit := os.environ.get("TXTASKS_TEST_SESSION_LIMIT"):  # of a process that a test freezes
    passes.SESSION_LIMIT = timedelta(seconds=float(limit))

if os.environ.get("TXTASKS_TEST_QUICK_CALLS"):
    calling.CALL_SECONDS, calling.GIVE_UP_SECONDS, calling.MOST_GIVEN_UP = 0.2, 0.4, 2

got = []
"""The rows of each call."""
answers = {}
"""By task name: what becomes of a row: text = postponed, ``Refused`` = dead, another error = raised."""
may_go_on = threading.Event()


def reset():
    """Forget everything."""
    got.clear()
    answers.clear()
    may_go_on.set()


def send(rows):
    """Take rows, or not."""
    got.append(list(rows))
    may_go_on.wait(60)
    left = {}
    for row in rows:
        answer = answers.get(row.task_name)
        if isinstance(answer, BaseException) and not type(answer).__name__ == "Refused":
            raise answer
        if answer is not None:
            left[row.id] = answer
    return left


def names():
    """Return the task names of all rows, in their order."""
    return [row.task_name for rows in got for row in rows]


def hang(rows):
    """Like ``write``, but never return from a row of the task "bad": it waits for another thread."""
    for row in rows:
        if row.task_name == "bad":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(threading.Event().wait).result()
        write([row])


def write_at_last(rows):
    """Like ``write``, but take every 150th row at the second try in this process only."""
    left = {}
    for row in rows:
        if row.args[0] % 150 == 7 and row.id not in _seen:
            _seen.add(row.id)
            left[row.id] = "full"
        else:
            write([row])
    return left


_seen = set()


def write(rows):
    """Write a line for each row to a file, slowly, so that a test can kill this process in the middle."""
    file = os.open(os.environ["TXTASKS_TEST_RELAY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        for row in rows:
            os.write(file, f"{row.args[0]} {os.getpid()}\n".encode())
            time.sleep(0.002)
    finally:
        os.close(file)
