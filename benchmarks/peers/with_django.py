"""Django for peers: the model of the benchmarks in a project without this package.

Connections are kept from task to task, as this package keeps them.
"""

from __future__ import annotations

import os

import django
import records
from django.conf import settings
from django.core.management import call_command
from settings import database

settings.configure(
    INSTALLED_APPS=["bench"],
    USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    DATABASES={"default": {**database(os.environ["DATABASE_URL"]), "CONN_MAX_AGE": None}},
)
django.setup()


def make_table() -> None:
    """Make the table of the model."""
    call_command("migrate", run_syncdb=True, verbosity=0)


def write_row(key: int) -> None:
    """Do what ``bench.tasks.write_row`` does."""
    from bench.models import Row

    Row.objects.create(key=key)
    records.write(key)
