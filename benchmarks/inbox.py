"""The lists of questions to people at a large site: milliseconds of the database for each page.

    python tests/services.py -- python benchmarks/inbox.py --database postgresql [--open 100000] [--closed 1000000]

The questions are of five kinds, all of which the user may answer. A tenth of the open ones is held by another
person, a fifth is overdue. Milliseconds are medians of ``--repeat`` calls: of all statements of one call, as its
process sees them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KINDS = 5
URLS = {"postgresql": "TXTASKS_TEST_POSTGRES_URL", "mariadb": "TXTASKS_TEST_MARIADB_URL"}
NUMBERS = {
    "postgresql": "SELECT n FROM generate_series(1, {}) n",
    "mysql": "SELECT CAST(seq AS SIGNED) AS n FROM seq_1_to_{}",
    "sqlite": "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {}) SELECT n FROM s",
}
IDS = {
    "postgresql": "gen_random_uuid()",
    "mysql": "REPLACE(UUID(), '-', '')",
    "sqlite": "lower(hex(randomblob(16)))",
}
DUE = {
    "postgresql": "statement_timestamp() + (n * 79 % 3000 - 600) * interval '10 minutes'",
    "mysql": "UTC_TIMESTAMP(6) + INTERVAL (n * 79 % 3000 - 600) * 10 MINUTE",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', ((n * 79 % 3000 - 600) * 10) || ' minutes')",
}
CLOSED = {
    "postgresql": "statement_timestamp() - ({rows} - n) * interval '5 seconds'",
    "mysql": "UTC_TIMESTAMP(6) - INTERVAL ({rows} - n) * 5 SECOND",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now', (({rows} - n) * -5) || ' seconds')",
}
"""A question is closed every five seconds."""
NAME = {"mysql": "CONCAT('bench.', n % {})"}
TITLE = {"mysql": "CONCAT('Order no. ', n, '.')"}


def main() -> None:
    """Print one row for each page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--database", choices=["sqlite", *URLS], default="sqlite")
    parser.add_argument("--open", type=int, default=100_000)
    parser.add_argument("--closed", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.database in URLS:
        os.environ["TXTASKS_DATABASE_URL"] = os.environ[URLS[arguments.database]]
    else:
        os.environ["TXTASKS_DATABASE_URL"] = "sqlite:////tmp/txtasks-inbox.sqlite3?timeout=5"
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings_for_tests"
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "testproject")]
    import django

    django.setup()
    from django.db import connection
    from django.test.utils import setup_databases, teardown_databases

    from django_txtasks.hints import sender

    name = f"inbox_{os.getpid()}"
    if arguments.database not in URLS:  # SQLite takes the name for a path
        name = str(Path(tempfile.gettempdir()) / f"{name}.sqlite3")
    connection.settings_dict["TEST"]["NAME"] = name
    old = setup_databases(verbosity=0, interactive=False)
    try:
        fill(arguments.open, arguments.closed)
        print(f"{connection.display_name}: {arguments.open:,} open, {arguments.closed:,} closed")
        for title, call in calls().items():
            print(f"| {title:28} | {measured(call, arguments.repeat):8.1f} ms |", flush=True)
    finally:
        sender.close_all()  # its session would keep the database
        teardown_databases(old, verbosity=0)


def fill(number: int, closed: int) -> None:
    """Write the questions, and the tasks and waits of the open ones."""
    from django import forms
    from django.contrib.auth.models import User
    from django.db import connection

    from django_txtasks.contrib.people import kinds

    vendor = connection.vendor
    for n in range(KINDS):
        kinds._kinds[f"bench.{n}"] = kinds.Kind(f"bench.{n}", forms.Form, None, None, None)
    ada, bob = (User.objects.create(username=name) for name in ("ada", "bob"))
    name = NAME.get(vendor, "'bench.' || (n % {})").format(KINDS)
    title = TITLE.get(vendor, "'Order no. ' || n || '.'")
    columns = (
        "task_id, name, kind, title, due_at, not_by, assignee_id, taken_until, answered_as, "
        "answered_by_id, closed_at"
    )
    for rows, assignee, answered, at in (
        (number, f"CASE WHEN n % 10 = 0 THEN {bob.pk} END", "'', NULL", "NULL"),
        (closed, "NULL", f"'ada', {ada.pk}", CLOSED[vendor].format(rows=closed)),
    ):
        numbers = NUMBERS[vendor].format(rows)
        run(
            f"INSERT INTO txtasks_question ({columns}) SELECT {IDS[vendor]}, {name}, {name}, {title}, "
            f"{DUE[vendor]}, '[]', {assignee}, NULL, {answered}, {at} FROM ({numbers}) numbers"
        )
    still_open = "FROM txtasks_question WHERE closed_at IS NULL"
    run(
        "INSERT INTO txtasks_task (id, task_name, run_after, attempt) "
        f"SELECT task_id, 'shop.tasks.approve', '9000-01-01 00:00:00', 1 {still_open}"
    )
    is_sleep = "FALSE" if vendor == "postgresql" else "0"
    run(
        f"INSERT INTO txtasks_wait (task_id, name, is_sleep) SELECT task_id, name, {is_sleep} {still_open}"
    )
    for table in ("txtasks_question", "txtasks_task", "txtasks_wait"):
        if vendor == "postgresql":
            run(f"VACUUM ANALYZE {table}")
        else:
            run(f"ANALYZE {'TABLE ' if vendor == 'mysql' else ''}{table}")


def run(sql: str) -> None:
    """Run one statement."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)


def calls() -> dict[str, Callable[[], Any]]:
    """Return the calls to measure, by title."""
    from datetime import timedelta

    from django.contrib.auth.models import Permission, User

    from django_txtasks.contrib import people
    from django_txtasks.contrib.people import showing

    ada = User.objects.get(username="ada")
    ada.user_permissions.add(Permission.objects.get(codename="assign_question"))
    for _ in range(60):
        assert people.take_next(ada)
    tenth = None
    for _ in range(10):
        tenth = people.inbox(ada, "free", after=tenth).next

    def take_and_answer() -> None:
        question = people.take_next(ada)
        assert people.answer(question, ada, {}) is None

    found: dict[str, Callable[[], Any]] = {
        f"list {box.value}": lambda box=box: people.inbox(ada, box)  # type: ignore[misc]
        for box in people.Box
    }
    for title, text in (("a title of one question", "no. 77777."), ("a title of none", "no such")):
        found[f"search all: {title}"] = lambda text=text: people.inbox(ada, "all", search=text)  # type: ignore[misc]
    found["answers of a person, 7 days"] = lambda: showing.answered_lately(ada)
    found["list free, eleventh page"] = lambda: people.inbox(ada, "free", after=tenth)
    found["counts of all lists"] = lambda: people.counts(ada)
    found["take the next one, answer"] = take_and_answer
    found["figures of a kind, 30 days"] = lambda: people.figures("bench.0", timedelta(days=30))
    return found


def measured(call: Callable[[], Any], repeat: int) -> float:
    """Return the median milliseconds of the statements of a call."""
    from django.db import connection

    spent: list[float] = []

    def note(execute: Any, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return execute(*arguments)
        finally:
            spent[-1] += time.perf_counter() - begin

    call()
    with connection.execute_wrapper(note):
        for _ in range(repeat):
            spent.append(0.0)
            call()
    return statistics.median(spent) * 1000


if __name__ == "__main__":
    main()
