"""The time until a killed worker's task starts again, or is dead.

    python tests/services.py -- python benchmarks/kills.py [--kills 200] [--broker none] [--elsewhere] [--together]

TXTASKS_DATABASE_URL may name another database than PostgreSQL, such as `sqlite:////tmp/kills.sqlite3`.

In each round a worker process runs an idempotent task and one without a crash policy; another worker is
idle, and a cleaner runs. The first worker's process group gets SIGKILL in the middle of both tasks.
Printed: seconds from there until the idempotent task is given back (recovered), until its second start, and
until the other task is dead, by this machine's clock. Without a broker the second start comes with the next
scan of the other worker. --elsewhere makes the cleaner believe that the workers run on another machine, so
it does not see that a process is gone. Then, if the killed worker ran both tasks, the cleaner waits for the
lease, because the death of the second task could not be undone.

--together kills the cleaner at the same moment as the worker, and starts a new one at once, which has seen
no beat. Then the figures are printed twice: from the kill, including the start of the new cleaner's
process, and from the new cleaner's first beat.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import IO

import stage

NAMES = ("recovered", "second start", "dead")
FROM_BEAT = ", from the new cleaner's first beat"


def main() -> None:
    """Print the figures of one run."""
    arguments = _arguments()
    with stage.project(broker=arguments.broker != "none"):
        _measure(arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--broker", choices=["rabbitmq", "none"], default="rabbitmq")
    parser.add_argument("--elsewhere", action="store_true")
    parser.add_argument("--together", action="store_true")
    return parser.parse_args()


def _measure(arguments: argparse.Namespace) -> None:
    figures: dict[str, list[float]] = {name: [] for name in NAMES}
    if arguments.together:
        figures |= {f"{name}{FROM_BEAT}": [] for name in NAMES}
    with tempfile.TemporaryFile() as log:
        cleaners = [stage.start("runcleaner", log=log)]
        workers = [stage.start("runworkers", "--no-cleaner", log=log) for _ in range(2)]
        try:
            for number in range(1, arguments.kills + 1):
                _kill_once(workers, cleaners, log, figures, arguments)
                last = ", ".join(f"{name} {seconds[-1:]}" for name, seconds in figures.items())
                print(f"{number}: {last}", flush=True)
        finally:
            for process in [*cleaners, *workers]:
                process.terminate()
            for process in [*cleaners, *workers]:
                process.wait(40)
    for name, seconds in figures.items():
        _print(name, sorted(seconds), arguments)


def _kill_once(
    workers: list[subprocess.Popen[bytes]],
    cleaners: list[subprocess.Popen[bytes]],
    log: IO[bytes],
    figures: dict[str, list[float]],
    arguments: argparse.Namespace,
) -> None:
    """Kill the worker that runs an idempotent task and, if it took both, a default one; put in a new one."""
    from helpers import wait_until
    from probe import tasks
    from probe.models import Run

    from django_txtasks import enqueue_many
    from django_txtasks.models import Cleaner, Status, Task, Worker

    wait_until(lambda: _ready() == 2, 60)
    if arguments.elsewhere:
        Worker.objects.update(host="elsewhere")
    time.sleep(1.5)  # both have been seen to beat
    key = uuid.uuid4().hex
    once, default = enqueue_many([(tasks.slow_once, [key]), (tasks.slow, [f"{key} dead", 60])])
    pid = wait_until(lambda: Run.objects.filter(key=key).first()).pid
    together = wait_until(lambda: Run.objects.filter(key=f"{key} dead").first()).pid == pid
    victim = next(one for one in workers if _parent(pid) == one.pid)
    os.killpg(victim.pid, signal.SIGKILL)
    start = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    before, first_beat = set(Cleaner.objects.values_list("pk", flat=True)), start
    if arguments.together:
        cleaners[0].kill()
        cleaners[0].wait()
        cleaners[0] = stage.start("runcleaner", log=log)
    given_back = Task.objects.filter(pk=once.id).exclude(crashes=0)

    def has_started_again() -> bool:
        return Run.objects.filter(key=key).count() == 2

    waited = {  # a second run may end between two looks, and take the row with it
        "recovered": lambda: given_back.exists() or has_started_again(),
        "second start": has_started_again,
    }
    if together:
        dead = Task.objects.filter(pk=default.id, status=Status.DEAD)
        waited["dead"] = dead.exists
    end = start + 60
    while waited and time.monotonic() < end:
        if arguments.together and first_beat == start:
            is_there = Cleaner.objects.exclude(pk__in=before).exists()
            first_beat = time.monotonic() if is_there else start
        for name, happened in list(waited.items()):
            if happened():
                figures[name].append(time.monotonic() - start)
                if arguments.together:
                    figures[f"{name}{FROM_BEAT}"].append(time.monotonic() - first_beat)
                del waited[name]
        time.sleep(0.005)
    assert not waited, f"not within 60 s: {', '.join(waited)}"
    Task.objects.filter(status=Status.DEAD).delete()
    victim.wait()
    workers[workers.index(victim)] = stage.start("runworkers", "--no-cleaner", log=log)
    wait_until(lambda: Worker.objects.filter(lost=True, pid=pid).exists(), 60)


def _ready() -> int:
    """How many living workers there are, with a last will if there is a broker."""
    from django_txtasks.conf import get_config
    from django_txtasks.models import Worker

    living = Worker.objects.filter(lost=False)
    if get_config().broker_url is not None:
        living = living.filter(will__gt=0)
    return living.count()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def _print(name: str, ranked: list[float], arguments: argparse.Namespace) -> None:
    p99 = ranked[min(len(ranked) - 1, round(len(ranked) * 0.99))]
    print(
        f"{name}: {len(ranked)} kills, broker {arguments.broker}: "
        f"p50 {statistics.median(ranked):.3f} s, p99 {p99:.3f} s, max {ranked[-1]:.3f} s"
    )


if __name__ == "__main__":
    main()
