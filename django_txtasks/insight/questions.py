"""The questions of an audit: possible findings, each with its query."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db import models
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Cast, Coalesce, Lower

from django_txtasks import signals
from django_txtasks.conf import Config
from django_txtasks.core.ground.wording import in_english
from django_txtasks.core.rows import cleaners
from django_txtasks.core.rows.buckets import paused_queues
from django_txtasks.core.rows.turn import LOOP_MARK
from django_txtasks.core.rows.workers import DRAIN_MARK, texts
from django_txtasks.exceptions import ArgumentsDoNotFit
from django_txtasks.features.misfits.entry import misfit_of_last
from django_txtasks.features.reports import names
from django_txtasks.features.reports.whose import living
from django_txtasks.features.schedules.status import status_of_schedules
from django_txtasks.insight import forgotten
from django_txtasks.insight import held_threads as held
from django_txtasks.insight.finding import MAX_COUNTED_ROWS
from django_txtasks.insight.full_lanes import full_lanes
from django_txtasks.insight.held_threads import held_threads
from django_txtasks.models import FinishedTask, Status, Task, TaskQuerySet, Worker
from django_txtasks.stats import by_cause

MAX_CAUSES = 3
"""Highest number of causes that a finding names."""


@dataclass(frozen=True)
class Question:
    """A possible finding, and its query.

    Attributes:
        causes: returns texts about the causes of the found tasks.
        follows: True = a database that takes no writes explains the finding.
    """

    name: str
    title: str
    meaning: str
    action: str
    ask: Callable[[View], models.QuerySet[Any] | list[str]]
    is_problem: bool = True
    causes: Callable[[View], list[str]] = lambda view: []
    follows: bool = False


@dataclass(frozen=True)
class View:
    """The tables as one audit sees them.

    Attributes:
        now: time of the database.
        workers: at most ``MAX_COUNTED_ROWS`` of them.
    """

    alias: str
    config: Config
    long_running_after: timedelta
    now: datetime
    workers: tuple[Worker, ...]

    @property
    def tasks(self) -> TaskQuerySet:
        """All live tasks."""
        return Task.objects.using(self.alias)

    def silent(self, leases: float) -> list[Worker]:
        """Return workers that were silent for ``leases`` of their leases, and are not declared lost."""
        return [
            one for one in self.workers if not one.lost and self._silence(one) > leases * one.lease
        ]

    def late(self) -> models.QuerySet[Task]:
        """Return pending tasks that have been due for more than two clean intervals."""
        return self._due(self.now - 2 * self.config.clean_interval)

    def overdue(self) -> models.QuerySet[Task]:
        """Return late tasks of workers in served queues that no pause, no lane and no unknown name explains."""
        overdue = self._late_in(self.served()).filter(lane="").exclude(queue_name__in=self._handed)
        for queue, found in self.undeclared.items():
            overdue = overdue.exclude(queue_name=queue, task_name__in=list(found))
        return overdue.exclude(self._is_foreign)

    def foreign(self) -> models.QuerySet[Task]:
        """Return late tasks that only living workers in other languages run."""
        return self._late_in(self.served()).filter(self._is_foreign)

    def not_cancelled(self) -> models.QuerySet[Task]:
        """Return tasks that have expired more than two clean intervals ago."""
        then = self.now - 2 * self.config.clean_interval
        return self.tasks.filter(status=Status.PENDING, expires_at__lt=then)

    def handed_slowly(self) -> models.QuerySet[Task]:
        """Return late tasks that a living drain has not handed over, of queues that are not paused."""
        return self._late_in(self._drained).filter(queue_name__in=self._handed)

    def unserved(self) -> models.QuerySet[Task]:
        """Return due tasks of queues that no living worker serves, and that are not paused or handed over."""
        return self._without(*self.served(), *self._handed)

    def undrained(self) -> models.QuerySet[Task]:
        """Return due tasks of queues that are handed over, that no drain serves, and that are not paused."""
        return self._without(*self._drained).filter(queue_name__in=self._handed)

    @cached_property
    def _is_foreign(self) -> Q:
        """The condition of tasks that only living workers in other languages run."""
        found = Q(pk__in=[])
        for queue, theirs in living(self.alias).foreign.items():
            found |= Q(queue_name=queue, task_name__in=sorted(theirs))
        return found

    @property
    def _handed(self) -> list[str]:
        return list(self.config.hand_over)

    @property
    def _drained(self) -> list[str]:
        return [queue for one in self._alive() if _is_drain(one) for queue in texts(one.queues)]

    def _without(self, *queues: str) -> models.QuerySet[Task]:
        return self._due(self.now).exclude(queue_name__in={*queues, *paused_queues(self.alias)})

    def _late_in(self, queues: Collection[str]) -> models.QuerySet[Task]:
        late = self.late().filter(queue_name__in=queues)
        return late.exclude(queue_name__in=paused_queues(self.alias))

    def _due(self, before: datetime) -> models.QuerySet[Task]:
        """Return pending tasks due before a time, without expired ones, which wait only for a cleaner."""
        is_valid = Q(expires_at=None) | Q(expires_at__gt=self.now)
        return self.tasks.filter(is_valid, status=Status.PENDING, run_after__lte=before)

    def wrongly_served(self) -> list[str]:
        """Return living workers that claim from queues which are handed over, as text for people."""
        handed = self.config.hand_over.keys()
        return [
            f"{one} serves {', '.join(sorted(found))}"
            for one in self._alive()
            if not _is_drain(one) and (found := handed & texts(one.queues))
        ]

    def held_threads(self) -> list[str]:
        """Return event loops of living workers whose threads are held, as text for people."""
        loops = [one.pk for one in self._alive() if LOOP_MARK in texts(one.task_names)]
        return [str(one) for one in held_threads(self.alias, loops)]

    @cached_property
    def undeclared(self) -> names.Found:
        """Names of pending tasks that no living worker of their queue declares."""
        return names.undeclared(self.alias, self.config.queues)

    @cached_property
    def known_cleaners(self) -> list[cleaners.Seen]:
        """The cleaners that have a row."""
        return cleaners.seen(self.alias)

    def is_anyone_alive(self) -> bool:
        """Return True if a worker, a drain or a cleaner has beaten lately."""
        return bool(self._alive()) or any(one.achieves for one in self.known_cleaners)

    def served(self) -> list[str]:
        """Return the queues that at least one living worker serves."""
        return sorted({queue for one in self._alive() for queue in texts(one.queues)})

    def _alive(self) -> list[Worker]:
        silent = self.silent(1)
        return [one for one in self.workers if not one.lost and one not in silent]

    def _silence(self, worker: Worker) -> float:
        return float((self.now - worker.seen_at).total_seconds())


def _is_drain(worker: Worker) -> bool:
    return DRAIN_MARK in texts(worker.task_names)


class _JsonType(models.Func):
    """The type of a JSON value: ``array``, ``object``, …; ``unreadable`` if it is not JSON."""

    output_field = models.TextField()
    _GUARDED = "CASE WHEN JSON_VALID(%(expressions)s) THEN JSON_TYPE(%(expressions)s) ELSE 'unreadable' END"

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Use jsonb_typeof; the column holds only valid JSON."""
        return self.as_sql(compiler, connection, function="jsonb_typeof", **context)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Use JSON_TYPE, which returns capitals; hence the Lower around it."""
        return self.as_sql(compiler, connection, template=self._GUARDED, **context)

    as_sqlite = as_mysql


def _twice(view: View) -> models.QuerySet[Any]:
    return view.tasks.filter(
        Exists(FinishedTask.objects.using(view.alias).filter(pk=OuterRef("pk")))
    )


def _claimed(view: View, longer_than: timedelta) -> models.QuerySet[Task]:
    return view.tasks.filter(status=Status.CLAIMED, claimed_at__lt=view.now - longer_than)


def _not_recovered(view: View) -> models.QuerySet[Any]:
    """Return claims whose worker is lost or has no row, longer ago than recovery takes."""
    patience = 2 * view.config.lease
    workers = Worker.objects.using(view.alias)
    recent = workers.filter(lost=True, seen_at__gte=view.now - patience)
    believed = workers.filter(Q(lost=False) | Q(pk__in=recent.values("pk")), pk=OuterRef("worker"))
    return _claimed(view, view.config.lease).filter(~Exists(believed))


def _held_long(view: View) -> models.QuerySet[Any]:
    alive = Worker.objects.using(view.alias).filter(pk=OuterRef("worker"), lost=False)
    return view.tasks.running_long(view.long_running_after).filter(Exists(alive))


def _impossible_counts(view: View) -> models.QuerySet[Any]:
    return view.tasks.filter(
        Q(crashes__gt=F("max_crashes"))
        | Q(failures__gt=F("max_attempts"))
        | Q(attempt__lt=F("failures") + F("crashes"))
    )


def _unreadable(view: View) -> models.QuerySet[Any]:
    return view.tasks.alias(args_kind=_kind("args"), kwargs_kind=_kind("kwargs")).exclude(
        args_kind="array", kwargs_kind="object"
    )


def _kind(column: str) -> Coalesce:
    return Coalesce(Lower(_JsonType(column)), models.Value("null"), output_field=models.TextField())


def _misfits(view: View) -> list[str]:
    """Return tasks whose last attempt could not call its function: the errors of a row have it."""
    tried = view.tasks.filter(status=Status.PENDING, cause__isnull=False)
    texts = tried.annotate(text=Cast("errors", models.TextField()))
    found = texts.filter(text__contains=ArgumentsDoNotFit.__name__)
    rows = found.values_list("pk", "text", "attempt")[: MAX_COUNTED_ROWS + 1]
    return [str(pk) for pk, text, attempt in rows if misfit_of_last(text, attempt)]


def _silent(view: View) -> list[str]:
    """Return workers silent for two leases: a cleaner watches for one lease before it declares a worker lost."""
    return [f"{worker} ({worker.pk})" for worker in view.silent(2)]


def _nobody_cleans(view: View) -> list[str]:
    fact = cleaners.fact(view.known_cleaners)
    return [fact] if fact else []


def _causes_of_death(view: View) -> list[str]:
    """Return function, exception and number of tasks of the causes with the most dead tasks."""
    found = by_cause.causes(MAX_CAUSES + 1, view.alias).causes
    dead = [one for one in found if one.dead]
    texts = [
        f"{one.task}: {one.exception or 'unknown error'} ({one.dead}{'+' * one.is_capped})"
        for one in dead[:MAX_CAUSES]
    ]
    return [*texts, "…"] if len(dead) > MAX_CAUSES else texts


with in_english():
    _HOW = str(cleaners.HOW)
QUESTIONS = (
    Question(
        "no_cleaner",
        "no cleaner is running",
        "Tasks of crashed workers stay claimed, expired tasks wait, and finished tasks are never deleted.",
        f"{_HOW} If one runs, the line above and its log say why it achieves nothing.",
        _nobody_cleans,
        follows=True,
    ),
    Question(
        "silent_workers",
        "workers silent for two leases that nobody declared lost",
        "A cleaner would have declared them lost: none runs, or it cannot write to the database.",
        "Check that a cleaner runs (runworkers starts one). More than one does no harm. If these workers run, "
        "their log says why they cannot write to the database, such as a full disk.",
        _silent,
        follows=True,
    ),
    Question(
        "not_recovered",
        "claimed tasks of workers that are lost or have no row",
        "No worker runs them, and no cleaner has recovered them.",
        "Check that a cleaner runs (runworkers starts one); if it does, its log says why it leaves them.",
        _not_recovered,
        follows=True,
    ),
    Question(
        "overdue_unserved",
        "due tasks in queues that no living worker serves",
        "They wait for a worker that does not exist.",
        "Start one: manage.py runworkers, if need be with --queue, or the worker in another language that serves "
        "them. Check --exclude-queue of the running workers.",
        lambda view: view.unserved(),
        follows=True,
    ),
    Question(
        "overdue_undrained",
        "due tasks in queues of TXTASKS['hand_over'] that no living drain serves",
        "They wait for a drain that does not exist.",
        "Start one: manage.py rundrain.",
        lambda view: view.undrained(),
        follows=True,
    ),
    Question(
        "handed_slowly",
        "overdue tasks in queues of TXTASKS['hand_over'] that a living drain serves",
        "The other system takes nothing, or too slowly. Workers of this package cannot help.",
        "The log of the drains has the reason, and so have the errors of a task. See that the other system runs.",
        lambda view: view.handed_slowly(),
        follows=True,
    ),
    Question(
        "handed_and_served",
        "workers that claim from queues of TXTASKS['hand_over']",
        "They run the tasks that are there for another system. Their settings, or their release, are older.",
        "Restart these workers. Use a new queue name when you hand over tasks.",
        lambda view: view.wrongly_served(),
    ),
    Question(
        held.NAME,
        "event loops whose threads are all held by tasks, while others wait for one",
        "The waiting tasks make no query. If the others wait for them, as for a semaphore, none of them ends.",
        "Stop the tasks that have the threads: manage.py txtasks_task stop --task NAME. Then let them end "
        "iterators, transactions and changes of the session before they wait, or give runworkers more --threads.",
        lambda view: view.held_threads(),
    ),
    Question(
        "overdue",
        "overdue tasks in queues that are served",
        "There are too few workers, or they are too slow. (Tasks with unknown names are a finding of their own.)",
        "Start more workers, or more threads for each. manage.py txtasks_explain says why one task waits.",
        lambda view: view.overdue(),
        follows=True,
    ),
    Question(
        "overdue_foreign",
        "overdue tasks that only workers in other languages run",
        "These workers live, but are too few, too slow, or they leave these tasks. More runworkers do not help.",
        "Read the logs of these workers. manage.py txtasks_explain says why one task waits.",
        lambda view: view.foreign(),
        follows=True,
    ),
    Question(
        "not_cancelled",
        "expired tasks that no cleaner has cancelled",
        "They never start, and only a cleaner removes them.",
        "Check that a cleaner runs (runworkers starts one); if it does, its log says why it leaves them.",
        lambda view: view.not_cancelled(),
        follows=True,
    ),
    Question(
        "overdue_paused",
        "overdue tasks in queues that a person has paused",
        "None of them starts until a person resumes their queue.",
        "manage.py txtasks_queue list says who paused it, and why; txtasks_queue resume starts it again.",
        lambda view: view.late().filter(queue_name__in=paused_queues(view.alias)),
        is_problem=False,
    ),
    Question(
        "undeclared",
        "names of pending tasks that no living worker of their queue declares",
        "The workers of these queues do not import the modules of these tasks, are of an older release, or were "
        "told by --task or --exclude-task to leave these tasks out.",
        signals.HOW_TO_DECLARE,
        lambda view: [
            f"{name} in queue {queue}" for queue, found in view.undeclared.items() for name in found
        ],
        follows=True,
    ),
    Question(
        "misfits",
        "waiting tasks whose arguments do not fit their function",
        "They are of another release, or somebody has written them by hand. They are tried again every 5 minutes.",
        "manage.py txtasks_preflight says which arguments the functions need. Deploy code that takes them.",
        _misfits,
    ),
    Question(
        "held_long",
        "tasks without a time limit that a living worker has run for very long",
        "They are slow, or hang. Their worker still beats, so no cleaner takes them away.",
        "py-spy dump --pid on the worker's host shows where. kill -9 of the worker ends them by crash policy.",
        _held_long,
    ),
    Question(
        "full_lanes",
        "full lanes in which tasks wait",
        "Each runs as many tasks as its limit allows. The named task has run in it for longest.",
        "Wait, if its tasks end. If one hangs: manage.py txtasks_task stop ID. If the limit is too low: manage.py "
        "txtasks_lane limit NAME --at-most N.",
        lambda view: full_lanes(view.alias, view.tasks, view.now),
        is_problem=False,
    ),
    Question(
        "unended_batches",
        "open batches without a live member for long",
        "Their on_finish, on_success and on_failure are not enqueued, so the work that follows does not start.",
        "Each pass of a cleaner ends such batches: check that a cleaner runs (runworkers starts one), and read "
        "its log. If it cannot end them, a session has locked the batch's row: end that session.",
        lambda view: forgotten.unended_batches(view.alias, view.config, view.now),
        follows=True,
    ),
    Question(
        "unwoken_tasks",
        "tasks that still wait although their value has come or their sleep is over",
        "Their wait ended long ago, but they are due later. This package does not write such rows.",
        "The action Run now, in the admin, lets them continue. Then find out who wrote these rows by hand.",
        lambda view: forgotten.unwoken_tasks(view.alias, view.config, view.now),
        follows=True,
    ),
    Question(
        "schedules",
        "schedules that are late, broken, or not done by their hour",
        "Their ticks have no tasks, or the tasks do not succeed.",
        "manage.py txtasks_schedules check says which, and why.",
        lambda view: [one.row.pk for one in status_of_schedules(view.alias) if not one.is_well],
        follows=True,
    ),
    Question(
        "schedules_off",
        "schedules that a person has turned off more than a day ago",
        "No task of them is enqueued.",
        "manage.py txtasks_schedules check says who has turned them off, and why. If nobody needs one, take it "
        "out of "
        "the code or delete it; else txtasks_schedules on NAME.",
        lambda view: [one.row.pk for one in status_of_schedules(view.alias) if one.is_off_for_long],
        is_problem=False,
    ),
    Question(
        "live_and_finished",
        "ids that are both live and finished",
        "A task has finished, and has a live row again. It does not run: a worker that claims it leaves it dead.",
        "Somebody wrote the tables by hand, or restored one of them. Compare, then discard these in the admin.",
        _twice,
    ),
    Question(
        "impossible_counts",
        "tasks with impossible counts",
        "More crashes or failures than allowed, or than attempts: somebody changed the row by hand.",
        "Read the errors of the task in the admin. Other tasks are not affected.",
        _impossible_counts,
    ),
    Question(
        "unreadable",
        "tasks whose args are not a list or whose kwargs are not an object",
        "They cannot be called, and will be dead when claimed. This package does not write such rows.",
        "Correct the program that writes rows by SQL, then the rows: args = '[…]', kwargs = '{…}'.",
        _unreadable,
    ),
    Question(
        "dead",
        "dead tasks",
        "They failed for good, and start again only if a person revives them. The queue itself is working.",
        "Read why in the admin; then revive or discard them. It can wait until the morning.",
        lambda view: view.tasks.filter(status=Status.DEAD),
        is_problem=False,
        causes=_causes_of_death,
    ),
)
