"""CPU time and memory of processes, from Linux's /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def descendants(root: int) -> dict[int, list[str]]:
    """Return the processes below this one, children of children and all, with their fields of stat."""
    processes, children = _processes(), defaultdict(list)
    for pid, fields in processes.items():
        children[int(fields[1])].append(pid)
    found, waiting = {}, list(children[root])
    while waiting:
        pid = waiting.pop()
        found[pid] = processes[pid]
        waiting += children[pid]
    return found


def seconds_below(root: int, *, itself: bool = False) -> float:
    """Return the CPU seconds of all processes below this one, with their children that have ended."""
    stats = list(descendants(root).values()) + ([_stat(root)] if itself else [])
    # utime, stime, cutime, cstime: fields 14 to 17 of proc(5), the first one here being the third
    return sum(sum(map(int, fields[11:15])) for fields in stats) / _TICK


def proportional_megabytes(pid: int) -> float:
    """Return the proportional set size (PSS) of a process: its own memory, and its share of shared memory."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _processes() -> dict[int, list[str]]:
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            found[int(path.name)] = _stat(int(path.name))
        except OSError:  # it has ended
            continue
    return found


def _stat(pid: int) -> list[str]:
    """Return the fields after the name, which may have blanks: state, parent, …"""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
