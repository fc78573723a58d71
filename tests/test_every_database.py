"""The runner of the suite: what runs on which database, and who is named after many rounds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import every_database
import pytest
import repeat

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
TESTS = """
import os
import pytest

def test_a_database_decides():
    assert "sqlite" not in os.environ["TXTASKS_DATABASE_URL"]

@pytest.mark.once
def test_that_runs_once():
    assert "postgres" in os.environ["TXTASKS_DATABASE_URL"]

@pytest.fixture
def broken():
    raise OSError

def test_a_fixture_decides(broken):
    pass
"""


def marks(monkeypatch, environment, newest="py313-django61"):
    monkeypatch.setenv("TXTASKS_TEST_NEWEST", newest)
    monkeypatch.setenv("TOX_ENV_NAME", environment)
    urls = dict.fromkeys(["PostgreSQL", "MariaDB", "SQLite"], "")
    return [run.marks for run in every_database.runs(urls)]


@pytest.mark.parametrize("environment", ["py313-django61", "coverage", ""])
def test_the_newest_has_the_whole_suite_on_each_database(environment, monkeypatch):
    assert marks(monkeypatch, environment) == ["", "not once", "not once"]


def test_the_others_have_the_whole_way_of_a_task_on_each_database(monkeypatch):
    assert marks(monkeypatch, "py310-django52") == ["smoke and not once"] * 3
    assert (
        marks(monkeypatch, "py313-django61", newest="py314-django61") == ["smoke and not once"] * 3
    )


def test_the_others_read_the_files_that_have_such_tests_and_no_more(monkeypatch):
    monkeypatch.setenv("TXTASKS_TEST_NEWEST", "py313-django61")
    monkeypatch.setenv("TOX_ENV_NAME", "py310-django52")
    files = every_database.tests_of_this_environment()
    marked = {
        str(one) for one in Path("tests").glob("test_*.py") if "mark.smoke" in one.read_text()
    }
    assert set(files) == marked
    assert "tests/test_backend.py" in marked


def test_without_tox_the_whole_suite_runs(monkeypatch):
    monkeypatch.delenv("TXTASKS_TEST_NEWEST", raising=False)
    monkeypatch.delenv("TOX_ENV_NAME", raising=False)
    assert every_database.is_newest("")


def test_after_many_rounds_each_test_that_ever_failed_is_named(tmp_path):
    (tmp_path / "test_it.py").write_text(TESTS)
    of_a_run = ("TOX_", "PYTEST_", "TXTASKS_TEST_NEWEST")
    clean = {name: text for name, text in os.environ.items() if not name.startswith(of_a_run)}
    done = subprocess.run(
        [
            sys.executable,
            repeat.__file__,
            "2",
            "-c",
            ROOT / "pyproject.toml",
            "-n0",
            "-q",
            tmp_path,
        ],
        env={**clean, "TXTASKS_TEST_BUSY_CORES": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    summary = done.stdout.split("0 of 2 rounds were green.\n")[1].split("\n")
    said = sorted(line.split("x  ")[1] for line in summary if line.startswith("   2 x  "))
    assert [line.split("::")[1] for line in said] == ["test_a_fixture_decides"] * 2 + [
        "test_a_database_decides",
        "test_a_fixture_decides",
    ]
    assert [line.split(":")[0] for line in said] == ["MariaDB", "PostgreSQL", "SQLite", "SQLite"]


@pytest.mark.parametrize(("failures", "status"), [(1, 0), (every_database.MOST_REPEATED + 1, 1)])
def test_a_few_tests_that_failed_run_once_more(tmp_path, capfd, failures, status):
    (tmp_path / "test_it.py").write_text(f"""
import os
import pytest

@pytest.mark.parametrize("number", range({failures}))
def test_once(number):
    file = {str(tmp_path)!r} + os.environ["TXTASKS_DATABASE_URL"][:5] + str(number)
    assert os.path.exists(file) or open(file, "x").close()
""")
    options = ["-c", str(ROOT / "pyproject.toml"), "-n0", "-q", str(tmp_path)]
    assert every_database.main(["--repeat-failed", *options]) == status
    said = capfd.readouterr().out
    assert said.count("failed once, and repeated alone") == 3 * (status == 0)
