"""What the tasks of the shop have done."""

from django.db import models


class Done(models.Model):
    """One line of the journal."""

    what = models.CharField(max_length=100)
    attempt = models.IntegerField(default=0)

    class Meta:
        app_label = "core_shop"
