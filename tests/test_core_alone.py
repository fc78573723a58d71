"""The core alone is complete: with all else deleted, its own tests pass on each database."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from core_alone import core_copy
from django.db import connection
from helpers import HERE

ALONE = HERE / "core_alone"


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """A directory with a copy of the package that has nothing but its core."""
    directory = tmp_path_factory.mktemp("core")
    core_copy.copy(directory)
    return directory


@pytest.mark.once
def test_the_copy_has_the_core_and_what_named_arrows_need(core):
    left = {path.relative_to(core).parts[1] for path in core.rglob("*.py")}
    assert not left & {"lanes", "steps", "broker", "inspection", "contrib"}


def test_the_core_alone_is_complete(core, tmp_path):
    name = (
        str(tmp_path / "core.sqlite3")
        if connection.vendor == "sqlite"
        else f"txtasks_core_{os.getpid()}"
    )
    paths = [core, ALONE, HERE.parent / "testproject"]
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("PYTEST")},
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "DJANGO_SETTINGS_MODULE": "core_settings",
        "CORE_DATABASE": name,
    }
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:txtasks"]
    files = ["--rootdir", ALONE, "-c", os.devnull, "--confcutdir", ALONE, ALONE / "scenes.py"]
    ended = subprocess.run(
        [*run, *files],
        check=False,
        env=environment,
        cwd=core,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    assert " passed" in ended.stdout and "skipped" not in ended.stdout
