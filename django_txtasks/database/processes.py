"""Marks of processes, by which a cleaner on the same machine can see that a worker's process has ended.

A process id alone is not enough, because it is reused, and each container counts its own. So a worker's row also
has the mark of its process: its start, and the namespace of its id. Empty text means that this system tells
neither.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path

PREFIX = "process "


def own_mark() -> str:
    """Return the mark of this process."""
    return _own_mark(os.getpid())  # a process that was forked has another one


def mark_of(pid: int) -> str:
    """Return the mark of a process whose id is of this namespace."""
    where, began = _where_numbers_count(os.getpid()), _began(pid)
    return f"{PREFIX}{began} {where}" if where and began else ""


def is_there(pid: int, mark: str) -> bool | None:
    """Say whether a process is still running; None = it runs elsewhere, or this is unknown.

    Another namespace has its own ids, even with the same host name, so the processes here say nothing about it.
    """
    here = _where_numbers_count(os.getpid())
    if not here or not mark:
        return _exists(pid) or None
    began, _, where = mark.removeprefix(PREFIX).partition(" ")
    if where != here:
        return None
    # empty: the process has ended in between, or this user may not see it
    return _exists(pid) and _began(pid) in (began, "")


@functools.lru_cache(maxsize=1)
def _own_mark(pid: int) -> str:
    return mark_of(pid)


@functools.lru_cache(maxsize=1)
def _where_numbers_count(me: int) -> str:
    """Return a text that is equal for two processes only if they share a namespace of process ids and a clock."""
    try:
        if os.readlink("/proc/self") != str(me):
            return ""  # /proc shows the processes of another namespace
        named = [
            Path("/proc/sys/kernel/random/boot_id").read_text(),
            os.readlink("/proc/self/ns/pid"),
        ]
    except OSError:
        return ""
    with contextlib.suppress(OSError):  # Linux before 5.6 has no namespaces of time
        named.append(os.readlink("/proc/self/ns/time"))
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:12]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return _field(pid, 0) not in ("Z", "X")


def _began(pid: int) -> str:
    """Return the start of a process in ticks since the system's start; empty = unknown."""
    return _field(pid, 19)


def _field(pid: int, number: int) -> str:
    """Return a field of ``/proc/PID/stat``, counted after the name, which may contain any characters."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[number]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
