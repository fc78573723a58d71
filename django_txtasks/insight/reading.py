"""A transaction that only reads, for questions that may take long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections

from django_txtasks.database.execute import execute
from django_txtasks.database.transactions import own_transaction


@contextmanager
def reading(alias: str, seconds: float) -> Iterator[None]:
    """Open a read-only transaction whose statements have this limit on PostgreSQL; do nothing on other databases.

    SQLite may begin even a reading transaction as a writing one. A second statement sees later commits.
    """
    if connections[alias].vendor != "postgresql":
        yield
        return
    with own_transaction(alias):
        execute(alias, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY")
        execute(alias, f"SET LOCAL statement_timeout = {max(1, int(seconds * 1000))}")
        yield
