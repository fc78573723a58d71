"""One command, killed in every way: the time until its task runs again, and the memory of all its processes.

    python tests/services.py -- python benchmarks/one_command.py [--repeat 5] [--broker]

On the database of TXTASKS_DATABASE_URL (PostgreSQL by default), with default times. A task that may run again
sleeps in its first attempt, while one of these gets SIGKILL:

* worker: seconds from the kill to the second start
* supervisor: the command is started again at once; seconds from this start to the end of a new task. The old
  worker meanwhile waits for its running task.
* all: the supervisor and its children; the command is started again at once; seconds from this start to the
  second start

Memory: the proportional share (PSS) in MB of all processes, some seconds after a task has run: of ``runworkers``,
and of ``runworkers --no-cleaner`` with ``runcleaner``. Smallest / median / largest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any

import cpu
import figures
import stage

CALM_SECONDS = 5.0
"""Time after the first task until the memory is read."""
PATIENCE = 60.0


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--broker", action="store_true")
    arguments = parser.parse_args()
    rounds = range(arguments.repeat)
    with stage.project(broker=arguments.broker), tempfile.TemporaryFile("w+b") as log:
        kills = {
            of.__name__.strip("_"): [of(log) for _ in rounds] for of in (_worker, _supervisor, _all)
        }
        commands = {
            "runworkers": [["runworkers"]],
            "runworkers --no-cleaner, runcleaner": [["runworkers", "--no-cleaner"], ["runcleaner"]],
        }
        memory: dict[str, list[list[float]]] = {title: [] for title in commands}
        for _ in rounds:
            for title, started in commands.items():
                memory[title].append(_megabytes(started, log))
    rows = [[what, figures.figure(seconds)] for what, seconds in kills.items()]
    print(figures.table(["killed", "seconds until it runs again"], rows))
    rows = [
        [
            title,
            figures.figure([sum(one) for one in found]),
            ", ".join(f"{size:.1f}" for size in found[-1]),
        ]
        for title, found in memory.items()
    ]
    print(figures.table(["processes", "PSS of all, MB", "of each, in the last round"], rows))


def _worker(log: IO[bytes]) -> float:
    with _Command(log) as command:
        handle = command.running()
        begin = time.perf_counter()
        os.kill(_workers()[0], signal.SIGKILL)
        return _until_second_start(handle, begin)


def _supervisor(log: IO[bytes]) -> float:
    from probe import tasks

    from django_txtasks.models import FinishedTask

    with _Command(log) as command:
        command.running()
        old = [command.process.pid, *cpu.descendants(command.process.pid)]
        command.process.kill()
        command.process.wait()
        begin = time.perf_counter()
        command.start()
        handle = tasks.note.enqueue("new")
        seconds = _wait(lambda: FinishedTask.objects.filter(pk=handle.id).exists(), begin)
        _end(old)
        return seconds


def _all(log: IO[bytes]) -> float:
    with _Command(log) as command:
        handle = command.running()
        _end([command.process.pid, *cpu.descendants(command.process.pid)])
        command.process.wait()
        begin = time.perf_counter()
        command.start()
        return _until_second_start(handle, begin)


class _Command:
    """``runworkers``, which has a worker and a cleaner once it has been entered."""

    def __init__(self, log: IO[bytes]) -> None:
        self._log = log
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> _Command:
        from django_txtasks.models import Cleaner

        self.start()
        _wait(lambda: _workers() and Cleaner.objects.filter(passed_at__isnull=False).exists())
        return self

    def __exit__(self, *_: object) -> None:
        _end([self.process.pid, *cpu.descendants(self.process.pid)])
        self.process.wait()
        _empty_tables()

    def start(self) -> None:
        self.process = stage.start("runworkers", log=self._log)

    def running(self) -> Any:
        """Enqueue a task that sleeps in its first attempt; return its handle once it runs."""
        from probe import tasks
        from probe.models import Run

        handle = tasks.slow_once.enqueue("slow", seconds=600)
        _wait(lambda: Run.objects.filter(key="slow").exists())
        time.sleep(2)  # its worker has beaten meanwhile
        return handle


def _megabytes(commands: list[list[str]], log: IO[bytes]) -> list[float]:
    """Return the PSS of each process of these commands."""
    from probe import tasks

    from django_txtasks.models import Cleaner, FinishedTask

    processes = [stage.start(*command, log=log) for command in commands]
    handle = tasks.note.enqueue("first")
    _wait(lambda: FinishedTask.objects.filter(pk=handle.id).exists())
    _wait(lambda: Cleaner.objects.filter(passed_at__isnull=False).exists())
    time.sleep(CALM_SECONDS)
    pids = [pid for process in processes for pid in (process.pid, *cpu.descendants(process.pid))]
    found = [cpu.proportional_megabytes(pid) for pid in pids]
    for process in processes:
        process.terminate()
        process.wait(PATIENCE)
    _empty_tables()
    return found


def _workers() -> list[int]:
    from django_txtasks.models import Worker

    return list(Worker.objects.filter(lost=False, beat__gt=0).values_list("pid", flat=True))


def _until_second_start(handle: Any, begin: float) -> float:
    from django_txtasks.models import FinishedTask

    seconds = _wait(lambda: FinishedTask.objects.filter(pk=handle.id).exists(), begin)
    assert FinishedTask.objects.get(pk=handle.id).attempt == 2
    return seconds


def _wait(there: Callable[[], Any], begin: float | None = None) -> float:
    """Return the seconds since ``begin`` when something is there."""
    begin = time.perf_counter() if begin is None else begin
    while not there():
        if time.perf_counter() - begin > PATIENCE:
            sys.exit("This took too long.")
        time.sleep(0.005)
    return time.perf_counter() - begin


def _end(pids: list[int]) -> None:
    """Kill these processes, of which some may have ended."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _empty_tables() -> None:
    import helpers

    helpers.empty_tables()


if __name__ == "__main__":
    main()
