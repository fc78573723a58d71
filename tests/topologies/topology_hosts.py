"""The hosts of a play: processes with a host name and with addresses of servers of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATHS = [
    str(path) for path in (HERE, HERE.parent, HERE.parents[1] / "testproject", HERE.parents[1])
]
"""Where processes find modules."""
sys.path[:0] = PATHS


@dataclass
class Host:
    """A machine of the play: its processes reach the servers by its own addresses.

    Args:
        command: what its processes are started with. By default they have a host name of their own, so that
            cleaners of other hosts cannot see them.
        environment: further variables of its processes.
    """

    name: str
    database: str
    broker: str | None = None
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """Return the environment of its processes."""
        variables = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "topology_settings",
            "PYTHONPATH": os.pathsep.join(PATHS),
            "TXTASKS_DATABASE_URL": self.database,
            "TXTASKS_BROKER_URL": self.broker or "",
            **self.environment,
        }
        variables.pop("TXTASKS_SETTINGS", None)
        return variables

    def start(self, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a management command there."""
        mine = ["sh", "-c", 'hostname "$0" && exec "$@"', self.name]
        prefix = self.command or [*unshare("--uts"), *mine]
        with log.open("ab") as output:
            return subprocess.Popen(
                [*prefix, sys.executable, "-m", "django", *arguments],
                env=self.variables(),
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


def unshare(*options: str) -> list[str]:
    """Return the beginning of a command that runs in namespaces of its own."""
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), *options]
