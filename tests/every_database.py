"""Run pytest once for each database; exit with the first failure's status.

    python tests/services.py -- python tests/every_database.py [--proof|--postgres] [pytest's arguments]

Documents, demo and servers are the same whatever the database: they are tested once, with PostgreSQL.
The protocol's proof is the same whatever the Python and Django: it has an environment of its own.
``--postgres``: no other database, and no documents; tox has all with the oldest and with the newest Django.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PYTEST = Path(sys.executable).with_name("pytest")  # not -m: that would import the source tree
AT_ONCE = ["--numprocesses=4", "--dist=worksteal"]  # most tests wait for other processes
ONCE = ["test_docs.py", "test_demo.py", "test_services.py"]
PROOF = ["test_failpoints.py", "test_model.py", "test_storm.py"]  # tox -e proof


def main(arguments: list[str]) -> int:
    """Return pytest's first status that is not 0."""
    postgres = os.environ["TXTASKS_TEST_POSTGRES_URL"]
    if arguments[:1] == ["--proof"]:
        return _run("PostgreSQL", postgres, [f"tests/{name}" for name in PROOF], arguments[1:])
    proof = [f"--ignore=tests/{name}" for name in PROOF]
    if arguments[:1] == ["--postgres"]:
        return _run("PostgreSQL", postgres, [*proof, "--ignore=tests/test_docs.py"], arguments[1:])
    once = [f"--ignore=tests/{name}" for name in ONCE]
    with tempfile.TemporaryDirectory() as directory:
        sqlite = f"sqlite:///{directory}/txtasks.sqlite3?timeout=1"
        mariadb = os.environ["TXTASKS_TEST_MARIADB_URL"]
        statuses = [
            _run("PostgreSQL", postgres, proof, arguments),
            _run("MariaDB", mariadb, [*proof, *once], arguments),
            _run("SQLite", sqlite, [*proof, *once], arguments),
        ]
    return next((status for status in statuses if status), 0)


def _run(name: str, url: str, *arguments: list[str]) -> int:
    print(f"\n===== {name} =====", flush=True)
    return subprocess.call(
        [PYTEST, *AT_ONCE, *itertools.chain(*arguments)],
        env={**os.environ, "TXTASKS_DATABASE_URL": url},
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
