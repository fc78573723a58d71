"""A large site of django-txtasks, and the pages of its admin."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import django

from peers import pages, txtasks

prepare = txtasks.prepare
QUEUES, FUNCTIONS, LANES, CAUSES = 20, 200, 3000, 100
# Of 1,000 live rows: 100 dead, 10 held, 40 retried later, 100 in lanes, 1 running, the rest due or later.
LIVE = """
    INSERT INTO txtasks_task (id, task_name, queue_name, priority, lane, args, kwargs, status, attempt, failures,
                              cause, errors, enqueued_at, run_after, worker, claimed_at, started_at, max_attempts)
    SELECT {id}, CONCAT('shop.tasks.task_', MOD(n * 7, {functions})), CONCAT('queue_', MOD(n, {queues})),
           MOD((n - MOD(n, {queues})) / {queues}, 4),
           CASE WHEN MOD(n, 1000) BETWEEN 200 AND 299 THEN CONCAT('customer:', MOD(n, {lanes})) ELSE '' END,
           {json_begin}CONCAT('[', n, ', "some text as an argument"]'){json_end}, '{{"express": true}}',
           CASE WHEN MOD(n, 1000) < 100 THEN 'dead' WHEN MOD(n, 1000) < 110 THEN 'held'
                WHEN MOD(n, 1000) = 150 THEN 'claimed' ELSE 'pending' END,
           CASE WHEN MOD(n, 1000) < 150 THEN 3 ELSE 0 END, CASE WHEN MOD(n, 1000) < 150 THEN 3 ELSE 0 END,
           CASE WHEN MOD(n, 1000) BETWEEN 110 AND 149 OR MOD(n, 1000) < 100 THEN MOD(n, {causes}) - 50 END,
           CASE WHEN MOD(n, 1000) BETWEEN 110 AND 149 OR MOD(n, 1000) < 100
                THEN {json_begin}'[{{"class": "shop.errors.Declined", "message": "card was declined"}}]'{json_end}
                ELSE {json_begin}'[]'{json_end} END,
           {now}, {some_time},
           CASE WHEN MOD(n, 1000) = 150 THEN {worker} END, CASE WHEN MOD(n, 1000) = 150 THEN {now} END,
           CASE WHEN MOD(n, 1000) = 150 THEN {now} END, 5
      FROM {series}
"""
FINISHED = """
    INSERT INTO txtasks_finishedtask (id, task_name, queue_name, outcome, args, kwargs, attempt, worker,
                                      enqueued_at, run_after, started_at, finished_at)
    SELECT {id}, CONCAT('shop.tasks.task_', MOD(n * 7, {functions})), CONCAT('queue_', MOD(n, {queues})),
           CASE WHEN MOD(n, 50) = 0 THEN 'discarded' ELSE 'succeeded' END,
           {json_begin}CONCAT('[', n, ', "some text as an argument"]'){json_end}, '{{"express": true}}', 1,
           {worker}, {long_ago}, {long_ago}, {long_ago}, {long_ago}
      FROM {series}
"""
PIECES = {
    "postgresql": {
        "id": "gen_random_uuid()",
        "now": "now()",
        "some_time": "now() + (MOD(n * 13, 7200) - 3600) * interval '1 second'",
        "long_ago": "now() - n * interval '0.1 second'",
        "series": "generate_series(%s, %s) AS n",
        "worker": "'{worker}'::uuid",
        "json_begin": "CAST(",
        "json_end": " AS jsonb)",
    },
    "mysql": {
        "id": "UUID()",
        "now": "UTC_TIMESTAMP(6)",
        "some_time": "UTC_TIMESTAMP(6) + INTERVAL (MOD(n * 13, 7200) - 3600) SECOND",
        "long_ago": "UTC_TIMESTAMP(6) - INTERVAL n * 100000 MICROSECOND",
        "series": "(SELECT CAST(seq AS SIGNED) AS n FROM seq_1_to_100000000 WHERE seq BETWEEN %s AND %s) AS s",
        "worker": "'{worker}'",
        "json_begin": "",
        "json_end": "",
    },
    "sqlite": {
        "id": "lower(hex(randomblob(16)))",
        "now": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now')",
        "some_time": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', (MOD(n * 13, 7200) - 3600) || ' seconds')",
        "long_ago": "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', (-n / 10.0) || ' seconds')",
        "series": (
            "(WITH RECURSIVE s(n) AS (SELECT %s UNION ALL SELECT n + 1 FROM s WHERE n < %s) SELECT n FROM s) AS s"
        ),
        "worker": "'{hex}'",
        "json_begin": "",
        "json_end": "",
    },
}
STEP = 200_000
"""Rows of one INSERT."""
LISTS = {
    "task": [
        "", "?p=3", "?o=1", "?q=task_7", "?q=zzz", "?state=pending", "?state=dead", "?state=held",
        "?state=claimed", "?state=retrying", "?running=long", "?due=due", "?due=later", "?due=overdue",
        "?queue=queue_3",
        "?state=dead&queue=queue_3", "?due=due&queue=queue_3", "?task=shop.tasks.task_7", "?task=@unknown",
        "?exception=shop.errors.Declined",
    ],
    "finishedtask": [
        "", "?p=3", "?q=task_7", "?outcome=succeeded", "?outcome=discarded", "?queue=queue_3",
        "?task=shop.tasks.task_7",
    ],
    "worker": [""], "cleaner": [""], "pausedqueue": [""], "lane": [""], "schedule": [""],
    "batch": [""],
}  # fmt: skip


def fill(live: str, finished: str) -> None:
    """Write live tasks, finished ones, 8 workers and a cleaner."""
    django.setup()
    from django.db import connection
    from django.utils import timezone

    from django_txtasks.models import Cleaner, Worker

    if connection.vendor == "sqlite":
        connection.ensure_connection()
        connection.connection.create_function("CONCAT", -1, lambda *parts: "".join(map(str, parts)))
    workers = [_worker() for _ in range(8)]
    Worker.objects.bulk_create(workers)
    Cleaner.objects.create(
        id=uuid.uuid4(), host="web-1", pid=8, interval=30.0, lease=86400.0, passed_at=timezone.now()
    )
    pieces = dict(PIECES[connection.vendor])
    pieces["worker"] = pieces["worker"].format(worker=workers[0].pk, hex=workers[0].pk.hex)
    numbers = {"queues": QUEUES, "functions": FUNCTIONS, "lanes": LANES, "causes": CAUSES}
    for statement, count in ((LIVE, int(live)), (FINISHED, int(finished))):
        for start in range(1, count + 1, STEP):
            with connection.cursor() as cursor:
                cursor.execute(
                    statement.format(**pieces, **numbers), [start, min(count, start + STEP - 1)]
                )
    _fill_statistics()


def vacuum() -> None:
    """Vacuum and analyze, as the database does after a while."""
    django.setup()
    from django.db import connection

    with connection.cursor() as cursor:
        if connection.vendor == "mysql":
            cursor.execute("ANALYZE TABLE txtasks_task, txtasks_finishedtask, txtasks_stat")
        else:
            cursor.execute("VACUUM ANALYZE" if connection.vendor == "postgresql" else "ANALYZE")


def visit(repeat: str, path: str) -> None:
    """Open each page."""
    django.setup()
    from django.db import connection

    from django_txtasks.models import FinishedTask, Status, Task

    urls = [
        f"/admin/txtasks/{name}/{query}" for name, queries in LISTS.items() for query in queries
    ]
    dead = Task.objects.filter(status=Status.DEAD).first()
    running = Task.objects.filter(status=Status.CLAIMED).first()
    done = FinishedTask.objects.first()
    urls += [f"/admin/txtasks/task/{one.pk}/change/" for one in (dead, running) if one]
    urls += [f"/admin/txtasks/finishedtask/{done.pk}/change/"] if done else []
    urls += [f"/admin/txtasks/task/?cause={dead.cause}"] if dead else []
    glance = ["/metrics", "/admin/txtasks/overview/", "/admin/txtasks/overview/?fragment=1"]
    found = pages.opened(
        [*glance, *urls], int(repeat), counts_rows=connection.vendor == "postgresql"
    )
    pages.tell(path, {url.replace("/admin/txtasks/", ""): one for url, one in found.items()})


def poll(browsers: str, seconds: str) -> None:
    """Ask for the fragment of At a glance as browsers do, each every 5 s."""
    django.setup()
    with ThreadPoolExecutor(int(browsers)) as threads:
        for done in [threads.submit(_poll, float(seconds)) for _ in range(int(browsers))]:
            done.result()


def _poll(seconds: float) -> None:
    until, client = time.monotonic() + seconds, pages.client()
    while time.monotonic() < until:
        assert client.get("/admin/txtasks/overview/?fragment=1").status_code == 200
        time.sleep(5)


def _worker() -> Any:
    from django_txtasks.models import Worker

    return Worker(
        id=uuid.uuid4(), host="web-1", pid=7, queues=[f"queue_{one}" for one in range(QUEUES)], threads=300,
        lease=86400.0, task_names=[f"shop.tasks.task_{one}" for one in range(FUNCTIONS)], listening=True,
    )  # fmt: skip


def _fill_statistics() -> None:
    """Write two hours of counts of each queue, and a day of those of each function."""
    from django.utils import timezone

    from django_txtasks.models import Stat

    now = timezone.now().replace(second=0, microsecond=0)
    counts = {
        "succeeded": 500,
        "failed": 20,
        "died": 2,
        "run_ms": 90_000,
        "wait": "0:400 3:122",
        "run": "4:522",
    }
    ten = now.replace(minute=now.minute // 10 * 10)
    Stat.objects.bulk_create(
        [
            *(
                Stat(width=60, starts_at=now - timedelta(minutes=minute), queue_name=f"queue_{queue}", due=7,
                     oldest=1.5, **counts)
                for minute in range(120) for queue in range(QUEUES)
            ),
            *(
                Stat(width=600, starts_at=ten - timedelta(minutes=10 * part),
                     queue_name=f"queue_{function % QUEUES}", task_name=f"shop.tasks.task_{function}", **counts)
                for part in range(144) for function in range(FUNCTIONS)
            ),
        ],
        batch_size=5000,
    )  # fmt: skip
