"""Engines: they claim for a worker, each in the way of its database.

``postgresql`` does a whole turn in one statement, or claims in one within an open transaction; ``mariadb`` does a
whole turn in two blocks of statements; ``portable`` claims in several, for MariaDB, MySQL and SQLite. All have the
same rules: which rows, the conditions that ``statements.CHOOSE_DUE`` and ``CHOOSE_BY_ID`` share; how many of them,
``Capacity.admit``. A sweep (``worker.sweep``), and a turn that meets unique keys, claim by ``portable`` on every
database.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Protocol

from django.db import connections

from django_txtasks.lifecycle.attempts import Ended
from django_txtasks.lifecycle.engines import mariadb, portable, postgresql
from django_txtasks.lifecycle.turn import Subscription, TurnOrder, TurnRequest, TurnResult


def claim(
    subscription: Subscription, worker: uuid.UUID, request: TurnRequest, *, with_keys: bool = False
) -> TurnResult:
    """Move PENDING -> claimed, in a transaction that began with the worker's beat.

    Args:
        with_keys: also what has a unique key, which one statement cannot do. Nor can it sort what gains priority.
    """
    ages = request.scan is not None and request.scan.ageing is not None
    if with_keys or ages or connections[subscription.alias].vendor != "postgresql":
        return portable.claim(subscription, worker, request)
    return postgresql.claim(subscription, worker, request)


def fits(alias: str, worker: uuid.UUID, ended: Sequence[Ended]) -> bool:
    """Say whether ``turn`` can do it: all that ended is finished, each task once, with nothing to follow."""
    return _engine(alias).fits(alias, worker, ended)


def turn(order: TurnOrder) -> TurnResult | None:
    """Beat, CLAIMED -> finished, PENDING -> claimed, and commit: see ``postgresql.turn``."""
    return _engine(order.subscription.alias).turn(order)


class _Engine(Protocol):
    """Carries out whole turns."""

    def fits(self, alias: str, worker: uuid.UUID, ended: Sequence[Ended]) -> bool: ...
    def turn(self, order: TurnOrder) -> TurnResult | None: ...


def _engine(alias: str) -> _Engine:
    return postgresql if connections[alias].vendor == "postgresql" else mariadb
