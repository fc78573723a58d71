"""A private Prometheus, and promtool, from Debian's package: fetched and unpacked if the machine has none."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import programs
from programs import Wanted
from servers import HOST, Server

WANTED = Wanted(command="prometheus", package="prometheus", pattern="usr/bin/prometheus")


class Prometheus(Server):
    """A Prometheus with an empty database.

    Args:
        files: its configuration, and what that names, by file name. The first one is the configuration.
    """

    name = "Prometheus"
    wanted = WANTED

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__()
        self._files = files

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API.

        Raises:
            urllib.error.HTTPError: it cannot answer, such as a wrong query.
        """
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:  # noqa: S310
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series that an expression has now."""
        found = self.ask("query", query=expression)["result"]
        return [(one["metric"], float(one["value"][1])) for one in found]

    def _prepare(self) -> None:
        for name, text in self._files.items():
            (self.home.path / name).write_text(text)

    def _run(self) -> None:
        settings = {
            "config.file": self.home.path / next(iter(self._files)),
            "storage.tsdb.path": self.home.path / "data",
            "web.listen-address": f"{HOST}:{self.port}",
            "log.level": "warn",
        }
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        self.home.spawn([self._program.path, *arguments], env=self._env)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:  # noqa: S310
                return bool(answer.status == 200)
        except OSError:
            return False


def promtool(*arguments: str | Path, text: str | None = None) -> str:
    """Run promtool and return what it prints.

    Raises:
        AssertionError: it ends with an error.
    """
    program = programs.find(WANTED)
    done = subprocess.run(
        [program.path.with_name("promtool"), *arguments],
        env=program.environment(), input=text, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
