"""Engines: they claim for a worker, each in the way of its database.

``postgresql`` does a whole turn in one statement, or claims in one within an open transaction; ``portable``
claims in several, for MariaDB, MySQL and SQLite. Both have the same rules: which rows, the
conditions that ``statements.CHOOSE_DUE`` and ``CHOOSE_BY_ID`` share; how many of them, ``Capacity.admit``.
A sweep (``worker.sweep``) claims by ``portable`` on every database.
"""

from __future__ import annotations

import uuid

from django.db import connections

from django_txtasks.lifecycle.engines import portable, postgresql
from django_txtasks.lifecycle.turn import Subscription, TurnRequest, TurnResult


def claim(subscription: Subscription, worker: uuid.UUID, request: TurnRequest) -> TurnResult:
    """Move PENDING -> claimed, in a transaction that began with the worker's beat."""
    if connections[subscription.alias].vendor == "postgresql":
        return postgresql.claim(subscription, worker, request)
    return portable.claim(subscription, worker, request)
