"""What ran, one row a run; no unique key, so that a second run would show."""

import threading

from django.db import models
from django.db.backends.signals import connection_created


class Run(models.Model):
    """One run of one task."""

    key = models.CharField(max_length=100, db_index=True)
    attempt = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)
    at = models.DateTimeField(auto_now_add=True)


def wait_for_the_writer(connection, **_):
    """On a busy machine a task waits longer than others for its turn to write on SQLite.

    The settings say a second, since a lease has to be three times as long.
    """
    if connection.vendor == "sqlite" and threading.current_thread().name.startswith("txtasks-slot"):
        connection.connection.execute("PRAGMA busy_timeout = 30000")


connection_created.connect(wait_for_the_writer, dispatch_uid="probe")
