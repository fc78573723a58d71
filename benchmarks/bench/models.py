"""The row that a benchmark task writes."""

from django.db import models


class Row(models.Model):
    """One run of one task."""

    key = models.IntegerField(db_index=True)
    text = models.CharField(max_length=100, default="written by a task")
    at = models.DateTimeField(auto_now_add=True)
