"""One row per run, without a unique key, so that a second run shows."""

import threading
import uuid

from django.db import models
from django.db.backends.signals import connection_created

from django_txtasks import TaskDetails


class Run(models.Model):
    """One run of one task."""

    key = models.CharField(max_length=100, db_index=True)
    attempt = models.IntegerField(default=0)
    pid = models.IntegerField(default=0)
    at = models.DateTimeField(auto_now_add=True)


class Parcel(models.Model):
    """A business object with a UUID as its key."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    label = models.CharField(max_length=100, default="parcel")


class UrgentParcel(Parcel):
    """The same rows under another name."""

    class Meta:
        proxy = True


class LargeParcel(Parcel):
    """A child with a row of its own, whose key is the one of its parent."""

    parcel_ptr = models.OneToOneField(
        Parcel, models.CASCADE, parent_link=True, primary_key=True, db_constraint=False
    )
    height = models.IntegerField(default=1)


class Country(models.Model):
    """A business object with text as its key."""

    code = models.CharField(max_length=255, primary_key=True)


class Place(models.Model):
    """A business object whose key has two columns."""

    pk = models.CompositePrimaryKey("shelf", "number")
    shelf = models.CharField(max_length=10)
    number = models.IntegerField()


class ParcelDetails(TaskDetails):
    """Columns of a project's own for each task."""

    parcel = models.ForeignKey(Parcel, models.CASCADE)
    weight = models.IntegerField(default=1)


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
