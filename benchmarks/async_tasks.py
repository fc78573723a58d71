"""Async tasks that wait: one worker process with thousands of them in flight.

    python benchmarks/async_tasks.py [--repeat 3] [--places 2500] [--threads 4]
        [--only plain] [--peers pgqueuer,django_absurd,procrastinate --peers-python X/bin/python]

10,000 tasks of 0.1 s and 2,000 tasks of 1 s, each without a query and with one row: by Django's ORM here and in
django-absurd, by the driver of the peer elsewhere. All are enqueued before the worker starts. Tasks per second are
counted from the first end to the last. CPU is that of all processes of the worker's command with their start, for
each task; memory (PSS) is that of all of them together, the most of samples; sessions are those of the database,
the most of samples. Only ratios within one run count.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import contest
import cpu
import figures
import options
import psycopg
import records
from contest import Contender, Contest, Run

LOADS = [(10_000, 0.1, "plain"), (2_000, 1.0, "plain"), (10_000, 0.1, "row"), (2_000, 1.0, "row")]
PEERS = {
    "pgqueuer": "pgqueuer_waits",
    "django_absurd": "django_absurd",
    "procrastinate": "procrastinate_waits",
}
SAMPLE_SECONDS = 0.1


@dataclass
class Waits:
    """One run of one load."""

    rate: float = 0.0
    cpu_ms: float = 0.0
    megabytes: list[float] = field(default_factory=lambda: [0.0])
    sessions: list[int] = field(default_factory=lambda: [0])


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    found: dict[tuple[str, str], list[Waits]] = {}
    with contest.contest() as servers:
        for _ in range(arguments.repeat):  # they take turns
            for load in [one for one in LOADS if arguments.only in (None, one[2])]:
                for contender in _contenders(arguments):
                    one = _measured(servers, contender, arguments, load)
                    found.setdefault((_title(*load), contender.title), []).append(one)
    head = ["load", "worker", "tasks/s", "CPU ms each", "PSS MB", "sessions"]
    print(figures.table(head, [[*names, *_row(runs)] for names, runs in found.items()]))


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--places", type=int, default=2500, help="async tasks at a time")
    parser.add_argument("--only", choices=["plain", "row"], help="without a query, or with a row")
    return parser.parse_args()


def _contenders(arguments: argparse.Namespace) -> list[Contender]:
    peers = [
        Contender(PEERS[one.name], one.title, one.left, python=one.python)
        for one in options.peers(arguments)
    ]
    return [options.own(arguments), *peers]


def _title(count: int, seconds: float, kind: str) -> str:
    return f"{count:,} x {seconds:g} s" + " and a row" * (kind == "row")


def _measured(
    servers: Contest,
    contender: Contender,
    arguments: argparse.Namespace,
    load: tuple[int, float, str],
) -> Waits:
    count, seconds, kind = load
    own = contender.name == "txtasks"
    working = [f"--async-tasks={arguments.places}", f"--threads={arguments.threads}"] * own
    with servers.run(contender) as run:
        run.env["BENCHMARK_WAITS"] = "1"
        run.do("enqueue_waits", count, seconds, kind)
        servers.settle()
        found = Waits()
        with run.worker(0 if own else 1, *working) as worker, _sampling(run, worker.pid, found):
            run.wait_for(count, pause=0.02)
            found.cpu_ms = cpu.seconds_below(worker.pid, itself=True) * 1000 / count
        ends = sorted(one.ns for one in records.read(run.records))
        assert len(ends) == count, f"{len(ends)} of {count} ran"
        found.rate = (count - 1) / ((ends[-1] - ends[0]) / 1e9)
    options.progress(
        f"{contender.title}, {_title(*load)}: {found.rate:.0f}/s, {found.cpu_ms:.2f} ms, "
        f"{max(found.megabytes):.0f} MB, {max(found.sessions)} sessions"
    )
    return found


@contextmanager
def _sampling(run: Run, pid: int, found: Waits) -> Iterator[None]:
    """Note memory and sessions until the end of the block."""
    is_over = threading.Event()

    def sample() -> None:
        with psycopg.connect(run.url, autocommit=True) as session:
            while not is_over.wait(SAMPLE_SECONDS):
                with suppress(OSError, StopIteration):  # a process has ended
                    pids = [pid, *cpu.descendants(pid)]
                    found.megabytes.append(sum(map(cpu.proportional_megabytes, pids)))
                row = session.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> "
                    "pg_backend_pid() AND backend_type = 'client backend'"
                ).fetchone()
                found.sessions.append(row[0] if row else 0)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
        time.sleep(2 * SAMPLE_SECONDS)
    finally:
        is_over.set()
        thread.join()


def _row(runs: list[Waits]) -> list[object]:
    return [
        figures.figure([one.rate for one in runs]),
        figures.figure([one.cpu_ms for one in runs]),
        figures.short(statistics.median(max(one.megabytes) for one in runs)),
        max(max(one.sessions) for one in runs),
    ]


if __name__ == "__main__":
    main()
