"""The lateness of ticks while cleaners are killed, and the time for many ticks at one instant.

    python benchmarks/schedules.py [--tasks 10000] [--seconds 60] [--repeat 3]
        [--databases postgresql,mariadb,sqlite]

On PostgreSQL, without a broker: one schedule ticks each second, one worker runs its tasks, and one of three
cleaners is killed each second and started again: the number of ticks without a task, and with several, and
the time from the tick to the start of its task. Then, on each database: ``--tasks`` schedules that are due
at once, half of them by cron; seconds from the first task that one cleaner has written to the last one.
"""

from __future__ import annotations

import argparse
import json
import random
import time

import contest
import figures
import options
from contest import Contest, Run, ours

CLEANERS = 3
LATE = """
    SELECT json_agg(EXTRACT(EPOCH FROM started_at - run_after))::text FROM txtasks_finishedtask
"""
SPAN = "SELECT EXTRACT(EPOCH FROM MAX(run_after) - MIN(run_after)) + 1 FROM txtasks_finishedtask"
DISTINCT = "SELECT COUNT(DISTINCT run_after) FROM txtasks_finishedtask"
WRITTEN = "SELECT COUNT(*) FROM txtasks_task"


def main() -> None:
    """Print the figures."""
    parser = options.parser(__doc__, tasks=10_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--databases", default="postgresql,mariadb,sqlite")
    arguments = parser.parse_args()
    names = arguments.databases.split(",")
    with contest.contest(mariadb="mariadb" in names) as servers:
        print(_killed(servers, arguments))
        rows = []
        for name in names:
            measured = [_at_once(servers, arguments, name) for _ in range(arguments.repeat)]
            rows.append([name, figures.figure(measured)])
        print(figures.table(["", f"s for {arguments.tasks:,} ticks"], rows))


def _killed(servers: Contest, arguments: argparse.Namespace) -> str:
    contender = ours(broker_url=None, keep_finished=options.WEEK)
    with servers.run(contender) as run, run.worker(1, "--threads=2"):
        cleaners = [run.start("clean") for _ in range(CLEANERS)]
        time.sleep(3)
        run.do("schedules", 1, 1, "", 3)
        end, kills = time.monotonic() + arguments.seconds, 0
        while time.monotonic() < end:
            time.sleep(1)
            number = random.randrange(CLEANERS)
            cleaners[number].kill()
            cleaners[number].wait()
            cleaners[number] = run.start("clean")
            kills += 1
        for cleaner in cleaners:
            cleaner.terminate()
            cleaner.wait()
        time.sleep(2)
        late = [1000 * float(one) for one in json.loads(run.ask(LATE))]
        missing, twice = (
            int(run.ask(SPAN)) - int(run.ask(DISTINCT)),
            len(late) - int(run.ask(DISTINCT)),
        )
    return (
        f"{len(late)} tasks, {kills} cleaners killed: {missing} ticks without a task, {twice} with a second one; "
        f"late p50 {figures.percentile(late, 50):.1f} ms, p99 {figures.percentile(late, 99):.1f} ms, "
        f"most {max(late):.1f} ms"
    )


def _at_once(servers: Contest, arguments: argparse.Namespace, database: str) -> float:
    contender = ours(database=database, broker_url=None, keep_finished=0)
    with servers.run(contender) as run:
        half = arguments.tasks // 2
        run.do("schedules", half, 3600)
        run.do("schedules", arguments.tasks - half, 0, "30 3 * * *")
        servers.settle()
        cleaner = run.start("clean")
        try:
            return _seconds(run, arguments.tasks)
        finally:
            cleaner.terminate()
            cleaner.wait()


def _seconds(run: Run, count: int) -> float:
    while not int(run.ask(WRITTEN)):
        time.sleep(0.005)
    began = time.monotonic()
    while int(run.ask(WRITTEN)) < count:
        time.sleep(0.02)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
