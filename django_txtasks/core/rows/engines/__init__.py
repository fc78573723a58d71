"""Engines: each claims for a worker in the best way for its database.

* ``portable`` claims in several statements, on every database. MySQL and SQLite use no other engine; on
  PostgreSQL and MariaDB, it claims in sweeps (``fast.sweep``) and rows with a unique key.
* ``fast.postgresql`` does a whole turn in one statement, or claims in one statement within an open transaction.
* ``fast.mariadb`` does a whole turn in two blocks of statements.

The last two are accelerators, which ``assembly`` names: without them, the portable engine does their work. An
accelerator is a module with ``VENDOR``, ``claim``, ``fits`` and ``turn``.

All engines have the same rules: each ``CHOOSE_…`` statement says which rows may be claimed: the
conditions of ``_CLAIMABLE``, and status, time and lane. ``Capacity.admit`` says how many.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, cast

from django.db import connections

from django_txtasks.core.ground.seams import OF_TURNS
from django_txtasks.core.rows.attempts import Ended
from django_txtasks.core.rows.engines import portable
from django_txtasks.core.rows.turn import Subscription, TurnOrder, TurnRequest, TurnResult


def claim(
    subscription: Subscription, worker: uuid.UUID, request: TurnRequest, *, with_keys: bool = False
) -> TurnResult:
    """Move PENDING -> claimed, in a transaction that began with the worker's beat.

    Args:
        with_keys: whether to claim rows with a unique key, too. One statement can neither merge them, nor sort
            tasks that gain priority with age.
    """
    ages = request.scan is not None and request.scan.ageing is not None
    if with_keys or ages:
        return portable.claim(subscription, worker, request)
    return cast(TurnResult, _engine(subscription.alias).claim(subscription, worker, request))


def fits(alias: str, worker: uuid.UUID, ended: Sequence[Ended]) -> bool:
    """Say whether ``turn`` can record these attempts: each has finished, each task once, without hooks."""
    engine = _engine(alias)
    return engine is not portable and engine.fits(alias, worker, ended)


def turn(order: TurnOrder) -> TurnResult | None:
    """Beat, CLAIMED -> finished, PENDING -> claimed, and commit. Call it only if ``fits`` has returned True."""
    return cast("TurnResult | None", _engine(order.subscription.alias).turn(order))


def _engine(alias: str) -> Any:
    """Return the accelerator for a database, or the portable engine."""
    vendor = connections[alias].vendor
    for one in OF_TURNS.modules:
        if vendor == one.VENDOR:
            return one
    return portable
