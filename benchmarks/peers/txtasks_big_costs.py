"""The cost of each action of this package in the database at hand, in milliseconds, for ``big.py``."""

from __future__ import annotations

import io
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import django

from peers import pages, txtasks_pages
from peers.txtasks_big import Notes, execute, tell

prepare = None
Costs = dict[str, float]
COMMANDS = ("txtasks_status", "txtasks_audit", "txtasks_preflight", "txtasks_load")
SLICES = 400
"""Number of looks at old rows of history, of 500 rows each."""
BACKLOG, AT_ONCE = 20_000, 100
TASKS = 10_000


class _Slots(set[Any]):
    """The attempts in the slots of a worker: none."""

    running = property(len)
    holds = set.copy


def measure(step: str, repeat: str, again: str) -> None:
    """Measure one step, unless it is noted."""
    django.setup()
    notes = Notes()
    if notes[step] is not None and not int(again):
        return
    found: Costs = STEPS[step](int(repeat))
    notes[step] = found
    for what, milliseconds in found.items():
        tell(f"{step}: {what}: {milliseconds:.2f} ms")


# -- the turns of a worker --------------------------------------------------------------------------


def turns(repeat: int) -> Costs:
    """Turns of a worker of a quiet queue, one action each, and the enqueueing of its tasks."""
    from bench import tasks

    from django_txtasks import enqueue_many
    from django_txtasks.core.working.schedule import Plan

    times = _Times()
    with _writer(("default",), ("bench.tasks.idempotent",)) as (writer, room):
        for _ in range(repeat):
            with times("turn: the beat alone"):
                writer.write(Plan(room(0)), _Slots(), None)
            with times("turn: a scan that finds nothing"):
                writer.write(Plan(room(4), scans=True), _Slots(), None)
            for number in (1, AT_ONCE):
                with times(f"enqueue {number}"):
                    handles = enqueue_many([(tasks.idempotent, [0])] * number)
                hinted = [one.id for one in handles]
                with times(f"turn: claim {number} by hints"):
                    found = writer.write(Plan(room(number), hinted), _Slots(), None)
                _finish(writer, room, found.claimed, times(f"turn: finish {number}, with history"))
                enqueue_many([(tasks.idempotent, [0])] * number)
                with times(f"turn: claim {number} by a scan"):
                    found = writer.write(Plan(room(number), scans=True), _Slots(), None)
                _finish(writer, room, found.claimed, _Times()(""))
    return times.fastest()


def backlog(repeat: int) -> Costs:
    """Turns that claim and finish ``AT_ONCE`` rows of a backlog in 20 queues: the first ones and the last ones."""
    from django_txtasks.core.working.schedule import Plan

    _fill_if_empty(txtasks_pages.LIVE, "txtasks_task", BACKLOG)
    queues = tuple(f"queue_{one}" for one in range(txtasks_pages.QUEUES))
    names = tuple(f"shop.tasks.task_{one}" for one in range(txtasks_pages.FUNCTIONS))
    rounds, times = max(1, min(repeat * 5, BACKLOG // AT_ONCE // 4)), _Times()
    with _writer(queues, names) as (writer, room):
        for number in range(rounds):
            part = "first" if number < rounds / 2 else "last"
            with times(f"turn: claim {AT_ONCE}, {part} turns"):
                found = writer.write(Plan(room(AT_ONCE), scans=True), _Slots(), None)
            _finish(writer, room, found.claimed, times(f"turn: finish {AT_ONCE}, {part} turns"))
            if not found.claimed:
                break
    return times.fastest()


@contextmanager
def _writer(queues: tuple[str, ...], names: tuple[str, ...]) -> Any:
    """The turns of a new worker, and the capacity for a number of short tasks."""
    from django_txtasks.conf import get_config
    from django_txtasks.core.rows.turn import Capacity, Subscription
    from django_txtasks.core.working.schedule import Plan
    from django_txtasks.core.working.turn_writer import TurnWriter

    def room(number: int) -> Capacity:
        return Capacity(number)

    writer = TurnWriter(get_config(), Subscription("default", queues, names), threads=AT_ONCE)
    writer.write(Plan(room(0)), _Slots(), None)
    yield writer, room
    writer.registration.leave()


def _finish(writer: Any, room: Any, attempts: Iterable[Any], timed: Any) -> None:
    from django_txtasks.core.rows.attempts import Arrow, Ended
    from django_txtasks.core.working.schedule import Plan

    writer.buffer.add([Ended(attempt=attempt, arrow=Arrow.FINISH) for attempt in attempts])
    with timed:
        writer.write(Plan(room(0)), _Slots(), None)


# -- people, commands and the cleaner ---------------------------------------------------------------


def visit(repeat: int) -> Costs:
    """Each page of the admin, and a scrape."""
    urls = [
        f"/admin/txtasks/{name}/{query}"
        for name, queries in txtasks_pages.LISTS.items()
        for query in queries
    ]
    glance = ["/metrics", "/admin/txtasks/overview/", "/admin/txtasks/overview/?fragment=1"]
    found = pages.opened([*glance, *urls], max(1, repeat // 6), counts_rows=False)
    return {
        url.replace("/admin/txtasks/", ""): one["database_ms"]
        for url, one in found.items()
        if one["status"] == 200
    }


def commands(repeat: int) -> Costs:
    """Commands for people, and a pass of a cleaner that finds nothing to do."""
    from django.core.management import call_command

    from django_txtasks.conf import get_config
    from django_txtasks.core.cleaning import Cleaner

    times = _Times()
    for _ in range(max(1, repeat // 10)):
        for name in COMMANDS:
            with times(name):
                try:
                    call_command(name, stdout=io.StringIO(), stderr=io.StringIO())
                except SystemExit:
                    pass  # its exit code tells of findings
                except Exception as error:
                    tell(f"{name}: {type(error).__name__}: {str(error)[:200]}")
        with times("check --database"):
            call_command("check", databases=["default"], stdout=io.StringIO(), stderr=io.StringIO())
        with times("pass of a cleaner"):
            Cleaner(get_config(), quiet=True).run_once()
    return times.fastest()


def prune(repeat: int) -> Costs:
    """Removal of the oldest rows of history, 500 in a look; then a look from the oldest row on again."""
    from django_txtasks.core.ground.retention import Horizon
    from django_txtasks.core.rows import cleaning
    from django_txtasks.database.transactions import own_transaction

    _fill_if_empty(txtasks_pages.FINISHED, "txtasks_finishedtask", BACKLOG)
    slices = min(SLICES, repeat * 15)
    horizon, place, times = Horizon(_age_of_row(slices * 500)), None, _Times()

    def look(what: str, since: Any) -> Any:
        with times(what), own_transaction("default", limit=timedelta(seconds=60), in_order=True):
            return cleaning.prune("default", horizon, since=since)

    for number in range(slices):
        removed = look(f"500 rows, {'first' if number < slices / 2 else 'last'} looks", place)
        place = removed.place or place
        if removed.looked < 500:
            break
    for _ in range(3):
        look("a look from the oldest row on, past the removed ones", None)
    return times.fastest()


def drain(repeat: int) -> Costs:
    """A worker process runs no-ops until none is left: milliseconds for each thousand."""
    from bench import tasks

    from django_txtasks import enqueue_many
    from django_txtasks.models import FinishedTask

    rates = []
    for _ in range(max(1, repeat // 10)):
        enqueue_many((tasks.idempotent, [key]) for key in range(TASKS))
        command = [sys.executable, "-m", "django", "runworkers", "--batch", "--no-cleaner"]
        subprocess.run([*command, "--threads=4", "--verbosity=0"], env=os.environ, check=True)
        newest = list(
            FinishedTask.objects.order_by("-finished_at").only("started_at", "finished_at")[:TASKS]
        )
        seconds = (newest[0].finished_at - min(one.started_at for one in newest)).total_seconds()
        rates.append(1000 * seconds / TASKS * 1000)
    return {"1,000 no-ops": min(rates)}


STEPS: dict[str, Callable[[int], Costs]] = {
    "turns": turns,
    "pages": visit,
    "commands": commands,
    "prune": prune,
    "backlog": backlog,
    "drain": drain,
}


# -- helpers ----------------------------------------------------------------------------------------


class _Times:
    """Milliseconds of blocks, by their name."""

    def __init__(self) -> None:
        self._found: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, what: str) -> Any:
        begin = time.perf_counter()
        yield
        self._found.setdefault(what, []).append(1000 * (time.perf_counter() - begin))

    def fastest(self) -> Costs:
        """Return the mean of the fastest quarter of each: other work on the machine only makes it slower."""
        return {
            what: round(statistics.mean(sorted(some)[: max(1, len(some) // 4)]), 3)
            for what, some in self._found.items()
        }


def _fill_if_empty(statement: str, table: str, count: int) -> None:
    """Write rows if the table has none, so that there is something to work on."""
    from django.db import connection

    from django_txtasks.models import Worker

    if execute(f"SELECT id FROM {table} WHERE queue_name = 'queue_1' LIMIT 1"):
        return
    worker = Worker.objects.order_by("id")[0].pk
    pieces = dict(txtasks_pages.PIECES[connection.vendor])
    pieces["worker"] = pieces["worker"].format(worker=worker, hex=worker.hex)
    sql = statement.format(
        **pieces, queues=txtasks_pages.QUEUES, functions=txtasks_pages.FUNCTIONS,
        lanes=txtasks_pages.LANES, causes=txtasks_pages.CAUSES,
    )  # fmt: skip
    execute(sql, 1, count)


def _age_of_row(number: int) -> timedelta:
    """Return the age of the row of history with this number from the oldest one on."""
    from django.utils import timezone

    from django_txtasks.models import FinishedTask

    times = FinishedTask.objects.order_by("finished_at").values_list("finished_at", flat=True)
    found = list(times[number : number + 1])
    return timezone.now() - found[0] if found else timedelta(0)
