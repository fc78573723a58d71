"""Run pytest once for each database; exit with the first failure's status.

    python tests/services.py -- python tests/every_database.py [pytest's arguments]

Pages, demo and servers are the same whatever the database: they are tested once, with PostgreSQL.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

PYTEST = Path(sys.executable).with_name("pytest")  # not -m: that would import the source tree
AT_ONCE = ["--numprocesses=4", "--dist=worksteal"]  # most tests wait for other processes
ONCE = ["test_model.py", "test_docs.py", "test_demo.py", "test_services.py", "test_failpoints.py"]


def main(arguments: list[str]) -> int:
    """Return pytest's first status that is not 0."""
    status = 0
    left_out = [f"--ignore=tests/{name}" for name in ONCE]
    with tempfile.TemporaryDirectory() as directory:
        for name, url, more in (
            ("PostgreSQL", os.environ["TXTASKS_TEST_POSTGRES_URL"], []),
            ("MariaDB", os.environ["TXTASKS_TEST_MARIADB_URL"], left_out),
            ("SQLite", f"sqlite:///{directory}/txtasks.sqlite3?timeout=1", left_out),
        ):
            print(f"\n===== {name} =====", flush=True)
            code = subprocess.call(
                [PYTEST, *AT_ONCE, *more, *arguments],
                env={**os.environ, "TXTASKS_DATABASE_URL": url},
            )
            status = status or code
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
