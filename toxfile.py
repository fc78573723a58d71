"""Let tox find the Pythons of pyenv, uv, asdf and mise without any set-up.

Only those that are installed: nothing is downloaded, and what is missing is skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

HOME = Path.home()
PYENV = Path(os.environ.get("PYENV_ROOT", HOME / ".pyenv"))
DATA = Path(os.environ.get("XDG_DATA_HOME", HOME / ".local/share"))
VERSIONS = [
    PYENV / "versions",
    Path(os.environ.get("UV_PYTHON_INSTALL_DIR", DATA / "uv/python")),
    Path(os.environ.get("ASDF_DATA_DIR", HOME / ".asdf")) / "installs/python",
    Path(os.environ.get("MISE_DATA_DIR", DATA / "mise")) / "installs/python",
]


def _path_with_all_pythons() -> str:
    """Return the PATH with every installed Python at its end, so that `python3` stays the same."""
    # A shim is found under every name, and fails for those that pyenv has not been told to use.
    usual = [folder for folder in os.get_exec_path() if Path(folder) != PYENV / "shims"]
    found = [str(folder) for versions in VERSIONS for folder in sorted(versions.glob("*/bin"))]
    return os.pathsep.join([*usual, *found])


os.environ["PATH"] = _path_with_all_pythons()
os.environ.setdefault("UV_PYTHON_DOWNLOADS", "never")
# As pip does: a company's proxy is known to the machine, not to the list that uv brings along.
os.environ.setdefault("UV_SYSTEM_CERTS", "true")
