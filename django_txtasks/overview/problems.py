"""The problems of an overview, as sentences for people, the worst first."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.utils.functional import lazy
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_txtasks.conf import get_config
from django_txtasks.core.ground.cancel_requests import UNHEARD_AFTER
from django_txtasks.core.ground.wording import decimal, span
from django_txtasks.features.reports import names
from django_txtasks.features.reports.whose import is_handed
from django_txtasks.insight.cost import over_budget
from django_txtasks.insight.deaths import NAME as DYING
from django_txtasks.insight.finding import manage
from django_txtasks.insight.held_threads import NAME as HELD
from django_txtasks.models import label_of
from django_txtasks.overview.counting import Count
from django_txtasks.stats.by_cause import MOST

if TYPE_CHECKING:
    from django_txtasks.insight.no_writes import NoWrites
    from django_txtasks.overview.figures import LateSchedule, Overview, QueueFigures
    from django_txtasks.overview.running import RunningTask, WorkerFigures

MANY_DEAD = 20
LATELY = timedelta(hours=1)
"""A cause is a problem if ``MANY_DEAD`` tasks are dead because of it, one of them due within this time."""
LATE_AFTER = timedelta(minutes=1)
"""A queue is behind if its oldest due task has waited for longer, and no limit of a lane can be the reason."""
LONGEST_LIST = 3
"""Number of names that a sentence lists."""
_FOLLOW_FROM_NO_WRITES = frozenset(
    {
        "no_worker", "no_cleaner", "silent_workers", "unserved_queue", "undrained_queue", "queue_behind",
        "handed_slowly", "undeclared_names", "nobody_listens", "not_cancelled",
    }
)  # fmt: skip
"""Names of problems that a database without writes explains. The advice in their sentences would not help."""
LONGEST_ERROR = 120
"""Number of characters of an error that a sentence shows."""


@dataclass(frozen=True)
class Problem:
    """A problem, or a warning.

    Attributes:
        name: for programs; it never changes.
        subject: the queue, lane, schedule or fingerprint of a cause; empty = the whole database.
        task: id of the running task that is named; empty = none, or several.
        is_warning: True = it can wait until the morning.
        function: the task function that is named; empty = none, or several.
    """

    name: str
    template: Any
    values: Mapping[str, Any]
    subject: str = ""
    is_warning: bool = False
    task: str = ""
    function: str = ""

    @property
    def text(self) -> str:
        """The sentence, in the language of the reader."""
        shown = {
            key: span(value) if isinstance(value, timedelta) else value
            for key, value in self.values.items()
        }
        return str(self.template % shown).rstrip()

    def as_json(self) -> dict[str, Any]:
        """Return the problem for machines."""
        return {
            "name": self.name,
            "subject": self.subject,
            "task": self.task,
            "function": self.function,
            "is_warning": self.is_warning,
            "text": self.text,
        }


_PAUSED = ngettext_lazy(
    "Queue %(queue)s has been paused by %(by)s for %(pause)s%(why)s. %(count)s task waits, the oldest for "
    "%(oldest)s.",
    "Queue %(queue)s has been paused by %(by)s for %(pause)s%(why)s. %(count)s tasks wait, the oldest for "
    "%(oldest)s.",
    "number",
)
_UNSERVED = ngettext_lazy(
    "No living worker serves queue %(queue)s. %(count)s task waits, the oldest for %(oldest)s. Start a worker: "
    "manage.py runworkers --queue %(name)s.",
    "No living worker serves queue %(queue)s. %(count)s tasks wait, the oldest for %(oldest)s. Start a worker: "
    "manage.py runworkers --queue %(name)s.",
    "number",
)
_EXPIRED = ngettext_lazy(
    "Queue %(queue)s has %(count)s expired task that no cleaner has cancelled. The log of the cleaners says why.",
    "Queue %(queue)s has %(count)s expired tasks that no cleaner has cancelled. The log of the cleaners says why.",
    "number",
)
_UNSERVED_ELSEWHERE = ngettext_lazy(
    "No living worker serves queue %(queue)s. %(count)s task waits, the oldest for %(oldest)s. This code has no "
    "function %(names)s, so its workers would not help: start the worker that has it.",
    "No living worker serves queue %(queue)s. %(count)s tasks wait, the oldest for %(oldest)s. This code has no "
    "function %(names)s, so its workers would not help: start the worker that has it.",
    "number",
)
_BEHIND = ngettext_lazy(
    "Queue %(queue)s is behind: %(count)s task waits, the oldest for %(oldest)s. Its workers use %(used)s of "
    "%(slots)s slots; if these are too few, start more workers.",
    "Queue %(queue)s is behind: %(count)s tasks wait, the oldest for %(oldest)s. Its workers use %(used)s of "
    "%(slots)s slots; if these are too few, start more workers.",
    "number",
)
_BEHIND_ELSEWHERE = ngettext_lazy(
    "Queue %(queue)s is behind: %(count)s task waits, the oldest for %(oldest)s. Workers in other languages run "
    "%(names)s: their logs say more.",
    "Queue %(queue)s is behind: %(count)s tasks wait, the oldest for %(oldest)s. Workers in other languages run "
    "%(names)s: their logs say more.",
    "number",
)
_UNDRAINED = ngettext_lazy(
    "No drain hands over queue %(queue)s. %(count)s task waits, the oldest for %(oldest)s. Start a drain: "
    "manage.py rundrain --queue %(name)s.",
    "No drain hands over queue %(queue)s. %(count)s tasks wait, the oldest for %(oldest)s. Start a drain: "
    "manage.py rundrain --queue %(name)s.",
    "number",
)
_NOT_TAKEN = ngettext_lazy(
    "Queue %(queue)s is handed over too slowly: %(count)s task waits, the oldest for %(oldest)s. The log of its "
    "drains has the reason if its target takes nothing.",
    "Queue %(queue)s is handed over too slowly: %(count)s tasks wait, the oldest for %(oldest)s. The log of its "
    "drains has the reason if its target takes nothing.",
    "number",
)
_AWAY = ngettext_lazy(
    "A drain of queue %(queue)s cannot reach its target: %(reason)s. %(count)s task waits.",
    "A drain of queue %(queue)s cannot reach its target: %(reason)s. %(count)s tasks wait.",
    "number",
)
_LANE = ngettext_lazy(
    "Lane %(lane)s is full (%(limits)s): %(count)s task waits. %(task)s has run in it for %(run)s.",
    "Lane %(lane)s is full (%(limits)s): %(count)s tasks wait. %(task)s has run in it for %(run)s.",
    "number",
)
_LANE_ASKED = ngettext_lazy(
    "Lane %(lane)s is full (%(limits)s): %(count)s task waits. %(task)s has run in it for %(run)s, although it "
    "was asked to stop %(ago)s ago. Its page says how to end it.",
    "Lane %(lane)s is full (%(limits)s): %(count)s tasks wait. %(task)s has run in it for %(run)s, although it "
    "was asked to stop %(ago)s ago. Its page says how to end it.",
    "number",
)
_CAUSE = ngettext_lazy(
    "%(count)s task of %(task)s is dead because of %(error)s, the last one due %(last)s ago. Repair the cause, "
    "then revive the task.",
    "%(count)s tasks of %(task)s are dead because of %(error)s, the last one due %(last)s ago. Repair the cause, "
    "then revive the tasks.",
    "number",
)
_CAUSE_SINCE = ngettext_lazy(
    "%(count)s task of %(task)s is dead because of %(error)s since release %(release)s, the last one due "
    "%(last)s ago. Repair the cause, then revive the task.",
    "%(count)s tasks of %(task)s are dead because of %(error)s since release %(release)s, the last one due "
    "%(last)s ago. Repair the cause, then revive the tasks.",
    "number",
)
_CAUSE_BETWEEN = ngettext_lazy(
    "%(count)s task of %(task)s is dead because of %(error)s since release %(release)s, the last one due "
    "%(last)s ago. Repair the cause, or go back to release %(before)s; then revive the task.",
    "%(count)s tasks of %(task)s are dead because of %(error)s since release %(release)s, the last one due "
    "%(last)s ago. Repair the cause, or go back to release %(before)s; then revive the tasks.",
    "number",
)
_NOBODY = _("No worker is alive, so no task runs. Start one: manage.py runworkers.")
_NONE_BEATS = _(
    "No worker is alive, so no task runs. If no worker process runs, start one: manage.py runworkers."
)
_NOBODY_FOR_NOW = _(
    "No worker is alive, so no task runs. Before you start one (manage.py runworkers), hold the tasks of "
    "%(functions)s."
)
_TEXT = "%(text)s"
_SILENT = ngettext_lazy(
    "Worker %(names)s has been silent for %(silence)s. It has claimed %(tasks)s. If it runs, its log says why it "
    "cannot write to the database, such as a full disk. %(help)s",
    "%(count)s workers have been silent, for up to %(silence)s: %(names)s. They have claimed %(tasks)s. If they "
    "run, their logs say why they cannot write to the database, such as a full disk. %(help)s",
    "number",
)
_TASKS = ngettext_lazy("%(n)s task", "%(n)s tasks", "n")
_CLEANER_COMES = _("A cleaner will declare the worker lost.")
_NO_CLEANER_COMES = _("Its tasks are stuck until a cleaner runs and declares the worker lost.")
_UNDECLARED = ngettext_lazy(
    "No living worker of queue %(queue)s runs %(names)s, so at least %(count)s task waits. %(advice)s",
    "No living worker of queue %(queue)s runs %(names)s, so at least %(count)s tasks wait. %(advice)s",
    "number",
)
_DEAF_TO_BROKER = _(
    "No worker is connected to RabbitMQ (%(broker)s), so each task waits up to %(poll)s until a worker looks for "
    "it. Start RabbitMQ, or restore the way to it; the workers then connect by themselves."
)
_DEAF = _(
    "Hints reach none of the workers, so each task waits up to %(poll)s until a worker looks for it. The log of "
    "the workers says why."
)
_SOME_DEAF = ngettext_lazy(
    "Hints do not reach %(count)s worker: %(names)s. Its log says why.",
    "Hints do not reach %(count)s workers: %(names)s. Their logs say why.",
    "number",
)
_NO_BROKER = _(
    "RabbitMQ (%(broker)s) serves none of the workers. Tasks start without delay, because the database sends the "
    "hints. Until RabbitMQ is back, the end of a worker is noticed only %(lease)s later."
)
_HELD = ngettext_lazy(
    "On the event loop of %(worker)s no thread is free: %(holding)s have them all. %(count)s task has waited for "
    "a thread for %(wait)s: %(waiting)s. If these tasks wait for each other, none ends: %(stop)s. Then let "
    "%(function)s end iterators, transactions and changes of the session before it waits, or give runworkers "
    "more --threads.",
    "On the event loop of %(worker)s no thread is free: %(holding)s have them all. %(count)s tasks wait for a "
    "thread, the first for %(wait)s: %(waiting)s. If these tasks wait for each other, none ends: %(stop)s. Then "
    "let %(function)s end iterators, transactions and changes of the session before it waits, or give runworkers "
    "more --threads.",
    "number",
)
_OFF = _("Schedule %(name)s has been off for %(off)s, so none of its tasks is enqueued.")
_OFF_BY = _("The admin's log has: %(author)s.")
_OFF_BY_ANYONE = _("Nothing tells by whom.")
_OFF_LAST = _("Its last task was due %(ago)s ago: %(state)s.")
_OFF_NEVER = _("It has had no task yet.")
_OFF_HELP = _(
    "Turn it on on its page, or by %(on)s. If nobody needs it, take it out of the code or delete it."
)
_RELEASES = _("Workers of several releases run side by side: %(names)s.")
_OVERTIME = ngettext_lazy(
    "%(count)s task without a time limit has run for more than %(limit)s: %(task)s for %(run)s.",
    "%(count)s tasks without a time limit have run for more than %(limit)s, such as %(task)s for %(run)s.",
    "number",
)
_ASKED = ngettext_lazy(
    "%(task)s has run for %(run)s, and still runs %(ago)s after it was asked to stop. Its page says how to "
    "end it.",
    "%(count)s tasks still run although they were asked to stop, such as %(task)s: it has run for %(run)s, and "
    "was asked %(ago)s ago. Its page says how to end it.",
    "number",
)


_COSTS = {
    "transactions_per_second": _(
        "The queue costs the database %(number)s transactions per second, more than the %(bound)s of "
        "TXTASKS['database_budget']. Fewer worker processes and a longer poll_interval cost fewer."
    ),
    "rows_per_second": _(
        "The queue writes %(number)s rows per second, more than the %(bound)s of TXTASKS['database_budget']. "
        "Fewer, larger tasks, and tasks without history (keep_finished) write fewer."
    ),
    "sessions": _(
        "The queue has %(number)s database sessions, more than the %(bound)s of TXTASKS['database_budget']. Fewer "
        "threads and processes of workers have fewer."
    ),
    "history_mb_per_day": _(
        "Finished tasks have added %(number)s MB to the database in the last day, more than the %(bound)s of "
        "TXTASKS['database_budget']. txtasks_status --history shows the outcomes; keep_finished can leave some "
        "out."
    ),
}


def problems_of(found: Overview, refusal: NoWrites | None = None) -> tuple[Problem, ...]:
    """Return the problems of an overview, then its warnings.

    Args:
        refusal: why the database takes no writes. It comes first, and problems that follow from it are left out.
    """
    everything = [
        *_of_deaths(found),
        *_of_processes(found),
        *_of_threads(found),
        *(one for queue in found.queues for one in _of_queue(queue, found)),
        *_of_causes(found),
        *_of_lanes(found),
        *_of_schedules(found),
        *_of_running(found),
        *_of_broker(found),
        *_of_cost(found),
    ]
    if refusal is not None:
        if refusal.explains:
            everything = [one for one in everything if not _follows(one)]
        everything.insert(0, Problem("no_writes", _TEXT, {"text": refusal.text}))
    return tuple(sorted(everything, key=lambda one: one.is_warning))


def _follows(problem: Problem) -> bool:
    """Return True if a database that takes no writes explains a problem."""
    is_late_schedule = problem.name == "schedule" and not problem.values["problem"]
    return is_late_schedule or problem.name in _FOLLOW_FROM_NO_WRITES


def _of_deaths(found: Overview) -> Iterator[Problem]:
    if found.deaths is not None:
        names = [one.function for one in found.deaths.suspects]
        function = names[0] if len(names) == 1 else ""
        yield Problem(DYING, _TEXT, {"text": found.deaths}, function=function)


def _of_cost(found: Overview) -> Iterator[Problem]:
    for one in over_budget(found.cost):
        values = {"number": _amount(one.value), "bound": _amount(one.bound)}
        yield Problem("over_budget", _COSTS[one.name], values, one.name, is_warning=True)


def _amount(number: float) -> str:
    return decimal(number, 0 if number == int(number) else 1)


def _of_processes(found: Overview) -> Iterator[Problem]:
    alive = [one for one in found.workers if one.is_alive and not one.is_drain]
    silent = [one for one in found.workers if one.state == "silent"]
    if not alive and _needs_worker(found):
        suspects = found.deaths.suspects if found.deaths is not None else ()
        template = _NOBODY_FOR_NOW if suspects else _NONE_BEATS if silent else _NOBODY
        functions = ", ".join(one.function for one in suspects)
        yield Problem("no_worker", template, {"functions": functions})
    if found.cleaners.trouble:
        values = {"text": found.cleaners.trouble, "rows": found.cleaners.rows}
        yield Problem("no_cleaner", _TEXT, values)
    if silent:
        yield Problem("silent_workers", _SILENT, _silence_of(silent, found))
    deaf = [f"{one.host} pid {one.pid}" for one in alive if one.is_deaf]
    if deaf and len(deaf) == len(alive):
        config = get_config()
        template = _DEAF if config.broker_url is None else _DEAF_TO_BROKER
        values = {"poll": config.poll_interval, "broker": config.broker_address}
        yield Problem("nobody_listens", template, values, is_warning=True)
    elif deaf:
        yield Problem("deaf_workers", _SOME_DEAF, _listed(deaf), is_warning=True)
    releases = sorted({one.release for one in alive if one.release})
    if len(releases) > 1:
        yield Problem("several_releases", _RELEASES, _listed(releases), is_warning=True)


def _of_threads(found: Overview) -> Iterator[Problem]:
    for one in found.held_threads:
        values = {
            **vars(one),
            **_number(Count(one.count)),
            "wait": timedelta(seconds=one.seconds),
            "function": one.function,
            "stop": manage(f"txtasks_task stop --task {shlex.quote(one.function)}", found.database),
        }
        yield Problem(HELD, _HELD, values, one.worker, function=one.function)


def _silence_of(silent: Sequence[WorkerFigures], found: Overview) -> dict[str, Any]:
    claimed = sum(one.claimed for one in silent)
    what_next: Any = _CLEANER_COMES
    if found.cleaners.trouble:
        what_next = _NO_CLEANER_COMES if claimed else ""
    return {
        **_listed([f"{one.host} pid {one.pid}" for one in silent]),
        "silence": timedelta(seconds=max(one.seen for one in silent)),
        "tasks": _TASKS % {"n": claimed},
        "help": what_next,
    }


def _needs_worker(found: Overview) -> bool:
    """Return False if drains run, and no task waits for a worker, as on a site whose tasks Celery runs."""
    served = get_config().queues_of_workers
    if not any(one.is_drain and one.is_alive for one in found.workers):
        return bool(served)
    waiting = [one for one in found.queues if one.due or one.later or one.retrying]
    return any(one.name in served for one in waiting)


def _of_queue(queue: QueueFigures, found: Overview) -> Iterator[Problem]:
    waits = {
        "queue": queue.name,
        "name": shlex.quote(queue.name),
        "oldest": timedelta(seconds=queue.oldest),
        "names": _listed(list(queue.elsewhere))["names"],
        **_number(queue.due),
    }
    if queue.pause is not None:
        if queue.due:
            reason = queue.pause.reason
            why = _(": “%(reason)s”") % {"reason": reason} if reason else ""
            since = timedelta(seconds=queue.pause.seconds)
            pause = {"by": queue.pause.by or "?", "pause": since, "why": why}
            yield Problem("paused_queue", _PAUSED, {**waits, **pause}, queue.name)
    elif queue.only_expired:
        if waits["oldest"] > LATE_AFTER and queue.due:
            yield Problem("not_cancelled", _EXPIRED, waits, queue.name, is_warning=True)
    elif is_handed(queue.name):
        yield from _of_handed(queue, found, waits)
    elif queue.due and not queue.workers and _is_sure(found):
        template = _UNSERVED_ELSEWHERE if queue.elsewhere else _UNSERVED
        yield Problem("unserved_queue", template, waits, queue.name)
    elif queue.workers and queue.due and not queue.undeclared and waits["oldest"] > LATE_AFTER:
        used = _used_slots(queue, found)
        if used == queue.slots or not queue.in_lanes:
            slots = {"used": used, "slots": queue.slots}
            template = _BEHIND_ELSEWHERE if queue.elsewhere else _BEHIND
            yield Problem("queue_behind", template, {**waits, **slots}, queue.name, is_warning=True)
    if queue.undeclared:
        old = sorted(queue.undeclared)
        values = {
            "queue": queue.name,
            "names": _listed(old)["names"],
            "advice": names.advice(old[0]),
        }
        values |= _number(Count(sum(queue.undeclared.values())))
        function = old[0] if len(old) == 1 else ""
        yield Problem("undeclared_names", _UNDECLARED, values, queue.name, function=function)


def _of_handed(queue: QueueFigures, found: Overview, waits: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problem of a queue whose tasks are handed over."""
    drains = [one for one in found.workers if one.is_drain and one.is_alive]
    if queue.away:
        values = {**waits, "reason": queue.away.rstrip(".")}
        yield Problem("target_away", _AWAY, values, queue.name, is_warning=not queue.due)
    elif queue.due and not any(queue.name in one.queues for one in drains):
        if not found.has_more_workers:
            yield Problem("undrained_queue", _UNDRAINED, waits, queue.name)
    elif waits["oldest"] > LATE_AFTER and queue.due:
        yield Problem("handed_slowly", _NOT_TAKEN, waits, queue.name, is_warning=True)


def _is_sure(found: Overview) -> bool:
    """Return True if workers are alive, and all of them are known."""
    return any(one.is_alive for one in found.workers) and not found.has_more_workers


def _used_slots(queue: QueueFigures, found: Overview) -> int:
    """Return how many slots of the workers of a queue are in use. Their rows may be older than the claims."""
    serving = (one for one in found.workers if one.is_alive and queue.name in one.queues)
    return min(queue.slots, max(queue.running, sum(one.running for one in serving)))


def _of_causes(found: Overview) -> Iterator[Problem]:
    for one in found.causes:
        if one.last is None:
            continue
        age = found.at - one.last
        if one.dead >= MANY_DEAD and age < LATELY:
            values = {
                "number": one.dead,
                "count": str(Count(one.dead, one.dead >= MOST)),
                "task": one.task,
                "error": _cut(one.error) or "?",
                "last": max(age, timedelta(0)),
                "release": one.since,
                "before": one.before,
            }
            template = _CAUSE_BETWEEN if one.before else _CAUSE_SINCE if one.since else _CAUSE
            yield Problem("failing_cause", template, values, str(one.fingerprint or ""))


def _of_lanes(found: Overview) -> Iterator[Problem]:
    for lane in found.lanes:
        if not lane.is_paused and lane.longest is not None:
            values = {"lane": lane.name, "limits": lane.limits, **_number(lane.waiting)}
            values |= _of_task(lane.longest, found)
            template = _LANE if lane.longest.asked_at is None else _LANE_ASKED
            longest = str(lane.longest.id)
            yield Problem("full_lane", template, values, lane.name, is_warning=True, task=longest)


def _of_schedules(found: Overview) -> Iterator[Problem]:
    for one in found.schedules:
        if one.off:
            yield _off(one, found)
            continue
        values = {
            "name": one.name,
            "problem": one.problem.rstrip("."),
            "late": timedelta(seconds=one.late),
            "function": one.function,
        }
        template = _("Schedule %(name)s is late by %(late)s: no cleaner has written its task.")
        if one.function:
            template = _(
                "Schedule %(name)s cannot start its task: the code has no function %(function)s. Deploy code that "
                "has the function, or turn the schedule off on its page."
            )
        elif one.problem:
            template = _(
                "Schedule %(name)s does not tick as declared: %(problem)s. Correct the code or the schedule, or "
                "turn the schedule off on its page."
            )
        elif one.unready is not None:
            template = _("Schedule %(name)s is not done by its hour.")
        yield Problem("schedule", template, values, one.name, is_warning=True)


def _off(one: LateSchedule, found: Overview) -> Problem:
    """Return the warning about a schedule that a person has turned off, and may have forgotten."""
    values = {
        "name": one.name,
        "off": timedelta(seconds=one.off),
        "author": one.author.rstrip("."),
        "ago": max(timedelta(0), found.at - (one.last_at or found.at)),
        "state": lazy(label_of, str)(one.state),
        "on": manage(f"txtasks_schedules on {shlex.quote(one.name)}", found.database),
    }
    by, last = _OFF_BY if one.author else _OFF_BY_ANYONE, _OFF_LAST if one.last_at else _OFF_NEVER
    template = format_lazy("{} {} {} {}", _OFF, by, last, _OFF_HELP)
    return Problem("schedule_off", template, values, one.name, is_warning=True)


def _of_running(found: Overview) -> Iterator[Problem]:
    limit = get_config().long_running_after
    every = [
        one for one in found.running if one.timeout is None and one.seconds > limit.total_seconds()
    ]
    long = [one for one in every if one.asked_at is None]
    if long:
        is_capped = len(long) == len(found.running) < found.running_total.number
        values = {
            **_number(Count(len(long), is_capped)),
            "limit": limit,
            **_of_task(long[0], found),
        }
        only = str(long[0].id) if len(long) == 1 else ""
        yield Problem("long_running", _OVERTIME, values, is_warning=True, task=only)
    asked = [
        one
        for one in found.running
        if one.asked_at and (one in every or found.at - one.asked_at > UNHEARD_AFTER)
    ]
    if asked:
        values = {**_number(Count(len(asked))), **_of_task(asked[0], found)}
        yield Problem("asked_to_stop", _ASKED, values, is_warning=True, task=str(asked[0].id))


def _of_broker(found: Overview) -> Iterator[Problem]:
    """Yield a note if RabbitMQ holds no last will of any worker, although hints reach the workers."""
    config = get_config()
    settled = [one for one in found.workers if one.is_alive and one.age > one.lease]
    if config.broker_url is None or not settled or any(one.will for one in settled):
        return
    if not any(one.listening is False for one in settled):
        values = {"broker": config.broker_address, "lease": config.lease}
        yield Problem("no_broker", _NO_BROKER, values, is_warning=True)


def _of_task(one: RunningTask, found: Overview) -> dict[str, Any]:
    ago = max(timedelta(0), found.at - (one.asked_at or found.at))
    return {"task": one.task_name, "run": timedelta(seconds=one.seconds), "ago": ago}


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}…"


def _number(count: Count) -> dict[str, Any]:
    """Return a count for a sentence: the number chooses the plural, the text is shown."""
    return {"number": count.number, "count": str(count)}


def _listed(names: list[str]) -> dict[str, Any]:
    more = ", …" * (len(names) > LONGEST_LIST)
    text = ", ".join(names[:LONGEST_LIST]) + more
    return {"number": len(names), "count": len(names), "names": text}
