"""How long MariaDB takes to give text columns another character set, and who waits meanwhile.

    python benchmarks/text_columns.py [--rows 1000000] [--character-set latin1]

A private MariaDB gets a database of this character set, with the tables before the migration of text columns, and
this many rows in each of ``txtasks_task``, ``txtasks_once`` and ``txtasks_step``. Then ``migrate`` runs, while one
session enqueues and one reads, each 100 times a second. Printed are, for each of these tables: the seconds of its
statement, and the longest INSERT and SELECT meanwhile. The server does not wait for its disk.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import stage  # noqa: F401, isort: skip -- it says where the next ones are
from servers import MariaDB

BEFORE = {"txtasks": "0007", "txtasks_people": "0002"}
LARGE = {
    "txtasks_task": "(id, task_name, unique_text) SELECT UUID(), 'shop.tasks.send', CONCAT('order ', seq)",
    "txtasks_once": "(`key`, text, task_name, task_id, until) SELECT UUID(), CONCAT('order ', seq),"
    " 'shop.tasks.send', UUID(), '2099-01-01'",
    "txtasks_step": "(task_id, name, value, attempt, done_at) SELECT UUID(), 'charge', CONCAT('[', seq, ']'), 1,"
    " NOW()",
}
SETTINGS = {
    "innodb-buffer-pool-size": "2G",
    "innodb-log-file-size": "1G",
    "innodb-doublewrite": 0,
}


def main() -> None:
    """Fill the tables, migrate, and print what each statement took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--character-set", default="latin1")
    arguments = parser.parse_args()
    with MariaDB(settings=SETTINGS) as server:
        _set_up(server.url, arguments.character_set)
        _fill(arguments.rows)
        _measure()


def _set_up(url: str, character_set: str) -> None:
    import pymysql

    place = urlsplit(url)
    session = pymysql.connect(host=place.hostname, port=place.port or 0, user=place.username)
    session.cursor().execute(f"CREATE DATABASE narrow CHARACTER SET {character_set}")
    os.environ["TXTASKS_DATABASE_URL"] = place._replace(path="/narrow").geturl()
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings_for_tests"
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", "auth", verbosity=0, skip_checks=True)
    for app, name in BEFORE.items():
        call_command("migrate", app, name, verbosity=0, skip_checks=True)


def _fill(rows: int) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        for table, columns in LARGE.items():
            cursor.execute(f"INSERT INTO {table} {columns} FROM seq_1_to_{rows}")


def _measure() -> None:
    from django.core.management import call_command
    from django.db import connection

    waits, stop = dict[str, dict[str, float]](), threading.Event()
    table = [""]

    def timed(execute: Any, sql: str, *more: Any) -> Any:
        table[0] = next((name for name in LARGE if sql.startswith(f"ALTER TABLE `{name}`")), "")
        began = time.perf_counter()
        try:
            return execute(sql, *more)
        finally:
            if table[0]:
                waits.setdefault(table[0], {})["ALTER"] = time.perf_counter() - began
            table[0] = ""

    threads = [
        threading.Thread(target=_repeat, args=(work, table, waits, name, stop))
        for name, work in _work().items()
    ]
    for one in threads:
        one.start()
    began = time.perf_counter()
    with connection.execute_wrapper(timed):
        for app in BEFORE:
            call_command("migrate", app, verbosity=0, skip_checks=True)
    stop.set()
    for one in threads:
        one.join()
    print(f"migrate: {time.perf_counter() - began:.1f} s")
    for name, found in waits.items():
        print(name, {what: f"{seconds:.2f} s" for what, seconds in found.items()})


def _work() -> dict[str, Callable[[str], str]]:
    """Return the statements that may wait for a table, by what is printed."""
    return {
        "longest INSERT": lambda name: (
            f"INSERT INTO {name} {LARGE[name]} FROM (SELECT UUID() AS seq) one"
        ),
        "longest SELECT": lambda name: f"SELECT * FROM {name} LIMIT 1",
    }


def _repeat(
    work: Callable[[str], str],
    table: list[str],
    waits: dict[str, dict[str, float]],
    what: str,
    stop: threading.Event,
) -> None:
    """Execute the statement again and again while a table is altered, and note the longest one."""
    from django.db import connection

    with connection.cursor() as cursor:
        while not stop.wait(0.01):
            if name := table[0]:
                began = time.perf_counter()
                cursor.execute(work(name))
                seconds, found = time.perf_counter() - began, waits.setdefault(name, {})
                found[what] = max(found.get(what, 0.0), seconds)
    connection.close()


if __name__ == "__main__":
    main()
