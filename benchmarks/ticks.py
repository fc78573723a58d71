"""The number and the lateness of a schedule's ticks, while the processes that write them are killed.

    python benchmarks/ticks.py [--seconds 60] [--every 5] [--broker none]
        [--peers celery --peers-python X/bin/python]

One schedule ticks each second. About every ``--every`` seconds a process that writes its ticks gets
SIGKILL, and a supervisor starts it again at once: one of three cleaners, all three, Celery's beat, whose
schedule file is kept and written after each tick, and one of two beats. All run at the same time and are
killed in turns, so that no start disturbs another; each has a worker of its own, which is never killed.

A task of this package knows its tick, which is due at a whole second. Celery's beat does not: a tick is due
one second after the last one ran, and a tick that comes at least half a second early is a second one; ticks
fewer than one per second were missed. Lateness is the time from the due time to the first line of the task,
by clocks of one machine.
"""

from __future__ import annotations

import argparse
import math
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import contest
import figures
import options
import records
from contest import Contender, Contest, Run

NS = 10**9


@dataclass
class Entrant:
    """A contender, and what writes its ticks.

    Attributes:
        verb: starts such a process, which is told its number.
        count: of these processes; the first ``kills`` of a shuffle get SIGKILL at once.
    """

    title: str
    contender: Contender
    verb: str
    count: int
    kills: int
    run: Run = field(init=False)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    killed: int = 0

    @property
    def is_ours(self) -> bool:
        return self.contender.name == "txtasks"

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """Start one of the processes."""
        return self.run.start(self.verb, *([] if self.is_ours else [number]))

    def kill(self) -> None:
        """Kill some, and start them again."""
        numbers = random.sample(range(self.count), self.kills)
        for number in numbers:
            self.processes[number].kill()
            self.processes[number].wait()
        for number in numbers:
            self.processes[number] = self.start(number)
        self.killed += len(numbers)


class Account(NamedTuple):
    """Counts of ticks; ``late`` in milliseconds."""

    expected: int
    ran: int
    missed: int
    doubled: int
    late: list[float]


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    entrants = _entrants(arguments)
    with contest.contest() as servers, ExitStack() as stack:
        for one in entrants:
            stack.enter_context(_running(servers, one, arguments))
        for one in entrants:
            one.run.wait_for(3)
        began = time.monotonic_ns()
        _kill_by_turns(entrants, arguments)
        ended = time.monotonic_ns()
        time.sleep(3)
        accounts = [_account(one, began, ended) for one in entrants]
    print(_table(entrants, accounts))


def _arguments() -> argparse.Namespace:
    parser = options.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=5, help="seconds from a kill to the next")
    return parser.parse_args()


def _entrants(arguments: argparse.Namespace) -> list[Entrant]:
    own = options.own(arguments, history="on")
    found = [
        Entrant("one of three cleaners", own, "clean", 3, 1),
        Entrant("all three cleaners", own, "clean", 3, 3),
    ]
    for peer in options.peers(arguments):
        beat = replace(peer, name=f"{peer.name}_beat")
        found.append(Entrant("Celery beat", beat, "beat", 1, 1))
        found.append(Entrant("one of two Celery beats", beat, "beat", 2, 1))
    return found


@contextmanager
def _running(servers: Contest, one: Entrant, arguments: argparse.Namespace) -> Iterator[None]:
    """A worker, and what writes ticks for it, until the end of the block."""
    working = options.working(one.contender, arguments)
    with servers.run(one.contender) as one.run, one.run.worker(1, *working):
        one.processes = [one.start(number) for number in range(one.count)]
        if one.is_ours:
            one.run.do("schedules", 1, 1, "", 3, "tick")
        try:
            yield
        finally:
            for process in one.processes:
                process.terminate()
                process.wait()


def _kill_by_turns(entrants: list[Entrant], arguments: argparse.Namespace) -> None:
    """Kill each entrant's processes in turns, at times that differ from those of the others."""
    start, share = time.monotonic(), arguments.every / len(entrants)
    turns = math.floor(arguments.seconds / arguments.every)
    for turn in range(turns):
        for place, one in enumerate(entrants):
            at = start + turn * arguments.every + place * share + random.uniform(0, min(1, share))
            time.sleep(max(0.0, at - time.monotonic()))
            one.kill()
        options.progress(f"{turn + 1} of {turns}")
    time.sleep(max(0.0, start + arguments.seconds - time.monotonic()))


def _account(one: Entrant, began: int, ended: int) -> Account:
    runs = records.read(one.run.records)
    return (_of_instants if one.is_ours else _of_gaps)(runs, began, ended)


def _of_instants(runs: list[records.Record], began: int, ended: int) -> Account:
    """The keys are whole seconds of Unix time."""
    clock = time.time_ns() - time.monotonic_ns()
    due = range(math.ceil((began + clock) / NS), (ended + clock) // NS + 1)
    ours = [record for record in runs if record.key in due]
    keys = {record.key for record in ours}
    late = [(record.ns + clock - record.key * NS) / 1e6 for record in ours]
    return Account(len(due), len(ours), len(due) - len(keys), len(ours) - len(keys), late)


def _of_gaps(runs: list[records.Record], began: int, ended: int) -> Account:
    """Take each tick as due one second after the previous one has run, because no due time is recorded."""
    times = sorted(record.ns for record in runs)
    last = max(ns for ns in times if ns < began)
    mine = [ns for ns in times if began <= ns < ended]
    expected, doubled, late = round((ended - began) / NS), 0, []
    for ns in mine:
        behind = (ns - last) / NS - 1
        if behind < -0.5:
            doubled += 1
            continue
        late.append(1000 * behind)
        last = ns
    return Account(expected, len(mine), max(0, expected - len(late)), doubled, late)


def _table(entrants: list[Entrant], accounts: list[Account]) -> str:
    head = ["killed", "kills", "ticks", "ran", "missed", "doubled", "late ms p50", "p99", "max"]
    rows = []
    for one, account in zip(entrants, accounts, strict=True):
        late = [figures.percentile(account.late, 50), figures.percentile(account.late, 99)]
        late.append(max(account.late))
        rows.append([one.title, one.killed, *account[:4], *map(figures.short, late)])
    return figures.table(head, rows)


if __name__ == "__main__":
    main()
