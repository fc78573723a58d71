"""Questions to the tables about what should not be there. Reads only, locks nothing, counts to a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from django.db import DatabaseError, connections, models, transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Coalesce, Lower

from django_txtasks.conf import Config
from django_txtasks.inspection import forgotten
from django_txtasks.inspection.finding import MAX_COUNTED_ROWS, Finding
from django_txtasks.lifecycle import cleaners, names, statements
from django_txtasks.lifecycle.execute import fetch_value
from django_txtasks.lifecycle.pausing import paused_queues
from django_txtasks.lifecycle.schedule_status import status_of_schedules
from django_txtasks.models import FinishedTask, Status, Task, Worker

MAX_EXAMPLES = 3
STATEMENT_TIMEOUT = timedelta(seconds=10)
"""Longest time for one question, on PostgreSQL."""


@dataclass(frozen=True)
class Question:
    """A finding that may turn up, and the query for it."""

    name: str
    title: str
    meaning: str
    action: str
    ask: Callable[[View], models.QuerySet[Any] | list[str]]
    is_problem: bool = True


@dataclass(frozen=True)
class View:
    """The tables as one audit sees them.

    Attributes:
        now: the database's clock.
        workers: at most MOST of them.
    """

    alias: str
    config: Config
    long_running_after: timedelta
    now: datetime
    workers: tuple[Worker, ...]

    @property
    def tasks(self) -> models.QuerySet[Task]:
        """All live tasks."""
        return Task.objects.using(self.alias)

    def silent(self, leases: float) -> list[Worker]:
        """Workers not declared lost that have not been seen for so many of their leases."""
        return [
            one for one in self.workers if not one.lost and self._silence(one) > leases * one.lease
        ]

    def late(self) -> models.QuerySet[Task]:
        """Pending tasks that have been due for more than two clean intervals."""
        due = self.now - 2 * self.config.clean_interval
        return self.tasks.filter(status=Status.PENDING, run_after__lt=due)

    def overdue(self) -> models.QuerySet[Task]:
        """Those of them that neither a pause nor a lane explains."""
        return self.late().filter(lane="").exclude(queue_name__in=paused_queues(self.alias))

    def served(self) -> list[str]:
        """Return the queues that some living worker serves."""
        silent = self.silent(1)
        alive = [one for one in self.workers if not one.lost and one not in silent]
        return sorted({queue for one in alive for queue in one.queues})

    def _silence(self, worker: Worker) -> float:
        return float((self.now - worker.seen_at).total_seconds())


def audit(
    alias: str, config: Config, long_running_after: timedelta = timedelta(hours=1)
) -> list[Finding]:
    """Return what was found, problems first.

    Args:
        long_running_after: a claim held for longer than this by a living worker is suspicious.
    """
    with _reading(alias):
        view = _view(alias, config, long_running_after)
    found = [finding for question in QUESTIONS if (finding := _answer(question, view))]
    return sorted(found, key=lambda finding: not finding.is_problem)


def _view(alias: str, config: Config, long_running_after: timedelta) -> View:
    workers = tuple(Worker.objects.using(alias).order_by("id")[:MAX_COUNTED_ROWS])
    return View(alias, config, long_running_after, _now(alias), workers)


def _now(alias: str) -> datetime:
    found = fetch_value(alias, statements.NOW)
    now = found if isinstance(found, datetime) else datetime.fromisoformat(found)
    return now if now.tzinfo else now.replace(tzinfo=timezone.utc)


def _answer(question: Question, view: View) -> Finding | None:
    """Ask one question; one that the database does not answer in time is a finding itself."""
    try:
        with _reading(view.alias):
            asked = question.ask(view)
            found = asked if isinstance(asked, list) else _ids(asked)
    except DatabaseError as error:
        return _unanswered(question, error)
    if not found:
        return None
    return Finding(
        question.name, question.title, question.action, question.meaning,
        len(found), tuple(found[:MAX_EXAMPLES]), question.is_problem,
    )  # fmt: skip


def _unanswered(question: Question, error: DatabaseError) -> Finding:
    name, title = f"unanswered:{question.name}", f"questions not answered: {question.title}"
    meaning = f"The database did not answer: {str(error).strip()[:200]}"
    return Finding(name, title, "Ask again when it has less to do.", meaning)


def _ids(rows: models.QuerySet[Any]) -> list[str]:
    """Return ids, at most one more than are counted."""
    return [str(pk) for pk in rows.order_by().values_list("pk", flat=True)[: MAX_COUNTED_ROWS + 1]]


@contextmanager
def _reading(alias: str) -> Iterator[None]:
    """On PostgreSQL a short read-only transaction that cannot take long; elsewhere none at all,
    since on SQLite even one that reads may be begun as one that writes."""
    connection = connections[alias]
    if connection.vendor != "postgresql":
        yield
        return
    with transaction.atomic(using=alias):
        with connection.cursor() as cursor:
            # what is looked at twice must be seen anew
            cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY")
            cursor.execute(
                f"SET LOCAL statement_timeout = {STATEMENT_TIMEOUT // timedelta(milliseconds=1)}"
            )
        yield


class _JsonType(models.Func):
    """``array``, ``object``, …; ``unreadable`` if it is no JSON at all."""

    output_field = models.TextField()
    _GUARDED = "CASE WHEN JSON_VALID(%(expressions)s) THEN JSON_TYPE(%(expressions)s) ELSE 'unreadable' END"

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """It is JSON, or the column would not hold it."""
        return self.as_sql(compiler, connection, function="jsonb_typeof", **context)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Capitals, hence the Lower around it."""
        return self.as_sql(compiler, connection, template=self._GUARDED, **context)

    as_sqlite = as_mysql


def _twice(view: View) -> models.QuerySet[Any]:
    return view.tasks.filter(
        Exists(FinishedTask.objects.using(view.alias).filter(pk=OuterRef("pk")))
    )


def _claimed(view: View, longer_than: timedelta) -> models.QuerySet[Task]:
    return view.tasks.filter(status=Status.CLAIMED, claimed_at__lt=view.now - longer_than)


def _not_recovered(view: View) -> models.QuerySet[Any]:
    """Return claims whose worker is lost: recovery takes no more than a moment after the lease."""
    patience = 2 * view.config.lease
    workers = Worker.objects.using(view.alias)
    recent = workers.filter(lost=True, seen_at__gte=view.now - patience)
    believed = workers.filter(Q(lost=False) | Q(pk__in=recent.values("pk")), pk=OuterRef("worker"))
    return _claimed(view, view.config.lease).filter(~Exists(believed))


def _held_long(view: View) -> models.QuerySet[Any]:
    alive = Worker.objects.using(view.alias).filter(pk=OuterRef("worker"), lost=False)
    return _claimed(view, view.long_running_after).filter(Exists(alive))


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


def _silent(view: View) -> list[str]:
    """For two leases: a cleaner looks on for one before it declares a worker lost."""
    return [f"{worker} ({worker.pk})" for worker in view.silent(2)]


def _nobody_cleans(view: View) -> list[str]:
    trouble = cleaners.trouble(cleaners.seen(view.alias))
    return [trouble] if trouble else []


QUESTIONS = (
    Question(
        "no_cleaner",
        "no cleaner is at work",
        "Tasks of crashed workers stay claimed, expired ones wait, and finished ones are never deleted.",
        "Start one: manage.py runcleaner. If one runs, what it says here, and its log, say why it gets nowhere.",
        _nobody_cleans,
    ),
    Question(
        "silent_workers",
        "workers silent for two leases that nobody declared lost",
        "No cleaner runs, or it cannot reach the database. Tasks of crashed workers stay claimed.",
        "Start one: manage.py runcleaner. Running more than one does no harm.",
        _silent,
    ),
    Question(
        "not_recovered",
        "claimed tasks of workers that are lost or have no row",
        "Nobody works on them, and no cleaner has given them back.",
        "See that manage.py runcleaner runs; if it does, its log says why it leaves them.",
        _not_recovered,
    ),
    Question(
        "overdue_unserved",
        "overdue tasks in queues that no living worker serves",
        "They wait for a worker that does not exist.",
        "Start one: manage.py runworkers, if need be with --queue. Look at its --exclude-queue.",
        lambda view: view.overdue().exclude(queue_name__in=view.served()),
    ),
    Question(
        "overdue",
        "overdue tasks in queues that are served",
        "Workers are too few or too slow, or are of an older release that does not know these tasks.",
        "Look at the names in the admin. Known ones: more workers. Unknown ones: deploy the workers.",
        lambda view: view.overdue().filter(queue_name__in=view.served()),
    ),
    Question(
        "overdue_paused",
        "overdue tasks in queues that a person has paused",
        "None of them starts until somebody resumes their queue.",
        "manage.py txtasks_queue list says who paused it, and why; resume lets them go.",
        lambda view: view.late().filter(queue_name__in=paused_queues(view.alias)),
        is_problem=False,
    ),
    Question(
        "undeclared",
        "names of pending tasks that no living worker declares",
        "Nobody asks for them: their module is not imported where the workers run, or the workers are of an older "
        "release.",
        names.HINT,
        lambda view: list(names.undeclared(view.alias, view.config.queues)),
    ),
    Question(
        "held_long",
        "tasks that a living worker has held for very long",
        "They are slow, or hang: the worker beats, so nobody takes them away from it.",
        "py-spy dump --pid on the worker's host shows where. kill -9 of the worker ends them by crash policy.",
        _held_long,
    ),
    Question(
        "unended_batches",
        "batches that no live member has been left in for long, and that nobody has ended",
        "Their on_finish, on_success and on_failure are not enqueued: what should come after them does not come.",
        "Each pass of a cleaner ends such batches: see that manage.py runcleaner runs, and what its log says. If "
        "it cannot, a session has locked the batch's row: end that session.",
        lambda view: forgotten.unended_batches(view.alias, view.config, view.now),
    ),
    Question(
        "unwoken_tasks",
        "tasks that wait on, although their value has come or their sleep is over",
        "What they wait for was over long ago, and yet they are due later. This package does not write that.",
        "The action run now, in the admin, lets them go on. Then find out who has written these rows by hand.",
        lambda view: forgotten.unwoken_tasks(view.alias, view.config, view.now),
    ),
    Question(
        "schedules",
        "schedules that are late, broken, or not done by their hour",
        "Their ticks have no tasks, or these do not succeed.",
        "manage.py txtasks_schedules check says which, and why.",
        lambda view: [one.row.pk for one in status_of_schedules(view.alias) if not one.is_well],
    ),
    Question(
        "live_and_finished",
        "ids that are both live and finished",
        "A task has finished, and yet it may run again. This package does not write that.",
        "Somebody wrote the tables by hand, or restored one of them. Hold these tasks in the admin and compare.",
        _twice,
    ),
    Question(
        "impossible_counts",
        "tasks whose counts cannot be",
        "More crashes or failures than allowed, or than there were attempts: somebody changed the row.",
        "Look at the errors of the task in the admin. They do no harm to others.",
        _impossible_counts,
    ),
    Question(
        "unreadable",
        "tasks whose args are no list or whose kwargs are no object",
        "They cannot be called and will be dead as soon as a worker takes them. Our API does not write them.",
        "Correct whoever writes rows by SQL, then the rows: args = '[…]', kwargs = '{…}'.",
        _unreadable,
    ),
    Question(
        "dead",
        "dead tasks",
        "They gave up and wait for a person. The queue itself is working.",
        "Read why in the admin; then revive or discard them. It can wait until the morning.",
        lambda view: view.tasks.filter(status=Status.DEAD),
        is_problem=False,
    ),
)
