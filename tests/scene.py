"""Rows of a shop on a bad evening, for pages that a person looks at: browser tests and pictures.

No process runs: workers and cleaners are rows with a beat of now. ``beat()`` renews it: after 15 s the workers
would be silent.
"""

from __future__ import annotations

import math
import uuid
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from django_txtasks.features.figures import histogram
from django_txtasks.features.figures.adding_up import MINUTE, TEN_MINUTES
from django_txtasks.models import Cleaner, Lane, PausedQueue, Schedule, Stat, Status, Task, Worker

RECEIPT, PRINT, CHARGE = (
    f"orders.tasks.{name}" for name in ("send_receipt", "print_receipt", "charge_card")
)
STOCK = "orders.tasks.sync_stock"  # of a newer release than this code
NAMES = [RECEIPT, PRINT, CHARGE, STOCK]
OLD, NEW = "9e0b77", "4f2a1c"
HOUR = 60  # minutes
DEPLOYED = 19  # minutes ago
LEASE = 15.0


def fill(times: int = 1) -> None:
    """Write the scene: problems of every kind, and ``times`` as many waiting and dead tasks."""
    now = timezone.now()
    workers = _workers(now)
    _running(now, workers)
    _waiting(now, times)
    _failed(now, times)
    _schedules(now)
    _figures(now, times)
    PausedQueue.objects.create(
        pk="mail", paused_by="ada", reason="the provider answers 503",
        paused_at=now - timedelta(minutes=DEPLOYED),
    )  # fmt: skip


def pages() -> dict[str, str]:
    """Return the addresses of pages that show the scene, by name."""
    task = Task.objects.filter(cause=7001, status=Status.DEAD).latest("run_after")
    base = "/admin/txtasks/"
    return {
        "glance": f"{base}overview/",
        "tasks": f"{base}task/",
        "cause": f"{base}task/?cause=7001&state=dead",
        "task": f"{base}task/{task.pk}/change/",
        "workers": f"{base}worker/",
    }


def beat() -> None:
    """Renew the beats of the workers and the cleaner that are alive."""
    Worker.objects.filter(lost=False).update(seen_at=timezone.now())
    Cleaner.objects.update(seen_at=timezone.now(), passed_at=timezone.now())


def add(number: int = 1, *, ago: float = 0, **columns: Any) -> list[Task]:
    """Write tasks that were due ``ago`` seconds ago."""
    due = timezone.now() - timedelta(seconds=ago)
    usual = {
        "task_name": CHARGE,
        "run_after": due,
        "args": ["visa 4711"],
        "kwargs": {},
        "errors": [],
    }
    return Task.objects.bulk_create(
        [Task(id=uuid.uuid4(), **usual | columns) for _ in range(number)], batch_size=1000
    )


def error(kind: str, message: str, *, attempt: int = 1) -> dict[str, Any]:
    """Return an entry of ``Task.errors``."""
    last_line = f"{kind.removeprefix('builtins.')}: {message}"
    return {
        "attempt": attempt, "at": timezone.now().isoformat(), "class": kind,
        "type": kind.rpartition(".")[2], "message": message,
        "traceback": f"Traceback (most recent call last):\n  …\n{last_line}\n",
    }  # fmt: skip


def worker(host: str, pid: int, queues: list[str], **columns: Any) -> Worker:
    """Write the row of a worker that is alive."""
    usual = {"threads": 4, "lease": LEASE, "task_names": NAMES, "listening": True, "release": NEW}
    return Worker.objects.create(
        id=uuid.uuid4(), host=host, pid=pid, queues=queues, **usual | columns
    )


def _workers(now: datetime) -> dict[str, Worker]:
    Cleaner.objects.create(
        id=uuid.uuid4(), host="web-1", pid=409, interval=30.0, lease=60.0, passed_at=now
    )
    deployed, before = now - timedelta(minutes=DEPLOYED), now - timedelta(hours=30)
    new = {"started_at": deployed}
    return {
        "web-1": worker("web-1", 411, ["default", "mail"], running=3, **new),
        "web-2": worker("web-2", 933, ["default", "mail"], running=1, **new),
        "web-3": worker(
            "web-3", 8122, ["reports"], running=4, release=OLD, started_at=before, listening=True
        ),
        "web-4": worker(
            "web-4", 77, ["imports"], lost=True, seen_at=now - timedelta(minutes=3), **new
        ),
    }


def _running(now: datetime, workers: dict[str, Worker]) -> None:
    def run(host: str, name: str, seconds: float, **columns: Any) -> uuid.UUID:
        since = now - timedelta(seconds=seconds)
        columns |= {"claimed_at": since, "started_at": since, "attempt": 1}
        (one,) = add(
            task_name=name, status=Status.CLAIMED, worker=workers[host].pk, ago=seconds, **columns
        )
        return one.pk

    reports = {"queue_name": "reports", "lane": "printer"}
    page = run(
        "web-3", PRINT, 660, args=[1288], kwargs={"seconds": 600}, timeout=720,
        **reports,
    )  # fmt: skip
    run("web-3", PRINT, 42, args=[1290], timeout=720, **reports)
    stock = run("web-1", STOCK, 240, args=[])
    run("web-2", CHARGE, 38, timeout=300)
    Lane.objects.create(pk="printer", at_most=2)
    notes = {
        "web-3": {str(page): [211, 230, "page 211 of 230"]},
        "web-1": {str(stock): [61, 100, ""]},
    }
    for host, progress in notes.items():
        Worker.objects.filter(pk=workers[host].pk).update(progress=progress)


def _waiting(now: datetime, times: int) -> None:
    add(12, ago=0.4)
    add(40 * times, queue_name="mail", task_name=RECEIPT, args=[90117], ago=60 * DEPLOYED)
    add(20 * times, queue_name="imports", task_name=STOCK, args=[], ago=180)
    add(9 * times, queue_name="reports", task_name=PRINT, lane="printer", ago=42)
    add(120, ago=-3600)
    add(12, status=Status.HELD, ago=86_400)


def _failed(now: datetime, times: int) -> None:
    late = error("builtins.TimeoutError", "the provider answered nothing within 3 s (order 90117)")
    mail = {"queue_name": "mail", "task_name": RECEIPT, "args": [90117], "cause": 7001}
    add(40 * times, ago=60, status=Status.DEAD, errors=[late], failures=5, attempt=5, **mail)
    add(1, ago=60 * DEPLOYED - 20, status=Status.DEAD, errors=[late], **mail)
    add(3 * times, ago=-20, errors=[late], failures=2, attempt=2, **mail)
    unknown = [error("builtins.ValueError", "no bank knows the card visa 4711")]
    add(5, ago=200_000, status=Status.DEAD, task_name=CHARGE, errors=unknown, cause=7002)
    crash = [error("WorkerLost", "host web-3 pid 8122 ended while it ran: not idempotent")]
    crashed = {"queue_name": "reports", "task_name": PRINT, "crashes": 1, "cause": 7003}
    add(3, ago=90_000, status=Status.DEAD, errors=crash, **crashed)


def _schedules(now: datetime) -> None:
    late = now - timedelta(minutes=20)
    Schedule.objects.create(
        name="nightly-report", task_name=PRINT, queue_name="reports", cron="0 3 * * *",
        next_at=late, watched_from=now - timedelta(days=2),
    )  # fmt: skip


def _figures(now: datetime, times: int) -> None:
    """Write the counts of the last hour: the mail fails since the deploy."""
    minute = now.replace(second=0, microsecond=0)
    rows = []
    for ago in range(1, HOUR):
        start, wave = minute - timedelta(minutes=ago), 1 + 0.25 * math.sin(ago / 7)
        is_bad = ago <= DEPLOYED
        done = {"default": 41, "mail": 6 if is_bad else 38, "imports": 0 if ago < 4 else 9}
        failed = {"mail": 27 if is_bad else 0}
        due = {"mail": 40 * times * (DEPLOYED - ago) // DEPLOYED if is_bad else 0}
        rows += [
            Stat(
                width=MINUTE, starts_at=start, queue_name=queue, due=due.get(queue, 3),
                succeeded=round(done.get(queue, 2) * wave), failed=failed.get(queue, 0),
            )
            for queue in ("default", "mail", "imports", "reports")
        ]  # fmt: skip
    part = minute.replace(minute=minute.minute // 10 * 10)
    for name, queue, good, bad, seconds in (
        (RECEIPT, "mail", 1842, 410, 0.4),
        (PRINT, "reports", 31, 1, 38),
        (STOCK, "default", 2011, 0, 0.045),
    ):
        place = histogram.bucket_of(seconds)
        run = f"{place}:{good} {place + 3}:{bad + good // 9}"
        rows.append(
            Stat(
                width=TEN_MINUTES, starts_at=part, queue_name=queue, task_name=name, run=run,
                succeeded=good, failed=bad, run_ms=round(1000 * seconds * good), wait=f"5:{good} 9:{good // 9}",
            )
        )  # fmt: skip
    Stat.objects.bulk_create(rows)
