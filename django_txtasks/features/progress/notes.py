"""The progress of this process's tasks. Slots write it, the worker's loop reads it."""

from __future__ import annotations

import math
import threading
import uuid
from typing import Any, NamedTuple

from django_txtasks.exceptions import InvalidArguments

MOST_NOTE_CHARACTERS = 200
MOST_WITH_NOTES = 100
"""Number of tasks up to which a worker writes their notes, too. The progress of all is in one row."""
LAG = "@lag"
"""Key of the greatest lag of an event loop, in seconds, among the ids of tasks in a worker's row."""
THREADS = "@threads "
"""Begin of a key, before host and process id: tasks have waited long for the threads of this event loop.

``done`` is the seconds of the longest wait, ``total`` the number of tasks that wait, ``note`` the functions that
hold the threads, then ``HELD_FROM``, then the functions that wait.
"""
HELD_FROM = " / "


class Progress(NamedTuple):
    """The progress of a task.

    Attributes:
        done: amount done of ``total``, in any unit.
        total: None = unknown.
        note: present activity of the task.
    """

    done: float
    total: float | None = None
    note: str = ""

    @property
    def share(self) -> float | None:
        """Share from 0 to 1; None = unknown."""
        return min(1.0, max(0.0, self.done / self.total)) if self.total else None


class ProgressNotes:
    """The latest progress of each task.

    Attributes:
        of_tasks: the progress by task id. Change it by the methods only.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.of_tasks: dict[uuid.UUID | str, Progress] = {}
        self.has_changed = False

    def note(self, task_id: uuid.UUID | str, progress: Progress) -> None:
        """Keep the progress of a task, or the lag of the event loop."""
        with self._lock:
            if self.of_tasks.get(task_id) != progress:
                self.of_tasks[task_id] = progress
                self.has_changed = True

    def forget(self, task_id: uuid.UUID | str) -> None:
        """Forget a task that has ended."""
        if task_id in self.of_tasks:
            with self._lock:
                del self.of_tasks[task_id]
                self.has_changed = True

    def has(self, task_id: uuid.UUID | str) -> bool:
        """Return True if there is a progress of this task."""
        return task_id in self.of_tasks

    @property
    def are_many(self) -> bool:
        """True if more than ``MOST_WITH_NOTES`` tasks have reported: then the worker writes less, more rarely."""
        return len(self.of_tasks) > MOST_WITH_NOTES

    def take(self) -> dict[str, Progress]:
        """Return the progress of all tasks by their ids. Later progress counts as a change."""
        with self._lock:
            self.has_changed = False
            notes = {str(task_id): progress for task_id, progress in self.of_tasks.items()}
        if len(notes) <= MOST_WITH_NOTES:
            return notes
        return {
            key: one if key.startswith(THREADS) else one._replace(note="")
            for key, one in notes.items()
        }


def read_progress(value: Any) -> Progress | None:
    """Return the progress from a worker's row; None if the row holds something else."""
    try:
        return checked(*value)
    except (TypeError, InvalidArguments):
        return None


def checked(done: Any, total: Any = None, note: Any = "") -> Progress:
    """Return a progress that can be stored.

    Raises:
        InvalidArguments: the amounts are no numbers, or the note is no text.
    """
    for name, value in (("done", done), ("total", total)):
        if name == "total" and value is None:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not math.isfinite(value)
        ):
            raise InvalidArguments(f"ctx.progress({name}={value!r}): use a number.")
    if not isinstance(note, str):
        raise InvalidArguments(f"ctx.progress(note={note!r}): use text.")
    text = "".join(one for one in note[:MOST_NOTE_CHARACTERS] if one.isprintable())
    return Progress(done, total, text)
