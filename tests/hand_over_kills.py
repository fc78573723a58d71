"""The long form of the kills of drains: many rows to a real exchange, while drains are killed in the middle.

    python tests/services.py -- python tests/hand_over_kills.py --rows 10000 --kills 20

On PostgreSQL and MariaDB, one after the other, with one drain, with two, and with two of an ordered queue. Prints
for each how many rows have arrived, are missing, and have arrived twice, and how many of an ordered queue came
out of order: after a kill it goes back to a row that is no history yet, and goes on without a gap. Exit code 0
only if none is missing or out of order, and no more than a pass of rows for each kill has arrived twice.
``test_hand_over_crash.py`` has the short form.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PASS = 500
"""Most rows of a pass."""


def main() -> int:
    """Run a process for each case, because Django is set up once."""
    parser = argparse.ArgumentParser(
        description="Kill drains in the middle, and count what arrives."
    )
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--case", help="such as POSTGRES:2 or POSTGRES:2:ordered; default: all")
    options = parser.parse_args()
    if options.case:
        server, drains, *ordered = options.case.split(":")
        return kill(server, int(drains), options.rows, options.kills, is_ordered=bool(ordered))
    own = [sys.executable, __file__, f"--rows={options.rows}", f"--kills={options.kills}"]
    cases = [
        f"{server}:{drains}"
        for server in ("POSTGRES", "MARIADB")
        for drains in ("1", "2", "2:ordered")
    ]
    return max(subprocess.call([*own, f"--case={case}"]) for case in cases)


def kill(server: str, drains: int, rows: int, kills: int, *, is_ordered: bool) -> int:
    """Hand rows over, kill drains meanwhile, and print the account of one case."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    url = os.environ["TXTASKS_TEST_AMQP_URL"]
    os.environ["DJANGO_SETTINGS_MODULE"] = "settings_for_tests"
    os.environ["TXTASKS_DATABASE_URL"] = os.environ[f"TXTASKS_TEST_{server}_URL"]
    os.environ["TXTASKS_SETTINGS"] = json.dumps(
        {
            "broker_url": url,
            "queue_prefix": name,
            "hand_over": {"mail": {"to": f"exchange:{name}", "ordered": is_ordered}},
        }
    )
    sys.path[:0] = [str(ROOT), str(ROOT / "testproject"), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])
    import django
    from django.test.utils import setup_databases, teardown_databases

    django.setup()
    from django.db import connection

    old = setup_databases(verbosity=0, interactive=False)
    os.environ["TXTASKS_IN_TEST_DATABASE"] = str(connection.settings_dict["NAME"])
    channel = _exchange(url, name)

    def count() -> int:
        return int(channel.queue_declare(name, passive=True).method.message_count)

    started: list[subprocess.Popen[bytes]] = []
    try:
        begin = time.monotonic()
        _kill_while_they_work(
            started, drains, [rows * one // kills for one in range(kills + 1)], count
        )
        seconds = time.monotonic() - begin
        numbers = list(_arrived(channel, name))
        arrived = Counter(numbers)
    finally:
        for process in started:
            process.kill()
            process.wait()
        channel.exchange_delete(name)
        for queue in (name, *(f"{name}.{of}mail" for of in ("", "@async."))):
            channel.queue_delete(queue)
        channel.connection.close()
        connection.close()
        teardown_databases(old, verbosity=0)
    twice = sum(count - 1 for count in arrived.values())
    missing = rows - len(arrived)
    odd = out_of_order(numbers, kills) if is_ordered else 0
    print(
        f"{server}, drains at a time: {drains}{', ordered' if is_ordered else ''}, kills: {kills}, "
        f"in {seconds:.0f} s: arrived {len(arrived)}, missing {missing}, twice {twice}, out of order {odd}",
        flush=True,
    )
    return int(missing != 0 or odd != 0 or twice > kills * PASS)


def out_of_order(numbers: list[int], kills: int) -> int:
    """Return how many rows came before an earlier one, or came again without a kill."""
    steps = [later - one for one, later in itertools.pairwise(numbers)]
    gaps, returns = sum(step > 1 for step in steps), sum(step < 1 for step in steps)
    return gaps + max(0, returns - kills)


def _exchange(url: str, name: str):
    import pika

    parameters = pika.URLParameters(url)
    parameters.heartbeat = 0  # it is silent while the drains work
    channel = pika.BlockingConnection(parameters).channel()
    channel.exchange_declare(name, "topic", durable=True)
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, name, "#")
    return channel


def _enqueue(begin: int, end: int) -> None:
    from django_txtasks import enqueue_many, external

    task = external("billing.paid", queue_name="mail")
    enqueue_many([(task, (number,)) for number in range(begin, end)])


def _kill_while_they_work(started: list, drains: int, begins: list[int], count) -> None:
    """Give the drains one share of the rows after the other, and kill one once a row of it has arrived."""
    from django_txtasks.models import Task, Worker

    for begin, end in itertools.pairwise(begins):
        while len(living := [one for one in started if one.poll() is None]) < drains:
            started.append(_drain())
        pids = {one.pid for one in living}
        while not pids <= set(Worker.objects.values_list("pid", flat=True)):
            time.sleep(0.01)
        before = count()
        _enqueue(begin, end)
        while count() == before:
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.02))  # at any place of a pass
        victim = random.choice(living)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    started.append(_drain())
    while Task.objects.exists():
        time.sleep(0.05)


def _drain() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "django", "rundrain", "-v0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _arrived(channel, name: str):
    while True:
        method, _, body = channel.basic_get(name, auto_ack=True)
        if method is None:
            return
        yield json.loads(body)["args"][0]


if __name__ == "__main__":
    sys.exit(main())
