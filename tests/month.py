"""A month of a shop, compressed: days of some seconds, with deploys, kills and outages, and then the account.

    python tests/services.py -- python tests/month.py --days 30 --seconds 46
    python tests/services.py -- python tests/month.py --days 3 --seconds 20 --seed 5 --logs /tmp/month

The shop is the app ``grocery``, on a PostgreSQL and a RabbitMQ of its own: two ``runworkers``, a ``runcleaner``,
and two web processes, which enqueue every kind of task. Each release renames functions, and processes of two
releases run beside each other for a while. Meanwhile processes are killed or frozen, sessions end, a queue is
paused, PostgreSQL restarts, and RabbitMQ is away for half a day: ``grocery.troubles`` has the number of each.

Prints a line for each fault, and the account of ``grocery.books`` as JSON. Exit code 0 only if it has no
complaint.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import services
from processes import Guard

if TYPE_CHECKING:
    from grocery.shop import Shop
    from grocery.troubles import Troubles

HERE = Path(__file__).resolve().parent
PATIENCE = 180
"""Seconds in which all tasks end after the last request."""
SESSIONS = """
    SELECT application_name, state, query FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
RUNNING_IN_LANES = """
    SELECT lane, count(*) FROM txtasks_task WHERE status = 'claimed' AND lane LIKE 'till:%%' GROUP BY lane
"""


def main() -> int:
    """Start the servers, live through the month, print the account."""
    options = _options()
    mark = f"TXTASKS_TEST_MONTH={uuid.uuid4()}"
    with ExitStack() as stack:
        directory = options.logs or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        postgres = stack.enter_context(services.Postgres())
        rabbitmq = stack.enter_context(services.RabbitMQ())
        stack.enter_context(Guard(mark=mark))
        environment = _set_up(postgres.url, rabbitmq.url, directory, options.seconds)
        from grocery.shop import Shop
        from grocery.troubles import Troubles

        shop = Shop(directory, {**environment, **dict([mark.split("=")])})
        troubles = Troubles(shop, postgres, rabbitmq, options.seconds, random.Random(options.seed))
        account = _live(shop, troubles, options.days, options.seconds, mark)
        _close()
    print(json.dumps(account, indent=1, default=str))
    return int(bool(account["complaints"]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=46.0, help="length of a day")
    parser.add_argument("--seed", type=int, default=1, help="of the times of the faults")
    parser.add_argument("--logs", type=Path, help="directory for the output of all processes")
    return parser.parse_args()


def _set_up(database: str, broker: str, directory: Path, day: float) -> dict[str, str]:
    """Set Django up here, write the tables, and return the environment of all processes."""
    path = [str(HERE), str(HERE.parent / "testproject")]
    os.environ.update(
        DJANGO_SETTINGS_MODULE="grocery.settings",
        TXTASKS_DATABASE_URL=database,
        TXTASKS_BROKER_URL=broker,
        GROCERY_BEGIN=f"{time.time()}",
        GROCERY_DAY=f"{day}",
        GROCERY_RELEASE="0",
        GROCERY_PROMISES=str(directory / "promises"),
        GROCERY_RUNS=str(directory / "runs"),
        PYTHONPATH=os.pathsep.join([*path, *filter(None, [os.environ.get("PYTHONPATH")])]),
    )
    os.environ.pop("TXTASKS_SETTINGS", None)
    sys.path[:0] = path
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", run_syncdb=True, verbosity=0)  # the grocery has no migrations
    return dict(os.environ)


def _live(shop: Shop, troubles: Troubles, days: int, day: float, mark: str) -> dict[str, Any]:
    """Live through the days, stop all, and return the account."""
    from django.conf import settings
    from grocery.books import Books
    from grocery.shop import COMMANDS, WORKERS
    from grocery.troubles import works

    for role in COMMANDS:
        shop.start(role)
    for role in WORKERS:
        shop.wait_until(works, role)
    most_in_lanes = _days(shop, troubles, troubles.calendar(days, day), days * day)
    shop.say("the last day is over")
    troubles.wait()
    _let_tasks_end(shop)
    shop.end()
    _find_leftovers(shop, mark)
    books = Books(Path(os.environ["GROCERY_PROMISES"]), Path(os.environ["GROCERY_RUNS"]))
    allowed = settings.TXTASKS["lanes"]["till:*"]["at_most"]
    full = [f"{most} tasks in {lane}" for lane, most in most_in_lanes.items() if most > allowed]
    shop.complaints += full
    return {
        "faults": dict(troubles.times),
        **books.figures(),
        "complaints": [*shop.complaints, *books.complaints()],
    }


def _days(shop: Shop, troubles: Troubles, calendar: list[Any], seconds: float) -> Counter[str]:
    """Let each fault happen at its time; return the highest number of running tasks seen in each lane."""
    from grocery.troubles import ask

    begin, most = time.monotonic(), Counter[str]()
    while (now := time.monotonic() - begin) < seconds:
        while calendar and calendar[0][0] <= now:
            troubles.begin(calendar.pop(0)[1])
        shop.look()
        for lane, running in ask(lambda: _execute(RUNNING_IN_LANES)) or []:
            most[lane] = max(most[lane], running)
        time.sleep(0.2)
    return most


def _let_tasks_end(shop: Shop) -> None:
    """Stop the web processes, and wait until no task but those of schedules is waiting or running."""
    from grocery.shop import WEB

    from django_txtasks.models import Status, Task

    for role in WEB:
        shop.stop(role, shop.running.pop(role))
    open_tasks = Task.objects.exclude(status=Status.DEAD).exclude(
        task_name__regex=r"\.(tick|close_books_\d+)$"
    )
    end = time.monotonic() + PATIENCE
    while open_tasks.exists() and time.monotonic() < end:
        shop.look()
        time.sleep(0.2)
    shop.say("all tasks have ended")


def _find_leftovers(shop: Shop, mark: str) -> None:
    """Complain about processes and sessions that are left a moment after all was stopped."""
    end = time.monotonic() + PATIENCE
    while (left := [*_processes(mark), *_execute(SESSIONS)]) and time.monotonic() < end:
        time.sleep(0.1)
    shop.complaints += [f"left over: {one}" for one in left]


def _processes(mark: str) -> list[str]:
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if mark.encode() in file.read_bytes().split(b"\0"):
                found.append((file.parent / "cmdline").read_text().replace("\0", " "))
    return found


def _execute(sql: str) -> list[tuple[Any, ...]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def _close() -> None:
    from django.db import connections

    connections.close_all()


if __name__ == "__main__":
    sys.exit(main())
