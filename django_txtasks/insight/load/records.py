"""The load as data, also as one line of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple


class QueueLoad(NamedTuple):
    """One queue: the columns of the view ``txtasks_load``.

    Attributes:
        due: tasks whose time has come, without the tasks in lanes; up to 10,000.
        due_in_lanes: the same of lanes, up to 10,000 of all queues together. Their limits may keep them waiting,
            so they ask for no threads.
        oldest_seconds: seconds for which the oldest of ``due`` has waited.
        running: tasks that run in threads.
        run_seconds: mean run time of the last tasks that succeeded; before the first one, that of running tasks.
        wanted_threads: ``running + ceil(due * run_seconds / 15)``.
    """

    queue_name: str
    due: int
    due_in_lanes: int
    oldest_seconds: float
    running: int
    run_seconds: float
    wanted_threads: int


class WorkerLoad(NamedTuple):
    """One worker process with threads. ``running``: tasks in them at its last beat."""

    host: str
    pid: int
    queues: tuple[str, ...]
    threads: int
    running: int


class Look(NamedTuple):
    """The load of one database at one moment. A queue without load is left out."""

    database: str
    queues: tuple[QueueLoad, ...]
    workers: tuple[WorkerLoad, ...]

    def as_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.as_data())

    def as_data(self) -> dict[str, Any]:
        """Return the numbers as they are written in JSON."""
        return {
            "database": self.database,
            "queues": [rounded(one) for one in self.queues],
            "workers": [one._asdict() for one in self.workers],
        }


def rounded(one: QueueLoad) -> dict[str, Any]:
    """Return the numbers of a queue, with seconds in whole milliseconds."""
    times = ("oldest_seconds", "run_seconds")
    return {**one._asdict(), **{name: round(getattr(one, name), 3) for name in times}}


def parse(line: str) -> Look:
    """Return the look that ``as_json`` has written.

    Raises:
        ValueError: this is no such line, such as half a line of a process that was killed.
    """
    try:
        data = json.loads(line)
        return Look(
            data["database"],
            tuple(QueueLoad(**one) for one in data["queues"]),
            tuple(_worker(one) for one in data["workers"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no load: {error}") from None


def _worker(data: dict[str, Any]) -> WorkerLoad:
    queues: Iterable[str] = data.pop("queues")
    return WorkerLoad(queues=tuple(queues), **data)
