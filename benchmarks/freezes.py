"""The end of frozen workers: their finishes are refused, and atomic effects happen once.

    python tests/services.py -- python benchmarks/freezes.py [--times 100] [--lease 3]

Six workers run atomic and idempotent tasks of 0.3 s each; five of them at a time get SIGSTOP for two
leases, then SIGCONT. Some are frozen inside their transaction. At the end each atomic task must have left
its effect once.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter

import stage

FROZEN_AT_ONCE = 5


def main() -> int:
    """Print the account; return 1 if it does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--lease", type=float, default=3.0)
    parser.add_argument("--broker", choices=["rabbitmq", "none"], default="rabbitmq")
    arguments = parser.parse_args()
    times = {"lease": arguments.lease, "heartbeat_interval": arguments.lease / 15}
    with stage.project(
        broker=arguments.broker != "none", poll_interval=0.2, retry_base=0.1, **times
    ):
        return _play(arguments)


def _play(arguments: argparse.Namespace) -> int:
    from helpers import wait_until, worker_pids

    enough = threading.Event()
    sent: list[str] = []
    with tempfile.TemporaryFile("w+b") as log:
        processes = [
            stage.start("runworkers", "--no-cleaner", "--threads=2", log=log)
            for _ in range(FROZEN_AT_ONCE + 1)
        ]
        processes.append(stage.start("runcleaner", log=log))
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


if __name__ == "__main__":
    sys.exit(main())
