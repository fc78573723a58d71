"""The cost of each action in a very large site, beside an empty one on the same server.

    python benchmarks/big.py DIRECTORY [--finished 100000000] [--live 10000000] [--database postgresql]
        [--only build,turns,pages,commands,prune,backlog,drain] [--again turns] [--repeat 30]

The server's data stay in DIRECTORY, which the user ``nobody`` must be able to reach: 100,000,000 rows and
their indexes need about 35 GB. A run that was stopped goes on where it was, in the middle of the rows, too: each
step notes in the database that it is done. The server does not wait for its disk (``fsync`` is off), so the
milliseconds are those of processor and memory. Only ratios within one run count.

Delete DIRECTORY when you have read the tables.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import stage  # isort: skip -- it says where the next ones are
import figures
from databases import Database, OnMariaDB, OnPostgres
from servers import MariaDB, Postgres

HERE = stage.ROOT / "benchmarks"
COSTS = ("turns", "pages", "commands", "prune", "backlog", "drain")
STEPS = ("build", *COSTS)
EMPTY, LARGE = "big_empty", "big_large"
SETTINGS: dict[str, dict[str, object]] = {
    "postgresql": {
        "shared_buffers": "1GB",
        "maintenance_work_mem": "1GB",
        "max_wal_size": "4GB",
        "checkpoint_timeout": "30min",
        "wal_level": "minimal",
        "max_wal_senders": 0,
    },
    "mariadb": {
        "innodb-buffer-pool-size": "2G",
        "innodb-log-file-size": "1G",
        "innodb-doublewrite": 0,
    },
}


def main() -> None:
    """Take the steps, and print their tables."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with _server(arguments) as url_of:
        for step in arguments.only.split(","):
            for name in (LARGE, EMPTY) if step == "build" else (EMPTY, LARGE):
                _take(step, url_of(name), name, arguments)
        found = {name: _notes(url_of(name)) for name in (EMPTY, LARGE)}
    print(_table(found[EMPTY], found[LARGE]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--finished", type=int, default=100_000_000)
    parser.add_argument("--live", type=int, default=10_000_000)
    parser.add_argument("--chunk", type=int, default=500_000, help="rows of one transaction")
    parser.add_argument("--database", choices=[*SETTINGS], default="postgresql")
    parser.add_argument("--only", default=",".join(STEPS))
    parser.add_argument("--again", default="", help="steps to repeat, although they are done")
    parser.add_argument("--repeat", type=int, default=30)
    return parser.parse_args()


@contextmanager
def _server(arguments: argparse.Namespace) -> Iterator[Callable[[str], str]]:
    """A server with both databases; give a function that returns the URL of one."""
    kept = {
        "directory": arguments.directory.resolve(),
        "settings": SETTINGS[arguments.database],
    }
    server = Postgres(**kept) if arguments.database == "postgresql" else MariaDB(**kept)
    with server:
        database: Database = (
            OnPostgres(server) if isinstance(server, Postgres) else OnMariaDB(server)
        )
        for name in (EMPTY, LARGE):
            if not database.ask(server.url, _IS_THERE[arguments.database], name):
                database.create(name, "")
        try:
            yield lambda name: f"{server.url.rpartition('/')[0]}/{name}"
        finally:
            server.stop()


_IS_THERE = {
    "postgresql": "SELECT count(*) FROM pg_database WHERE datname = %s",
    "mariadb": "SELECT count(*) FROM information_schema.schemata WHERE schema_name = %s",
}


def _take(step: str, url: str, name: str, arguments: argparse.Namespace) -> None:
    """Take one step in one database, unless it is done."""
    again = step in arguments.again.split(",")
    if step == "build":
        size = (arguments.live, arguments.finished) if name == LARGE else (0, 0)
        _run(url, "txtasks_big", "build", *size, arguments.chunk)
    else:
        _run(url, "txtasks_big_costs", "measure", step, arguments.repeat, int(again))


def _notes(url: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "notes.json"
        _run(url, "txtasks_big", "notes_as_json", path)
        found: dict[str, Any] = json.loads(path.read_text())
    return found


def _run(url: str, adapter: str, verb: str, *arguments: object) -> None:
    """Run a verb of an adapter to its end."""
    settings = {"broker_url": None, "keep_finished": 40 * 86400}
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)]),
        "DATABASE_URL": url,
        "BROKER_URL": "",
        "NAME": "big",
        "TXTASKS_SETTINGS": json.dumps(settings),
        "BENCHMARK_RECORDS": os.devnull,
    }
    command = [sys.executable, "-m", "peers", adapter, verb, *map(str, arguments)]
    done = subprocess.run(command, cwd=HERE, env=env, check=False)
    if done.returncode:
        raise SystemExit(f"{verb} {arguments} ended with {done.returncode}")


def _table(empty: dict[str, Any], large: dict[str, Any]) -> str:
    """Return the costs that both have, and what is only known of the large one."""
    rows = []
    for step in COSTS:
        for what, value in (large.get(step) or {}).items():
            before = (empty.get(step) or {}).get(what)
            ratio = figures.short(value / before) if before else ""
            rows.append(
                [f"{step}: {what}", before if before is None else figures.short(before),
                 figures.short(value), ratio]
            )  # fmt: skip
    parts = [figures.table(["ms", "empty", "large", "ratio"], rows)] if rows else []
    steps = {name: said for name, said in large.items() if isinstance(said, float | int)}
    parts.append(figures.table(["step", "rows or seconds"], [*map(list, steps.items())]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    main()
