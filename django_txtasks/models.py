"""Columns, constraints, indexes, and querysets that name sets of rows.

Nothing here writes: ``lifecycle`` changes the state of tasks, and each feature's folder writes its own
tables.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.core.checks import CheckMessage
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.db.models.lookups import IContains
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _


class Moment(models.DateTimeField):  # type: ignore[type-arg]
    """A DateTimeField that can read any time in the column; a time that Python does not have becomes the
    nearest one.

    Other programs may write infinity, -infinity and years beyond 9999 on PostgreSQL, 0000-00-00 on MariaDB
    and MySQL, and any text on SQLite. One such row would break every page and query that reads it. Text
    that is not a time is read as None.
    """

    # one day inside Python's limits, for any time zone
    _FIRST, _LAST = "0001-01-02 00:00:00", "9999-12-30 00:00:00"
    _POSTGRESQL = (
        f"CASE WHEN {{0}} < timestamptz '{_FIRST}+00' THEN timestamptz '{_FIRST}+00'"
        f" WHEN {{0}} > timestamptz '{_LAST}+00' THEN timestamptz '{_LAST}+00' ELSE {{0}} END"
    )
    _MYSQL = (
        f"CASE WHEN {{0}} < '{_FIRST}' THEN TIMESTAMP'{_FIRST}' WHEN LAST_DAY({{0}}) IS NULL THEN NULL"
        f" WHEN {{0}} > '{_LAST}' THEN TIMESTAMP'{_LAST}' ELSE {{0}} END"
    )
    # A time as Django writes it is read unchanged, any other as SQLite understands it. Adding 0 days turns
    # 2026-02-31 into a real date.
    _SQLITE = (
        f"CASE WHEN datetime({{0}}, '+0 days') > '{_LAST}' THEN '{_LAST}'"
        f" WHEN datetime({{0}}, '+0 days') >= '{_FIRST}' THEN"
        " CASE WHEN strftime('%%Y-%%m-%%d %%H:%%M:%%S', {0}, '+0 days') = substr({0}, 1, 19) AND length({0}) <= 26"
        " THEN {0} ELSE strftime('%%Y-%%m-%%d %%H:%%M:%%f', {0}, '+0 days') END END"
    )

    def deconstruct(self) -> Any:
        """Return Django's field for migrations, because the column is the same."""
        name, _path, args, kwargs = super().deconstruct()
        return name, "django.db.models.DateTimeField", args, kwargs

    def select_format(self, compiler: Any, sql: str, params: Any) -> Any:
        """Limit the column's value to the times that Python has."""
        vendors = {"postgresql": self._POSTGRESQL, "mysql": self._MYSQL}
        template = vendors.get(compiler.connection.vendor, self._SQLITE)
        return template.format(sql), tuple(params) * template.count("{0}")


class DatabaseNow(Now):
    """The database's own clock, in UTC.

    Django's Now() uses the session's time zone on MariaDB and MySQL, which is the server's.
    """

    output_field = Moment()

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **context)


class TaskId(models.UUIDField):  # type: ignore[type-arg]
    """A UUID column for an id or a digest. MariaDB and MySQL get text: PyMySQL cannot send UUID objects."""

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        value = self.to_python(value)
        if value is None or connection.vendor == "postgresql":
            return value
        return value.hex


class _Exact(models.Field):  # type: ignore[type-arg]
    """Text of which every database keeps each character, and which it compares exactly, as Python does.

    By default, MariaDB and MySQL give a column the character set of the database, which may lack most letters, and
    a collation that ignores case, accents and trailing spaces.
    """

    def db_type(self, connection: Any) -> Any:
        """Return the column's type; on MariaDB and MySQL with a character set and an exact collation."""
        column = super().db_type(connection)
        if connection.vendor != "mysql":
            return column
        return f"{column} CHARACTER SET utf8mb4 COLLATE {exact_collation(connection)}"


class ExactText(_Exact, models.CharField):  # type: ignore[type-arg]
    """Short text of which every database keeps each character, and which it compares exactly, as Python does."""


class ExactLongText(_Exact, models.TextField):  # type: ignore[type-arg]
    """Text of any length of which every database keeps each character, and which it compares exactly."""


def exact_collation(connection: Any) -> str:
    """Return the collation of MariaDB or MySQL that compares every character, including trailing spaces."""
    return "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"


@ExactText.register_lookup
class ContainsInAnyCase(IContains):
    """A search that ignores case. On MariaDB and MySQL ``icontains`` would use the column's exact collation."""

    def as_mysql(self, compiler: Any, connection: Any) -> Any:
        """Return the comparison in a collation that ignores case."""
        sql, params = self.as_sql(compiler, connection)
        return f"{sql} COLLATE utf8mb4_general_ci", params


class LaneName(ExactText):
    """The name of a lane."""


class Status(models.TextChoices):
    """The four states of a live row."""

    PENDING = "pending", _("pending")
    CLAIMED = "claimed", _("claimed")
    DEAD = "dead", _("dead")
    HELD = "held", _("held")


class Outcome(models.TextChoices):
    """The end of a finished task."""

    SUCCEEDED = "succeeded", _("succeeded")
    CANCELLED = "cancelled", _("cancelled")
    DISCARDED = "discarded", _("discarded")
    EXPIRED = "expired", _("cancelled: expired")
    MERGED = "merged", _("merged into another one")
    HANDED = "handed", _("handed over")


GONE = "gone"
"""The state of a task without a row."""


def label_of(state: str) -> str:
    """Return a state or an outcome in the reader's language."""
    if state == GONE:
        return gettext("gone")
    labels = {one.value: one.label for one in (*Status, *Outcome)}
    return str(labels.get(state, state))


class OnCrash(models.TextChoices):
    """The crash policy: what the cleaner does with a claim whose worker is lost."""

    DEAD = "dead", _("leave it dead")
    RETRY = "retry", _("run it again")
    COMPENSATE = "compensate", _("leave it dead and run its compensation")
    RETRY_THEN_COMPENSATE = "retry+undo", _("run it again, and in the end run its compensation")

    @property
    def retries(self) -> bool:
        """True if the task runs again, until ``max_crashes``."""
        return self in (OnCrash.RETRY, OnCrash.RETRY_THEN_COMPENSATE)

    @property
    def compensates(self) -> bool:
        """True if its compensation is enqueued when a crash leaves it dead."""
        return self in (OnCrash.COMPENSATE, OnCrash.RETRY_THEN_COMPENSATE)


class TaskQuerySet(models.QuerySet["Task"]):
    """Sets of tasks. Nothing here writes."""

    def in_state(self, status: Status) -> TaskQuerySet:
        """Return tasks in one state."""
        return self.filter(status=status)

    def due(self) -> TaskQuerySet:
        """Return pending tasks whose time has come."""
        return self.in_state(Status.PENDING).filter(run_after__lte=DatabaseNow())

    def running_long(self, age: timedelta) -> TaskQuerySet:
        """Return claimed tasks without a time limit that began longer ago than ``age``."""
        claimed = self.in_state(Status.CLAIMED)
        return claimed.filter(timeout__isnull=True, started_at__lt=DatabaseNow() - age)

    def compensated(self) -> TaskQuerySet:
        """Return dead tasks whose compensation was enqueued. They must not be revived."""
        at_once = Q(on_crash=OnCrash.COMPENSATE, crashes__gt=0)
        in_the_end = Q(on_crash=OnCrash.RETRY_THEN_COMPENSATE, crashes__gte=F("max_crashes"))
        return self.in_state(Status.DEAD).filter(at_once | in_the_end)


class PartlyIndexed(models.Model):
    """A table with partial indexes."""

    class Meta:
        abstract = True

    @classmethod
    def check(cls, **kwargs: Any) -> list[CheckMessage]:
        """Drop Django's warning that MariaDB and MySQL ignore the conditions of these indexes. It is harmless."""
        return [one for one in super().check(**kwargs) if one.id != "models.W037"]


class TaskColumns(PartlyIndexed):
    """Columns that a task has in its live row and keeps in its finished row."""

    id = TaskId(primary_key=True, editable=False)
    task_name = ExactText(max_length=200)
    queue_name = ExactText(max_length=100, db_default="default")
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    args = models.JSONField(db_default=models.Value([], models.JSONField()))
    kwargs = models.JSONField(db_default=models.Value({}, models.JSONField()))
    enqueued_at = Moment(db_default=DatabaseNow())
    run_after = Moment(db_default=DatabaseNow())
    worker = TaskId(null=True)
    batch = TaskId(null=True, help_text=_("the batch of which the task is a member"))
    started_at = Moment(null=True)
    attempt = models.PositiveIntegerField(_("attempt"), db_default=0)
    failures = models.PositiveIntegerField(_("failures"), db_default=0)
    crashes = models.PositiveIntegerField(_("crashes"), db_default=0)
    errors = models.JSONField(db_default=models.Value([], models.JSONField()))
    late_finishes = models.JSONField(
        db_default=models.Value([], models.JSONField()),
        help_text=_("attempts that finished although their worker had been declared lost"),
    )

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.task_name} {self.id}"


class Task(TaskColumns):
    """A task that has not finished. Only ``id`` and ``task_name`` have no default."""

    status = ExactText(max_length=10, choices=Status, db_default=Status.PENDING)
    max_attempts = models.PositiveSmallIntegerField(db_default=5)
    max_crashes = models.PositiveSmallIntegerField(db_default=3)
    on_crash = ExactText(
        _("after a crash"), max_length=10, choices=OnCrash, db_default=OnCrash.DEAD
    )
    timeout = models.FloatField(null=True, help_text=_("longest time of one attempt, in seconds"))
    expires_at = Moment(null=True, help_text=_("no attempt starts after this time"))
    hooks = models.JSONField(
        db_default=models.Value({}, models.JSONField()),
        help_text=_("the tasks that are enqueued when this task changes its state"),
    )
    claimed_at = Moment(null=True)
    notified_at = Moment(null=True)
    cancel_asked_at = Moment(
        null=True,
        help_text=_("when the running attempt was asked to stop; no further attempt starts"),
    )
    cause = models.BigIntegerField(
        null=True,
        help_text=_(
            "fingerprint of the last failure: task function, exceptions, place in the code; empty = the last "
            "attempt did not fail"
        ),
    )
    headers = models.JSONField(
        null=True,
        help_text=_("what programs beside the queue send along with the task, such as a trace id"),
    )
    snoozes = models.IntegerField(
        _("snoozes"), db_default=0, help_text=_("number of times that the task postponed itself")
    )
    unique_key = TaskId(
        null=True, help_text=_("waiting tasks with the same key are merged into one run")
    )
    unique_text = ExactText(max_length=200, null=True, help_text=_("the unique key as text"))
    absorbed = models.IntegerField(
        db_default=0,
        help_text=_("number of tasks with the same unique key that were merged into this task"),
    )
    lane = LaneName(
        max_length=200,
        db_default="",
        help_text=_("the lane whose limits the task shares; empty = no lane"),
    )

    objects = TaskQuerySet.as_manager()

    class Meta:
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        default_permissions = ("view",)
        permissions = (
            ("revive_task", _("Can revive dead tasks")),
            ("discard_task", _("Can discard dead tasks")),
            ("hold_task", _("Can hold pending tasks")),
            ("resume_task", _("Can resume held tasks")),
            ("cancel_task", _("Can cancel pending tasks")),
            ("run_now_task", _("Can run pending tasks at once")),
            ("ask_to_stop_task", _("Can ask running tasks to stop")),
            ("look_into_task", _("Can see the stack of running tasks")),
            ("again_task", _("Can enqueue ended tasks again")),
        )
        constraints = (
            models.CheckConstraint(
                name="txtasks_task_status", condition=Q(status__in=Status.values)
            ),
            models.CheckConstraint(
                name="txtasks_task_claim",
                condition=Q(status=Status.CLAIMED, worker__isnull=False, claimed_at__isnull=False)
                | (~Q(status=Status.CLAIMED) & Q(worker__isnull=True, claimed_at__isnull=True)),
            ),
        )
        # MariaDB and MySQL ignore the conditions; therefore the first index begins with the status.
        indexes = (
            models.Index(
                fields=["status", "lane", "queue_name", "priority", "run_after", "id"],
                name="txtasks_pending", condition=Q(status=Status.PENDING),
            ),
            # MariaDB and MySQL do not have this index, because they use the first one instead
            models.Index(
                fields=["lane"],
                name="txtasks_in_lane", condition=Q(status=Status.CLAIMED, lane__gt=""),
            ),
            models.Index(fields=["worker"], name="txtasks_claimed", condition=Q(status=Status.CLAIMED)),
            models.Index(
                fields=["status", "run_after"],
                name="txtasks_stopped", condition=Q(status__in=[Status.DEAD, Status.HELD]),
            ),
            # Rows that never failed have no entry. On MariaDB and MySQL, a claim of such a row changes none: this
            # index and txtasks_stopped begin there with a computed column, see migration 0003.
            models.Index(
                fields=["status", "queue_name", "cause", "run_after", "id"],
                name="txtasks_cause",
                condition=Q(cause__isnull=False) | Q(status__in=[Status.DEAD, Status.HELD]),
            ),
            models.Index(
                fields=["expires_at"], name="txtasks_expires",
                condition=Q(status=Status.PENDING, expires_at__isnull=False),
            ),
            models.Index(
                fields=["unique_key", "-priority", "run_after", "id"],
                name="txtasks_unique", condition=Q(unique_key__isnull=False),
            ),
            models.Index(
                fields=["batch", "id"],
                name="txtasks_in_batch",
                condition=Q(batch__isnull=False) & ~Q(status=Status.CLAIMED),
            ),
            # Rows whose next attempt is the last allowed one after a crash. On MariaDB and MySQL it consists of a
            # computed column, see migration 0006.
            models.Index(
                fields=["run_after"],
                name="txtasks_last_chance",
                condition=Q(status=Status.PENDING, crashes__gt=0, crashes__gte=F("max_crashes") - 1),
            ),
        )  # fmt: skip

    @property
    def is_compensated(self) -> bool:
        """True if ``compensated()`` has the task."""
        most = {OnCrash.COMPENSATE: 1, OnCrash.RETRY_THEN_COMPENSATE: self.max_crashes}
        crashes = most.get(self.on_crash)
        return self.status == Status.DEAD and crashes is not None and self.crashes >= crashes


class FinishedTask(TaskColumns):
    """A task in history: it succeeded, or was cancelled, discarded, expired, merged or handed over."""

    outcome = ExactText(max_length=10, choices=Outcome)
    finished_at = Moment(db_default=DatabaseNow())
    result = models.JSONField(null=True)
    merged_into = TaskId(
        null=True, help_text=_("the task with the same unique key that ran instead")
    )

    class Meta:
        verbose_name = _("finished task")
        verbose_name_plural = _("finished tasks")
        default_permissions = ("view",)
        indexes = (
            models.Index(fields=["finished_at"], name="txtasks_finished_at"),
            models.Index(
                fields=["merged_into"],
                name="txtasks_merged", condition=Q(merged_into__isnull=False),
            ),
            models.Index(
                fields=["batch", "outcome"],
                name="txtasks_of_batch", condition=Q(batch__isnull=False),
            ),
        )  # fmt: skip


class Process(models.Model):
    """A process on a host."""

    id = TaskId(primary_key=True, editable=False)
    host = ExactText(max_length=200)
    pid = models.PositiveIntegerField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.host} pid {self.pid}"


class Worker(Process):
    """One worker process. Cleaners watch its beat. No column that a beat changes is indexed."""

    queues = models.JSONField()
    task_names = models.JSONField(
        db_default=models.Value([], models.JSONField()),
        help_text=_("the task functions that the worker's code declares; it claims no others"),
    )
    threads = models.PositiveSmallIntegerField()
    running = models.PositiveSmallIntegerField(db_default=0)
    listening = models.BooleanField(
        null=True,
        help_text=_("hints reach the worker; empty = it has no source of hints, and scans"),
    )
    lease = models.FloatField(
        _("lease"),
        help_text=_("seconds without a beat after which the worker may be declared lost"),
    )
    started_at = Moment(db_default=DatabaseNow())
    seen_at = Moment(db_default=DatabaseNow())
    beat = models.BigIntegerField(_("beat"), db_default=0)
    lost = models.BooleanField(db_default=False)
    sessions = models.JSONField(
        db_default=models.Value([], models.JSONField()),
        help_text=_(
            "sessions: the loop's first, then those of slots, last the worker's process; empty = not known"
        ),
    )
    will = models.PositiveIntegerField(
        db_default=0, help_text=_("number of the last will that RabbitMQ holds; 0 = none")
    )
    suspected_at = Moment(null=True, help_text=_("when RabbitMQ delivered the last will"))
    protocol = models.SmallIntegerField(
        db_default=0,
        help_text=_("what the worker's release supports: 1 = paused queues, 2 = lanes, too"),
    )

    release = ExactText(
        max_length=100, db_default="", help_text=_("release of the worker's code; empty = not set")
    )
    stats_seq = models.BigIntegerField(
        db_default=0, help_text=_("number of the last statistics that the worker has written")
    )
    progress = models.JSONField(
        db_default=models.Value({}, models.JSONField()),
        help_text=_("progress that the running tasks have reported, by task id"),
    )
    how = ExactText(
        max_length=30,
        db_default="",
        help_text=_("how its process ended; empty = it runs, or not known"),
    )

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        default_permissions = ("view",)

    def is_silent(self, now: datetime) -> bool:
        """Return True if its last beat is longer ago than its lease; ``now`` is the database's time."""
        seen: Any = self.seen_at  # None = not readable as a time
        return seen is None or (now - seen).total_seconds() > self.lease


class EndedWorker(Process):
    """Host and process of an ended worker, because attempts name the worker by id; and how it ended."""

    started_at = Moment()
    ended_at = Moment(db_default=DatabaseNow())
    release = ExactText(
        max_length=100, db_default="", help_text=_("release of the worker's code; empty = not set")
    )
    how = ExactText(
        max_length=30, db_default="", help_text=_("how its process ended; empty = in good order")
    )
    held = models.JSONField(
        db_default=models.Value({}, models.JSONField()),
        help_text=_("the task functions that it held when it ended otherwise, each with a queue"),
    )

    class Meta:
        default_permissions = ("view",)
        indexes = (models.Index(fields=["ended_at"], name="txtasks_worker_ended"),)


class PausedQueue(models.Model):
    """A paused queue: none of its tasks starts until a person resumes it, which deletes the row."""

    queue_name = ExactText(_("queue"), max_length=100, primary_key=True)
    paused_at = Moment(db_default=DatabaseNow())
    paused_by = ExactText(max_length=150, db_default="")
    reason = ExactText(
        _("reason"),
        max_length=200,
        blank=True,
        db_default="",
        help_text=_("a note for people who find the queue or lane paused"),
    )

    class Meta:
        verbose_name = _("paused queue")
        verbose_name_plural = _("paused queues")
        default_permissions = ("view", "add", "delete")

    def __str__(self) -> str:
        return str(self.queue_name)


class Lane(models.Model):
    """A lane: its state, which workers update under a row lock, and the limits that a person has set.

    Its running tasks are the claimed rows of ``Task``; they are not recorded here. ``LaneRule`` explains
    the limits; an empty one is that of the settings.
    """

    name = LaneName(_("lane"), max_length=200, primary_key=True)
    at_most = models.IntegerField(
        _("at most"), null=True, blank=True, help_text=_("tasks that may run at the same time")
    )
    rate = ExactText(
        _("rate"),
        max_length=20,
        blank=True,
        db_default="",
        help_text=_("task starts in a time, such as 10/s or 100/m"),
    )
    burst = models.IntegerField(
        _("burst"),
        null=True,
        blank=True,
        help_text=_("task starts that are allowed at once after a quiet time"),
    )
    weight = models.FloatField(
        _("weight"),
        null=True,
        blank=True,
        help_text=_("share of the slots, relative to other lanes"),
    )
    paused_at = Moment(null=True, blank=True)
    paused_by = ExactText(max_length=150, blank=True, db_default="")
    reason = ExactText(
        _("reason"),
        max_length=200,
        blank=True,
        db_default="",
        help_text=_("a note for people who find the queue or lane paused"),
    )
    tokens = models.FloatField(null=True, help_text=_("task starts that the rate allows now"))
    served_at = Moment(null=True, help_text=_("when a worker last claimed tasks of the lane"))
    tag = models.FloatField(
        db_default=0.0,
        help_text=_(
            "virtual time of fair queueing: service received / weight; the smallest is next"
        ),
    )
    held_until = Moment(
        null=True,
        help_text=_("a task has asked that no other task of the lane starts before this time"),
    )

    class Meta:
        verbose_name = _("lane")
        verbose_name_plural = _("lanes")
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return str(self.name)


class Once(models.Model):
    """An idempotency key. Until its time is over, no other task of the function is enqueued under it."""

    key = TaskId(primary_key=True, editable=False)
    text = ExactText(max_length=200, help_text=_("the key as text"))
    task_name = ExactText(max_length=200)
    task_id = TaskId(help_text=_("the task that was enqueued"))
    until = Moment()

    class Meta:
        default_permissions = ("view",)
        indexes = (models.Index(fields=["until"], name="txtasks_once_until"),)

    def __str__(self) -> str:
        return str(self.text)


class CatchUp(models.TextChoices):
    """The missed ticks that still get a task, after a time without a cleaner."""

    LAST = "last", _("the last one")
    ALL = "all", _("all of them")
    NONE = "none", _("none")


class Schedule(models.Model):
    """A task that is enqueued again and again. The code declares schedules; changes that people make are kept.

    Cleaners and people lock the row before they write ticks or change it.
    """

    name = LaneName(_("name"), max_length=200, primary_key=True)
    task_name = ExactText(max_length=200)
    queue_name = ExactText(max_length=100, db_default="default")
    args = models.JSONField(
        _("arguments"), blank=True, db_default=models.Value([], models.JSONField())
    )
    kwargs = models.JSONField(
        _("keyword arguments"), blank=True, db_default=models.Value({}, models.JSONField())
    )
    cron = ExactText(
        _("cron"),
        max_length=200,
        blank=True,
        db_default="",
        help_text=_("such as 0 3 * * *, in the schedule's time zone"),
    )
    every = models.FloatField(
        _("every"), null=True, blank=True, help_text=_("seconds between ticks; give this or cron")
    )
    tz = ExactText(_("time zone"), max_length=64, db_default="UTC")
    catch_up = ExactText(
        _("catch up"),
        max_length=4, choices=CatchUp, db_default=CatchUp.LAST,
        help_text=_("which ticks are made up for after a time without a cleaner"),
    )  # fmt: skip
    grace = models.FloatField(
        _("grace"),
        null=True,
        blank=True,
        help_text=_("longest delay of a tick, in seconds; empty = no limit"),
    )
    ready_by = ExactText(
        _("ready by"),
        max_length=5,
        blank=True,
        db_default="",
        help_text=_("hour of the day, such as 07:00"),
    )
    enabled = models.BooleanField(_("enabled"), db_default=True)
    next_at = Moment(null=True, help_text=_("the next tick; empty = a cleaner computes it"))
    last_at = Moment(null=True, help_text=_("the last tick for which a task was written"))
    last_task = TaskId(null=True)
    waiting_since = Moment(null=True, help_text=_("the oldest tick whose task still waits"))
    watched_from = Moment(
        db_default=DatabaseNow(),
        help_text=_("ticks since this time must be done by the hour of ready_by"),
    )
    told_at = Moment(null=True, help_text=_("the last tick that was reported as not done in time"))
    from_code = models.BooleanField(db_default=False)
    edited = models.BooleanField(
        db_default=False,
        help_text=_("a person has edited the schedule, so the code no longer changes it"),
    )
    release = models.BigIntegerField(
        db_default=0, help_text=_("release of the code from which the schedule was synchronised")
    )
    code_versions = models.JSONField(
        db_default=models.Value([], models.JSONField()),
        editable=False,
        help_text=_("digests of the schedule as releases of the code declared it, the newest last"),
    )
    error = ExactText(max_length=500, db_default="")

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        default_permissions = ("view", "add", "change", "delete")
        indexes = (models.Index(fields=["enabled", "next_at"], name="txtasks_next_tick"),)

    def __str__(self) -> str:
        return str(self.name)


class Step(models.Model):
    """A completed step of a task, with its value, which later attempts get instead of running the step again."""

    pk = models.CompositePrimaryKey("task_id", "name")
    task_id = TaskId()
    name = ExactText(max_length=100)
    value = ExactLongText(help_text=_("JSON text, returned unchanged"))
    attempt = models.PositiveIntegerField(help_text=_("the attempt that completed the step"))
    done_at = Moment()

    class Meta:
        default_permissions = ()  # the task's page shows it

    def __str__(self) -> str:
        return f"{self.name} of {self.task_id}"


class Wait(models.Model):
    """A wait of a task: for a time, or for a value from outside. The row stays, because the next attempt asks
    again.

    Until the wait ends, the task is pending and due then. The value may arrive before the task asks for it.
    """

    pk = models.CompositePrimaryKey("task_id", "name")
    task_id = TaskId()
    name = ExactText(max_length=100)
    is_sleep = models.BooleanField(
        help_text=_("the wait ends at a time; otherwise it needs a value")
    )
    until = Moment(null=True, help_text=_("empty = no time limit"))
    value = ExactLongText(
        null=True, help_text=_("JSON text, returned unchanged; empty = no value has arrived")
    )
    ended_at = Moment(
        null=True, help_text=_("when the value arrived, or when the time limit passed")
    )

    class Meta:
        default_permissions = ()  # the task's page shows it

    def __str__(self) -> str:
        return f"{self.name} of {self.task_id}"


class Link(models.Model):
    """A business object that a task is about, such as an order. The object itself does not know of the link.

    There is no foreign key: deleting the object would delete live tasks, and a task's row moves to another table
    when the task has finished.
    """

    pk = models.CompositePrimaryKey("task_id", "subject_type", "subject_id")
    task_id = TaskId()
    subject_type = ExactText(max_length=200, help_text=_("the object's model, such as shop.order"))
    subject_id = ExactText(max_length=200, help_text=_("the object's primary key, as text"))

    class Meta:
        default_permissions = ()  # the pages of the task and of the object show it
        indexes = (
            models.Index(fields=["subject_type", "subject_id", "task_id"], name="txtasks_subject"),
        )

    def __str__(self) -> str:
        return f"{self.subject_type} {self.subject_id} of {self.task_id}"


class Batch(PartlyIndexed):
    """Tasks that were enqueued together, and the tasks that the end of the last one enqueues.

    The number of members is not recorded here: members that have not ended are the live rows of ``Task``
    that name it.
    """

    id = TaskId(primary_key=True, editable=False)
    name = ExactText(max_length=200, blank=True, db_default="")
    hooks = models.JSONField(
        db_default=models.Value({}, models.JSONField()),
        help_text=_("the tasks that are enqueued when the batch ends"),
    )
    created_at = Moment(db_default=DatabaseNow())
    finished_at = Moment(
        null=True,
        help_text=_("when a worker or another process found that all its tasks had ended"),
    )
    failed = models.BooleanField(
        null=True,
        help_text=_("whether a task of the batch has failed; empty = the batch has not ended"),
    )
    opened_by = TaskId(
        null=True, help_text=_("the task that opened the batch; empty = no task did")
    )
    root_task = TaskId(
        null=True,
        help_text=_(
            "the first task of this work: opened_by, or if opened_by is itself a member of a batch, the root "
            "task of that batch"
        ),
    )
    hook_tasks = models.JSONField(
        null=True, help_text=_("ids of the tasks that were enqueued when the batch ended, by hook")
    )

    class Meta:
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        default_permissions = ("view",)
        indexes = (
            models.Index(fields=["finished_at", "id"], name="txtasks_batch_end"),
            models.Index(
                fields=["root_task"],
                name="txtasks_batch_root", condition=Q(root_task__isnull=False),
            ),
        )  # fmt: skip

    def __str__(self) -> str:
        return str(self.name or self.id)


class Cleaner(Process):
    """One cleaner process. Its beat shows that it is alive, its last pass that it achieves something.

    A process that cleans once, started by cron, leaves its row behind as the record of that pass.
    """

    interval = models.FloatField(
        null=True, help_text=_("seconds between two passes of the cleaner; empty = it runs once")
    )
    lease = models.FloatField(
        _("lease"), help_text=_("seconds without a pass after which the cleaner counts as gone")
    )
    started_at = Moment(db_default=DatabaseNow())
    seen_at = Moment(db_default=DatabaseNow())
    passed_at = Moment(null=True, help_text=_("when the cleaner's last complete pass ended"))
    error = ExactText(
        max_length=500,
        db_default="",
        help_text=_("why a pass has failed since then; empty = none has failed"),
    )

    class Meta:
        verbose_name = _("cleaner")
        verbose_name_plural = _("cleaners")
        default_permissions = ("view",)


class StatColumns(models.Model):
    """Counts of ended attempts, with their times."""

    queue_name = ExactText(max_length=100)
    task_name = ExactText(max_length=200, db_default="")
    succeeded = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(
        db_default=0, help_text=_("attempts that failed and that are run again")
    )
    died = models.BigIntegerField(db_default=0, help_text=_("attempts that left the task dead"))
    other = models.BigIntegerField(
        db_default=0,
        help_text=_("attempts that ended otherwise, and tasks that were cancelled or expired"),
    )
    run_ms = models.BigIntegerField(
        db_default=0, help_text=_("time of all attempts, in milliseconds")
    )
    wait = ExactText(
        max_length=600,
        db_default="",
        help_text=_("histogram of the times from due to start, as bucket:count"),
    )
    run = ExactText(
        max_length=600,
        db_default="",
        help_text=_("histogram of the times of the attempts, as bucket:count"),
    )

    class Meta:
        abstract = True


class RawStat(StatColumns):
    """Counts of one process since its last row. Processes only append; a cleaner adds the rows up in ``Stat``."""

    pk = models.CompositePrimaryKey("worker", "seq", "queue_name", "task_name")
    worker = TaskId(help_text=_("the worker, or a fresh id for other processes"))
    seq = models.BigIntegerField()
    at = Moment(db_default=DatabaseNow())

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.queue_name} {self.task_name} of {self.worker}"


class Stat(StatColumns):
    """Counts of a span of time. ``width`` is its length in seconds; 0 = since the first count."""

    pk = models.CompositePrimaryKey("width", "starts_at", "queue_name", "task_name")
    width = models.PositiveIntegerField()
    starts_at = Moment()
    due = models.BigIntegerField(null=True, help_text=_("due tasks of the queue at the end"))
    oldest = models.FloatField(
        null=True, help_text=_("seconds for which the oldest due task had waited at the end")
    )

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.queue_name} {self.task_name} from {self.starts_at}"


class StackRequest(models.Model):
    """A question of a person: where is this running task? Its worker answers with the stack of its thread."""

    task_id = TaskId(primary_key=True, editable=False)
    attempt = models.PositiveIntegerField()
    worker = TaskId()
    asked_at = Moment(db_default=DatabaseNow())
    asked_by = ExactText(max_length=150, db_default="")
    answered_at = Moment(null=True)
    text = ExactLongText(db_default="", help_text=_("the answer: frames without values"))

    class Meta:
        default_permissions = ()
        indexes = (models.Index(fields=["worker"], name="txtasks_stack_worker"),)

    def __str__(self) -> str:
        return f"stack of {self.task_id}"


class Overview(Task):
    """The admin's page with all that is important now. It has no table of its own."""

    class Meta:
        proxy = True
        default_permissions = ()
        verbose_name = _("at a glance")
        verbose_name_plural = _("at a glance")
