"""Processes, as the system knows them: by which a cleaner on the same machine can tell that a worker has ended.

A number alone is no process: it is used again, and counts anew in each container. So a worker's row also has the
mark of its process: when that began, and where its number counts. Empty text means that this system tells neither.
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
    """Return the mark of a process whose number counts here."""
    where, began = _where_numbers_count(os.getpid()), _began(pid)
    return f"{PREFIX}{began} {where}" if where and began else ""


def is_there(pid: int, mark: str) -> bool | None:
    """Say whether a process has not ended; None = it runs elsewhere, or that cannot be told.

    Another namespace has other numbers, also under the same host name: what is seen here says nothing of it.
    """
    here = _where_numbers_count(os.getpid())
    if not here or not mark:
        return _exists(pid) or None
    began, _, where = mark.removeprefix(PREFIX).partition(" ")
    if where != here:
        return None
    # an empty answer: it has ended in between, or this user may not see it
    return _exists(pid) and _began(pid) in (began, "")


@functools.lru_cache(maxsize=1)
def _own_mark(pid: int) -> str:
    return mark_of(pid)


@functools.lru_cache(maxsize=1)
def _where_numbers_count(me: int) -> str:
    """Return what is the same for two processes only if both know processes by the same numbers and clock."""
    try:
        if os.readlink("/proc/self") != str(me):
            return ""  # it shows the processes of another namespace
        named = [
            Path("/proc/sys/kernel/random/boot_id").read_text(),
            os.readlink("/proc/self/ns/pid"),
        ]
    except OSError:
        return ""
    with contextlib.suppress(OSError):  # before Linux 5.6 there is one time for all
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
    """Return when a process began, in ticks since the system did; empty = it cannot be told."""
    return _field(pid, 19)


def _field(pid: int, number: int) -> str:
    """Return what its ``/proc/PID/stat`` has behind the name, which may contain anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[number]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
