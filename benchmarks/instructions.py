"""The instructions of the hot paths, counted by callgrind, in this checkout and in another one.

    git worktree add /tmp/old COMMIT
    python benchmarks/instructions.py /tmp/old [--paths enqueue,turn] [--repeat 3]

A count hardly depends on how busy the machine is, so it shows a loss of 2 %, which times cannot show. Counted is
what the process of the package does, not its private PostgreSQL. Each path runs N and 2 N times, and the
difference by N is printed. Both checkouts run the benchmarks of this one, without hints, history and RabbitMQ.
Needed is valgrind (`apt-get install valgrind`). Takes some minutes.

The paths, each per task or per call:

* ``enqueue``: a transaction with one ``enqueue()``; ``enqueue-100``: one ``enqueue_many()`` of 100 tasks
* ``claim``, ``attempt``, ``record``: a task's part of a turn that claims many, of its run, and of a turn that
  records many; ``atomic-attempt``: a run that records itself
* ``turn``: a turn of an idle worker
* ``worker``: all that ``runworkers --batch`` does for a task in one thread, which varies by a few percent
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

VALGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--quiet"]
CHILD = "--in-valgrind"
ROOT = Path(__file__).resolve().parent.parent
EACH = 100
"""N: the number of tasks or calls; at most as many as a turn takes."""
CALLS_OF_100 = 10
"""N is divided by this for calls with 100 tasks each."""
NAME = re.compile(r"^desc: Trigger: dump (\S+)$", re.MULTILINE)
TOTALS = re.compile(r"^totals: (\d+)$", re.MULTILINE)
SETTINGS = {"keep_finished": 0, "broker_url": None, "database_hints": False}
Counts = dict[str, list[float]]


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    if arguments.in_valgrind:
        count_here(arguments.paths.split(","), arguments.repeat)
        return
    if not shutil.which("valgrind"):
        sys.exit("Counting needs valgrind, which is not installed: apt-get install valgrind")
    import contest
    import figures

    with contest.contest() as servers:
        here = contest.ours("this checkout", **SETTINGS)
        new, old = (
            _counts(servers, one, arguments)
            for one in (here, replace(here, title="the other", checkout=arguments.other))
        )
    rows = []
    for path, counts in new.items():
        now, before = figures.figure(counts), figures.figure(old[path])
        rows.append([path, now, before, f"{now.middle / before.middle:.3f}"])
    print(figures.table(["instructions", "this checkout", "the other", "ratio"], rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", help="directory of the other checkout")
    parser.add_argument("--paths", default=",".join(PATHS), help="default: %(default)s")
    parser.add_argument("--repeat", type=int, default=3, help="counts of each path")
    parser.add_argument(CHILD, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _counts(servers, contender, arguments: argparse.Namespace) -> Counts:
    """Return the instructions of each path in one checkout, by a process in valgrind."""
    import options

    with servers.run(contender) as run, tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out"
        child = [sys.executable, __file__, arguments.other, CHILD]
        asked = [f"--paths={arguments.paths}", f"--repeat={arguments.repeat}"]
        subprocess.run(
            [*VALGRIND, f"--callgrind-out-file={out}", *child, *asked],
            env={**run.env, "PYTHONHASHSEED": "0"}, check=True,
        )  # fmt: skip
        options.progress(f"{contender.title}: counted")
        return differences([text.read_text() for text in Path(directory).glob("out.*")])


def differences(dumps: list[str]) -> Counts:
    """Return the instructions of each path, per task or call, from the texts of callgrind's dumps."""
    found: dict[tuple[str, int, int], int] = {}
    for text in dumps:
        if name := NAME.search(text):
            path, times, number = name[1].split(":")
            found[path, int(times), int(number)] = int(TOTALS.search(text)[1])
    counts: Counts = {}
    for (path, times, number), total in sorted(found.items()):
        if times == 1:
            each = EACH // CALLS_OF_100 if path == "enqueue-100" else EACH
            counts.setdefault(path, []).append((found[path, 2, number] - total) / each)
    return counts


# -- in valgrind ----------------------------------------------------------------------------------------


def count_here(paths: list[str], repeat: int) -> None:
    """Run each path N and 2 N times, and have callgrind dump what each took."""
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    os.environ["TXTASKS_DATABASE_URL"] = os.environ["DATABASE_URL"]
    django.setup()
    for path in paths:
        list(PATHS[path](EACH))  # what is done once, and statements that are prepared
        for number in range(repeat):
            for times in (1, 2):
                _count(path, times, number)


def _count(path: str, times: int, number: int) -> None:
    """Run a path, which stops before and after the part that counts."""
    steps = PATHS[path](times * EACH)
    next(steps)
    gc.collect()
    _control("--instr=on")
    next(steps)
    _control(f"--dump={path}:{times}:{number}")
    _control("--instr=off")
    next(steps, None)


def _control(order: str) -> None:
    command = ["callgrind_control", order, str(os.getpid())]
    subprocess.run(command, check=True, capture_output=True)


def enqueue(count: int) -> Iterator[None]:
    """Commit transactions with one task each."""
    from bench import tasks
    from django.db import transaction

    yield
    for key in range(count):
        with transaction.atomic():
            tasks.default.enqueue(key)
    yield
    _forget_tasks()


def enqueue_100(count: int) -> Iterator[None]:
    """Commit calls of ``enqueue_many`` with 100 tasks each: fewer than N."""
    from bench import tasks

    from django_txtasks import enqueue_many

    yield
    for _ in range(count // CALLS_OF_100):
        enqueue_many([(tasks.default, [key]) for key in range(100)])
    yield
    _forget_tasks()


def _forget_tasks() -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE txtasks_task")


@functools.cache
def module(place: str) -> Any:
    """Import a file of the package, by its present place, also in a checkout in which it has another place."""
    moves = json.loads((ROOT / "tests/rooms.json").read_text())
    for one in (place, *(old for old, new in moves.items() if new == place)):
        name = "django_txtasks." + one.removesuffix(".py").replace("/", ".")
        with contextlib.suppress(ModuleNotFoundError):
            return import_module(name)
    raise ModuleNotFoundError(place)


class Loop:
    """The parts of a worker's loop, each done when it is told to."""

    def __init__(self, policy: str) -> None:
        import helpers
        from bench import tasks

        from django_txtasks.conf import get_config

        self._function, self._running = getattr(tasks, policy), helpers.Running()
        if hasattr(helpers, "turn_writer"):
            self._writer = helpers.turn_writer()
            self._runner = helpers.runner(self._writer)
        else:  # a checkout of before, whose worker had no parts
            writer = module("core/working/turn_writer.py").TurnWriter
            self._writer = writer(get_config(), helpers.subscription(), threads=1)
            runner = module("core/working/running/runner.py").Runner
            self._runner = runner("default", get_config(), lambda session: None)
        self.turn()

    def enqueue(self, count: int) -> None:
        """Write tasks."""
        from django_txtasks import enqueue_many

        enqueue_many([(self._function, [key]) for key in range(count)])

    def turn(self, room: int = 0) -> list[Any]:
        """Take a turn; return what it has claimed."""
        room_for = module("core/rows/turn.py").Capacity(room)
        plan = module("core/working/schedule.py").Plan(room_for, scans=bool(room))
        return list(self._writer.write(plan, self._running, None).claimed)

    def run(self, claimed: list[Any]) -> list[Any]:
        """Run attempts."""
        no_limit = module("core/working/running/limits.py").NO_LIMIT
        return [self._runner.run(attempt, no_limit) for attempt in claimed]

    def record(self, ended: list[Any]) -> None:
        """Take a turn that records."""
        self._writer.buffer.add(ended)
        self.turn()

    def close(self) -> None:
        """End the worker."""
        self._writer.registration.leave()
        _forget_tasks()


def turn(count: int) -> Iterator[None]:
    """Take turns without anything to do."""
    loop = Loop("default")
    yield
    for _ in range(count):
        loop.turn()
    yield
    loop.close()


def claim(count: int) -> Iterator[None]:
    """Claim tasks in one turn."""
    loop = Loop("default")
    loop.enqueue(count)
    yield
    claimed = loop.turn(count)
    yield
    assert len(claimed) == count
    loop.close()


def attempt(count: int, policy: str = "default") -> Iterator[None]:
    """Run tasks."""
    loop = Loop(policy)
    loop.enqueue(count)
    claimed = loop.turn(count)
    yield
    loop.run(claimed)
    yield
    loop.close()


def record(count: int) -> Iterator[None]:
    """Record the ends of tasks in one turn."""
    loop = Loop("default")
    loop.enqueue(count)
    ended = loop.run(loop.turn(count))
    yield
    loop.record(ended)
    yield
    loop.close()


def worker(count: int) -> Iterator[None]:
    """Run tasks by ``runworkers --batch``."""
    from bench import tasks
    from django.core.management import call_command

    from django_txtasks import enqueue_many

    enqueue_many([(tasks.default, [key]) for key in range(count)])
    yield
    call_command("runworkers", "--batch", "--threads=1", "--no-cleaner", "-v0")
    yield


PATHS: dict[str, Callable[[int], Iterator[None]]] = {
    "enqueue": enqueue,
    "enqueue-100": enqueue_100,
    "claim": claim,
    "attempt": attempt,
    "atomic-attempt": functools.partial(attempt, policy="atomic"),
    "record": record,
    "turn": turn,
    "worker": worker,
}


if __name__ == "__main__":
    main()
