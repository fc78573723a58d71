"""A large site of django-absurd, and the first pages of its admin's lists."""

from __future__ import annotations

import sys

from django.core.management import call_command

from peers import pages, with_tasks

task = with_tasks.set_up("django_absurd", "django_absurd.backends.AbsurdBackend")
# The same shares of states as in txtasks_pages, and as many finished rows. Its tables keep both together.
TASKS = """
    INSERT INTO absurd.t_default (task_id, task_name, params, state, attempts, enqueue_at)
    SELECT absurd.portable_uuidv7(), 'shop.tasks.task_' || MOD(n * 7, 200), jsonb_build_array(n, 'some text'),
           {state}, 1, now() - n * interval '0.1 second'
      FROM generate_series(%s, %s) AS n
"""
RUNS = """
    INSERT INTO absurd.r_default (run_id, task_id, attempt, state, available_at, created_at)
    SELECT absurd.portable_uuidv7(), task_id, 1, state, enqueue_at, enqueue_at FROM absurd.t_default
"""
LIVE = "CASE WHEN MOD(n, 1000) < 110 THEN 'failed' WHEN MOD(n, 1000) = 150 THEN 'running' ELSE 'pending' END"
STEP = 200_000


def prepare() -> None:
    """Migrate, and make its views."""
    call_command("migrate", verbosity=0)
    call_command("absurd_sync_queues", verbosity=0)


def fill(live: str, finished: str) -> None:
    """Write live tasks and finished ones, each with its run."""
    from django.db import connection

    with connection.cursor() as cursor:
        for state, count in ((LIVE, int(live)), ("'completed'", int(finished))):
            for start in range(1, count + 1, STEP):
                cursor.execute(TASKS.format(state=state), [start, min(count, start + STEP - 1)])
        cursor.execute(RUNS)


def vacuum() -> None:
    """Vacuum and analyze, as the database does after a while."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def visit(repeat: str, path: str) -> None:
    """Open the first page of each list."""
    urls = [f"/admin/django_absurd/{name}/" for name in ("task", "run", "queue")]
    urls += [f"/admin/django_absurd/{name}/?state__exact=failed" for name in ("task", "run")]
    found = pages.opened(urls, int(repeat), counts_rows=False)
    pages.tell(path, {url.replace("/admin/", ""): one for url, one in found.items()})
    print(found, file=sys.stderr)
