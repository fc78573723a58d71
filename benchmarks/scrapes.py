"""Prometheus beside a busy worker: the time of each scrape, and the cost for the worker.

    python benchmarks/scrapes.py [--tasks 60000] [--repeat 3] [--threads 4]

Drains of no-op tasks beside a cleaner with metrics, in turns: with a real Prometheus that scrapes it each second,
fifteen times as often as the configuration in ``deploy/``, and without. Printed are the ratio of tasks per second
and, of all scrapes, their number, how many were answered, and the longest.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from contextlib import ExitStack

import contest
import drains
import figures
import options
from contest import Contest
from prometheus import Prometheus
from servers import free_port

PATIENCE = 60


def main() -> None:
    """Print the table."""
    arguments = options.parser(__doc__, tasks=60_000).parse_args()
    ratios, scrapes = [], []
    with contest.contest() as servers:
        for number in range(arguments.repeat):
            rates = {}
            for scraped in (True, False) if number % 2 else (False, True):
                rates[scraped], found = _drain(servers, arguments, scraped=scraped)
                scrapes += found
                options.progress(f"scraped: {scraped}, {rates[scraped]:,.0f} tasks/s, {found}")
            ratios.append(rates[True] / rates[False])
    rows = [
        ["tasks/s, scraped by not scraped", figures.figure(ratios)],
        ["scrapes", sum(count for count, _, _ in scrapes)],
        ["share that was answered", min(up for _, up, _ in scrapes)],
        ["longest in ms", f"{1000 * max(longest for _, _, longest in scrapes):,.0f}"],
    ]
    print(figures.table(["scrapes", "found"], rows))


def _drain(
    servers: Contest, arguments: argparse.Namespace, *, scraped: bool
) -> tuple[float, list[tuple[int, float, float]]]:
    """Return the tasks per second, and of the scrapes their number, the share of answers, the longest seconds."""
    address = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        run = stack.enter_context(servers.run(options.own(arguments)))
        run.do("enqueue", arguments.tasks)
        port = address.partition(":")[2]
        stack.enter_context(
            run.beside("clean", f"--probe-port={port}", "--probe-address=127.0.0.1")
        )
        _await(f"http://{address}/metrics")
        servers.settle()
        if not scraped:
            return drains.drain(run, arguments.tasks, 1, f"--threads={arguments.threads}")[0], []
        jobs = [{"job_name": "txtasks", "static_configs": [{"targets": [address]}]}]
        settings = {"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}
        server = stack.enter_context(Prometheus({"scrape.yaml": json.dumps(settings)}))
        while not server.query("up"):  # the first scrape
            time.sleep(0.1)
        rate = drains.drain(run, arguments.tasks, 1, f"--threads={arguments.threads}")[0]
        found = [
            server.query(f"{function}({metric}[10m])")[0][1]
            for function, metric in (
                ("count_over_time", "up"),
                ("avg_over_time", "up"),
                ("max_over_time", "scrape_duration_seconds"),
            )
        ]
        return rate, [(int(found[0]), found[1], found[2])]


def _await(url: str) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):  # noqa: S310
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()
