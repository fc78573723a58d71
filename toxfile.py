"""Let tox find the Pythons of pyenv, uv, asdf and mise, and start the tests' servers once a run.

Only Pythons that are installed: nothing is downloaded, and what is missing is skipped.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from tox.plugin import impl

if TYPE_CHECKING:
    from tox.tox_env.api import ToxEnv

HOME = Path.home()
PYENV = Path(os.environ.get("PYENV_ROOT", HOME / ".pyenv"))
DATA = Path(os.environ.get("XDG_DATA_HOME", HOME / ".local/share"))
VERSIONS = [
    PYENV / "versions",
    Path(os.environ.get("UV_PYTHON_INSTALL_DIR", DATA / "uv/python")),
    Path(os.environ.get("ASDF_DATA_DIR", HOME / ".asdf")) / "installs/python",
    Path(os.environ.get("MISE_DATA_DIR", DATA / "mise")) / "installs/python",
]
NEWEST_FIRST = ["314", "313", "312"]
NEWEST_DJANGO = "django61"

# What keeps the servers: it tells their URLs, and ends when its standard input is closed.
KEEP = """
import json, os, sys
is_url = lambda name: name.startswith("TXTASKS_TEST_") and name.endswith("_URL")
print(json.dumps({name: text for name, text in os.environ.items() if is_url(name)}), flush=True)
sys.stdin.read()
"""


# ---- Pythons


def _path_with_all_pythons() -> str:
    """Return the PATH with every installed Python at its end, so that `python3` stays the same."""
    # A shim is found under every name, and fails for those that pyenv has not been told to use.
    usual = [folder for folder in os.get_exec_path() if Path(folder) != PYENV / "shims"]
    found = [str(folder) for versions in VERSIONS for folder in sorted(versions.glob("*/bin"))]
    return os.pathsep.join([*usual, *found])


def _newest() -> str:
    """Return the environment with the newest Python that is installed, and the newest Django."""
    there = (python for python in NEWEST_FIRST if shutil.which(f"python{python[0]}.{python[1:]}"))
    return f"py{next(there, NEWEST_FIRST[0])}-{NEWEST_DJANGO}"


os.environ["PATH"] = _path_with_all_pythons()
os.environ.setdefault("TXTASKS_TEST_NEWEST", _newest())
os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
# As pip does: a company's proxy is known to the machine, not to the list that uv brings along.
os.environ.setdefault("UV_SYSTEM_CERTS", "true")


# ---- servers


class Servers:
    """The servers of this run of tox: started for the first environment that needs them, ended with tox."""

    def __init__(self) -> None:
        self._starting = Lock()
        self._urls: dict[str, str] | None = None

    def urls(self, python: Path, root: Path) -> dict[str, str]:
        """Return the variables that name the servers; none where they could not be had."""
        with self._starting:
            if self._urls is None:
                self._urls = self._start(python, root)
            return self._urls

    def _start(self, python: Path, root: Path) -> dict[str, str]:
        keeper = subprocess.Popen(
            [python, root / "tests/services.py", "--", python, "-c", KEEP],
            stdin=subprocess.PIPE,  # closed with us, even after `kill -9`: nothing is left running
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C ends the tests first
        )
        atexit.register(keeper.communicate)
        return json.loads(keeper.stdout.readline() or "{}")


SERVERS = Servers()


def _lines(tox_env: ToxEnv) -> Iterator[str]:
    for command in tox_env.conf["commands"]:
        yield " ".join(command.args)


@impl
def tox_before_run_commands(tox_env: ToxEnv) -> None:
    """Name the servers to an environment whose commands ask services.py for them."""
    if any("tests/services.py -- " in line for line in _lines(tox_env)):
        root = Path(tox_env.core["tox_root"])
        if urls := SERVERS.urls(tox_env.conf["env_python"], root):
            tox_env.conf["set_env"].update({**urls, "TXTASKS_PRIVATE": ""})
