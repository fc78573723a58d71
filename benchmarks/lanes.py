"""The limits that lanes keep, and their cost.

    python benchmarks/lanes.py [--tasks 2000] [--waiting 50000] [--repeat 3]
        [--databases postgresql,mariadb,sqlite]

On each database, without a broker and without history:

* tasks of 50 ms in a lane that allows three at once, with 4 worker processes of 4 threads: the highest
  number that ran
  at one time, from records of starts and ends, and the share of three slots that was used;
* no-ops per second of one worker process, without lanes, in one lane without a limit, and in 10,000 lanes;
* tasks of 50 ms, 50,000 of one tenant waiting and then ten of another, one worker of 8 threads: the wait of
  those ten, in
  task times, and the share of the slots that the first tenant had used before.

Only ratios within one run count.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import contest
import figures
import options
import records
from contest import Contest, Run, ours

NAP, MANY_LANES, FEW = 0.05, 10_000, 10
LANES = {"three:*": {"at_most": 3}, "any:*": {"weight": 1}}


@dataclass(frozen=True)
class Figures:
    """Of one database: what ``main`` prints."""

    most: int
    used: float
    plain: float
    one_lane: float
    many_lanes: float
    wait: float
    before: float


def main() -> None:
    """Print the table."""
    parser = options.parser(__doc__, tasks=2000)
    parser.add_argument("--waiting", type=int, default=50_000)
    parser.add_argument("--databases", default="postgresql,mariadb,sqlite")
    arguments = parser.parse_args()
    names = arguments.databases.split(",")
    with contest.contest(mariadb="mariadb" in names) as servers:
        measured = {
            name: [_one(servers, arguments, name) for _ in range(arguments.repeat)]
            for name in names
        }
    print(_table(measured))


def _one(servers: Contest, arguments: argparse.Namespace, database: str) -> Figures:
    most, used = _limit(servers, arguments, database)
    plain = _rate(servers, arguments, database, 0)
    one_lane = _rate(servers, arguments, database, 1)
    many_lanes = _rate(servers, arguments, database, MANY_LANES)
    wait, before = _fair(servers, arguments, database)
    found = Figures(most, used, plain, one_lane, many_lanes, wait, before)
    print(database, found, flush=True)
    return found


def _ours(database: str) -> contest.Contender:
    return ours(database=database, broker_url=None, keep_finished=0, lanes=LANES)


def _limit(servers: Contest, arguments: argparse.Namespace, database: str) -> tuple[int, float]:
    with servers.run(_ours(database)) as run:
        run.do("lanes", "three:", 1, arguments.tasks, 1, NAP)
        with run.worker(4, "--threads=4"):
            run.wait_for(2 * arguments.tasks)
        found = records.read(run.records)
    moves = sorted((one.ns, -1 if one.key < 0 else 1) for one in found)
    now = most = 0
    for _, one in moves:
        now += one
        most = max(most, now)
    seconds = (moves[-1][0] - moves[0][0]) / 1e9
    return most, arguments.tasks * NAP / 3 / seconds


def _rate(servers: Contest, arguments: argparse.Namespace, database: str, lanes: int) -> float:
    """Return no-ops per second from the first to the last, in this number of lanes; 0 = without lanes."""
    count = max(arguments.tasks, lanes)
    with servers.run(_ours(database)) as run:
        servers.settle()
        if lanes:
            run.do("lanes", "any:", 1, count, lanes, 0)
        else:
            run.do("enqueue", count)
        with run.worker(1, f"--threads={arguments.threads}"):
            run.wait_for(count * (2 if lanes else 1))
        starts = [one.ns for one in records.read(run.records) if one.key >= 0]
    return count / ((max(starts) - min(starts)) / 1e9)


def _fair(servers: Contest, arguments: argparse.Namespace, database: str) -> tuple[float, float]:
    with servers.run(_ours(database)) as run:
        run.do("lanes", "any:a", 1, arguments.waiting, 1, NAP)
        with run.worker(1, "--threads=8"):
            run.wait_for(200)
            time.sleep(2)
            first = arguments.waiting + 1
            run.others.unlink(missing_ok=True)
            run.do("lanes", "any:b", first, FEW, 1, NAP)
            waits = _waits(run, first)
        begun = [one.ns for one in records.read(run.records) if 0 < one.key < first]
        ((_, committed, _),) = records.read(run.others)
    before = [one for one in begun if one < committed]
    used = len(before) * NAP / 8 / ((before[-1] - before[0]) / 1e9)
    late = [(one - committed) / 1e9 / NAP for one in waits]
    return statistics.quantiles(late, n=20, method="inclusive")[-1], used


def _waits(run: Run, first: int) -> list[int]:
    """Return when each of the few has begun, once all have."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = [one.ns for one in records.read(run.records) if one.key >= first]
        if len(found) == FEW:
            return found
        time.sleep(0.05)
    raise RuntimeError("the few of the second tenant did not begin within a minute")


def _table(measured: dict[str, list[Figures]]) -> str:
    rows = [
        [
            database,
            str(max(one.most for one in own)),
            figures.figure([one.used for one in own]),
            figures.figure([one.plain for one in own]),
            figures.figure([one.one_lane for one in own]),
            figures.figure([one.many_lanes for one in own]),
            figures.figure([one.wait for one in own]),
            figures.figure([one.before for one in own]),
        ]
        for database, own in measured.items()
    ]
    head = [
        *("", "most at once", "of three slots", "tasks/s, no lane", "one lane", "10,000 lanes"),
        *("p95 wait, task times", "of eight slots"),
    ]
    return figures.table(head, rows)


if __name__ == "__main__":
    main()
