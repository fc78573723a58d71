"""If no worker looks at the batch of an ended task, the process that has ended the task looks after its COMMIT."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from django.db import DatabaseError, InterfaceError, connections, transaction

from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.rows.arrow_parts import ArrowPart
from django_txtasks.core.rows.attempts import Arrow, Ended, FollowUps
from django_txtasks.features.batches import rows as batches
from django_txtasks.features.batches.statements import MAY_PRUNE
from django_txtasks.models import Outcome, Status


class LooksAtBatches(ArrowPart):
    """Looks at the batches of members that have ended, and keeps finished rows that batches still need."""

    may_prune = MAY_PRUNE

    def leaving(
        self, alias: str, ids: Sequence[uuid.UUID], status: Status, outcome: Outcome
    ) -> FollowUps:
        if status is not Status.CLAIMED:  # a worker looks at the batches of its own tasks
            _look_on_commit(alias, batches.batches_of(alias, ids))
        return []

    def recovered(self, alias: str, ended: Sequence[Ended]) -> None:
        dead = [one.attempt for one in ended if one.arrow is Arrow.BURY]
        _look_on_commit(alias, [one.batch for one in dead if one.batch is not None])


def _look_on_commit(alias: str, found: Iterable[Any]) -> None:
    """Look at these batches after the commit of the open transaction. If a look fails, a cleaner looks later."""
    ids = batches.readable(found)
    if ids:
        transaction.on_commit(partial(_look_at_all, alias, sorted(ids)), using=alias, robust=True)


def _look_at_all(alias: str, ids: Sequence[uuid.UUID]) -> None:
    for batch in ids if connections[alias].get_autocommit() else ():
        with contextlib.suppress(DatabaseError, InterfaceError):
            follow_ups = batches.look(alias, batch, own_session=False).follow_ups
            if follow_ups:
                notify_on_commit(alias, follow_ups)


PARTS = (LooksAtBatches(),)
