"""What ran, one row a run; no unique key, so that a second run would show."""

from django.db import models


class Run(models.Model):
    """One run of one task."""

    key = models.CharField(max_length=100, db_index=True)
    attempt = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)
    at = models.DateTimeField(auto_now_add=True)
