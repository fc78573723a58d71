"""The environment of benchmarks: the test suite's settings and apps, a test database, real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "testproject"), str(ROOT / "tests")]


@contextmanager
def project(*, broker: bool = True, **txtasks: Any) -> Iterator[None]:
    """Set up Django on a test database of its own, with these settings in TXTASKS.

    It is on PostgreSQL, unless TXTASKS_DATABASE_URL names another server. Processes of ``start`` use it,
    too.
    """
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings_for_tests")
    os.environ.setdefault("TXTASKS_DATABASE_URL", os.environ["TXTASKS_TEST_POSTGRES_URL"])
    txtasks.setdefault("queue_prefix", f"benchmark-{uuid.uuid4().hex[:8]}")
    if broker:
        txtasks["broker_url"] = os.environ["TXTASKS_TEST_AMQP_URL"]
    os.environ["TXTASKS_SETTINGS"] = json.dumps(txtasks)
    import django
    from django.test.utils import setup_databases, teardown_databases

    django.setup()
    from django.db import connection

    from django_txtasks import hints

    with tempfile.TemporaryDirectory() as directory:
        file = f"{directory}/test.sqlite3" if connection.vendor == "sqlite" else None
        connection.settings_dict["TEST"]["NAME"] = file
        old = setup_databases(verbosity=0, interactive=False)
        os.environ["TXTASKS_IN_TEST_DATABASE"] = str(connection.settings_dict["NAME"])
        try:
            yield
        finally:
            connection.close()
            hints.flush()  # ends its session in this database
            teardown_databases(old, verbosity=0)


def start(
    *command: str, log: IO[bytes], env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a management command in a process group of its own."""
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-m", "django", *command],
        env={**os.environ, "PYTHONPATH": path, **(env or {})},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
