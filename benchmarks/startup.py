"""The cost of a start.

    python tests/services.py -- python benchmarks/startup.py [--repeat 9]
        [--peers pgqueuer,procrastinate,celery,dj_queue,django_ox --peers-python X/bin/python]

* ``django.setup()``: milliseconds of CPU that the app adds, with the admin and without it, on PostgreSQL.
  The same settings are measured with and without the app, in turns; the figure is the difference of each pair.
* ``runworkers``: seconds from its start until a waiting task has finished, in turns with ``manage.py check``,
  and the ratio of both; with a broker and without it. CPU is that of all its processes until then.
* With ``--peers``: seconds from the start of the command until a waiting task runs, and the CPU of all its
  processes until then, for this package and for the others, in turns.

Smallest / median / largest. Bytecode is compiled before. The project is the small example; in a large
project most of each figure is the time to load it.
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple

import contest
import cpu
import figures
import options
import records
import stage
from contest import Contender, Contest

SETUP = """
import sys, time
from django.conf import settings
import settings as project
apps = [app for app in project.INSTALLED_APPS if app != "orders"]
if "admin" not in sys.argv:
    apps = ["django.contrib.contenttypes", "django.contrib.auth", "django_txtasks"]
if "app" not in sys.argv:
    apps.remove("django_txtasks")
values = {key: value for key, value in vars(project).items() if key.isupper()}
settings.configure(**{**values, "INSTALLED_APPS": apps})
import django
begin = time.process_time()
django.setup()
print(1000 * (time.process_time() - begin))
"""


class Start(NamedTuple):
    """Seconds of a start, by the clock and of CPU."""

    seconds: float
    cpu: float


def main() -> None:
    """Print the tables."""
    parser = options.parser(__doc__)
    parser.set_defaults(repeat=9)
    arguments = parser.parse_args()
    os.environ.setdefault("TXTASKS_DATABASE_URL", os.environ["TXTASKS_TEST_POSTGRES_URL"])
    # The first run of each compiles, and does not count.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows = []
    for title, words in (("beside the admin", ["admin"]), ("without the admin", [])):
        pairs = [(_setup(*words), _setup(*words, "app")) for _ in range(arguments.repeat + 1)][1:]
        added = figures.figure([after - before for before, after in pairs])
        rows.append([title, *(figures.figure(one) for one in zip(*pairs, strict=True)), added])
    print(figures.table(["django.setup(), ms of CPU", "without the app", "with it", "added"], rows))
    rows = []
    for title, broker in (("no broker", False), ("broker", True)):
        with stage.project(broker=broker):
            starts = [(_check(), _first_task()) for _ in range(arguments.repeat + 1)][1:]
        rows.append([title, *_compared(starts, "seconds"), *_compared(starts, "cpu")])
    compared = ["manage.py check", "runworkers, first task", "times"]
    print(figures.table(["seconds", *compared, *(f"CPU: {name}" for name in compared)], rows))
    if arguments.peers:
        print(figures.table(["first task", "seconds", "CPU seconds"], _peers(arguments)))


def _setup(*words: str) -> float:
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", SETUP, *words]
    return float(subprocess.check_output(command, env={**os.environ, "PYTHONPATH": path}))


def _compared(starts: Sequence[tuple[Start, Start]], field: str) -> list[figures.Figure]:
    """Return the figures of ``check``, of ``runworkers``, and of their ratio."""
    pairs = [(getattr(check, field), getattr(first, field)) for check, first in starts]
    ratio = figures.figure([first / check for check, first in pairs])
    return [*map(figures.figure, zip(*pairs, strict=True)), ratio]


def _check() -> Start:
    begin, used = time.perf_counter(), _cpu_of_ended()
    with tempfile.TemporaryFile() as log:
        assert stage.start("check", log=log).wait() == 0
    return Start(time.perf_counter() - begin, _cpu_of_ended() - used)


def _cpu_of_ended() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _first_task() -> Start:
    from probe import tasks

    from django_txtasks.models import FinishedTask

    handle = tasks.note.enqueue("first")
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        worker = stage.start("runworkers", log=log)
        while not FinishedTask.objects.filter(id=handle.id).exists():
            time.sleep(0.005)
        start = Start(time.perf_counter() - begin, cpu.seconds_below(worker.pid, itself=True))
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)
    return start


def _peers(arguments: argparse.Namespace) -> list[list[object]]:
    contenders = options.contenders(arguments)
    starts: dict[str, list[Start]] = {one.title: [] for one in contenders}
    with contest.contest() as servers:
        for number in range(arguments.repeat + 1):
            for contender in contenders:
                start = _first_of(servers, contender, options.working(contender, arguments))
                if number:
                    starts[contender.title].append(start)
    return [
        [title, *map(figures.figure, zip(*found, strict=True))] for title, found in starts.items()
    ]


def _first_of(servers: Contest, contender: Contender, more: list[object]) -> Start:
    with servers.run(contender) as run:
        run.do("enqueue", 1)
        own_cleaner = ["cleaner"] * (contender.name == "txtasks")
        with run.worker(1, *more, *own_cleaner) as worker:
            run.wait_for(1)
            used = cpu.seconds_below(worker.pid, itself=True)
        begin, before = map(int, (run.directory / "begin").read_text().split())
        (first,) = records.read(run.records)
    return Start((first.ns - begin) / 1e9, used - before / 1e9)


if __name__ == "__main__":
    main()
