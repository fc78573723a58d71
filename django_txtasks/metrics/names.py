"""The metrics: their names, kinds and meanings. All of them also have the label ``database``, an alias."""

from __future__ import annotations

from typing import NamedTuple

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Metric(NamedTuple):
    """A metric. ``labels`` leaves the database out, and ``le`` of a histogram."""

    kind: str
    labels: tuple[str, ...]
    help: str


_OF_QUEUE, _OF_TASK = ("queue",), ("queue", "task")
METRICS = {
    "txtasks_due": Metric(GAUGE, _OF_QUEUE, "Pending tasks whose time has come, those in lanes included."),
    "txtasks_due_is_capped": Metric(GAUGE, _OF_QUEUE, "1 = more tasks are due than were counted."),
    "txtasks_oldest_seconds": Metric(GAUGE, _OF_QUEUE, "Wait of the oldest due task; 0 = no task is due."),
    "txtasks_later": Metric(GAUGE, _OF_QUEUE, "Pending tasks that are not due yet, at most about 2,000."),
    "txtasks_retrying": Metric(GAUGE, _OF_QUEUE, "Pending tasks whose last attempt has failed, at most 2,000."),
    "txtasks_dead": Metric(GAUGE, _OF_QUEUE, "Dead tasks, at most 2,000."),
    "txtasks_held": Metric(GAUGE, _OF_QUEUE, "Held tasks, at most 2,000."),
    "txtasks_running": Metric(GAUGE, _OF_QUEUE, "Running tasks."),
    "txtasks_paused": Metric(GAUGE, _OF_QUEUE, "1 = the queue is paused."),
    "txtasks_attempts_total": Metric(
        COUNTER, (*_OF_TASK, "outcome"), "Ended attempts; (others): names beyond 1,000."
    ),
    "txtasks_attempt_seconds_total": Metric(COUNTER, _OF_TASK, "Time of attempts; (others): names beyond 1,000."),
    "txtasks_wait_seconds": Metric(HISTOGRAM, _OF_QUEUE, "Times from due to start; (others): queues beyond 100."),
    "txtasks_run_seconds": Metric(HISTOGRAM, _OF_QUEUE, "Times of attempts; (others): queues beyond 100."),
    "txtasks_counters_are_behind": Metric(GAUGE, (), "1 = no cleaner adds figures up: no counters."),
    "txtasks_workers": Metric(GAUGE, ("state",), "Workers; only alive and suspected ones run tasks."),
    "txtasks_worker_deaths": Metric(GAUGE, ("how",), "Worker processes that died again and again, in 5 minutes."),
    "txtasks_suspect_deaths": Metric(GAUGE, ("task",), "Those of them in which the suspected function ran."),
    "txtasks_slots": Metric(GAUGE, (), "Slots of all workers that run tasks."),
    "txtasks_cleaners": Metric(GAUGE, (), "Cleaners that complete their passes."),
    "txtasks_cleaner_pass_age_seconds": Metric(GAUGE, (), "Time since a cleaner completed a pass."),
    "txtasks_lane_waiting": Metric(GAUGE, ("lane",), "Pending tasks of the 50 most late lanes, at most 200."),
    "txtasks_schedule_late": Metric(GAUGE, ("schedule", "reason"), "1 = the schedule needs attention."),
    "txtasks_transactions_total": Metric(COUNTER, (), "Transactions of workers, cleaners and drains."),
    "txtasks_rows_written_total": Metric(COUNTER, (), "Rows that these have inserted, updated or deleted."),
    "txtasks_sessions": Metric(GAUGE, (), "Database sessions of workers, cleaners and drains."),
    "txtasks_history_bytes_per_day": Metric(GAUGE, (), "Bytes that finished tasks have added in the last day."),
    "txtasks_problems": Metric(GAUGE, ("problem",), "Problems and warnings of the page At a glance, by name."),
}  # fmt: skip
