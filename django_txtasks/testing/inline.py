"""Runs tasks in the test's own thread and transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from time import sleep
from typing import Any

from django.db import DatabaseError, connections, transaction

from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground.wording import counted
from django_txtasks.core.rows import engines, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.running import AttemptRun, run_of
from django_txtasks.core.rows.turn import Capacity, Scan, Subscription, TurnRequest
from django_txtasks.core.working.recording.outcome_buffer import emit
from django_txtasks.core.working.running.limits import TimeLimit
from django_txtasks.core.working.running.runner import call_of, finished
from django_txtasks.core.working.running.verdicts import failed
from django_txtasks.exceptions import Retry, Snooze, Suspended, TaskCancelled, leaves_of, meant
from django_txtasks.features.batches import rows as batches
from django_txtasks.features.lanes import claiming as lanes
from django_txtasks.features.notices.brake import brakes
from django_txtasks.signals import attempt_starting
from django_txtasks.testing.clock import clock_of
from django_txtasks.testing.passing_time import PassingTime

MAX_SECONDS = 1e9
LOCK_TRIES = 3000
"""Number of times to try to record the end of a task whose row another transaction has locked, 10 ms apart.

This is a count, because a test may have stopped all clocks.
"""


@dataclass(frozen=True)
class RanTask:
    """One attempt made by ``run_due_tasks``.

    Attributes:
        status: ``"succeeded"``, ``"pending"`` (it will run again), ``"cancelled"`` or ``"dead"``.
        result: the function's return value; None if it raised.
        error: the exception, or None.
    """

    task_id: uuid.UUID
    task_name: str
    attempt: int
    status: str
    result: Any
    error: BaseException | None

    @property
    def is_expected(self) -> bool:
        """True if the exception is a normal way to continue, such as a Retry that another attempt follows."""
        if isinstance(self.error, Retry):
            return self.status == "pending"
        return isinstance(self.error, (Snooze, Suspended, TaskCancelled))


_STATUS_AFTER = {
    Arrow.FINISH: "succeeded",
    Arrow.RETRY: "pending",
    Arrow.RELEASE: "pending",
    Arrow.SNOOZE: "pending",
    Arrow.SUSPEND: "pending",
    Arrow.CANCEL: "cancelled",
}


def run_due_tasks(
    *,
    using: str = "default",
    queues: Sequence[str] | None = None,
    limit: int = 1000,
    reraise: bool = True,
    until: timedelta | float | None = None,
) -> list[RanTask]:
    """Run the due tasks, and the tasks that these enqueue, in this thread and transaction.

    This works in Django's ``TestCase`` and with pytest-django's ``db``: tasks that the test has not
    committed are claimed, run and recorded as by a worker. Time limits do not apply.

    With ``until`` time passes: whenever nothing is due, the clock skips to the next time at which something
    is: a task, the end of a sleep or a wait, or a tick of a schedule in the table. In each attempt
    ``timezone.now()`` and the clock of this database show that time. The test does not wait for it, and
    afterwards the real time applies again. A call inside a task shares the time of the call that runs this
    task.

    Args:
        queues: run tasks of these queues only; None = all.
        limit: highest number of attempts, because tasks may enqueue each other for ever.
        reraise: raise a task's exception once it is recorded, except for Snooze, Suspended and
            TaskCancelled, and for a Retry that another attempt follows.
        until: how much time may pass in total, as timedelta or seconds; None = none.

    Returns:
        The attempts in order.

    Raises:
        AssertionError: more than ``limit`` attempts were due.
        ValueError: ``until`` is not a valid duration.
    """
    span = None if until is None else _span(until)
    with nullcontext() if span is None else clock_of(using) as clock:
        passing = None if span is None or clock is None else PassingTime(using, clock, span)
        return _run_all(using, queues, limit, reraise, passing)


def _span(until: timedelta | float) -> timedelta:
    seconds = until.total_seconds() if isinstance(until, timedelta) else until
    if type(seconds) not in (int, float) or not 0 <= seconds < MAX_SECONDS:
        raise ValueError(
            f"run_due_tasks(until={until!r}): use a timedelta or a number of seconds, from 0 to 30 years."
        )
    return timedelta(seconds=seconds)


def _run_all(
    using: str, queues: Sequence[str] | None, limit: int, reraise: bool, time: PassingTime | None
) -> list[RanTask]:
    config = get_config()
    brakes.pop(using, None)  # deaths in other tests must not hold back notices in this one
    names = list(queues or config.queues_of_workers)
    subscription = Subscription(using, tuple(names), tuple(registry.names()))
    worker = workers.register(using, queues=names, threads=1, listening=None, lease=config.lease)
    ran: list[RanTask] = []
    try:
        while attempt := _next_one(subscription, worker, time):
            if len(ran) >= limit:
                raise AssertionError(
                    f"More than {counted(limit, 'attempt')}, and {attempt.task_name} is due: "
                    "does a task enqueue itself?"
                )
            with nullcontext() if time is None else time.shown(), run_of(attempt, using) as run:
                ran.append(one := _run(run))
            if reraise and one.error is not None and not one.is_expected:
                raise one.error
    finally:
        workers.unregister(using, worker)
    return ran


def _next_one(
    subscription: Subscription, worker: uuid.UUID, time: PassingTime | None
) -> Attempt | None:
    """Claim a due task. Before giving up, let ended batches enqueue their hooks, then let time pass."""
    while True:
        attempt = _claim_one(subscription, worker)
        if attempt is None and batches.sweep(subscription.alias):
            attempt = _claim_one(subscription, worker)
        if attempt is not None or time is None or not time.go_on(subscription):
            return attempt


def _claim_one(subscription: Subscription, worker: uuid.UUID) -> Attempt | None:
    with transaction.atomic(using=subscription.alias):
        request = TurnRequest(Capacity(1), scan=Scan(subscription.queues))
        claimed = engines.claim(subscription, worker, request, with_keys=True).claimed
        if not claimed:  # one task at a time, so limits of lanes do not matter
            claimed = lanes.claim_any(subscription, worker, 1)
        return next(iter(claimed), None)


def _run(run: AttemptRun) -> RanTask:
    config, value, error = get_config(), None, None
    attempt, alias = run.attempt, run.alias
    try:
        declaration = registry.get(attempt.task_name)
        call = call_of(declaration, run, TimeLimit(None))
        attempt_starting.send(sender=None, **attempt.facts)
        if declaration.atomic:
            with transaction.atomic(using=alias):
                value = call()
                ended = finished(attempt, value)
        else:
            value = _in_savepoint(call, alias)
            ended = finished(attempt, value)
    except BaseException as raised:
        error = meant(raised)
        if not all(isinstance(one, (Exception, Suspended)) for one in leaves_of(error)):
            raise
        ended = failed(attempt, error, config)
    _record(ended, alias)
    status = _STATUS_AFTER.get(ended.arrow, "dead")
    return RanTask(attempt.task_id, attempt.task_name, attempt.number, status, value, error)


def _in_savepoint(call: Callable[[], Any], alias: str) -> Any:
    """Keep what a task wrote before it raised, as outside of tests; roll back only a broken transaction."""
    connection = connections[alias]
    if not connection.in_atomic_block:
        return call()
    savepoint: Any = connection.savepoint()
    try:
        return call()
    except BaseException:
        is_broken, connection.needs_rollback = connection.needs_rollback, False
        if not is_broken:
            is_broken = not _release(savepoint, alias)
        if is_broken:
            connection.savepoint_rollback(savepoint)
        raise


def _release(savepoint: Any, alias: str) -> bool:
    try:
        connections[alias].savepoint_commit(savepoint)
    except DatabaseError:  # after an SQL error PostgreSQL refuses to continue
        return False
    return True


def _record(ended: Ended, alias: str) -> None:
    """Record the end of an attempt. Wait while another transaction has locked its row, as a worker's scan may."""
    for _ in range(LOCK_TRIES):
        with transaction.atomic(using=alias):
            recorded = outcomes.record(alias, [ended], config=get_config())
            notify_on_commit(alias, recorded.to_notify)
        if not recorded.busy:
            break
        sleep(0.01)
    else:
        raise AssertionError(
            f"Task {ended.attempt.task_id} has run, but another transaction has locked its row, so the end of the "
            f"task could not be recorded in {LOCK_TRIES} tries. End that transaction."
        )
    for one in recorded.done:
        emit(one)
