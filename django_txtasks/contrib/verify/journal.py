"""Notes on disk about promised and started tasks, so that the account does not depend on the database.

One file per process, one short line per note, written at once, so that it survives ``kill -9`` of its
writer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

SENT, RAN = "sent", "ran"


@dataclass(frozen=True)
class Start:
    """One start of one task, by this machine's clock."""

    key: str
    kind: str
    attempt: int
    pid: int
    at: float


@dataclass
class Promises:
    """Transactions as their producers know them, each a list of keys, and other promises.

    Attributes:
        unknown: COMMIT was sent but not answered: all of its tasks exist, or none.
        refused: rolled back on purpose, or failed before COMMIT.
        brought: keys of tasks whose value was sent, with an answered COMMIT.
        first_tick: first tick of the schedule, in seconds since 1970; 0 = there is no schedule.
    """

    committed: list[list[str]] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    unknown: list[list[str]] = field(default_factory=list)
    brought: list[str] = field(default_factory=list)
    first_tick: int = 0


@dataclass
class Runs:
    """Notes of the workers: all starts, and each (key, attempt) that reached its end."""

    starts: list[Start] = field(default_factory=list)
    ended: set[tuple[str, int]] = field(default_factory=set)


def note(directory: str, name: str, *words: object) -> None:
    """Append a line to this process's file."""
    line = f"{' '.join(map(str, words))} {time.time():.6f}\n"
    os.write(_open(directory, name, os.getpid()), line.encode())


def promises(directory: Path) -> Promises:
    """Return the notes of all producers."""
    found = Promises()
    for path in sorted(directory.glob(f"{SENT}.*")):
        keys: dict[str, list[str]] = {}
        for what, number, rest in _lines(path):
            if what == "intent":
                keys[number] = rest[0].split(",")
            elif what == "brought":
                found.brought.append(number)
            elif what == "ticks":
                found.first_tick = int(number)
            else:
                getattr(found, what).append(keys.pop(number))
        found.unknown += keys.values()
    return found


def runs(directory: Path) -> Runs:
    """Return the notes of all workers."""
    found = Runs()
    for path in directory.glob(f"{RAN}.*"):
        for what, key, (kind, attempt, at) in _lines(path):
            if what == "start":
                pid = int(path.suffix[1:])
                found.starts.append(Start(key, kind, int(attempt), pid, float(at)))
            else:
                found.ended.add((key, int(attempt)))
    found.starts.sort(key=lambda start: start.at)
    return found


def has_ended_one(directory: Path, pid: int) -> bool:
    """Return True if this worker has ended an attempt since its start."""
    return any(what == "end" for what, *_ in _lines(directory / f"{RAN}.{pid}"))


@lru_cache(maxsize=4)
def _open(directory: str, name: str, pid: int) -> int:
    return os.open(Path(directory, f"{name}.{pid}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def _lines(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield (what, key, rest) of each whole line."""
    try:
        with path.open() as lines:
            yield from _split(lines)
    except FileNotFoundError:
        return


def _split(lines: Iterable[str]) -> Iterator[tuple[str, str, list[str]]]:
    for line in lines:
        if line.endswith("\n"):
            what, key, *rest = line.split()
            yield what, key, rest
