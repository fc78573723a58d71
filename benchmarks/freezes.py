"""What frozen workers do when they wake up: their finishes are refused, and atomic effects happen once.

    python tests/services.py -- python benchmarks/freezes.py [--times 100] [--lease 3]

Six workers run atomic and idempotent tasks of 0.3 s each; five of them at a time get SIGSTOP for two
leases, then SIGCONT. Some are frozen inside their transaction. At the end each atomic task must have left its
effect once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "testproject"), str(HERE.parent / "tests")]
FROZEN_AT_ONCE = 5


def main() -> int:
    """Print the account; return 1 if it does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--broker", choices=["rabbitmq", "none"], default="rabbitmq")
    arguments = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings_for_tests")
    if "TXTASKS_DATABASE_URL" not in os.environ:
        os.environ["TXTASKS_DATABASE_URL"] = os.environ["TXTASKS_TEST_POSTGRES_URL"]
    settings = {
        "queue_prefix": f"freezes-{uuid.uuid4().hex[:8]}",
        "lease": arguments.lease, "beat": arguments.lease / 15, "poll_interval": 0.2, "retry_base": 0.1,
    }  # fmt: skip
    if arguments.broker == "rabbitmq":
        settings["broker_url"] = os.environ["TXTASKS_TEST_AMQP_URL"]
    os.environ["TXTASKS_SETTINGS"] = json.dumps(settings)
    import django
    from django.test.utils import setup_databases, teardown_databases

    django.setup()
    old = setup_databases(verbosity=0, interactive=False)
    from django.db import connection

    os.environ["TXTASKS_IN_TEST_DATABASE"] = str(connection.settings_dict["NAME"])
    try:
        return _play(arguments)
    finally:
        connection.close()
        teardown_databases(old, verbosity=0)


def _play(arguments: argparse.Namespace) -> int:
    from helpers import wait_until, worker_pids

    enough = threading.Event()
    sent: list[str] = []
    with tempfile.TemporaryFile("w+b") as log:
        processes = [_start("runworkers", log) for _ in range(FROZEN_AT_ONCE + 1)]
        processes.append(_start("runcleaner", log))
        sender = threading.Thread(target=_send, args=(enough, sent))
        try:
            wait_until(lambda: len(worker_pids()) == FROZEN_AT_ONCE + 1, 60)
            sender.start()
            for _ in range(-(-arguments.times // FROZEN_AT_ONCE)):
                _freeze(random.sample(worker_pids(), FROZEN_AT_ONCE), 2 * arguments.lease)
                wait_until(lambda: len(worker_pids()) == FROZEN_AT_ONCE + 1, 60)
            enough.set()
            sender.join()
            wait_until(_drained, 120)
        finally:
            enough.set()
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)
        log.seek(0)
        return _account(log.read(), sent)


def _send(enough: threading.Event, sent: list[str]) -> None:
    from django.db import connection
    from probe import tasks

    while not enough.wait(0.05):
        key = f"key {len(sent)}"
        (tasks.slow_once if len(sent) % 2 else tasks.atomic_slow).enqueue(key, 0.3)
        sent.append(key)
    connection.close()


def _freeze(pids: list[int], seconds: float) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(random.uniform(0, 0.1))
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


def _drained() -> bool:
    from django_txtasks.models import Task

    return not Task.objects.filter(status__in=["pending", "claimed"]).exists()


def _account(log: bytes, sent: list[str]) -> int:
    from probe.models import Run

    from django_txtasks.models import FinishedTask, Task

    runs = Counter(Run.objects.values_list("key", flat=True))
    atomic = sent[::2]
    wrong = [key for key in atomic if runs[key] != 1]
    dead = Task.objects.filter(status="dead").count()
    lost = len(sent) - FinishedTask.objects.count() - dead
    print(
        f"{len(sent)} tasks; workers declared lost {log.count(b') is lost: ')}; "
        f"refused: finishes {log.count(b', which was abandoned when')}, "
        f"others {log.count(b'the row has moved on without it')}; "
        f"crashes counted {sum(FinishedTask.objects.values_list('crashes', flat=True))}\n"
        f"lost {lost}, dead {dead}, atomic effects not exactly once: {len(wrong)} of {len(atomic)}"
    )
    return int(bool(lost or wrong))


def _start(command: str, log: object) -> subprocess.Popen[bytes]:
    arguments = ["--threads=2"] if command == "runworkers" else []
    return subprocess.Popen(
        [sys.executable, "-m", "django", command, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


if __name__ == "__main__":
    sys.exit(main())
