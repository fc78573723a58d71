"""A worker in another language as its author starts it, and the rows that it works on, in a scratch database."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections
from django.db.models import F
from django.utils import timezone

from django_txtasks.conf import Config
from django_txtasks.contrib.verify.scratch import ALIAS
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.models import FinishedTask, PausedQueue, Task, Worker

QUEUE = "conformance"
ECHO, FAIL, WORK = FUNCTIONS = ("conformance.echo", "conformance.fail", "conformance.work")
"""The functions that the author writes for this check."""
EFFECTS = "conformance"
"""The table into which ``WORK`` inserts its key."""
PATIENCE, PAUSE = 30.0, 0.05
"""Seconds that the worker has for each thing that it must do, and seconds between two looks."""


class Broken(Exception):
    """A rule is broken; the text has the finding and the remedy."""


class Guest:
    """The worker's process and its rows.

    Args:
        command: starts the worker, without a shell.
        config: of the cleaner that watches it.
        lease: in seconds, which the worker is asked to use.
        log: gets the output of the worker.
        patience: seconds that the worker has for each thing that it must do.
    """

    def __init__(
        self, command: str, config: Config, lease: float, log: Path, *, patience: float = PATIENCE
    ) -> None:
        self._command, self.lease, self._log = shlex.split(command), lease, log
        self.patience = patience
        self._cleaner = Cleaner(config, ALIAS)
        self._taker: uuid.UUID | None = None
        self.process: subprocess.Popen[bytes]
        self.worker: Worker

    def start(self) -> None:
        """Start the process in a group of its own, and wait for its row.

        Raises:
            Broken: the process has ended, or writes no row.
        """
        lease = f"{self.lease:g}"
        facts = {"DATABASE_URL": url(), "TXTASKS_QUEUE": QUEUE, "TXTASKS_LEASE": lease}
        known = set(Worker.objects.using(ALIAS).values_list("pk", flat=True))
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 -- the command line of the user
                self._command, env={**os.environ, **facts}, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.wait(lambda: self._registered(known) or self.process.poll() is not None)
        text = f"The command has written no row of a worker for queue {QUEUE!r}."
        todo = "Connect to DATABASE_URL, register with TXTASKS_QUEUE and TXTASKS_LEASE."
        self.expect(lambda: self._registered(known), f"{text} {todo}", 0)

    def send(self, number: int) -> None:
        """Send a signal to the process and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def end(self) -> None:
        """Kill the process, and remove its rows and sessions."""
        self.send(signal.SIGKILL)
        self.process.wait()
        for model in (Task, FinishedTask, PausedQueue, Worker):
            model.objects.using(ALIAS).all().delete()
        self._taker = None
        run(f"DELETE FROM {EFFECTS}")  # noqa: S608 -- a constant

    def wait(self, true: Callable[[], Any], seconds: float | None = None) -> bool:
        """Return True as soon as it is true, False after ``seconds``. A cleaner is at work meanwhile."""
        end = time.monotonic() + (self.patience if seconds is None else seconds)
        while not true():
            if time.monotonic() > end:
                return False
            self._cleaner.find_lost()
            time.sleep(PAUSE)
        return True

    def put(self, name: str, *args: Any, **columns: Any) -> uuid.UUID:
        """Enqueue a task that may run again after a crash; return its id."""
        task_id = uuid.uuid4()
        values = {"queue_name": QUEUE, "on_crash": "retry", "max_attempts": 3, **columns}
        Task.objects.using(ALIAS).create(
            **{"id": task_id, "task_name": name, "args": list(args), **values}
        )
        return task_id

    def row(self, task_id: uuid.UUID) -> Task | None:
        """Return the live row; None = it is gone."""
        return Task.objects.using(ALIAS).filter(pk=task_id).first()

    def finished(self, task_id: uuid.UUID) -> FinishedTask | None:
        """Return the row of the history; None = the task has not ended."""
        return FinishedTask.objects.using(ALIAS).filter(pk=task_id).first()

    def begin(self, name: str, *args: Any, **columns: Any) -> uuid.UUID:
        """Enqueue a task, and wait for its claim."""
        task_id = self.put(name, *args, **columns)
        self.expect(lambda: self.is_in(task_id, "claimed"), f"It has not claimed a task of {name}.")
        return task_id

    def is_in(self, task_id: uuid.UUID, status: str) -> bool:
        """Return True if the live row has this status."""
        return Task.objects.using(ALIAS).filter(pk=task_id, status=status).exists()

    def expect(self, true: Callable[[], Any], otherwise: str, seconds: float | None = None) -> None:
        """Wait until it is true.

        Raises:
            Broken: it is not, after ``seconds``.
        """
        if not self.wait(true, seconds):
            ended = self.process.poll()
            how = f" Its process has ended with code {ended}." if ended is not None else ""
            raise Broken(f"{otherwise}{how}")

    def take(self, task_id: uuid.UUID) -> None:
        """Claim the task for another worker, as after a loss that this one has not noticed."""
        if self._taker is None:
            self._taker = uuid.uuid4()
            Worker.objects.using(ALIAS).create(
                pk=self._taker, host="conformance", pid=os.getpid(), queues=[], task_names=["@"],
                threads=1, lease=timedelta(days=1).total_seconds(), protocol=2,
            )  # fmt: skip
        Task.objects.using(ALIAS).filter(pk=task_id).update(
            worker=self._taker,
            attempt=F("attempt") + 1,
            status="claimed",
            claimed_at=timezone.now(),
        )

    def is_with_the_other(self, task_id: uuid.UUID) -> bool:
        """Return True if the row is still as ``take`` has left it."""
        held = Task.objects.using(ALIAS).filter(pk=task_id, worker=self._taker, attempt=2)
        return held.filter(status="claimed", failures=0).exists() and not self.finished(task_id)

    def beats(self) -> int:
        """Return the number of beats of the worker's row; -1 = it is lost, or gone."""
        beats = Worker.objects.using(ALIAS).filter(pk=self.worker.pk, lost=False)
        return next(iter(beats.values_list("beat", flat=True)), -1)

    def declare_lost(self) -> None:
        """Declare the worker lost, as a cleaner does that does not see its beats."""
        Worker.objects.using(ALIAS).filter(pk=self.worker.pk).update(lost=True)

    def has_registered_again(self) -> bool:
        """Return True if the worker has a row with a new id."""
        return self._registered({self.worker.pk})

    def effects(self, key: str) -> int:
        """Return the number of committed effects of ``WORK`` with this key."""
        sql = f"SELECT count(*) FROM {EFFECTS} WHERE key = %s"  # noqa: S608 -- a constant
        ((count,),) = run(sql, key)
        return int(count)

    def _registered(self, known: set[uuid.UUID]) -> bool:
        ours = known | {one for one in (self._taker,) if one}
        new = Worker.objects.using(ALIAS).filter(lost=False).exclude(pk__in=ours)
        found = new.order_by("started_at").last()
        if found is not None:
            self.worker = found
        return found is not None


def run(sql: str, *values: Any) -> list[Any]:
    """Run a statement in the scratch database; return its rows."""
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


def url() -> str:
    """Return the address of the scratch database, for the worker."""
    at = connections[ALIAS].settings_dict
    login = ":".join(quote(at[key], safe="") for key in ("USER", "PASSWORD") if at[key])
    host, port = str(at["HOST"] or ""), str(at["PORT"] or "")
    query = ""
    if host.startswith("/"):  # a socket
        host, query = "", "?" + urlencode({"host": host})
    place = f"{host}:{port}" if host and port else host
    return (
        f"postgres://{login + '@' if login else ''}{place}/{quote(str(at['NAME']), safe='')}{query}"
    )
