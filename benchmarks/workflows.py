"""Tasks of five steps, each of which writes a row and commits, compared with DBOS.

    python benchmarks/workflows.py [--tasks 2000] [--repeat 3] [--threads 8]
        [--peers dbos --peers-python X/bin/python]

A drain on PostgreSQL without a broker, in one process. DBOS runs 30 workflows at a time, with a session for
each, and looks at its queue every 50 ms; its steps are READ COMMITTED. CPU is milliseconds per task of the
worker and of the database. Each task must have run once and written five rows. Only ratios within one run
count.
"""

from __future__ import annotations

import argparse
import sys
import time

import contest
import cpu
import drains
import figures
import options
import records
from contest import Contender, Contest

PEERS = {"dbos": Contender("dbos", "DBOS")}
ROWS = "SELECT count(*) FROM bench_row"
STEPS = 5
Found = dict[str, list[tuple[float, float, float]]]


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    contenders = [
        contest.ours(broker_url=None, keep_finished=0),
        *(
            Contender(PEERS[name].name, PEERS[name].title, python=arguments.peers_python)
            for name in arguments.peers
        ),
    ]
    found: Found = {one.title: [] for one in contenders}
    with contest.contest() as servers:
        for _ in range(arguments.repeat):
            for one in contenders:
                found[one.title].append(_measured(servers, one, arguments))
                options.progress(f"{one.title}: {found[one.title][-1]}")
    first = [rate for rate, *_ in found[contenders[0].title]]
    rows = []
    for title, measured in found.items():
        rates, workers, databases = zip(*measured, strict=True)
        shares = [rate / other for rate, other in zip(rates, first, strict=True)]
        rows.append([title, *map(figures.figure, (rates, shares, workers, databases))])
    head = ["", "tasks/s", "by first", "worker CPU ms", "database CPU ms"]
    print(figures.table(head, rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--peers", nargs="*", default=[], choices=PEERS)
    parser.add_argument("--peers-python", default=sys.executable, help="the Python that has them")
    return parser.parse_args()


def _measured(
    servers: Contest, contender: Contender, arguments: argparse.Namespace
) -> tuple[float, float, float]:
    database = servers.databases["postgresql"]
    with servers.run(contender) as run:
        run.do("enqueue", arguments.tasks, *(["five_steps"] if contender.name == "txtasks" else []))
        servers.settle()
        with run.worker(1, f"--threads={arguments.threads}") as worker:
            run.wait_for(1)
            start = records.count(run.records)
            before = cpu.seconds_below(worker.pid, itself=True), database.cpu_seconds()
            run.wait_for(arguments.tasks)
            time.sleep(drains.SETTLE)
            after = cpu.seconds_below(worker.pid, itself=True), database.cpu_seconds()
        run.check(range(arguments.tasks))
        rows = run.ask(ROWS)
        assert rows == STEPS * arguments.tasks, f"{contender.title}: {rows} rows"
    worker_ms, database_ms = (
        1000 * (late - early) / (arguments.tasks - start)
        for early, late in zip(before, after, strict=True)
    )
    return drains.speed(records.read(run.records), 1), worker_ms, database_ms


if __name__ == "__main__":
    main()
