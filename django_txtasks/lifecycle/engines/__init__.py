"""Engines: each claims for a worker in the best way for its database.

* ``postgresql`` does a whole turn in one statement, or claims in one statement within an open transaction.
* ``mariadb`` does a whole turn in two blocks of statements.
* ``portable`` claims in several statements, on every database. MySQL and SQLite have no other engine; on
  PostgreSQL
  and MariaDB, it claims in sweeps (``worker.sweep``) and rows with a unique key.

All engines have the same rules: ``_CLAIMABLE``, a part of each ``CHOOSE_…`` statement, says which rows may be
claimed, and ``Capacity.admit`` says how many.
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
        with_keys: whether to claim rows with a unique key, too. One statement can neither merge them, nor sort
            tasks that gain priority with age.
    """
    ages = request.scan is not None and request.scan.ageing is not None
    if with_keys or ages or connections[subscription.alias].vendor != "postgresql":
        return portable.claim(subscription, worker, request)
    return postgresql.claim(subscription, worker, request)


def fits(alias: str, worker: uuid.UUID, ended: Sequence[Ended]) -> bool:
    """Say whether ``turn`` can record these attempts: each has finished, each task once, without hooks."""
    return _engine(alias).fits(alias, worker, ended)


def turn(order: TurnOrder) -> TurnResult | None:
    """Beat, CLAIMED -> finished, PENDING -> claimed, and commit: see ``postgresql.turn``."""
    return _engine(order.subscription.alias).turn(order)


class _Engine(Protocol):
    """An engine that carries out whole turns."""

    def fits(self, alias: str, worker: uuid.UUID, ended: Sequence[Ended]) -> bool: ...
    def turn(self, order: TurnOrder) -> TurnResult | None: ...


def _engine(alias: str) -> _Engine:
    return postgresql if connections[alias].vendor == "postgresql" else mariadb
