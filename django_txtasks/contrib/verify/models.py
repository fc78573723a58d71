"""Tables for the effects of a storm's tasks. They have no unique key, so that a second effect shows."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """The effect of one run of a task or a step.

    Attributes:
        value: the value that the task has waited for, or the seconds that it has slept.
    """

    # KEY is a reserved word in MariaDB
    key = models.CharField(max_length=100, db_column="task_key")
    kind = models.CharField(max_length=20)
    attempt = models.IntegerField()
    pid = models.IntegerField()
    value = models.CharField(max_length=100, default="")

    objects: models.Manager[Effect] = models.Manager()


class Counter(models.Model):
    """One row that every ``increment`` adds one to, because a sum shows what no single row shows."""

    n = models.IntegerField(default=0)

    objects: models.Manager[Counter] = models.Manager()
