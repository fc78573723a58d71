"""The backend itself."""

from django.db.backends.sqlite3 import base


class DatabaseWrapper(base.DatabaseWrapper):
    """SQLite that calls itself by the name of another vendor."""

    vendor = "oracle"
