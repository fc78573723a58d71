"""Tracers: they follow a task from its enqueueing to its attempts, for programs such as OpenTelemetry and Sentry.

An app of ``contrib`` adds its tracer when Django starts. Without a tracer, ``tracers`` is empty, the column
``headers`` stays NULL, and no statement reads the column. An error of a tracer never harms a task.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from django_txtasks import signals
from django_txtasks.core.ground import payload
from django_txtasks.exceptions import INTERRUPTIONS

Headers = Mapping[str, Any]
"""The values that a tracer sends along with a task, as JSON knows them; empty: none."""


@dataclass
class Enqueueing:
    """One call that enqueues tasks.

    Attributes:
        tasks: task name and queue name of each task.
        handles: the handles of the new tasks, once they are written.
        error: the exception that the call has raised.
        headers: JSON text for the column ``headers``; None = no tracer sends anything along.
    """

    tasks: Sequence[tuple[str, str]]
    handles: Sequence[Any] = ()
    error: BaseException | None = None
    headers: str | None = None


@dataclass
class Run:
    """One attempt of a task.

    Attributes:
        number: number of the attempt, from 1 on.
        waited: seconds from the time at which the task was due to its claim.
        outcome: name of the arrow that the row takes; empty: the attempt still runs, or its worker ends first.
        error: type, class, message and traceback, if the attempt did not succeed; else empty.
    """

    task_id: Any
    task_name: str
    queue_name: str
    number: int
    waited: float
    outcome: str = ""
    error: Mapping[str, Any] = field(default_factory=dict)


class Tracer(Protocol):
    """The interface that the core calls. ``name`` is the key of the tracer's headers in the column.

    The context managers are left without an exception: ``error`` of their argument has it.
    """

    name: str

    def enqueueing(self, call: Enqueueing) -> AbstractContextManager[Headers]:
        """Surround the INSERT, and return the headers of the tasks."""
        ...

    def running(self, run: Run, headers: Headers) -> AbstractContextManager[Headers]:
        """Surround an attempt, in its context, and return the headers of the tasks that its end enqueues.

        Args:
            headers: the headers from the enqueueing of the task.
        """
        ...

    def tick(self, schedule: Any) -> Headers:
        """Return the headers for the tasks of a schedule, a ``ticks.ScheduleRow``."""
        ...


tracers: list[Tracer] = []
_reported: set[str] = set()


def add_tracer(tracer: Tracer) -> None:
    """Call this tracer from now on, in place of an earlier one of the same name."""
    tracers[:] = [*(one for one in tracers if one.name != tracer.name), tracer]


class TracedCall:
    """The tracers around one call that enqueues tasks.

    Args:
        tasks: task name and queue name of each task.

    Attributes:
        headers: JSON text for the column ``headers``; None = no tracer sends anything along.
    """

    def __init__(self, tasks: Sequence[tuple[str, str]]) -> None:
        self._call = Enqueueing(tasks)
        with ExitStack() as stack:
            managers = {one.name: _Guarded(one, "enqueueing", self._call) for one in tracers}
            found = {name: stack.enter_context(one) for name, one in managers.items()}
            self._stack = stack.pop_all()
        self.headers = self._call.headers = _text(found)

    def end(self, handles: Sequence[Any], error: BaseException | None) -> None:
        """Note what the call has written, or its error, and leave the tracers."""
        self._call.handles, self._call.error = handles, error
        self._stack.close()


class TracedRun:
    """The tracers around one attempt.

    Attributes:
        headers: JSON text for the tasks that the end of the attempt enqueues; None = nothing is sent along.
    """

    def __init__(self, run: Run, headers: Headers) -> None:
        self._run, self._stack = run, ExitStack()
        found = {}
        for one in tracers:
            sent = headers.get(one.name)
            manager = _Guarded(one, "running", run, sent if isinstance(sent, dict) else {})
            found[one.name] = self._stack.enter_context(manager)
        self.headers = _text(found)

    def end(self, outcome: str, error: Mapping[str, Any]) -> None:
        """Note the outcome, and leave the tracers. Call it in the context in which the attempt began."""
        self._run.outcome, self._run.error = outcome, error
        self._stack.close()


def begin(attempt: Any) -> TracedRun | None:
    """Let the tracers surround this attempt; None = there is no tracer."""
    if not tracers:
        return None
    run = Run(
        task_id=attempt.task_id,
        task_name=attempt.task_name,
        queue_name=attempt.queue_name,
        number=attempt.number,
        waited=max(0.0, -float(attempt.wait or 0)),
    )
    return TracedRun(run, _read(attempt.headers))


def of_tick(schedule: Any) -> str | None:
    """Return the JSON text for the headers of a schedule's tasks; None = no tracer sends anything along."""
    found = {}
    for one in tracers:
        try:
            found[one.name] = _json(one.tick(schedule))
        except Exception as error:
            _report(one, error)
    return _text(found)


class _Guarded(AbstractContextManager[str]):
    """A context manager of a tracer, whose errors are reported and not raised. It returns the headers as JSON."""

    def __init__(self, tracer: Tracer, method: str, *args: Any) -> None:
        self._tracer, self._method, self._args = tracer, method, args
        self._manager: AbstractContextManager[Headers] | None = None

    def __enter__(self) -> str:
        try:
            manager = getattr(self._tracer, self._method)(*self._args)
            headers = manager.__enter__()
            self._manager = manager
            return _json(headers)
        except INTERRUPTIONS:  # raised in the task from outside
            raise
        except Exception as error:
            _report(self._tracer, error)
            return ""

    def __exit__(self, *raised: object) -> None:
        if self._manager is None:
            return
        try:
            self._manager.__exit__(None, None, None)
        except INTERRUPTIONS:
            raise
        except Exception as error:
            _report(self._tracer, error)


def _report(tracer: Tracer, error: Exception) -> None:
    """Log that a tracer has failed: once in this process, because the next task would log the same."""
    if tracer.name not in _reported:
        _reported.add(tracer.name)
        text = f"{type(error).__name__}: {error}"
        signals.tracer_failed.emit(tracer=tracer.name, error=text, exception=error)


def _json(headers: Headers | None) -> str:
    return payload.encode(dict(headers), name="headers") if headers else ""


def _text(headers: Mapping[str, str]) -> str | None:
    """Return the value of the column for the JSON of each tracer; None = all of them are empty."""
    said = [f"{json.dumps(name)}:{text}" for name, text in headers.items() if text]
    return f"{{{','.join(said)}}}" if said else None


def _read(text: str | None) -> Headers:
    """Return the headers in a row's column; empty if a person has written something else there."""
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
