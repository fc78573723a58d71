"""Helpers for tests of projects that enqueue tasks. They need no broker."""

from django_txtasks.testing.asserting import assert_enqueued, assert_not_enqueued
from django_txtasks.testing.inline import RanTask, run_due_tasks
from django_txtasks.testing.threads import TestWorker, worker

__all__ = [
    "RanTask",
    "TestWorker",
    "assert_enqueued",
    "assert_not_enqueued",
    "run_due_tasks",
    "worker",
]
