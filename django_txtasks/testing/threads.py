"""A real worker in a thread beside the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import connections

from django_txtasks.conf import Config, get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows.turn import Subscription
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.worker import Worker
from django_txtasks.features.batches import rows as batches
from django_txtasks.features.notices.brake import brakes
from django_txtasks.models import Status, Task
from django_txtasks.processes.shutdown import Shutdown

POLL = timedelta(milliseconds=50)


class TestWorker:
    """The object that ``worker()`` yields."""

    __test__ = False  # not a test case, despite its name

    def __init__(self, alias: str, thread: threading.Thread, failures: list[BaseException]) -> None:
        self._alias, self._thread, self._failures = alias, thread, failures

    def wait_until_idle(self, seconds: float = 30.0) -> None:
        """Return when no task is due or running.

        Raises:
            AssertionError: tasks are left after ``seconds``; the message names them.
        """
        end = time.monotonic() + seconds
        while left := self._left():
            if self._failures:
                raise self._failures[0]
            if time.monotonic() > end or not self._thread.is_alive():
                raise AssertionError(f"The worker is not idle after {seconds} s: {', '.join(left)}")
            time.sleep(0.02)

    def _left(self) -> list[str]:
        if left := self._tasks_left():
            return left
        over, _ = batches.without_live_member(self._alias, batches.FIRST_ID)
        if over:
            return [f"batch {batch} is about to end" for batch in over]
        # a batch that ended between the two looks may have enqueued tasks
        return self._tasks_left()

    def _tasks_left(self) -> list[str]:
        tasks = Task.objects.using(self._alias)
        rows = tasks.due() | tasks.in_state(Status.CLAIMED)
        return [f"{row} is {row.status}" for row in rows[:10]]


@contextmanager
def worker(
    *, using: str = "default", queues: Sequence[str] | None = None, threads: int = 2
) -> Iterator[TestWorker]:
    """Run a real worker in a thread, for Django's ``TransactionTestCase``. It sees committed tasks only.

    It has no broker, and scans every 50 ms. At the end it finishes its running tasks.

    Raises:
        RuntimeError: the test runs in a transaction, or on a database that threads cannot share.
    """
    connection: Any = connections[using]
    if connection.in_atomic_block:
        raise RuntimeError(
            "worker() sees committed tasks only, and this test runs in a transaction. "
            "Use TransactionTestCase (pytest: the fixture txtasks_worker), or run_due_tasks()."
        )
    if connection.vendor == "sqlite" and connection.is_in_memory_db():
        raise RuntimeError(
            "worker() runs in a thread of its own, and this SQLite database is in memory. "
            f"Give it a file: DATABASES[{using!r}]['TEST'] = {{'NAME': 'test.sqlite3'}}"
        )
    brakes.pop(using, None)  # deaths in other tests must not hold back notices in this one
    config = _without_broker(get_config())
    thread, stop, failures = _start(
        config, using, list(queues or config.queues_of_workers), threads
    )
    try:
        yield TestWorker(using, thread, failures)
    finally:
        stop.request()
        thread.join()
    if failures:
        raise failures[0]


def _without_broker(config: Config) -> Config:
    notices = replace(config.dead_notices, exchange="")
    return replace(config, broker_url=None, poll_interval=POLL, dead_notices=notices)


def _start(
    config: Config, alias: str, queues: list[str], threads: int
) -> tuple[threading.Thread, Shutdown, list[BaseException]]:
    inbox = HintInbox()
    stop = Shutdown(config.grace.total_seconds(), inbox.wake)
    names = registry.names()
    real = Worker(
        config,
        Subscription(alias, tuple(queues), tuple(names)),
        threads=threads,
        inbox=inbox,
        stop=stop,
    )
    failures: list[BaseException] = []

    def run() -> None:
        try:
            real.run()
        except BaseException as error:  # passed on to the test
            failures.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run, name="txtasks-test-worker", daemon=True)
    thread.start()
    return thread, stop, failures
