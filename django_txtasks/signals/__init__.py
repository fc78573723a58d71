"""All signals of this package: each a Django signal together with its log sentence.

Other code emits signals and never writes to the log. Levels: debug = per hint, info = per task and start or
stop, warning = heals by itself, error = a person must look.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, copy_context
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from django.core.cache import caches
from django.dispatch import Signal

from django_txtasks.core.ground.forks import register_at_fork
from django_txtasks.exceptions import INTERRUPTIONS
from django_txtasks.signals import tracebacks
from django_txtasks.signals.logs import current
from django_txtasks.signals.queue import SignalQueue

logger = logging.getLogger("django_txtasks")

FLUSH_SECONDS = 10.0
"""Longest time for log handlers and receivers to finish when a process ends."""
FORK_SECONDS = 1.0
"""Longest time that a fork waits for the present log line and its receivers."""
COMPLAIN_EVERY_SECONDS = 60.0
"""Seconds between two reports on stderr that the log itself has failed."""
_NONE: Mapping[str, Any] = MappingProxyType({})
_NOT_ATTRIBUTES = {"message", "asctime"}
"""Attributes of a record that formatters set themselves."""


class LogSignal(Signal):
    """A signal that also writes one log line with the named facts.

    Args:
        in_place: its receivers run in the transaction of the code that emits it, in a worker, too.

    Attributes:
        queue: the queue of this process's signals, inside ``in_background``.
    """

    queue: ClassVar[SignalQueue | None] = None

    def __init__(self, level: int, sentence: str, *names: str, in_place: bool = False) -> None:
        super().__init__()
        self.level, self.sentence, self.names, self.in_place = level, sentence, names, in_place

    @property
    def has_observers(self) -> bool:
        """True if a receiver or the log would notice it; saves the work where there are many signals."""
        return bool(self.receivers) or logger.isEnabledFor(self.level)

    def emit(
        self,
        *,
        level: int | None = None,
        exception: BaseException | None = None,
        context: Context | None = None,
        **facts: Any,
    ) -> None:
        """Log the sentence and send the signal: at once, or in a background thread inside ``in_background``.

        Never raises. Errors of a log handler or a receiver are reported on stderr.

        Args:
            level: level of the log line, if not the signal's own.
            exception: its traceback is added to the log line.
            context: context of the attempt that the signal is about. Handlers and receivers run in a copy of
                it, so they see its context variables, such as a tenant or the scope of Sentry. None = the
                caller's context, if the caller is an attempt.
        """
        if level is None:
            level = self.level
        if not (self.receivers or logger.isEnabledFor(level)):
            return
        thread = threading.current_thread()
        if context is None and current.get() is not None:
            context = copy_context()
        emission = _Emission(
            self, level, facts, exception, time.time(), thread.ident, thread.name, context
        )
        queue = None if self.in_place else self.queue
        if queue is None:
            emission.deliver()
        else:
            queue.put(emission)


class _Emission(NamedTuple):
    """One call of ``LogSignal.emit``.

    Attributes:
        created: time of the call, as ``time.time()``.
        thread, thread_name: thread of the call.
    """

    signal: LogSignal
    level: int
    facts: Mapping[str, Any]
    exception: BaseException | None
    created: float
    thread: int | None
    thread_name: str
    context: Context | None = None

    def made_small(self) -> _Emission:
        return self._replace(exception=None, context=None)

    def deliver(self) -> None:
        """Write the log line, then call the receivers, even if the line failed."""
        if self.context is None:
            self._deliver()
        else:
            self.context.copy().run(self._deliver, _caches_of_thread())

    def _deliver(self, own_caches: Mapping[str, Any] = _NONE) -> None:
        """Deliver in the current context.

        Args:
            own_caches: Django's caches of this thread; the caches in the context belong to the attempt's thread.
        """
        for alias, cache in own_caches.items():
            caches[alias] = cache
        for deliver in (self._log, self._send):
            try:
                deliver()
            except INTERRUPTIONS:  # raised in the emitting task from outside
                raise
            except Exception as error:
                _complain(self.signal, error)

    def _log(self) -> None:
        if logger.isEnabledFor(self.level):
            logger.handle(self._record())

    def _record(self) -> logging.LogRecord:
        """Return the record that ``logger.log()`` would have made at the time of the call.

        The facts become its attributes, except for attributes that the project's LogRecordFactory has set:
        ``extra=`` would raise KeyError for these.
        """
        signal, error = self.signal, self.exception
        shown = tuple([_one_line(self.facts.get(name)) for name in signal.names])
        info = None if error is None else (type(error), error, error.__traceback__)
        record = logger.makeRecord(
            logger.name, self.level, __file__, _LINE, signal.sentence, shown, info, "emit"
        )
        if error is not None:
            record.exc_text = tracebacks.for_log(error)
        record.relativeCreated -= (record.created - self.created) * 1000
        record.created, record.msecs = self.created, float(int(self.created % 1 * 1000))
        record.thread, record.threadName = self.thread, self.thread_name
        known = vars(record)
        for name, value in self.facts.items():
            if name not in _NOT_ATTRIBUTES and known.get(name, "") in (None, ""):
                known[name] = value
        return record

    def _send(self) -> None:
        if self.signal.receivers:
            for _, answer in self.signal.send_robust(sender=None, **self.facts):
                if isinstance(answer, INTERRUPTIONS):
                    raise answer


def _caches_of_thread() -> dict[str, Any]:
    """Return Django's caches of this thread, without caches that raise an error when they are made."""
    found = {}
    for alias in caches:
        with contextlib.suppress(Exception):
            found[alias] = caches[alias]
    return found


_LINE = LogSignal.emit.__code__.co_firstlineno


@contextmanager
def in_background(
    seconds: float | None = None, *, by_one_thread: bool = True
) -> Iterator[SignalQueue]:
    """Write the log and call receivers in a background thread inside the block, so that no loop waits for
    them.

    At the end, deliver the remaining signals, for at most ``seconds`` (FLUSH_SECONDS).

    Args:
        by_one_thread: False = a thread exists only while there are signals.
    """
    queue = LogSignal.queue
    if queue is not None:
        try:
            yield queue
        finally:
            flush(seconds)
        return
    queue = LogSignal.queue = SignalQueue(
        lambda count: events_dropped.emit(count=count), by_one_thread=by_one_thread
    )
    try:
        yield queue
    finally:
        if LogSignal.queue is queue:  # else this is a forked child
            queue.close(FLUSH_SECONDS if seconds is None else seconds)
            LogSignal.queue = None


def flush(seconds: float | None = None) -> None:
    """Wait until all signals were delivered, for at most ``seconds`` (FLUSH_SECONDS)."""
    if LogSignal.queue is not None:
        LogSignal.queue.flush(FLUSH_SECONDS if seconds is None else seconds)


def _pause() -> None:
    if LogSignal.queue is not None:
        LogSignal.queue.pause(FORK_SECONDS)


def _go_on() -> None:
    if LogSignal.queue is not None:
        LogSignal.queue.go_on()


def _deliver_in_place() -> None:
    """Deliver in the calling thread, because a forked child has no delivering thread."""
    LogSignal.queue = None


register_at_fork(before=_pause, after_in_parent=_go_on, after_in_child=_deliver_in_place)


class _Complaint:
    """Time of the next report on stderr that the log has failed."""

    next_at = 0.0


def _complain(signal: LogSignal, error: Exception) -> None:
    """Report on stderr that the log has failed, as ``logging.Handler.handleError`` does, but seldom."""
    now = time.monotonic()
    if logging.raiseExceptions and sys.stderr and now >= _Complaint.next_at:
        _Complaint.next_at = now + COMPLAIN_EVERY_SECONDS
        with contextlib.suppress(Exception):
            said = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            print(f"Logging {signal.sentence!r} failed:\n{said}", file=sys.stderr, flush=True)


def _one_line(value: Any) -> Any:
    """Escape a value, so that foreign text cannot forge a second log line."""
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value).encode("unicode_escape").decode()[:500]


_TASK = ("task_id", "task")

task_enqueued = LogSignal(
    logging.DEBUG, "Task %s (%s) was written to queue %s.", *_TASK, "queue", in_place=True
)
task_claimed = LogSignal(
    logging.DEBUG, "Task %s (%s) starts attempt %s at worker %s.", *_TASK, "attempt", "worker"
)
attempt_starting = Signal()
"""Sent before the task function of each attempt, in its thread and context, so that a site can prepare state
of threads or connections. It is no LogSignal, and has no log line. An error that a receiver raises fails
the attempt.
"""
task_finished = LogSignal(logging.INFO, "Task %s (%s) finished at attempt %s.", *_TASK, "attempt")
task_hook_failed = LogSignal(
    logging.ERROR,
    "Task %s (%s) has finished and is committed, but a function that it gave to transaction.on_commit() failed: "
    "%s. The work of that function, and of those after it, is not done; the error is kept with the task.",
    *_TASK, "error",
)  # fmt: skip
call_failed_late = LogSignal(
    logging.ERROR,
    "A call of %s has failed after each of its tasks (%s) had an outcome, so no task fails for it: %s",
    "task", "count", "error",
)  # fmt: skip
task_retried = LogSignal(
    logging.WARNING, "Task %s (%s) failed at attempt %s, next one in %.1f s: %s",
    *_TASK, "attempt", "delay", "error",
)  # fmt: skip
backoff_failed = LogSignal(
    logging.ERROR,
    "The backoff function of task %s (%s) has failed, so the usual wait applies: %s",
    *_TASK,
    "error",
)
task_died = LogSignal(
    logging.ERROR, "Task %s (%s) is dead after attempt %s, until a person revives or discards it in the admin: %s",
    *_TASK, "attempt", "error",
)  # fmt: skip
task_released = LogSignal(logging.INFO, "Task %s (%s) was given back before it started.", *_TASK)
arguments_do_not_fit = LogSignal(
    logging.ERROR,
    "Tasks of %s wait, because this worker's code does not take their arguments; the first of them is %s in queue "
    "%s: %s Waiting tasks of this kind are not reported again by this worker. Deploy code that takes them.",
    "task", "task_id", "queue", "error",
)  # fmt: skip
task_compensated = LogSignal(
    logging.WARNING, "Task %s (%s) was lost at attempt %s; its compensation was enqueued.",
    *_TASK, "attempt",
)  # fmt: skip
task_expired = LogSignal(logging.WARNING, "Task %s (%s) has expired and is cancelled.", *_TASK)
task_snoozed = LogSignal(
    logging.INFO,
    "Task %s (%s) snoozed at attempt %s, for %.1f s.",
    *_TASK,
    "attempt",
    "delay",
)
task_suspended = LogSignal(
    logging.INFO,
    "Task %s (%s) is suspended at attempt %s and waits for %r.",
    *_TASK,
    "attempt",
    "awaited",
)
task_asked_to_stop = LogSignal(
    logging.INFO,
    "Task %s was asked to stop; no other attempt of it starts.",
    "task_id",
    in_place=True,
)
task_stopped = LogSignal(
    logging.INFO, "Task %s (%s) has stopped at attempt %s, and is cancelled.", *_TASK, "attempt"
)
task_held = LogSignal(logging.INFO, "Task %s was held.", "task_id", in_place=True)
task_resumed = LogSignal(logging.INFO, "Task %s was resumed.", "task_id", in_place=True)
task_run_now = LogSignal(logging.INFO, "Task %s was told to run now.", "task_id", in_place=True)
task_revived = LogSignal(logging.INFO, "Task %s was revived.", "task_id", in_place=True)
task_cancelled = LogSignal(logging.INFO, "Task %s was cancelled.", "task_id", in_place=True)
task_discarded = LogSignal(logging.INFO, "Task %s was discarded.", "task_id", in_place=True)
tasks_operated = LogSignal(
    logging.INFO,
    "%s of several tasks changed %s (%s), by %s.",
    "verb",
    "changed",
    "choice",
    "by",
    in_place=True,
)
task_recovered = LogSignal(
    logging.WARNING, "Task %s (%s) was lost at attempt %s with its worker; it runs again.",
    *_TASK, "attempt",
)  # fmt: skip
task_not_run_again = LogSignal(
    logging.WARNING,
    "Task %s (%s): attempt %s ended with its worker. The task was asked to stop, so it does not run again: a "
    "cleaner cancels it.",
    *_TASK, "attempt",
)  # fmt: skip
task_cut_short = LogSignal(
    logging.WARNING,
    "Task %s (%s) was cut short at attempt %s, because its worker had to end. It runs again, without counting a "
    "crash.",
    *_TASK, "attempt",
)  # fmt: skip
task_finished_late = LogSignal(
    logging.WARNING,
    "Task %s (%s) finished attempt %s, which was abandoned when its worker was declared lost. The finish is noted "
    "with the task. If the task has run again since, its effects outside the database may have happened twice.",
    *_TASK, "attempt",
)  # fmt: skip
task_running_long = LogSignal(
    logging.ERROR,
    "Task %s (%s) has been running attempt %s for longer than TXTASKS['long_running_after'] on %s, which is alive."
    " Nothing ends it by itself: look at that process, and consider a timeout= for this task.",
    *_TASK, "attempt", "where",
)  # fmt: skip
claim_lost = LogSignal(
    logging.WARNING,
    "Task %s (%s): attempt %s %s, because a cleaner had declared worker %s lost and recovered its tasks. "
    "The cleaner's log has the reason.",
    *_TASK, "attempt", "what", "worker",
)  # fmt: skip

worker_started = LogSignal(
    logging.INFO,
    "Worker %s started: queues %s, tasks at a time: %s, broker in the settings: %s.",
    "worker",
    "queues",
    "threads",
    "broker",
)
HOW_TO_DECLARE = (
    "Check that workers import their modules (an app's tasks.py, INSTALLED_APPS), and deploy them; or keep the "
    "old name of a renamed function."
)
names_undeclared = LogSignal(
    logging.WARNING,
    f"Pending tasks have names that no living worker of their queue declares: %s. {HOW_TO_DECLARE}",
    "names",
)
worker_stopping = LogSignal(
    logging.INFO,
    "Worker %s stops: %s. Tasks still running: %s; a second signal, or the end of its grace, cuts them short.",
    "worker",
    "why",
    "running",
)
worker_stopped = LogSignal(logging.INFO, "Worker %s stopped. Tasks started: %s.", "worker", "count")
drain_started = LogSignal(
    logging.INFO,
    "Drain %s started: it hands over the queues %s of %r.",
    "worker",
    "queues",
    "database",
)
drain_stopped = LogSignal(
    logging.INFO, "Drain %s of %r stopped. Tasks handed over: %s.", "worker", "database", "count"
)
tasks_handed = LogSignal(
    logging.DEBUG, "Tasks of queue %s handed over: %s, in %.2f s.", "queue", "count", "seconds"
)
tasks_postponed = LogSignal(
    logging.WARNING,
    "Tasks of queue %s that its target did not take: %s; they are due again later. One of them is %s: %s",
    "queue",
    "count",
    "task_id",
    "error",
)
target_away = LogSignal(
    logging.WARNING,
    "The target of queue %s takes nothing, and its tasks wait: %s The next try is in %.1f s.",
    "queue",
    "error",
    "delay",
)
target_back = LogSignal(
    logging.WARNING,
    "The target of queue %s can be reached again, after %.1f s.",
    "queue",
    "seconds",
)
queue_paused = LogSignal(
    logging.WARNING,
    "Queue %s of %r was paused by %s (%s): none of its tasks starts until a person resumes it, in the admin or by "
    "manage.py txtasks_queue.",
    "queue", "database", "by", "reason",
)  # fmt: skip
queue_resumed = LogSignal(
    logging.WARNING, "Queue %s of %r was resumed by %s.", "queue", "database", "by"
)
lane_limited = LogSignal(
    logging.WARNING,
    "Lane %s of %r got new limits from %s: %s.",
    "lane",
    "database",
    "by",
    "limits",
)
lane_paused = LogSignal(
    logging.WARNING,
    "Lane %s of %r was paused by %s (%s): none of its tasks starts until a person resumes it, in the admin or by "
    "manage.py txtasks_lane.",
    "lane", "database", "by", "reason",
)  # fmt: skip
lane_resumed = LogSignal(
    logging.WARNING, "Lane %s of %r was resumed by %s.", "lane", "database", "by"
)
lane_not_held = LogSignal(
    logging.ERROR,
    "Task %s (%s) asked lane %s to wait, but the database refused (%s): only the task waits.",
    "task_id", "task", "lane", "error",
)  # fmt: skip
attempt_end_failed = LogSignal(
    logging.ERROR,
    "Task %s (%s): an error in django-txtasks or in a tracer came after the end of attempt %s (%s). The outcome "
    "of the attempt stays. Report it.",
    "task_id", "task", "attempt", "error",
)  # fmt: skip
worker_recycled = LogSignal(
    logging.INFO, "Worker %s makes room for a new process: %s.", "worker", "reason"
)
worker_stuck = LogSignal(
    logging.ERROR,
    "Worker %s: %s did not end in time. The process is replaced when its other tasks (%s) "
    "have ended, or at the end of TXTASKS['grace']. Tasks that may run again then become pending, others dead.",
    "worker", "tasks", "others",
)  # fmt: skip
worker_suspected = LogSignal(
    logging.WARNING,
    "Worker %s: RabbitMQ has lost its connection. Its database session is watched.", "worker",
)  # fmt: skip
no_async_functions = LogSignal(
    logging.INFO, "No chosen task function is async, so --async-tasks starts no process."
)
async_in_threads = LogSignal(
    logging.INFO,
    "%s async; each attempt takes a thread. --async-tasks N runs them on one event loop.",
    "functions",
)
async_not_run_again = LogSignal(
    logging.WARNING,
    "%s may not run again: %s. The end of the event loop's process, such as for a task that blocks it, leaves "
    "their running attempts dead. Declare idempotent=True or compensate=, or run them in threads by "
    "--exclude-task here and --task in another command.",
    "count", "names",
)  # fmt: skip
loop_blocked = LogSignal(
    logging.WARNING,
    "Task %s (%s) has blocked the event loop of its worker for %.1f s at %s: no other task of the process goes on."
    " Call slow code by sync_to_async(). The event loop runs:\n%s",
    *_TASK, "seconds", "where", "stack",
)  # fmt: skip
loop_resumed = LogSignal(
    logging.WARNING,
    "Task %s (%s) had blocked the event loop of its worker for %.1f s. The other tasks go on.",
    *_TASK, "seconds",
)  # fmt: skip
async_tasks_left = LogSignal(
    logging.WARNING,
    "Task %s (%s) has ended attempt %s; asyncio tasks that it had started still ran and were cancelled: %s (%s). "
    "Await them before the task function returns. Further attempts of this function are not reported.",
    *_TASK, "attempt", "count", "names",
)  # fmt: skip
calls_left = LogSignal(
    logging.WARNING,
    "Task %s (%s) has ended attempt %s; a call of %s that it made by asyncio.to_thread() or in another thread of "
    "the event loop's default executor still runs there. If half of these threads hang, the process is replaced. "
    "Give the call a time limit of its own. Further attempts of this function are not reported.",
    *_TASK, "attempt", "name",
)  # fmt: skip
session_awaited = LogSignal(
    logging.WARNING,
    "Task %s (%s) is claimed, and has been waiting for %.0f s for a session of its thread in database '%s': the "
    "server does not answer. The task has not begun. Set connect_timeout in OPTIONS of this database to bound "
    "the wait.",
    *_TASK, "seconds", "database",
)  # fmt: skip
threads_awaited = LogSignal(
    logging.WARNING,
    "Async tasks that wait for a thread for a query or for sync code: %s, the first of them for %.0f s. "
    "Threads: %s. Number of these that stay with one task until it ends, because it has changed its database "
    "session: %s. Functions whose tasks have a thread: %s. Functions whose tasks wait: %s. Give runworkers more "
    "--threads.",
    "count", "seconds", "threads", "pinned", "holding", "waiting",
)  # fmt: skip
extra_thread_refused = LogSignal(
    logging.WARNING,
    "Tasks hold all threads of the event loop while others wait for one, and an extra thread gets no session of "
    "database %r: %s. Another one starts in a minute if it is still needed. Allow up to 4 sessions more than "
    "--threads, also in a pool (max_size), or let the tasks free their threads sooner.",
    "database", "error",
)  # fmt: skip
sessions_left = LogSignal(
    logging.WARNING,
    "Task %s (%s) has ended attempt %s; threads that it started are still alive with database sessions: %s. "
    "End them before the task function returns, or call close_old_connections() of django.db in them after their "
    "work (it closes sessions whose CONN_MAX_AGE is over). Further attempts of this function are not reported.",
    *_TASK, "attempt", "count",
)  # fmt: skip
session_close_failed = LogSignal(
    logging.WARNING,
    "A database session could not be closed: %s. Check the ENGINE of the database, and what tasks do to "
    "connection objects: closing usually raises database errors only.",
    "error",
)  # fmt: skip
session_unseen = LogSignal(
    logging.WARNING,
    "This cleaner's database role may not see if the session of worker %s still exists, so a crash is noticed "
    "later. Use the workers' role, or on PostgreSQL grant it pg_read_all_stats.",
    "worker",
)  # fmt: skip
worker_cut_short = LogSignal(
    logging.ERROR,
    "Worker %s ends at once. Tasks cut short: %s. Tasks that may run again become pending, without counting a "
    "crash; the others are dead, or compensated.",
    "worker", "running",
)  # fmt: skip
worker_was_lost = LogSignal(
    logging.WARNING,
    "Worker %s had been declared lost; it goes on under a new id. The cleaner's log has the reason.", "worker",
)  # fmt: skip
worker_lost = LogSignal(
    logging.ERROR,
    "Worker %s on %s (pid %s) is lost: %s.",
    "worker",
    "host",
    "pid",
    "reason",
)
unknown_claims = LogSignal(
    logging.WARNING,
    "Worker %s gave back claims that it did not know of: %s. The answer to a COMMIT had been lost, or the "
    "database has lost the ends of their attempts, as in a failover.",
    "worker", "count",
)  # fmt: skip
second_claim = LogSignal(
    logging.WARNING,
    "Task %s (%s): attempt %s was claimed by a worker that already holds the task, because the database "
    "lost a commit or a cleaner had declared the worker lost: %s.",
    "task_id", "task", "attempt", "what",
)  # fmt: skip
database_failed = LogSignal(
    logging.WARNING, "%s: cannot use database '%s' (%s): failure %d in %.0f s; next try in %.1f s.",
    "who", "database", "error", "count", "seconds", "delay",
)  # fmt: skip
database_recovered = LogSignal(
    logging.INFO,
    "%s: can use database '%s' again. Failures: %d, the last one %.1f s after the first.",
    "who",
    "database",
    "count",
    "seconds",
)
outcome_refused = LogSignal(
    logging.ERROR,
    "Task %s (%s): its outcome could not be recorded (%s). The worker buries the task with this reason. If that "
    "fails, too, or the cause is a lock or a time limit, it tries again once per lease.",
    *_TASK,
    "error",
)

broker_failed = LogSignal(
    logging.WARNING,
    "%s: no connection to RabbitMQ at %s: %s. Next try %s, then at least every 30 s. Tasks still run: hints of "
    "PostgreSQL or scans find them.",
    "who", "broker", "error", "when",
)  # fmt: skip
broker_connected = LogSignal(logging.INFO, "%s: connected to RabbitMQ at %s.", "who", "broker")
queue_differs = LogSignal(
    logging.WARNING,
    "RabbitMQ's queue %s exists with other arguments; it is used as it is (%s).",
    "queue", "error",
)  # fmt: skip
queue_refused = LogSignal(
    logging.WARNING,
    "RabbitMQ refuses the queue %s (%s): no hints go there for %.0f s. Its tasks still run, found by scanning.",
    "queue", "error", "delay",
)  # fmt: skip
hint_refused = LogSignal(
    logging.DEBUG, "A message in %s is not a hint and was dropped: %s", "queue", "error"
)
hints_unsent = LogSignal(
    logging.ERROR,
    "Hints of tasks committed to database '%s' could not be sent. These tasks still run, found by scanning.",
    "database",
)  # fmt: skip
hints_failed = LogSignal(
    logging.WARNING,
    "%s: no session in database '%s' (%s); next try in %.1f s. Until then tasks are found by scanning, where that "
    "database can be used.",
    "who", "database", "error", "delay",
)  # fmt: skip
hints_resumed = LogSignal(logging.INFO, "%s: connected to database '%s' again.", "who", "database")
hints_unheard = LogSignal(
    logging.WARNING,
    "Hints do not reach this worker: its LISTEN in database '%s' did not receive a NOTIFY of another session, as "
    "behind a pooler such as PgBouncer in transaction mode. Tasks still run, found by scanning. Let workers "
    "connect to PostgreSQL itself, or set TXTASKS['database_hints'] to False. Next try in %.0f s.",
    "database", "delay",
)  # fmt: skip

cleaner_started = LogSignal(
    logging.INFO,
    "Cleaner of '%s' started: looks at workers every %s s, at tasks every %s s; broker in the settings: %s.",
    "database", "beat", "interval", "broker",
)  # fmt: skip
cleaner_stopped = LogSignal(logging.INFO, "Cleaner of '%s' stopped.", "database")
cleaned = LogSignal(logging.INFO, "Cleaner of '%s': %s.", "database", "done")
intake_started = LogSignal(
    logging.INFO,
    "Intake of RabbitMQ's queue %s at %s started: its messages become tasks in database '%s'.",
    "queue", "broker", "database",
)  # fmt: skip
intake_stopped = LogSignal(logging.INFO, "Intake of queue %s stopped.", "queue")
messages_taken = LogSignal(
    logging.INFO,
    "Intake of queue %s: number of messages taken: %d; of new tasks: %d, in database '%s'.",
    "queue", "count", "new", "database",
)  # fmt: skip
messages_refused = LogSignal(
    logging.WARNING,
    "Intake of queue %s: number of messages refused: %d. They were sent to the %s, each with its reason. The "
    "first reason: %s.",
    "queue", "count", "place", "reason",
)  # fmt: skip
refusals_unsent = LogSignal(
    logging.ERROR,
    "Intake of queue %s: number of refused messages: %d. They cannot be sent to the %s: %s. They stay in the "
    "queue, and the intake tries again every few seconds.",
    "queue", "count", "place", "error",
)  # fmt: skip
figures_not_written = LogSignal(
    logging.WARNING,
    "Worker %s could not write its figures, and tries again in %.0f s. Tasks are not affected: %s",
    "worker", "delay", "error",
)  # fmt: skip
figures_dropped = LogSignal(
    logging.WARNING,
    "Cleaner of '%s' deleted figures without counting them, because no process of this package can have written "
    "them. Number of rows: %d, such as %s", "database", "number", "rows",
)  # fmt: skip
release_unknown = LogSignal(
    logging.ERROR,
    "The function TXTASKS['release'] failed, so this worker has no release: %s", "error",
)  # fmt: skip
nobody_cleans = LogSignal(logging.WARNING, "Worker %s: %s", "worker", "trouble")
step_failed = LogSignal(
    logging.ERROR,
    "Cleaner of '%s' could not do all of its work, and tries again in the next pass: %s",
    "database", "error",
)  # fmt: skip
step_put_off = LogSignal(
    logging.WARNING,
    "Cleaner of '%s' left out some of its work, and tries again later: %s", "database", "error",
)  # fmt: skip
schedules_synchronised = LogSignal(
    logging.INFO, "Schedules of '%s' are as in the code: %s.", "database", "done"
)
schedule_changed = LogSignal(
    logging.INFO, "Schedule %s was changed by %s: %s.", "schedule", "by", "what"
)
schedule_disabled = LogSignal(
    logging.ERROR,
    "Schedule %s is turned off: %s Correct it in the code and sync, or in the admin.", "schedule", "error",
)  # fmt: skip
schedule_not_written = LogSignal(
    logging.ERROR,
    "Schedule %s: this cleaner cannot write its tasks, and tries again: %s", "schedule", "error",
)  # fmt: skip
schedule_passed = LogSignal(
    logging.WARNING,
    "Schedule %s: a tick has passed without a task, because the last task has waited for more than 10 s. Is its "
    "queue paused, or are its workers busy?",
    "schedule",
)  # fmt: skip
_CLOCK_WAS_SET = (
    "The clock of database '%s' went from %s to %s while %.1f s passed. Was the clock set, the server suspended, "
    "or is this another server? Look at its time. Ticks of schedules between: %s. "
)
clock_set_forward = LogSignal(
    logging.WARNING,
    _CLOCK_WAS_SET + "The catch_up and grace of each schedule decide which of them get a task now; the others get "
    "none. If a schedule must not miss one, run it: manage.py txtasks_schedules run NAME.",
    "database", "begin", "end", "seconds", "ticks",
)  # fmt: skip
clock_set_back = LogSignal(
    logging.WARNING,
    _CLOCK_WAS_SET + "They had their tasks and get no second ones, so their schedules wait until the clock is "
    "at %s again. If a schedule cannot wait, run it: manage.py txtasks_schedules run NAME.",
    "database", "begin", "end", "seconds", "ticks", "right",
)  # fmt: skip
schedule_not_ready = LogSignal(
    logging.ERROR,
    "Schedule %s was to be done by %s, and its task of %s is %s.", "schedule", "ready_by", "tick", "state",
)  # fmt: skip
schedules_differ = LogSignal(
    logging.WARNING,
    "Schedules of '%s' differ from this code: %s. Run manage.py txtasks_schedules sync when you deploy.",
    "database", "differences",
)  # fmt: skip
row_skipped = LogSignal(
    logging.ERROR, "Cleaner: task %s cannot be changed, and is left as it is: %s",
    "task_id", "error",
)  # fmt: skip

processes_chosen = LogSignal(
    logging.INFO,
    "Supervisor: --processes auto starts %s for each database, because %s.",
    "count",
    "reason",
)
sessions_near_limit = LogSignal(
    logging.WARNING,
    "Supervisor: the number of sessions that the workers of --processes auto may open is %s in database '%s'. "
    "That is more than a third of its max_connections (%s). Give --processes a number, or raise max_connections.",
    "count", "database", "most",
)  # fmt: skip
processes_added = LogSignal(
    logging.INFO,
    "Supervisor: starts more worker processes for database '%s': %d, then there are %d. The oldest task has "
    "waited for %.1f s, and the number of threads that the queues need is %d.",
    "database", "count", "total", "oldest", "wanted",
)  # fmt: skip
process_retired = LogSignal(
    logging.INFO,
    "Supervisor: worker process %s of database '%s' takes nothing more and ends after its last task, because "
    "fewer processes have been enough for two minutes. Others: %d. The number of threads that the queues need "
    "is %d.",
    "pid", "database", "total", "wanted",
)  # fmt: skip
sessions_short = LogSignal(
    logging.WARNING,
    "Supervisor: worker process %s of database '%s' takes nothing more and ends after its last task, because for "
    "30 s processes of this command have got no database session, or have waited for one. Others: %d. Raise the "
    "limit of sessions of the database, of its user or of its pooler, or lower the second number of --processes.",
    "pid", "database", "total",
)  # fmt: skip
child_started = LogSignal(logging.INFO, "Supervisor: started %s process %s.", "role", "pid")
child_died = LogSignal(
    logging.ERROR, "Supervisor: %s process %s ended with %s; a new one starts in %.1f s.",
    "role", "pid", "status", "delay",
)  # fmt: skip
child_died_at_stop = LogSignal(
    logging.ERROR,
    "Supervisor: %s process %s ended with %s instead of stopping in good order. If it was running tasks, a "
    "cleaner recovers them.",
    "role", "pid", "status",
)  # fmt: skip
programs_left = LogSignal(
    logging.INFO,
    "Supervisor: %s process %s has ended and has left running processes behind (%d). They get SIGTERM, and "
    "SIGKILL 2 s later. A program that is to stay must be started in a session of its own.",
    "role", "pid", "count",
)  # fmt: skip
probe_unanswered = LogSignal(
    logging.WARNING,
    "The probe port has refused a request of %s, because no thread could be started: %s. Raise the limit of "
    "threads of the process or of its container.",
    "path", "error",
)  # fmt: skip
tracer_failed = LogSignal(
    logging.ERROR,
    "The tracer %s has failed. Tasks run as without it, but traces are missing. This process logs no further "
    "failure of it: %s",
    "tracer", "error",
)  # fmt: skip
events_dropped = LogSignal(
    logging.WARNING,
    "Signals that were neither logged nor sent: %s. A log handler or a receiver is too slow for so "
    "many. Check LOGGING and the receivers, or raise the level of the logger 'django_txtasks'.",
    "count",
)  # fmt: skip
reloading = LogSignal(logging.INFO, "Supervisor: %s changed, workers restart.", "path")
