"""The pages of the admin on a large site: rows read, milliseconds, and a peer's lists at as many rows.

    python benchmarks/pages.py [--live 2000000] [--finished 10000000] [--repeat 20] [--database postgresql]
        [--browsers 10] [--peers django_absurd --peers-python X/bin/python]

Each page is opened before the database has vacuumed and analyzed, and afterwards. Milliseconds are medians: of the
statements of one request, as its process sees them. "most rows" = the most rows that one statement reads, by its
own plan, on PostgreSQL. Only times within one run count.

At last, ``--browsers`` browsers poll At a glance every 5 s, through one process of the site, and each through a
process of its own: the share of one core that the database needs for them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import Any

import contest
import figures
import options
from contest import Contender, Contest, Run

POLLED_SECONDS = 60
PEERS = {"django_absurd": Contender("django_absurd_pages", "django-absurd")}


def main() -> None:
    """Print one table for each contender."""
    arguments = _arguments()
    with contest.contest(mariadb=arguments.database == "mariadb") as servers:
        for contender in _contenders(arguments):
            print(f"\n{contender.title}, {contender.database}\n")
            print(_table(servers, contender, arguments), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--live", type=int, default=2_000_000)
    parser.add_argument("--finished", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument(
        "--database", choices=["postgresql", "mariadb", "sqlite"], default="postgresql"
    )
    parser.add_argument("--browsers", type=int, default=10)
    parser.add_argument("--peers", default="", help=f"any of {','.join(PEERS)}")
    parser.add_argument("--peers-python", default=sys.executable, help="the Python that has them")
    return parser.parse_args()


def _contenders(arguments: argparse.Namespace) -> list[Contender]:
    own = Contender("txtasks_pages", "django-txtasks", database=arguments.database)
    names = filter(None, arguments.peers.split(","))
    return [own, *(replace(PEERS[name], python=arguments.peers_python) for name in names)]


def _table(servers: Contest, contender: Contender, arguments: argparse.Namespace) -> str:
    with servers.run(contender) as run:
        begin = time.monotonic()
        run.do("fill", arguments.live, arguments.finished)
        options.progress(f"{contender.title}: filled in {time.monotonic() - begin:.0f} s")
        before = _visited(run, arguments.repeat)
        run.do("vacuum")
        after = _visited(run, arguments.repeat)
        if contender.name == "txtasks_pages" and arguments.browsers:
            _tell_of_browsers(servers, run, arguments.browsers)
    head = [
        "page",
        "status",
        "statements",
        "most rows",
        "rows",
        "database ms unvacuumed",
        "vacuumed",
        "all ms",
    ]
    rows = [
        [
            url, now["status"], now["statements"], f"{now['most_rows']:,}", f"{now['rows']:,}",
            *(figures.short(value) for value in (old["database_ms"], now["database_ms"], now["ms"])),
        ]
        for (url, now), old in zip(after.items(), before.values(), strict=True)
    ]  # fmt: skip
    return figures.table(head, rows)


def _tell_of_browsers(servers: Contest, run: Run, browsers: int) -> None:
    """Print the database's CPU time while browsers poll the overview."""
    database = servers.databases[run.contender.database]
    for processes in (1, browsers):
        before = database.cpu_seconds()
        polling = [
            run.start("poll", browsers // processes, POLLED_SECONDS) for _ in range(processes)
        ]
        if any(one.wait() for one in polling):
            raise RuntimeError(run.log())
        share = (database.cpu_seconds() - before) / POLLED_SECONDS
        print(f"{browsers} browsers, {processes} processes of the site: {share:.1%} of a core\n")


def _visited(run: Run, repeat: int) -> dict[str, Any]:
    path = run.directory / "pages.json"
    run.do("visit", repeat, path)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


if __name__ == "__main__":
    main()
