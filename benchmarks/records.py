"""The records of benchmark tasks: (key, time, process) at the end of a file, in one write.

A record costs a microsecond or two and needs no package, and neither a crash nor another process can tear
it. Times of all processes of a machine compare, because they are those of CLOCK_MONOTONIC.
"""

from __future__ import annotations

import functools
import os
import random
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import NamedTuple

_FORM = struct.Struct("<qqq")
SIZE = _FORM.size
VARIABLE = "BENCHMARK_RECORDS"


class Record(NamedTuple):
    """One run of a task; ``ns`` is when."""

    key: int
    ns: int
    pid: int


def write(key: int, ns: int | None = None) -> None:
    """Say that this has happened, now or at another time, in the file that the environment names."""
    os.write(_file(), _FORM.pack(key, time.monotonic_ns() if ns is None else ns, os.getpid()))


@contextmanager
def timed() -> Iterator[None]:
    """Say when the block began and when it ended."""
    write(0)
    yield
    write(1)


def read(path: Path) -> list[Record]:
    """Return all records, in the order of their writes."""
    return [Record(*fields) for fields in _FORM.iter_unpack(path.read_bytes())]


def count(path: Path) -> int:
    """Return how many records there are."""
    return path.stat().st_size // SIZE


def ticks(number: int, seconds: float) -> Iterator[int]:
    """Yield 0, 1, 2 … at a steady pace, however long each takes to be used."""
    start = time.monotonic()
    for key in range(number):
        time.sleep(max(0.0, start + key * seconds - time.monotonic()))
        yield key


def instants(number: int, ahead: float, seconds: float) -> list[datetime]:
    """Return random times, record them, and use the keys 0, 1, 2 … for them; the first is ``ahead`` seconds
    away.
    """
    chance = random.Random(number)
    waits = [ahead + chance.uniform(0, seconds) for _ in range(number)]
    now, ns = datetime.now(timezone.utc), time.monotonic_ns()
    for key, wait in enumerate(waits):
        write(key, ns + int(wait * 1e9))
    return [now + timedelta(seconds=wait) for wait in waits]


@functools.cache
def _file() -> int:
    return os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
