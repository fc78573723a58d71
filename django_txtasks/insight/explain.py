"""Reasons why one task does not run: each condition of a claim, checked separately, with its remedy.

It changes nothing and reads a bounded number of rows, by the database's clock. It tries to lock the task's
row for a moment, to find out whether another transaction has locked it.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import islice
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, InterfaceError, connections, router, transaction
from django.db.models import Q, Subquery
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import ngettext

from django_txtasks.conf import get_config
from django_txtasks.core.ground.cancel_requests import UNHEARD_AFTER
from django_txtasks.core.ground.wording import decimal, seconds, span, time_text, whole
from django_txtasks.core.rows import cleaners
from django_txtasks.core.rows.attempts import read_entries
from django_txtasks.core.rows.buckets import pending_priorities
from django_txtasks.core.rows.turn import ALONE_MARK, LEAVES_LAST, TAKES_LAST, is_last_chance
from django_txtasks.core.rows.workers import DRAIN_MARK, texts
from django_txtasks.database.execute import fetch
from django_txtasks.database.transactions import only_reading
from django_txtasks.exceptions import EndLost, WorkerLost, WorkerStopped
from django_txtasks.features.lanes.buckets import buckets_of
from django_txtasks.features.lanes.status import LaneStatus, rate_text, status_of_lanes
from django_txtasks.features.misfits.entry import misfit_of_last
from django_txtasks.features.reports import names
from django_txtasks.features.unique.merging import first_of_key
from django_txtasks.insight.deaths import deaths
from django_txtasks.insight.finding import manage
from django_txtasks.insight.no_writes import NAME as NO_WRITES
from django_txtasks.insight.no_writes import NoWrites, no_writes
from django_txtasks.models import (
    DatabaseNow,
    FinishedTask,
    OnCrash,
    PausedQueue,
    Status,
    Task,
    Wait,
    Worker,
)

MAX_COUNT = 10_000
"""Highest count of tasks before this one; more are shown as "10000 or more"."""
LONGEST_TEXT = 300
"""Characters of an error's text that are shown."""
MAX_PRIORITIES = 10
"""Number of priorities that are counted, from the highest."""
COUNT_TIMEOUT = timedelta(seconds=5)
MAX_WORKERS = 1000
MAX_WAITS = 3
MAX_RUNNING = 3
"""Number of tasks that are named if a lane is full."""
ERRORS_OF = "SELECT errors FROM txtasks_task WHERE id = %(id)s"
HALF_DONE = _lazy("Check what it has done, then revive or discard it in the admin.")
_CUT_SHORT = (WorkerLost.__name__, WorkerStopped.__name__, EndLost.__name__)
"""Error classes that tell nothing about the task itself."""
LAST_CHANCE = _lazy(
    "It is its last chance after a crash: it runs alone, so that it can end no process with other tasks."
)
FULL = 2_147_483_647
"""The largest value of a counter column. Workers do not claim a row with such a counter."""


@dataclass(frozen=True)
class Reason:
    """One reason why a task does not run.

    Attributes:
        gate: a short name, for machines.
        text: one sentence for people.
        lift: the remedy; empty = time removes the reason, or nothing can.
    """

    gate: str
    text: str
    lift: str = ""


def explain(alias: str, task_id: uuid.UUID) -> list[Reason]:
    """Return the reasons why a task does not run; ``next`` for a pending task that nothing keeps from running."""
    rows = Task.objects.using(alias).defer("args", "kwargs", "hooks", "errors", "late_finishes")
    task = rows.annotate(now=DatabaseNow()).filter(pk=task_id).first()
    if task is None:
        return [_without_row(alias, task_id)]
    if task.status != Status.PENDING:
        return _with_suspicion(alias, task, [_not_pending(alias, task)])
    return _with_suspicion(alias, task, list(_in_the_way(alias, task)) or [_nothing(alias)])


def _with_suspicion(alias: str, task: Any, reasons: list[Reason]) -> list[Reason]:
    """Put in front that tasks of this function seem to end their processes; do not advise to revive it."""
    dying = deaths(alias)
    if dying is None or not dying.names(task.task_name):
        return reasons
    others = [replace(one, lift="") if one.gate == "dead" else one for one in reasons]
    return [Reason("suspect", f"{dying.fact} {dying.suspicion}", dying.remedy), *others]


def _without_row(alias: str, task_id: uuid.UUID) -> Reason:
    """Return the reason for a task without a live row: it has finished, is in another database, or is unknown."""
    rows = FinishedTask.objects.using(alias).only("outcome", "finished_at")
    finished = rows.filter(pk=task_id).first()
    if finished is not None:
        facts = {"outcome": finished.get_outcome_display(), "at": time_text(finished.finished_at)}
        return Reason("finished", _("It has ended: %(outcome)s, at %(at)s.") % facts)
    elsewhere = [one for one in connections if one != alias and _is_in(one, task_id)]
    if elsewhere:
        command = manage(f"txtasks_explain {task_id}", elsewhere[0])
        text = _("It is in database %(name)s.") % {"name": repr(elsewhere[0])}
        return Reason("elsewhere", text, command)
    command = manage("txtasks_explain --of shop.order 31", alias)
    return Reason(
        "absent",
        _(
            "There is no such row in any database that could be asked: its transaction was rolled back or has not "
            "committed, or it has finished and is not kept (TXTASKS['keep_finished']). What is not kept is in "
            "no row: "
            "neither its attempts nor whether one of them ran twice. The log of the workers may have it."
        ),
        _("To find tasks by a business object instead of an id: %(command)s")
        % {"command": command},
    )


def _is_in(alias: str, task_id: uuid.UUID) -> bool:
    """Return True if a database has the task live or finished; False also if it cannot be asked."""
    if not router.allow_migrate_model(alias, Task):
        return False
    try:
        tables = (Task, FinishedTask)
        return any(one.objects.using(alias).filter(pk=task_id).exists() for one in tables)
    except (DatabaseError, InterfaceError, ImproperlyConfigured):
        return False


def _not_pending(alias: str, task: Any) -> Reason:
    if task.status == Status.HELD:
        return Reason("held", _("A person holds it."), _("Resume it in the admin."))
    if task.status == Status.DEAD:
        return _dead(alias, task)
    worker = Worker.objects.using(alias).annotate(now=DatabaseNow()).filter(pk=task.worker).first()
    since = _span(task.now - (task.claimed_at or task.now))
    if worker is not None and not worker.lost and not worker.is_silent(worker.now):
        if task.cancel_asked_at is not None:
            text = _("It was asked to stop at %(at)s, and still runs at %(worker)s.")
            facts = {"at": time_text(task.cancel_asked_at), "worker": worker}
            return Reason("asked", text % facts, _end_of(alias, task, worker))
        text = _("It runs, for %(span)s, at %(worker)s (worker %(id)s).")
        return Reason(
            "claimed",
            text % {"span": since, "worker": worker, "id": worker.pk},
            _("To stop it: %(command)s") % {"command": stop_command(alias, task.pk)},
        )
    gone = _("worker %(id)s, whose row is gone") % {"id": task.worker}
    return _lost(alias, str(worker or gone))


def stop_command(alias: str, task_id: uuid.UUID) -> str:
    """Return the command that asks a task to stop."""
    return manage(f"txtasks_task stop {task_id}", alias)


def _end_of(alias: str, task: Any, worker: Any) -> str:
    """Return how a task ends that was asked to stop: it may never check for this."""
    text = _("It stops when it looks: at ctx.check(), or by ctx.cancelled.")
    asked_for = task.now - task.cancel_asked_at
    if asked_for < UNHEARD_AFTER:
        return text
    parts = [text, _("It has not looked for %(span)s.") % {"span": _span(asked_for)}]
    if task.timeout is not None:
        parts.append(_("Its timeout of %(n)s s ends it, too.") % {"n": f"{task.timeout:g}"})
    end = _("To end it now, kill its process: %(command)s on %(host)s.")
    parts.append(end % {"command": f"kill -9 {worker.pid}", "host": worker.host})
    parts.append(_end_by_crash(task))
    rows = Task.objects.using(alias).filter(status=Status.CLAIMED, worker=worker.pk)
    if others := rows.exclude(pk=task.pk).count():
        more = ngettext(
            "%(n)s other task runs in that process: it ends, too, by its crash policy.",
            "%(n)s other tasks run in that process: they end, too, by their crash policies.",
            others,
        )
        parts.append(more % {"n": whole(others)})
    parts.append(_("Its manage.py runworkers then starts another process."))
    return " ".join(parts)


def _end_by_crash(task: Any) -> str:
    """Return how a task that was asked to stop ends if its worker crashes: see ``cleaning.recover``."""
    may_run_again = task.on_crash in (OnCrash.RETRY, OnCrash.RETRY_THEN_COMPENSATE)
    if may_run_again and task.crashes + 1 < task.max_crashes:
        return _("A cleaner then cancels the task.")
    return _(
        "A cleaner then buries the task: it is dead, not cancelled, because it may have done half of its work. "
        "Discard it in the admin once you have looked."
    )


def _lost(alias: str, who: str) -> Reason:
    """Return the reason for a claim whose worker is gone: when a cleaner will recover it."""
    seen = cleaners.seen(alias)
    refusal = no_writes(alias, is_anyone_alive=lambda: any(one.achieves for one in seen))
    if refusal is not None and refusal.explains:
        return _without_writes(refusal)
    if trouble := cleaners.trouble(seen):
        gone = _("Its worker is gone: %(worker)s.") % {"worker": who}
        return Reason("lost", f"{gone} {trouble}", str(cleaners.HOW))
    text = _("Its worker is gone or silent: %(worker)s.") % {"worker": who}
    passed = cleaners.only_once(seen)
    if passed is None:
        return Reason("lost", f"{text} {_('A cleaner recovers it within a lease.')}")
    once = _(
        "No cleaner keeps running: the last pass by --once was %(span)s ago, and the next one recovers it."
    )
    ago = once % {"span": _span(timedelta(seconds=passed))}
    return Reason("lost", f"{text} {ago}", str(cleaners.HOW))


def _dead(alias: str, task: Any) -> Reason:
    last, text = _last_error(alias, task)
    if task.is_compensated:
        compensated = _("It is dead: %(error)s. Its compensation was enqueued.")
        return Reason("dead", compensated % {"error": text})
    lift = (
        str(HALF_DONE) if last in _CUT_SHORT else _("Fix the cause, then revive it in the admin.")
    )
    return Reason("dead", _("It is dead: %(error)s.") % {"error": text}, lift)


def _in_the_way(alias: str, task: Any) -> Iterator[Reason]:
    """Yield each condition of a claim that this row does not meet, then the lack of workers."""
    if task.expires_at is not None and task.expires_at <= task.now:
        if task.cancel_asked_at is not None:
            gate, at = "cancelled", task.cancel_asked_at
            text = _("It was cancelled at %(at)s; a cleaner removes it.")
        else:
            gate, at = "expired", task.expires_at
            text = _("It expired at %(at)s; a cleaner cancels it.")
        yield Reason(gate, text % {"at": time_text(at)}, _("Enqueue it again."))
    yield from _not_due(alias, task)
    yield from _behind_its_twin(alias, task)
    if FULL in (task.attempt, task.failures, task.crashes):
        text = _("A counter of its row is full (2147483647), so its state cannot change.")
        yield Reason("unsound", text, _("Correct the row by hand, or cancel it in the admin."))
    paused = PausedQueue.objects.using(alias).filter(pk=task.queue_name).first()
    if paused is not None:
        text = _("Queue %(queue)s was paused by %(by)s at %(at)s%(why)s.")
        facts = {"queue": task.queue_name, **facts_of_pause(paused)}
        command = manage(f"txtasks_queue resume {shlex.quote(task.queue_name)}", alias)
        yield Reason("paused", text % facts, command)
    if task.lane:
        yield from _closed_lane(alias, task)
    if not _can_lock(alias, task):
        text = _(
            "Another transaction has locked its row: it is about to change the task, or was never committed."
        )
        yield Reason("locked", text)
    yield from _lack_of_workers(alias, task)


def _not_due(alias: str, task: Any) -> Iterator[Reason]:
    """Yield why a task waits for its time."""
    if task.run_after is None:  # on SQLite: text that is not a time
        yield Reason("unsound", _("Its run_after is not a time."), _("Correct the row by hand."))
    elif misfit := _misfit(alias, task):
        yield misfit
    elif task.run_after > task.now:
        facts = {"span": _span(task.run_after - task.now), "at": time_text(task.run_after)}
        lift = _("Run it now, in the admin.")
        if waits := list(_waits(alias, task)):
            yield from waits
        elif task.failures:
            text = ngettext(
                "It has failed %(n)s time (%(error)s) and is tried again in %(span)s, at %(at)s.",
                "It has failed %(n)s times (%(error)s) and is tried again in %(span)s, at %(at)s.",
                task.failures,
            )
            facts |= {"n": whole(task.failures), "error": _last_error(alias, task)[1]}
            yield Reason("backoff", text % facts, lift)
        else:
            yield Reason("later", _("It is due in %(span)s, at %(at)s.") % facts, lift)


def _misfit(alias: str, task: Any) -> Reason | None:
    """Return the reason for a task whose last attempt could not call its function; None: it could."""
    last = misfit_of_last(_errors_text(alias, task), task.attempt) if task.attempt else None
    if last is None:
        return None
    text = _("Tries so far: %(n)s. The next try is in %(span)s.")
    facts = {"n": last.get("tries"), "span": _span(task.run_after - task.now)}
    lift = _(
        "Deploy code that takes them; manage.py txtasks_preflight says for all tasks what is needed. Or cancel it "
        "in the admin."
    )
    return Reason("arguments", f"{last.get('message')} {text % facts}", lift)


def _waits(alias: str, task: Any) -> Iterator[Reason]:
    """Yield the waits that are not over. Earlier releases may have left some that never end; they count, too."""
    rows = Wait.objects.using(alias).filter(task_id=task.pk, ended_at=None).defer("value")
    rows = rows.filter(Q(until=None) | Q(until__gt=DatabaseNow()))
    for wait in rows.order_by("until")[:MAX_WAITS]:
        facts = {"name": repr(wait.name), "until": time_text(wait.until)}
        if wait.is_sleep:
            yield Reason("sleeps", _("It sleeps until %(until)s (%(name)s).") % facts)
        else:
            text = _("It waits for %(name)s until %(until)s.")
            if wait.until is None:
                text = _("It waits for %(name)s.")
            lift = _("Call resume(token, value) with the text of its ctx.token.")
            yield Reason("waits", text % facts, lift)


def _behind_its_twin(alias: str, task: Any) -> Iterator[Reason]:
    """Yield the first task of the unique key, if both are due and it is another one."""
    if task.unique_key is None or task.attempt:
        return
    if task.run_after is None or task.run_after > task.now:
        return
    first = first_of_key(alias, task.unique_key, task.task_name, task.queue_name)
    if first not in (None, task.pk):
        text = _("It is not the first of its unique key %(key)s: it is behind %(id)s.")
        lift = _("It is merged when that task is claimed; find out why that one waits.")
        yield Reason("unique", text % {"key": repr(task.unique_text), "id": first}, lift)


def _closed_lane(alias: str, task: Any) -> Iterator[Reason]:
    """Yield the condition that keeps the tasks of its lane from starting."""
    (lane,) = status_of_lanes(alias, [task.lane])
    facts: dict[str, Any] = {"lane": task.lane}
    if not lane.is_known:
        text = _("TXTASKS['lanes'] has no rule for its lane %(lane)s, so no worker serves it.")
        lift = _("Add a rule, {'weight': 1} for no limit but fair turns, and restart workers.")
        yield Reason("lane", text % facts, lift)
    name = shlex.quote(task.lane)
    if lane.paused_at is not None:
        text = _("Lane %(lane)s was paused by %(by)s at %(at)s%(why)s.")
        facts |= facts_of_pause(lane)
        yield Reason("lane", text % facts, manage(f"txtasks_lane resume {name}", alias))
    elif lane.is_full:
        running = Task.objects.using(alias).filter(
            status=Status.CLAIMED, lane=task.lane, lane__gt=""
        )
        ids = ", ".join(str(one) for one in running.values_list("pk", flat=True)[:MAX_RUNNING])
        more = ", …" if lane.running > MAX_RUNNING else ""
        text = _("Lane %(lane)s is full: %(running)s of %(most)s run, %(ids)s.")
        facts |= {"running": lane.running, "most": lane.rule.at_most, "ids": f"{ids}{more}"}
        command = manage(f"txtasks_lane limit {name} --at-most N", alias)
        yield Reason("full", text % facts, _or_wait(command))
    elif lane.held_for:
        text = _("A task of lane %(lane)s has asked it to wait for %(n)s s more.")
        facts |= {"n": decimal(lane.held_for, 1)}
        command = manage(f"txtasks_lane resume {name}", alias)
        yield Reason("hold", text % facts, _or_wait(command))
    elif lane.opens_in:
        text = _("Lane %(lane)s lets the next task start in %(n)s s (rate %(rate)s).")
        facts |= {"n": decimal(lane.opens_in, 1), "rate": rate_text(lane.rule.rate or 1.0)}
        command = manage(f"txtasks_lane limit {name} --rate N/UNIT", alias)
        yield Reason("rate", text % facts, _or_wait(command))


def facts_of_pause(paused: PausedQueue | LaneStatus) -> dict[str, str]:
    """Return who has paused a queue or a lane, when and why, for a sentence in the language of the reader."""
    return {
        "by": paused.paused_by or _("somebody"),
        "at": time_text(paused.paused_at),
        "why": f" ({paused.reason})" if paused.reason else "",
    }


def _or_wait(command: str) -> str:
    return _("Wait, or %(command)s") % {"command": command}


def _start(command: str) -> str:
    return _("Start %(command)s") % {"command": command}


def _lack_of_workers(alias: str, task: Any) -> Iterator[Reason]:
    workers = Worker.objects.using(alias).filter(lost=False).annotate(now=DatabaseNow())
    living = [one for one in workers[:MAX_WORKERS] if not one.is_silent(one.now)]
    if refusal := no_writes(alias, is_anyone_alive=lambda: bool(living)):
        yield _without_writes(refusal)
        if refusal.explains:
            return
    if task.queue_name in get_config().hand_over:
        yield from _lack_of_drains(alias, task, living)
        return
    if not living:
        yield Reason("workers", _("No worker is alive."), _start(manage("runworkers", alias)))
        return
    serving = [one for one in living if task.queue_name in texts(one.queues)]
    if not serving:
        served = ", ".join(sorted({queue for one in living for queue in texts(one.queues)}))
        text = _("No living worker serves queue %(queue)s; they serve %(queues)s.")
        facts = {"queue": task.queue_name, "queues": served or _("none")}
        command = manage(f"runworkers --queue {shlex.quote(task.queue_name)}", alias)
        yield Reason("queue", text % facts, _start(command))
        return
    able = [one for one in serving if not one.task_names or task.task_name in texts(one.task_names)]
    if not able:
        text = _("No living worker of queue %(queue)s runs %(task)s.")
        facts = {"queue": task.queue_name, "task": task.task_name}
        yield Reason("name", text % facts, names.advice(task.task_name))
        return
    if task.run_after is not None and task.run_after <= task.now:
        yield from _lack_of_slots(alias, task, serving, able)


def _without_writes(refusal: NoWrites) -> Reason:
    return Reason(NO_WRITES, f"{refusal.fact} {refusal.effect}", refusal.remedy)


def _lack_of_drains(alias: str, task: Any, living: Sequence[Any]) -> Iterator[Reason]:
    """Yield the reason why a task of a queue that is handed over is still there."""
    drains = [one for one in living if DRAIN_MARK in texts(one.task_names)]
    facts = {"queue": task.queue_name}
    if not any(task.queue_name in texts(one.queues) for one in drains):
        text = _("Queue %(queue)s is handed over to another system, and no living drain serves it.")
        command = manage(f"rundrain --queue {shlex.quote(task.queue_name)}", alias)
        yield Reason("drain", text % facts, _start(command))
    elif task.run_after is not None and task.run_after <= task.now:
        text = _(
            "Queue %(queue)s is handed over to another system, which has not taken the task yet."
        )
        lift = _("The log of its drains has the reason if the system takes nothing.")
        yield Reason("drain", text % facts, lift)


def _lack_of_slots(
    alias: str, task: Any, serving: Sequence[Any], able: Sequence[Any]
) -> Iterator[Reason]:
    if is_last_chance(task.crashes, task.max_crashes):
        yield from _waits_alone(serving, able)
        return
    usual = [one for one in able if ALONE_MARK not in texts(one.task_names)]
    if all(one.running >= one.threads for one in usual):
        yield _full_slots(alias, task, usual)


def _waits_alone(serving: Sequence[Any], able: Sequence[Any]) -> Iterator[Reason]:
    """Yield the reason why a due last chance waits.

    Args:
        serving: living workers of its queue.
        able: the ones that run its function.
    """
    alone = [one for one in serving if TAKES_LAST in texts(one.task_names)]
    others = [one for one in able if not {TAKES_LAST, LEAVES_LAST} & set(texts(one.task_names))]
    if any(one.running < one.threads for one in alone) or any(not one.running for one in others):
        return
    if alone:
        text = ngettext(
            "The %(n)s process for such tasks runs another one.",
            "The %(n)s processes for such tasks run others.",
            len(alone),
        ) % {"n": whole(len(alone))}
    elif others:
        text = _(
            "It starts when a worker has no other task; after 30 s, workers claim nothing else."
        )
    else:
        text = _("The supervisor of runworkers starts a process for it within a few seconds.")
    lift = _("Wait. If it stays so, the log of runworkers says which processes end.")
    yield Reason("last chance", f"{LAST_CHANCE} {text}", lift)


def _full_slots(alias: str, task: Any, able: Sequence[Any]) -> Reason:
    slots = sum(one.threads for one in able)
    try:
        with only_reading(alias, COUNT_TIMEOUT):
            count = _before(alias, task)
    except DatabaseError:  # the count took too long
        count = MAX_COUNT
    taken = ngettext(
        "Of the %(n)s worker that could run it each slot is taken (slots: %(slots)s).",
        "Of the %(n)s workers that could run it each slot is taken (slots: %(slots)s).",
        len(able),
    )
    first = _("Due tasks of its queue that come first: %(n)s.")
    if count >= MAX_COUNT:
        first = _("Due tasks of its queue that come first: %(n)s or more.")
    text = f"{taken % {'n': whole(len(able)), 'slots': slots}} {first % {'n': count}}"
    return Reason("slots", text, _("Wait, or start more workers."))


def _before(alias: str, task: Any) -> int:
    """Count the due tasks of its queue that come first, in a bounded part of the index per priority."""
    place = {"lane": task.lane, "queue_name": task.queue_name}
    tasks = Task.objects.using(alias).filter(status=Status.PENDING, **place)
    # SQLite compares times as text
    when = Subquery(tasks.filter(pk=task.pk).values("run_after")[:1])
    count = 0
    for priority in islice(_priorities(alias, task), MAX_PRIORITIES):
        if priority < task.priority or count >= MAX_COUNT:
            break
        bucket = tasks.filter(priority=priority).order_by("run_after", "pk")
        is_own = priority == task.priority
        sooner = bucket.filter(run_after__lt=when if is_own else DatabaseNow())
        count += sooner[: MAX_COUNT - count].count()
    return count


def _priorities(alias: str, task: Any) -> Iterator[int]:
    if not task.lane:
        return pending_priorities(alias, task.queue_name)
    known = {
        one.priority for one in buckets_of(alias, task.lane) if one.queue_name == task.queue_name
    }
    return iter(sorted(known, reverse=True))


def _nothing(alias: str) -> Reason:
    text = _(
        "Nothing is in its way: a worker is about to claim it, by a hint, or by a scan within %(n)s s."
    ) % {"n": f"{get_config().poll_interval.total_seconds():g}"}
    trouble = cleaners.trouble(cleaners.seen(alias))
    return Reason("next", f"{text} {trouble}".strip(), str(cleaners.HOW) if trouble else "")


def _can_lock(alias: str, task: Any) -> bool:
    """Return False if another transaction keeps the row from being claimed; True if that cannot be found out.

    A replica and a read-only role cannot lock. SQLite has one lock for the whole file, held for a moment
    only.
    """
    features = connections[alias].features
    if not features.has_select_for_update_skip_locked:
        return True
    weakly = features.has_select_for_no_key_update  # the same lock as a claim takes
    try:
        with transaction.atomic(using=alias):
            rows = Task.objects.using(alias).select_for_update(skip_locked=True, no_key=weakly)
            return bool(rows.filter(pk=task.pk).values_list("pk"))
    except DatabaseError:
        return True


def _last_error(alias: str, task: Any) -> tuple[str, str]:
    """Return the class name of the last error, and its text for people."""
    *_earlier, last = read_entries(_errors_text(alias, task)) or [{}]
    name, message = str(last.get("type") or ""), str(last.get("message") or "")
    text = ": ".join(shortened(one).rstrip(".") for one in (name, message) if one)
    return name, text or _("no reason was recorded")


def _errors_text(alias: str, task: Any) -> str:
    (texts, *_) = [*fetch(alias, ERRORS_OF, id=task.pk), ("[]",)]
    return str(texts[0])


def shortened(text: str) -> str:
    """Return the beginning of a long text, cut between words."""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT].rsplit(' ', 1)[0]} (…)"


def _span(duration: timedelta) -> str:
    length = max(0.0, duration.total_seconds())
    return seconds(length, 1) if length < 60 else span(duration)
