"""The admin in each theme that the documentation names: the pages render, and have their main parts.

A theme replaces templates for a whole process, so each theme has a process of its own. The themes are in the
dependency group ``themes``, which the tests with the newest Django install.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import themes

pytestmark = pytest.mark.once


@pytest.mark.parametrize("theme", [one for one in themes.THEMES if one != "stock"])
def test_each_page_has_its_parts(theme: str) -> None:
    if "TOX_ENV_NAME" not in os.environ:  # tox installs the themes, so there none is left out
        pytest.importorskip(theme, reason="needs --group themes")
    script = Path(themes.__file__)
    command = [sys.executable, script.name, theme]
    done = subprocess.run(
        command, check=False, cwd=script.parent, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
