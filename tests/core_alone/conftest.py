"""The tests of the core need no plug-in of the package, and each has a database of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

HERE = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def _rows(transactional_db):
    """Each test sees what it has committed."""


@pytest.fixture
def kill_worker():
    """Start a worker in a process of its own; return a function that kills it as ``kill -9`` does."""
    processes = []

    def start():
        environment = {
            **os.environ,
            "CORE_DATABASE": str(connection.settings_dict["NAME"]),
            "CORE_DATABASE_IS_MADE": "1",
        }
        process = subprocess.Popen([sys.executable, HERE / "core_worker.py", "60"], env=environment)
        processes.append(process)

        def kill():
            process.kill()
            process.wait()

        return kill

    yield start
    for process in processes:
        process.kill()
        process.wait()
