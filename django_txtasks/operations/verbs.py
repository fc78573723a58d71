"""The changes that an operator can make. ``operations.operators`` makes them, for the admin's actions, too."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from django_txtasks.conf import get_config
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.models import Outcome, Status, Task
from django_txtasks.operations import again, operators
from django_txtasks.operations.moved import Taken
from django_txtasks.operations.operators import Spread
from django_txtasks.operations.rows import Row

COMPENSATED = "its compensation was enqueued: undone work must not be done again"
CHANGING = "its state has changed meanwhile, or another transaction has locked it"
WAS_ASKED = f"it was already asked to stop, or {CHANGING}"


class Verb(NamedTuple):
    """One kind of change.

    Attributes:
        done: the past participle, for people.
        states: states or outcomes in which a task must be.
        walked: states in which filters look for tasks.
        take: changes the rows of one state, in the current transaction.
        can_spread: True if each task can get a time of its own.
        later: True if filters leave out tasks that are due already.
    """

    done: str
    states: tuple[str, ...]
    walked: tuple[Status, ...]
    take: Callable[[str, Sequence[Row], Spread | None], Taken]
    can_spread: bool = False
    later: bool = False


def _arrow(
    move: Callable[..., operators.Moved],
    *,
    hints: bool = False,
    spreads: bool = False,
    refusal: Callable[[str, list[uuid.UUID]], dict[uuid.UUID, str]] | None = None,
) -> Callable[[str, Sequence[Row], Spread | None], Taken]:
    """Return ``take`` of an operator's arrow."""

    def take(alias: str, rows: Sequence[Row], spread: Spread | None) -> Taken:
        ids = [row.id for row in rows]
        moved = move(alias, ids, spread) if spreads else move(alias, ids)
        if hints and (spread is None or not spread.seconds):
            notify_on_commit(alias, moved)
        changed = {task_id for task_id, _queue in moved}
        left = [one for one in ids if one not in changed]
        why = refusal(alias, left) if refusal is not None and left else {}
        return Taken(dict.fromkeys(changed), {one: why.get(one, CHANGING) for one in left})

    return take


def _compensated(alias: str, ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    found = Task.objects.using(alias).compensated().filter(pk__in=ids)
    return dict.fromkeys(found.values_list("pk", flat=True), COMPENSATED)


def _was_asked(alias: str, ids: list[uuid.UUID]) -> dict[uuid.UUID, str]:
    return dict.fromkeys(ids, WAS_ASKED)


def _cancel(alias: str, rows: Sequence[Row], spread: Spread | None) -> Taken:
    status = Status(rows[0].status)

    def cancel(alias: str, ids: list[uuid.UUID]) -> operators.Moved:
        return operators.cancel(alias, ids, keep=get_config().keeps("cancelled"), status=status)

    return _arrow(cancel)(alias, rows, spread)


def _discard(alias: str, ids: list[uuid.UUID]) -> operators.Moved:
    return operators.discard(alias, ids, keep=get_config().keeps("discarded"))


_PENDING, _HELD, _DEAD = (Status.PENDING,), (Status.HELD,), (Status.DEAD,)
VERBS = {
    "revive": Verb(
        "revived", _DEAD, _DEAD,
        _arrow(operators.revive, hints=True, spreads=True, refusal=_compensated), can_spread=True,
    ),
    "discard": Verb("discarded", _DEAD, _DEAD, _arrow(_discard)),
    "hold": Verb("held", _PENDING, _PENDING, _arrow(operators.hold)),
    "resume": Verb("resumed", _HELD, _HELD, _arrow(operators.resume, hints=True)),
    "run_now": Verb(
        "told to run now", _PENDING, _PENDING, _arrow(operators.run_now, hints=True, spreads=True),
        can_spread=True, later=True,
    ),
    "cancel": Verb("cancelled", _PENDING + _HELD, _PENDING + _HELD, _cancel),
    "ask_to_stop": Verb(
        "asked to stop", (Status.CLAIMED,), (Status.CLAIMED,),
        _arrow(operators.ask_to_stop, refusal=_was_asked),
    ),
    "again": Verb("enqueued again", (*_DEAD, *Outcome.values), _DEAD, again.take),
}  # fmt: skip
