"""Worker processes over time under ``runworkers --processes 1..8``, and the time to read the load.

    python tests/services.py -- python benchmarks/scaling.py [--loads burst,saw,long] [--processes 1..8]
        [--burst 10000] [--saw 600] [--top 28] [--long 600] [--chart scaling.svg]
    python tests/services.py -- python benchmarks/scaling.py --loads view [--rows 1000000]

burst: many tasks of 0.1 s at once. saw: tasks of 1 s, from 2 to ``--top`` of them each second, up and down once a
minute, for ``--saw`` seconds. long: one task of ``--long`` seconds and a group of tasks that needs all processes,
which end around the long task. Each load ends when one process is left.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import figures
import stage

THREADS, LATE = 4, 30.0
SAMPLE_SECONDS = 1.0
REPEATS = 20
Feed = Callable[[argparse.Namespace], None]


@dataclass
class Course:
    """What happened under one load: (seconds, processes, due tasks) at each moment."""

    name: str
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    starts: int = 0
    longest_wait: float = 0.0
    last_late: float = 0.0
    tasks: int = 0
    cut: int = 0

    @property
    def row(self) -> list[object]:
        """The line of the table."""
        most = max(processes for _, processes, _ in self.samples)
        seconds = self.samples[-1][0]
        kept = f"{self.last_late:.0f} s" if self.last_late else "never"
        cells = [f"{self.tasks:,}", most, self.starts, f"{self.longest_wait:.1f} s", kept]
        return [self.name, *cells, self.cut, f"{seconds:.0f} s"]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", default="burst,saw,long")
    parser.add_argument("--processes", default="1..8")
    parser.add_argument("--burst", type=int, default=10_000)
    parser.add_argument("--saw", type=int, default=600)
    parser.add_argument("--top", type=float, default=28.0)
    parser.add_argument("--long", type=float, default=600.0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--chart", metavar="FILE.svg")
    arguments = parser.parse_args()
    wanted = arguments.loads.split(",")
    courses = [_run(name, arguments) for name in wanted if name != "view"]
    if courses:
        head = [
            "load",
            "tasks",
            "most processes",
            "starts",
            "longest wait",
            "late until",
            "cut short",
            "time",
        ]
        print(figures.table(head, [one.row for one in courses]))
    if arguments.chart:
        Path(arguments.chart).write_text(_chart(courses))
    if "view" in wanted:
        _view(arguments.rows)


# -- the live scaler ----------------------------------------------------------------------------------------


def _run(name: str, arguments: argparse.Namespace) -> Course:
    course = Course(name)
    with stage.project(broker=False), tempfile.NamedTemporaryFile() as log:
        options = [f"--processes={arguments.processes}", f"--threads={THREADS}"]
        command = stage.start("runworkers", *options, log=log.file)
        try:
            _wait(lambda: _processes() > 0)
            feeder = threading.Thread(target=FEEDS[name], args=[arguments])
            feeder.start()
            begin = time.monotonic()
            while feeder.is_alive() or _is_busy() or _processes() > 1:
                course.samples.append((time.monotonic() - begin, _processes(), _due()))
                time.sleep(SAMPLE_SECONDS)
            course.samples.append((time.monotonic() - begin, _processes(), _due()))
        finally:
            command.terminate()
            command.wait()
        _account(course, Path(log.name).read_text())
    return course


def _account(course: Course, log: str) -> None:
    from django_txtasks.models import FinishedTask, Task

    rows = FinishedTask.objects.values_list("enqueued_at", "started_at", "attempt")
    begin = min(enqueued for enqueued, _, _ in rows)
    for enqueued, started, _ in rows:
        wait = (started - enqueued).total_seconds()
        course.longest_wait = max(course.longest_wait, wait)
        if wait > LATE:
            course.last_late = max(course.last_late, (started - begin).total_seconds())
    course.tasks = len(rows)
    course.cut = Task.objects.count() + sum(attempt != 1 for _, _, attempt in rows)
    added = re.findall(r"starts more worker processes for database 'default': (\d+)", log)
    course.starts = sum(map(int, added))


def _processes() -> int:
    from django_txtasks.models import Worker

    return Worker.objects.filter(lost=False).count()


def _due() -> int:
    from django_txtasks.insight import load

    return sum(one.due for one in load.look("default").queues)


def _is_busy() -> bool:
    from django_txtasks.models import Task

    return Task.objects.exists()


def _wait(true: Callable[[], bool]) -> None:
    while not true():
        time.sleep(0.1)


# -- the loads ----------------------------------------------------------------------------------------------


def _burst(arguments: argparse.Namespace) -> None:
    with _session() as nap:
        nap(arguments.burst, 0.1)


def _saw(arguments: argparse.Namespace) -> None:
    with _session() as nap:
        begin, owed = time.monotonic(), 0.0
        while (now := time.monotonic() - begin) < arguments.saw:
            owed += (2 + (arguments.top - 2) * (now % 60) / 60) * 0.25
            nap(int(owed), 1.0)
            owed -= int(owed)
            time.sleep(0.25)


def _long(arguments: argparse.Namespace) -> None:
    with _session() as nap:
        nap(1, arguments.long)
        nap(int(arguments.processes.split("..")[1]) * THREADS * 4, 5.0)


FEEDS: dict[str, Feed] = {"burst": _burst, "saw": _saw, "long": _long}


@contextmanager
def _session() -> Iterator[Callable[[int, float], None]]:
    """Give a function that enqueues a number of naps, in a session of this thread."""
    from django.db import connection, transaction
    from probe import tasks

    from django_txtasks import enqueue_many

    def nap(number: int, seconds: float) -> None:
        with transaction.atomic():
            enqueue_many([(tasks.slow, (str(key), seconds)) for key in range(number)])

    try:
        yield nap
    finally:
        connection.close()


# -- the time to read the load ------------------------------------------------------------------------------

_FILL = """
    INSERT INTO txtasks_task (id, task_name, queue_name, run_after)
    SELECT gen_random_uuid(), 'probe.tasks.slow', CASE WHEN i %% 10 = 0 THEN 'mail' ELSE 'default' END,
           now() - i * interval '1 ms' FROM generate_series(1, %s) i
"""
_FILL_HISTORY = """
    INSERT INTO txtasks_finishedtask (id, task_name, outcome, started_at, finished_at)
    SELECT gen_random_uuid(), 'probe.tasks.slow', 'succeeded', now() - i * interval '1 ms' - interval '0.1 s',
           now() - i * interval '1 ms' FROM generate_series(1, %s) i
"""


def _view(rows: int) -> None:
    """Read the load of an empty and of a full table, after ANALYZE of an empty and of a full one."""
    with stage.project(broker=False):
        from django.db import connection

        with connection.cursor() as cursor:
            found = []
            cursor.execute("ALTER TABLE txtasks_task SET (autovacuum_enabled = off)")
            cursor.execute("ALTER TABLE txtasks_finishedtask SET (autovacuum_enabled = off)")
            cursor.execute("VACUUM ANALYZE")
            found.append(["empty", "of the empty table", *_times(cursor)])
            cursor.execute(_FILL, [rows])
            cursor.execute(_FILL_HISTORY, [rows])
            found.append([f"{rows:,} rows in 2 queues", "of the empty table", *_times(cursor)])
            cursor.execute("VACUUM ANALYZE")
            found.append([f"{rows:,} rows in 2 queues", "of the full table", *_times(cursor)])
            cursor.execute("DELETE FROM txtasks_task")
            cursor.execute("VACUUM")
            found.append(["empty again", "of the full table", *_times(cursor)])
        print(figures.table(["table", "ANALYZE", "median", "least"], found))


def _times(cursor: Any) -> list[str]:
    taken = []
    for _ in range(REPEATS + 1):
        begin = time.monotonic()
        cursor.execute("SELECT * FROM txtasks_load")
        cursor.fetchall()
        taken.append((time.monotonic() - begin) * 1000)
    one = figures.figure(taken[1:])  # the first one reads the catalogue
    return [f"{one.middle:.1f} ms", f"{one.low:.1f} ms"]


# -- the chart ----------------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT = 900, 130, 60


def _chart(courses: list[Course]) -> str:
    """Draw the number of processes over time, a panel for each load."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + LEFT + 20}" '
        f'height="{len(courses) * (HEIGHT + 50)}" font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, course in enumerate(courses):
        parts += _panel(course, number * (HEIGHT + 50) + 30)
    return "\n".join([*parts, "</svg>\n"])


def _panel(course: Course, top: int) -> Iterator[str]:
    end, most = course.samples[-1][0], max(number for _, number, _ in course.samples)
    bottom = top + HEIGHT

    def place(seconds: float, number: float) -> str:
        return f"{LEFT + WIDTH * seconds / end:.1f},{bottom - HEIGHT * number / most:.1f}"

    steps = []
    for (seconds, number, _), (later, _, _) in zip(
        course.samples, course.samples[1:], strict=False
    ):
        steps += [place(seconds, number), place(later, number)]
    yield f'<text x="{LEFT}" y="{top - 10}" font-weight="bold">{course.name}: processes</text>'
    yield f'<text x="{LEFT - 20}" y="{top + 5}">{most}</text><text x="{LEFT - 20}" y="{bottom}">0</text>'
    yield f'<text x="{LEFT + WIDTH - 30}" y="{bottom + 16}">{end:.0f} s</text>'
    yield f'<polyline fill="none" stroke="#777" points="{place(0, 0)} {place(end, 0)}"/>'
    yield f'<polyline fill="none" stroke="#06c" stroke-width="2" points="{" ".join(steps)}"/>'


if __name__ == "__main__":
    main()
