"""Insertion of many rows into a table that is then vacuumed and analyzed."""

from __future__ import annotations

import os

import psycopg


def fill(statement: str, count: int, priority: int) -> None:
    """Run an INSERT of ``count`` rows, with priority and count as its parameters."""
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(statement, [priority, count])
        connection.execute("VACUUM ANALYZE")
