"""A site of the bakery with real processes, and what its incidents do to the site."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 60  # seconds until a state must be there
OLD, NEW = "a", "b"


class Site:
    """The processes of the site. Commands are of the new release, unless ``release`` says otherwise."""

    def __init__(self, processes: Any, broker: Any) -> None:
        self._processes, self.broker = processes, broker

    def start(self, *command: str, release: str = NEW) -> Any:
        os.environ["BAKERY_RELEASE"] = release
        try:
            return self._processes.start(*command)
        finally:
            os.environ["BAKERY_RELEASE"] = OLD

    def work(self, *options: str, release: str = NEW) -> Any:
        """Start workers and return when they beat."""
        from django_txtasks.models import Worker

        before = Worker.objects.count()
        process = self.start("runworkers", "--threads=4", *options, release=release)
        wait_for(lambda: Worker.objects.count() > before)
        return process

    def stop(self, process: Any, with_signal: int = signal.SIGTERM) -> None:
        process.send_signal(with_signal)
        process.wait(PATIENCE)


def enqueue(function: Any, number: int, *arguments: Any) -> None:
    from django_txtasks import enqueue_many

    enqueue_many([(function, [one, *arguments]) for one in range(number)])


def live(**columns: Any) -> int:
    """Return the number of live tasks."""
    from django_txtasks.models import Task

    return Task.objects.filter(**columns).count()


def wait_for(is_there: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not is_there():
        if time.monotonic() > end:
            raise RuntimeError("The incident could not be staged.")
        time.sleep(0.1)
