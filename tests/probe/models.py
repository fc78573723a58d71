"""One row per run, without a unique key, so that a second run shows."""

import threading

from django.db import models
from django.db.backends.signals import connection_created


class Run(models.Model):
    """One run of one task."""

    key = models.CharField(max_length=100, db_index=True)
    attempt = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)
    at = models.DateTimeField(auto_now_add=True)


def wait_for_the_writer(connection):
    """On a busy machine, wait longer on SQLite for a turn to write than the second that the settings say.

    They cannot say more: a lease has to be three times as long.
    """
    if connection.vendor == "sqlite":
        connection.ensure_connection()
        connection.connection.execute("PRAGMA busy_timeout = 30000")


def slots_wait_for_the_writer(connection, **_):
    """Tasks do; the loop keeps its second."""
    if threading.current_thread().name.startswith(("txtasks-slot", "txtasks-shared")):
        wait_for_the_writer(connection)


connection_created.connect(slots_wait_for_the_writer, dispatch_uid="probe")
