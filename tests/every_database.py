"""Run pytest once for each database; exit with the first failure's status.

python tests/services.py -- python tests/every_database.py [pytest's arguments]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

if __name__ == "__main__":
    status = 0
    with tempfile.TemporaryDirectory() as directory:
        databases = {
            "PostgreSQL": os.environ["TXTASKS_TEST_POSTGRES_URL"],
            "MariaDB": os.environ["TXTASKS_TEST_MARIADB_URL"],
            "SQLite": f"sqlite:///{directory}/txtasks.sqlite3?timeout=1",
        }
        for name, url in databases.items():
            print(f"\n===== {name} =====", flush=True)
            command = [sys.executable, "-m", "pytest", *sys.argv[1:]]
            code = subprocess.call(command, env={**os.environ, "TXTASKS_DATABASE_URL": url})
            status = status or code
    sys.exit(status)
