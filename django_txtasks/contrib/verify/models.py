"""Tables for the effects of a storm's tasks. No unique key: a second effect has to show."""

from __future__ import annotations

from django.db import models


class Effect(models.Model):
    """The effect of one run of one task, or of one step of it.

    Attributes:
        value: what a task has waited for, or for how many seconds it has slept.
    """

    key = models.CharField(max_length=100, db_column="task_key")  # KEY is a word of MariaDB
    kind = models.CharField(max_length=20)
    attempt = models.IntegerField()
    pid = models.IntegerField()
    value = models.CharField(max_length=100, default="")

    objects: models.Manager[Effect] = models.Manager()


class Counter(models.Model):
    """One row, which every ``increment`` adds one to: a sum shows what no single row shows."""

    n = models.IntegerField(default=0)

    objects: models.Manager[Counter] = models.Manager()
