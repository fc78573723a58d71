"""``benchmarks/big.py`` with some hundreds of rows: it is stopped in the middle of them, and goes on there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from programs import Unavailable, find
from servers import Postgres

SCRIPT = Path(__file__).parent.parent / "benchmarks/big.py"
FINISHED, LIVE, CHUNK = 800, 400, 10


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that an unprivileged server can use."""
    try:
        find(Postgres.wanted)
    except Unavailable as error:
        pytest.skip(str(error))
    path = Path("/tmp") / f"txtasks-big-{os.getpid()}"
    yield path
    shutil.rmtree(path)


@pytest.mark.once
def test_a_stopped_run_goes_on_where_it_was(directory: Path) -> None:
    sizes = [f"--finished={FINISHED}", f"--live={LIVE}", f"--chunk={CHUNK}", "--repeat=1"]
    command = [sys.executable, SCRIPT, directory, *sizes]
    with subprocess.Popen([*command, "--only=build"], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert any("finished: rows " in line for line in first.stdout)
        first.terminate()
    before = _counts(directory)
    second = subprocess.run(
        [*command, "--only=build,turns"], check=False, capture_output=True, text=True
    )
    assert second.returncode == 0, second.stdout + second.stderr
    assert "| turns: turn: claim 100 by a scan" in second.stdout
    assert CHUNK <= before[0] < FINISHED, "it was not stopped in the middle of its rows"
    assert _counts(directory) == [FINISHED, LIVE]


def _counts(directory: Path) -> list[int]:
    """Return the numbers of finished and live rows that the script has made."""
    sql = "SELECT count(*) FROM {} WHERE task_name LIKE 'shop.%'"
    with Postgres(directory=directory) as server:
        with psycopg.connect(server.url.removesuffix("postgres") + "big_large") as session:
            found = [
                session.execute(sql.format(table)).fetchone()
                for table in ("txtasks_finishedtask", "txtasks_task")
            ]
        server.stop()
    return [row[0] for row in found if row is not None]
