"""The rules of the page on workers in other languages, one function for each, which takes a started ``Guest``.

A function returns a detail for the report, or raises ``Broken``.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.utils import timezone

from django_txtasks.contrib.verify.guest import ECHO, FAIL, FUNCTIONS, QUEUE, WORK, Broken, Guest
from django_txtasks.contrib.verify.scratch import ALIAS
from django_txtasks.core.ground.wording import counted
from django_txtasks.database import sessions
from django_txtasks.models import EndedWorker, PausedQueue, Task, Worker

LONG = 600
"""Seconds of a task that is killed."""


def register(guest: Guest) -> str:
    """Check the worker's row."""
    row = guest.worker
    if QUEUE not in row.queues:
        raise Broken(f"queues is {row.queues!r}. Write a JSON array with the queue {QUEUE!r}.")
    if missing := set(FUNCTIONS) - set(row.task_names):
        raise Broken(f"task_names lacks {', '.join(sorted(missing))}. Write all names it can run.")
    if row.protocol != 2 or not row.lease > 0:
        raise Broken(f"protocol is {row.protocol}, lease {row.lease}. Write 2, and seconds.")
    if not row.sessions:
        return "it names no database session, so its whole lease decides after a kill"
    if sessions.is_gone(ALIAS, row.sessions[0]) is not False:
        raise Broken(
            f"sessions is {row.sessions!r}, which is no session. Write the one of the statement, or '[]'."
        )
    return f"lease {row.lease:g} s"


def beat(guest: Guest) -> str:
    """Check that the worker beats three times in a lease, also while a task runs."""
    _beats(guest, "while it is idle")
    guest.begin(WORK, "beat", guest.worker.lease + 5)
    _beats(guest, "while a task runs")
    return ""


def _beats(guest: Guest, when: str) -> None:
    before = guest.beats()
    text = f"It has not beaten three times in its lease of {guest.worker.lease:g} s {when}."
    todo = "Beat in a thread of its own, on a connection of its own."
    guest.expect(lambda: guest.beats() >= before + 3, f"{text} {todo}", guest.worker.lease)


def claim_and_finish(guest: Guest) -> str:
    """Check the result, the history and the effect of a task."""
    value = {"text": "naïve ☃", "list": [1, None, 2.5, True]}
    echo, work = guest.put(ECHO, value), guest.put(WORK, "finish", 0)
    guest.expect(lambda: guest.finished(echo), f"It has not finished a task of {ECHO}.")
    guest.expect(lambda: guest.finished(work), f"It has not finished a task of {WORK}.")
    done: Any = guest.finished(echo)
    found = (done.outcome, done.attempt, done.failures, done.args)
    if found != ("succeeded", 1, 0, [value]) or done.worker is None or done.started_at is None:
        raise Broken(f"The history has {found}. Copy all columns, as the statement finish does.")
    if done.result != value:
        raise Broken(f"The result is {done.result!r}, not {value!r}. Write it as JSON.")
    if (count := guest.effects("finish")) != 1:
        raise Broken(f"Effects of {WORK}: {count}, not 1. Commit the effect with the finish.")
    return ""


def order(guest: Guest) -> str:
    """Check that tasks of a higher priority begin first."""
    with _paused():
        ids = [guest.put(ECHO, n, priority=n) for n in (-1, 0, 5)]
    guest.expect(lambda: all(map(guest.finished, ids)), "It has not finished three tasks.")
    ends: list[Any] = [guest.finished(one) for one in ids]
    if sorted(ends, key=lambda one: one.started_at, reverse=True) != ends:
        raise Broken(
            "A low priority began before a high one. ORDER BY priority DESC, run_after, id."
        )
    return ""


def leave_others_alone(guest: Guest) -> str:
    """Check that the worker claims nothing that is for other workers, or not yet due."""
    now = timezone.now()
    put: dict[str, dict[str, Any]] = {
        "another queue": {"queue_name": "elsewhere"},
        "a name that it does not run": {"task_name": "elsewhere.run"},
        "a lane": {"lane": "lane"},
        "a unique key": {"unique_key": uuid.uuid4(), "unique_text": "key"},
        "a batch": {"batch": uuid.uuid4()},
        "hooks": {"hooks": {"on_success": {}}},
        "a snooze": {"snoozes": 1},
        "a later start": {"run_after": now + timedelta(hours=1)},
        "an expiry in the past": {"expires_at": now - timedelta(hours=1)},
    }
    ids = {what: guest.put(ECHO, what, priority=1, **columns) for what, columns in put.items()}
    plain = guest.put(ECHO, "plain")
    guest.expect(lambda: guest.finished(plain), "It has not finished a plain task beside others.")
    taken = [what for what, one in ids.items() if not _is_untouched(guest, one)]
    if taken:
        raise Broken(f"It has claimed a task with {', '.join(taken)}. Claim with the whole WHERE.")
    return ""


def pause(guest: Guest) -> str:
    """Check that the worker claims nothing from a paused queue."""
    with _paused():
        task_id, before = guest.put(ECHO, "paused"), guest.beats()
        guest.wait(lambda: guest.beats() >= before + 3, guest.worker.lease)
        if not _is_untouched(guest, task_id):
            raise Broken(
                "It has claimed from a paused queue. Leave out what txtasks_pausedqueue names."
            )
    guest.expect(lambda: guest.finished(task_id), "It has not gone on after the pause.")
    return ""


def retry(guest: Guest) -> str:
    """Check what a failed attempt leaves."""
    row = _failed_once(guest, max_attempts=3)
    if row.status != "pending" or row.run_after <= row.enqueued_at or row.worker is not None:
        raise Broken(
            f"The row is {row.status}, due at {row.run_after}. Retry as the statement does."
        )
    _check_error(row.errors, 1)
    return ""


def bury(guest: Guest) -> str:
    """Check that the last failure makes a task dead."""
    row = _failed_once(guest, max_attempts=1)
    if row.status != "dead" or row.worker is not None or row.failures != 1:
        raise Broken(
            f"The row is {row.status} after failure 1 of 1. If failures + 1 = max_attempts, bury."
        )
    _check_error(row.errors, 1)
    return ""


def _failed_once(guest: Guest, max_attempts: int) -> Any:
    """Return the row of a task after its first attempt has failed."""
    task_id = guest.put(FAIL, "no luck", 0, max_attempts=max_attempts)
    guest.expect(
        lambda: (row := guest.row(task_id)) and row.failures, "It has recorded no failure."
    )
    return guest.row(task_id)


def fence_of_finish(guest: Guest) -> str:
    """Check that an attempt that has lost its claim finishes nothing."""
    return _fence(guest, guest.begin(WORK, "late", 1), "finished")


def fence_of_failure(guest: Guest) -> str:
    """Check that an attempt that has lost its claim records no failure."""
    return _fence(guest, guest.begin(FAIL, "late", 1), "failed")


def _fence(guest: Guest, task_id: uuid.UUID, end: str) -> str:
    guest.take(task_id)
    guest.declare_lost()
    _let_it_end(guest, 2.5)
    if not guest.is_with_the_other(task_id):
        raise Broken(
            f"The task was given to another worker, and the late attempt has {end} it. Say id, attempt, worker "
            "and status in the WHERE of each end."
        )
    _check_no_effect(guest, "late")
    return ""


def lost(guest: Guest) -> str:
    """Check that the worker goes on under a new id after it was declared lost."""
    old = guest.worker.pk
    guest.declare_lost()
    task_id = guest.put(ECHO, "after")
    todo = "When a beat changes no row, register again, and claim under the new id."
    guest.expect(
        lambda: guest.finished(task_id), f"It was declared lost, and works no more. {todo}"
    )
    done: Any = guest.finished(task_id)
    if done.worker == old:
        raise Broken(f"It was declared lost, and has claimed under the old id. {todo}")
    return ""


def kill(guest: Guest) -> str:
    """Check that the task of a killed worker is recovered, and that its effect happens once."""
    _wait_for_beats(guest)
    task_id = guest.begin(WORK, "killed", LONG)
    guest.send(signal.SIGKILL)
    began = time.monotonic()
    text = (
        "The task of the killed worker was not recovered. Does the process, or a child, still beat?"
    )
    guest.expect(lambda: guest.is_in(task_id, "pending"), text, guest.worker.lease + 10)
    seconds = time.monotonic() - began
    Task.objects.using(ALIAS).filter(pk=task_id).update(
        args=["killed", 0], run_after=timezone.now()
    )
    guest.process.wait()
    guest.start()
    guest.expect(
        lambda: guest.finished(task_id), "After a start it has not run the recovered task."
    )
    if (count := guest.effects("killed")) != 1:
        raise Broken(
            f"Effects of the task: {count}, not 1. Commit effect and finish in one transaction."
        )
    return f"recovered after {seconds:.1f} s"


def freeze(guest: Guest) -> str:
    """Check that a worker that was frozen longer than its lease changes no task that it has lost."""
    _wait_for_beats(guest)
    task_id = guest.begin(WORK, "frozen", 2)
    guest.send(signal.SIGSTOP)
    text = "The task of the frozen worker was not recovered. Limit the claim's transaction, which locks rows."
    guest.expect(lambda: guest.is_in(task_id, "pending"), text, guest.worker.lease + 20)
    guest.take(task_id)
    guest.send(signal.SIGCONT)
    _let_it_end(guest, 2.5)
    if not guest.is_with_the_other(task_id):
        raise Broken("It was frozen, and has ended a task of another worker. Use the fence.")
    _check_no_effect(guest, "frozen")
    after = guest.put(ECHO, "after")
    text = "It was frozen, and works no more. A cleaner has ended its session: connect and register again."
    guest.expect(lambda: guest.finished(after), text)
    return ""


def stop(guest: Guest) -> str:
    """Check that SIGTERM ends the worker in good order, and that it gives back the tasks that have not begun."""
    with _paused():
        ids = [guest.put(WORK, f"stop {n}", 1) for n in range(5)]
    guest.expect(lambda: any(guest.is_in(one, "claimed") for one in ids), "It has claimed nothing.")
    guest.send(signal.SIGTERM)
    text = f"It has not ended {guest.patience:.0f} s after SIGTERM. Claim no more, finish, leave, and exit."
    if not guest.wait(lambda: guest.process.poll() is not None):
        raise Broken(text)
    if guest.process.returncode:
        raise Broken(
            f"It has ended with code {guest.process.returncode} after SIGTERM. Exit with 0."
        )
    held = [one for one in ids if guest.is_in(one, "claimed")]
    if held:
        raise Broken(
            f"It has ended and still holds {counted(len(held), 'task')}. Release what has not begun."
        )
    for n, one in enumerate(ids):
        _check_stopped(guest, one, f"stop {n}")
    if Worker.objects.using(ALIAS).filter(pk=guest.worker.pk).exists():
        raise Broken("Its row is still there. Execute the statement leave at the end.")
    if not EndedWorker.objects.using(ALIAS).filter(pk=guest.worker.pk).exists():
        raise Broken("It has left no row in txtasks_endedworker. Use the whole statement leave.")
    done = sum(guest.finished(one) is not None for one in ids)
    return f"{done} finished, {len(ids) - done} left for others"


def _check_stopped(guest: Guest, task_id: uuid.UUID, key: str) -> None:
    row, count = guest.row(task_id), guest.effects(key)
    if row is not None and (row.failures or row.crashes or row.status != "pending"):
        raise Broken(
            f"The stop was counted as a failure of a task: it is {row.status}. Release it."
        )
    if count != (row is None):
        raise Broken(f"The task is {'pending' if row else 'finished'}; its effects: {count}.")


def _wait_for_beats(guest: Guest) -> None:
    """Let the cleaner see that the worker is alive."""
    before = guest.beats()
    guest.wait(lambda: guest.beats() >= before + 2, guest.worker.lease)


def _let_it_end(guest: Guest, seconds: float) -> None:
    """Wait until a late attempt has ended: the worker has registered again, and its function has returned."""
    began = time.monotonic()
    guest.wait(guest.has_registered_again)
    guest.wait(lambda: time.monotonic() > began + seconds)


def _check_no_effect(guest: Guest, key: str) -> None:
    if guest.effects(key):
        raise Broken(
            "It has committed the effect of an attempt that had lost its claim. Roll back."
        )


def _check_error(errors: list[Any], attempt: int) -> None:
    last = errors[-1] if errors else {}
    if (
        last.get("attempt") != attempt
        or "no luck" not in last.get("message", "")
        or not last.get("type")
    ):
        raise Broken(f"errors is {errors!r}. Append attempt, worker, at, type and message.")


def _is_untouched(guest: Guest, task_id: uuid.UUID) -> bool:
    row = guest.row(task_id)
    return row is not None and (row.status, row.attempt) == ("pending", 0)


class _paused:
    """The queue is paused in this block."""

    def __enter__(self) -> None:
        PausedQueue.objects.using(ALIAS).create(queue_name=QUEUE)

    def __exit__(self, *_: object) -> None:
        PausedQueue.objects.using(ALIAS).all().delete()


RULES: dict[str, Callable[[Guest], str]] = {
    "register: the row names queue, functions, lease and session": register,
    "beat: three times in a lease, also while a task runs": beat,
    "claim and finish: result, history and effect": claim_and_finish,
    "order: a higher priority begins first": order,
    "claim: tasks that are for other workers stay": leave_others_alone,
    "pause: nothing is claimed from a paused queue": pause,
    "retry: a failed task is due again, with its error": retry,
    "bury: the last failure makes a task dead": bury,
    "fence: a late finish changes no row, and is rolled back": fence_of_finish,
    "fence: a late failure changes no row": fence_of_failure,
    "lost: it registers again under a new id": lost,
    "kill: its task is recovered, with one effect": kill,
    "freeze: it ends nothing that it has lost, and goes on": freeze,
    "stop: it finishes or gives back its tasks, and leaves": stop,
}
"""The rules in the order in which they are checked, as the report says them."""
