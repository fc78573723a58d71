"""What was asked of the grocery's tasks, and what these have done. No row has a unique key: doubles show."""

from django.db import models


class Asked(models.Model):
    """A task that a request has enqueued, or a batch. The row is written in the transaction of the request."""

    request = models.CharField(max_length=40, db_index=True)
    kind = models.CharField(max_length=20)
    key = models.CharField(max_length=80)
    task = models.UUIDField()


class Effect(models.Model):
    """One effect of a task function in the database."""

    kind = models.CharField(max_length=20)
    key = models.CharField(max_length=80, db_index=True)
    number = models.IntegerField(default=0)


class Token(models.Model):
    """The token of a task that waits for an answer.

    Attributes:
        is_silent: the task will get no answer.
        counts: what ``resume`` said of the answer; None = there was none yet.
    """

    key = models.CharField(max_length=80)
    token = models.TextField()
    is_silent = models.BooleanField()
    counts = models.BooleanField(null=True)


class Cancelled(models.Model):
    """The answer to a cancel, written in its transaction."""

    task = models.UUIDField()
    answer = models.CharField(max_length=20)
