"""The number of CPUs that this process may use, for ``runworkers --processes auto``.

Python counts the CPUs of the machine, or of the affinity mask. No count of Python, not even
``os.process_cpu_count()``, considers the CPU quota of a container: a cgroup's limit of CPU time for each period.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MOST_WITHOUT_QUOTA = 8
"""Maximum number of processes where no quota says how many. Each process also needs database sessions."""
_OWN = Path("/proc/self")


class Cpus(NamedTuple):
    """CPUs of this process.

    Attributes:
        allowed: CPUs of the affinity mask.
        quota: CPUs that the lowest quota allows, such as 1.5; None = no cgroup has a quota.
    """

    allowed: int
    quota: float | None

    @property
    def processes(self) -> int:
        """The number of processes that can compute at the same time, at least 1."""
        most = MOST_WITHOUT_QUOTA if self.quota is None else int(self.quota)
        return max(1, min(self.allowed, most))

    @property
    def reason(self) -> str:
        """Reason for that number, for the log."""
        if self.quota is not None and self.quota < self.allowed:
            return f"the CPU quota of its cgroup is {self.quota:g}"
        if self.quota is None and self.allowed > MOST_WITHOUT_QUOTA:
            return (
                f"it may use {self.allowed} CPUs, and without a CPU quota of a cgroup "
                f"{MOST_WITHOUT_QUOTA} processes are the maximum"
            )
        return f"it may use {self.allowed} CPU{'s' if self.allowed > 1 else ''}"


def cpus(own: Path = _OWN) -> Cpus:
    """Read the CPUs of this process. Unreadable files count as no quota.

    Args:
        own: the directory of this process in ``/proc``.
    """
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # this is not Linux
        allowed = os.cpu_count() or 1
    return Cpus(allowed, min(_quotas(own), default=None))


def _quotas(own: Path) -> Iterator[float]:
    """Yield the quota, in CPUs, of each cgroup of this process and of each cgroup above it."""
    for mount in _mounts(own):
        for directory in mount.directories(_paths(own).get(mount.version)):
            with contextlib.suppress(OSError, ValueError):
                quota, period = _read(directory, mount.version)
                if quota > 0 and period > 0:
                    yield quota / period


def _read(directory: Path, version: int) -> tuple[int, int]:
    """Return the CPU time and its period in microseconds. No quota is ``max``, a ValueError, or -1."""
    if version == 2:
        quota, period = (directory / "cpu.max").read_text().split()
    else:
        quota = (directory / "cpu.cfs_quota_us").read_text()
        period = (directory / "cpu.cfs_period_us").read_text()
    return int(quota), int(period)


class _Mount(NamedTuple):
    """A mounted tree of cgroups that may limit CPU time.

    Attributes:
        version: 1 or 2, the version of cgroups.
        root: path, inside the tree, of the cgroup that is mounted.
        point: directory where it is mounted.
    """

    version: int
    root: str
    point: Path

    def directories(self, path: str | None) -> Iterator[Path]:
        """Yield the directories of the cgroup at ``path`` and of each cgroup above it.

        A container often sees only its own cgroup, mounted at a path of the host. If ``path`` is not below it,
        yield the mounted cgroup.
        """
        if path is None:
            return
        inner = os.path.relpath(path, self.root)
        below = () if inner.startswith("..") else Path(inner).parts
        for length in range(len(below), -1, -1):
            yield self.point.joinpath(*below[:length])


def _mounts(own: Path) -> Iterator[_Mount]:
    """Yield the mounted trees of cgroups, from ``mountinfo``: see proc_pid_mountinfo(5)."""
    for line in _lines(own / "mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        root, point = map(_unescaped, fields[3:5])
        if kind[0] == "cgroup2":
            yield _Mount(2, root, Path(point))
        elif kind[0] == "cgroup" and "cpu" in kind[2].split(","):
            yield _Mount(1, root, Path(point))


def _paths(own: Path) -> dict[int, str]:
    """Return the path of this process's cgroup by the version of cgroups: see cgroups(7)."""
    found = {}
    for line in _lines(own / "cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            found[2] = path
        elif "cpu" in controllers.split(","):
            found[1] = path
    return {version: path for version, path in found.items() if path.startswith("/")}


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except (OSError, ValueError):  # this is not Linux, or the text is not UTF-8
        return []


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
