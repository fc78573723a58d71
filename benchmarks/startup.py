"""The time that the app adds to the start of a project.

    python tests/services.py -- python benchmarks/startup.py [--repeat 9]

* ``django.setup()``: milliseconds of CPU that the app adds, with the admin and without it, on PostgreSQL.
  The same settings
  are measured with and without the app, in turns; the figure is the difference of each pair.
* ``runworkers``: seconds from its start until a waiting task has finished, in turns with ``manage.py
  check``, and the ratio
  of both; with a broker and without it.

Smallest / median / largest. Bytecode is compiled before. The project is the small example; in a large
project most of both figures is the time to load it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

import figures
import stage

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


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat
    os.environ.setdefault("TXTASKS_DATABASE_URL", os.environ["TXTASKS_TEST_POSTGRES_URL"])
    os.environ.pop(
        "PYTHONDONTWRITEBYTECODE", None
    )  # the first run of each compiles, and does not count
    rows = []
    for title, words in (("beside the admin", ["admin"]), ("without the admin", [])):
        pairs = [(_setup(*words), _setup(*words, "app")) for _ in range(repeat + 1)][1:]
        added = figures.figure([after - before for before, after in pairs])
        rows.append([title, *(figures.figure(one) for one in zip(*pairs, strict=True)), added])
    print(figures.table(["django.setup(), ms of CPU", "without the app", "with it", "added"], rows))
    rows = []
    for title, broker in (("no broker", False), ("broker", True)):
        with stage.project(broker=broker):
            pairs = [(_check(), _first_task()) for _ in range(repeat + 1)][1:]
        ratio = figures.figure([first / check for check, first in pairs])
        rows.append([title, *(figures.figure(one) for one in zip(*pairs, strict=True)), ratio])
    print(figures.table(["seconds", "manage.py check", "runworkers, first task", "times"], rows))


def _setup(*words: str) -> float:
    path = os.pathsep.join(filter(None, sys.path))
    command = [sys.executable, "-c", SETUP, *words]
    return float(subprocess.check_output(command, env={**os.environ, "PYTHONPATH": path}))


def _check() -> float:
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        assert stage.start("check", log=log).wait() == 0
    return time.perf_counter() - begin


def _first_task() -> float:
    from probe import tasks

    from django_txtasks.models import FinishedTask

    handle = tasks.note.enqueue("first")
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        worker = stage.start("runworkers", log=log)
        while not FinishedTask.objects.filter(id=handle.id).exists():
            time.sleep(0.005)
        seconds = time.perf_counter() - begin
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)
    return seconds


if __name__ == "__main__":
    main()
