"""Every event of this package: a Django signal and, in the same place, its log sentence.

Code tells an event; nobody else writes to the log. Levels: debug = per hint, info = per task and
start/stop, warning = heals by itself, error = a person must look.
"""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

logger = logging.getLogger("django_txtasks")


class Event(Signal):
    """A signal that also writes one log line with the facts it names."""

    def __init__(self, level: int, sentence: str, *names: str) -> None:
        super().__init__()
        self.level, self.sentence, self.names = level, sentence, names

    @property
    def is_heard(self) -> bool:
        """Whether anybody would notice; saves the telling where there is much to tell."""
        return bool(self.receivers) or logger.isEnabledFor(self.level)

    def tell(self, **facts: Any) -> None:
        """Log the sentence and send the signal; a receiver that raises is logged, not obeyed."""
        if logger.isEnabledFor(self.level):
            shown = [_one_line(facts.get(name)) for name in self.names]
            extra = {name: value for name, value in facts.items() if name != "message"}
            logger.log(self.level, self.sentence, *shown, extra=extra)
        if self.receivers:
            self.send_robust(sender=None, **facts)


def _one_line(value: Any) -> Any:
    """Foreign text must not forge a second log line."""
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value).encode("unicode_escape").decode()[:500]


_TASK = ("task_id", "task")

task_enqueued = Event(logging.DEBUG, "Task %s (%s) was written to queue %s.", *_TASK, "queue")
task_claimed = Event(
    logging.DEBUG, "Task %s (%s) starts attempt %s at worker %s.", *_TASK, "attempt", "worker"
)
task_finished = Event(logging.INFO, "Task %s (%s) finished at attempt %s.", *_TASK, "attempt")
task_retried = Event(
    logging.INFO, "Task %s (%s) failed at attempt %s, next one in %.1f s: %s",
    *_TASK, "attempt", "delay", "error",
)  # fmt: skip
task_died = Event(
    logging.ERROR, "Task %s (%s) is dead after attempt %s: %s. Look at it in the admin; revive or discard it.",
    *_TASK, "attempt", "error",
)  # fmt: skip
task_released = Event(logging.INFO, "Task %s (%s) was given back before it started.", *_TASK)
task_compensated = Event(
    logging.WARNING, "Task %s (%s) was lost at attempt %s; its compensation was enqueued.",
    *_TASK, "attempt",
)  # fmt: skip
task_expired = Event(logging.WARNING, "Task %s (%s) has expired and is cancelled.", *_TASK)
task_held = Event(logging.INFO, "Task %s was held.", "task_id")
task_resumed = Event(logging.INFO, "Task %s was resumed.", "task_id")
task_hastened = Event(logging.INFO, "Task %s was told to run now.", "task_id")
task_revived = Event(logging.INFO, "Task %s was revived.", "task_id")
task_cancelled = Event(logging.INFO, "Task %s was cancelled.", "task_id")
task_discarded = Event(logging.INFO, "Task %s was discarded.", "task_id")
task_recovered = Event(
    logging.WARNING, "Task %s (%s) was lost at attempt %s with its worker; it runs again.",
    *_TASK, "attempt",
)  # fmt: skip
task_finished_late = Event(
    logging.WARNING,
    "Task %s (%s) finished attempt %s, which was abandoned when its worker was declared lost. It is said beside "
    "the task; if that has run again since, its effects outside the database may have happened twice.",
    *_TASK, "attempt",
)  # fmt: skip
task_suspected = Event(
    logging.ERROR,
    "Task %s (%s) has been running attempt %s for longer than TXTASKS['suspect_after'] on %s, which is alive. "
    "Nothing ends it by itself: look at that process, and consider a timeout= for this task.",
    *_TASK, "attempt", "where",
)  # fmt: skip
claim_lost = Event(
    logging.WARNING,
    "Task %s (%s) ended attempt %s, but the row has moved on without it: nothing was recorded. "
    "This worker had been silent for longer than its lease.",
    *_TASK, "attempt",
)  # fmt: skip

worker_started = Event(
    logging.INFO,
    "Worker %s started: queues %s, %s threads, broker %s.",
    "worker",
    "queues",
    "threads",
    "broker",
)
worker_stopping = Event(
    logging.INFO,
    "Worker %s stops. Tasks still running: %s; a second signal, or the end of its grace, cuts them short.",
    "worker",
    "running",
)
worker_stopped = Event(logging.INFO, "Worker %s stopped. Tasks begun: %s.", "worker", "count")
worker_renewed = Event(
    logging.INFO, "Worker %s makes room for a new process: %s.", "worker", "reason"
)
worker_stuck = Event(
    logging.ERROR,
    "Worker %s: %s did not end after its timeout. The process is replaced as soon as its %s other "
    "tasks have ended.",
    "worker", "tasks", "others",
)  # fmt: skip
worker_suspected = Event(
    logging.WARNING,
    "Worker %s: RabbitMQ has lost its connection. Its database session is watched.", "worker",
)  # fmt: skip
session_unseen = Event(
    logging.WARNING,
    "This cleaner's database role may not see whether the session of worker %s is there, so a crash is noticed "
    "later. Use the workers' role, or on PostgreSQL grant it pg_read_all_stats.",
    "worker",
)  # fmt: skip
worker_cut_short = Event(
    logging.ERROR,
    "Worker %s ends at once. Tasks cut short: %s; these are crashes, and the cleaner goes by their crash policy.",
    "worker", "running",
)  # fmt: skip
worker_was_lost = Event(
    logging.WARNING,
    "Worker %s had been declared lost while it was silent; it goes on under a new id.", "worker",
)  # fmt: skip
worker_lost = Event(
    logging.ERROR,
    "Worker %s on %s (pid %s) is lost: %s.",
    "worker",
    "host",
    "pid",
    "reason",
)
unknown_claims = Event(
    logging.WARNING,
    "Worker %s gave back %s claims that it did not know of: the answer to a COMMIT had been lost.",
    "worker", "count",
)  # fmt: skip
database_failed = Event(
    logging.WARNING, "%s: the database failed (%s); next try in %.1f s.", "who", "error", "delay"
)
outcome_refused = Event(
    logging.ERROR,
    "Task %s (%s): its outcome could not be recorded (%s). The task is buried with this reason; if that cannot be "
    "written either, or it was for a lock or a time limit, it is tried again once a lease.",
    *_TASK,
    "error",
)

broker_failed = Event(
    logging.WARNING,
    "%s: no connection to RabbitMQ at %s (%s); next try in %.1f s. Tasks still run, found by scanning.",
    "who", "broker", "error", "delay",
)  # fmt: skip
broker_connected = Event(logging.INFO, "%s: connected to RabbitMQ at %s.", "who", "broker")
queue_differs = Event(
    logging.WARNING,
    "RabbitMQ's queue %s exists with other arguments; it is used as it is (%s).",
    "queue", "error",
)  # fmt: skip
hint_refused = Event(
    logging.DEBUG, "A message in %s is not a hint and was dropped: %s", "queue", "error"
)

row_skipped = Event(
    logging.ERROR, "Cleaner: task %s could not be recovered and is left for the next turn: %s",
    "task_id", "error",
)  # fmt: skip

child_started = Event(logging.INFO, "Supervisor: started worker process %s.", "pid")
child_died = Event(
    logging.ERROR, "Supervisor: worker process %s ended with %s; a new one starts in %.1f s.",
    "pid", "status", "delay",
)  # fmt: skip
reloading = Event(logging.INFO, "Supervisor: %s changed, workers restart.", "path")
