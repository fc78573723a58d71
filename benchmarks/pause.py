"""The cost of a paused queue for the others, and the time until a pause takes effect.

    python benchmarks/pause.py [--waiting 1000000] [--tasks 20000] [--repeat 3] [--pauses 5]

A drain of drain.py beside a paused queue in which ``--waiting`` tasks of a higher priority are due, and
without it. Then pauses of a queue under load, 1,000 tasks per second: milliseconds from the commit of a
pause to the last start, and from that of the resume to the next start.
"""

from __future__ import annotations

import argparse
import threading
import time
from dataclasses import replace

import contest
import drains
import figures
import options
import records
from contest import Contender, Contest, Run
from drains import Case

PAUSE = "INSERT INTO txtasks_pausedqueue (queue_name) VALUES ('{}')"
RESUME = "DELETE FROM txtasks_pausedqueue"
CALM = 1.5
"""Seconds that a queue is paused, and goes on after that."""


def main() -> None:
    """Print the tables."""
    parser = options.parser(__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    parser.add_argument("--pauses", type=int, default=5)
    arguments = parser.parse_args()
    cases = [case for broker in ("rabbitmq", "none") for case in _cases(arguments, broker)]
    drains.report(cases, drains.measured(cases, arguments), arguments)
    print(_delays(arguments))


def _own(arguments: argparse.Namespace, broker: str = "rabbitmq") -> Contender:
    own = options.own(arguments, broker=broker)
    return replace(own, settings={**own.settings, "queues": ["default", "other"]})


def _cases(arguments: argparse.Namespace, broker: str) -> list[Case]:
    own = _own(arguments, broker)
    title = f"{own.title}, {arguments.waiting:,} wait in a paused queue"

    def before(run: Run) -> None:
        run.do("hoard", arguments.waiting)
        run.ask(PAUSE.format("other"))

    return [Case(own.title, own), Case(title, own, before=before, base=own.title)]


def _delays(arguments: argparse.Namespace) -> str:
    with contest.contest() as servers:
        stops, starts = _pauses(servers, arguments)
    rows = [
        ["to the last start", figures.figure(stops)],
        ["to the next one", figures.figure(starts)],
    ]
    return figures.table(["ms", f"{arguments.pauses} pauses: min / median / max"], rows)


def _pauses(servers: Contest, arguments: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each pause and of each resume."""
    moments = []
    with servers.run(_own(arguments)) as run, run.worker(1, f"--threads={arguments.threads}"):
        run.warm_up()
        seconds = (2 * arguments.pauses + 2) * CALM
        flow = threading.Thread(target=run.do, args=("flow", seconds, 1000))
        flow.start()
        time.sleep(2 * CALM)
        for _ in range(arguments.pauses):
            run.ask(PAUSE.format("default"))
            paused = time.monotonic_ns()
            time.sleep(CALM)
            run.ask(RESUME)
            moments.append((paused, time.monotonic_ns()))
            time.sleep(CALM)
        flow.join()
        run.wait_for(int(seconds * 1000))
        begun = sorted(record.ns for record in records.read(run.records))
    stops = [
        max([0.0, *((ns - paused) / 1e6 for ns in begun if ns < resumed)])
        for paused, resumed in moments
    ]
    starts = [min((ns - resumed) / 1e6 for ns in begun if ns > resumed) for _, resumed in moments]
    return stops, starts


if __name__ == "__main__":
    main()
