"""The work that a task has started: batches that it has opened, and their further batches. The module only reads.

A batch names the first task of the work that it belongs to. So one statement finds the batches that a task has
opened, the batches that their members have opened, and so on, even if ended members have no rows any longer. The
hooks of a batch are tasks whose work is followed in the same way.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy
from django.utils.translation import ngettext

from django_txtasks.core.ground.wording import whole
from django_txtasks.database.execute import as_uuid, fetch, is_uuid
from django_txtasks.features.batches.rows import hook_tasks_of
from django_txtasks.features.batches.statements import UNSETTLED_BATCHES
from django_txtasks.features.results.task_states import DONE, representatives_of
from django_txtasks.models import label_of

TASKS_PER_LOOK = 500
"""Number of tasks whose batches one statement reads."""
NOT_ENDED, FAILED = _lazy("has not ended"), _lazy("has failed")


@dataclass(frozen=True)
class Unsettled:
    """A batch that is the reason why the work of a task is not done.

    Attributes:
        batch: its id.
        why: the reason, as words that follow the name of the batch.
        others: number of other batches that have not ended or have failed.
    """

    batch: uuid.UUID
    why: Any
    others: int = 0

    def __str__(self) -> str:
        return f"its batch {self.batch} {self.text}"

    @property
    def text(self) -> str:
        """The words after the name of the batch."""
        if not self.others:
            return str(self.why)
        text = ngettext(
            "%(why)s, and %(n)s other batch of its work is not done",
            "%(why)s, and %(n)s other batches of its work are not done",
            self.others,
        )
        return text % {"why": self.why, "n": whole(self.others)}


class _Row(NamedTuple):
    """The columns of ``batch_statements.UNSETTLED_BATCHES``."""

    root_task: Any
    id: Any
    goes_on: Any
    failed: Any
    hook_tasks: str | None


class _Hook(NamedTuple):
    """The hook of an ended batch, whose task's work is followed."""

    batch: uuid.UUID
    option: str
    task_id: uuid.UUID
    origins: frozenset[uuid.UUID]


Origins = dict[uuid.UUID, frozenset[uuid.UUID]]
"""By task: the first tasks to whose work it belongs. There are several if hooks were merged by a unique key."""


def unsettled(alias: str, ids: Collection[uuid.UUID]) -> dict[uuid.UUID, Unsettled]:
    """Return the reason why the work of each succeeded task is not done, without tasks whose work is done."""
    found: dict[uuid.UUID, Unsettled] = {}
    origins: Origins = {task_id: frozenset([task_id]) for task_id in ids}
    # Batches that were written by hand may refer back to their own origin.
    asked = dict(origins)
    while origins:
        hooks = []
        for row in _rows(alias, origins):
            of, batch = origins[as_uuid(row.root_task)], as_uuid(row.id)
            if row.failed or row.goes_on:
                why = FAILED if row.failed else NOT_ENDED
                _note(found, of, Unsettled(batch, why))
                continue
            for option, task_id in hook_tasks_of(row.hook_tasks).items():
                hooks.append(_Hook(batch, option, task_id, of))
        followed = _followed(alias, [one for one in hooks if one.origins - found.keys()], found)
        origins = {
            task_id: new
            for task_id, of in followed.items()
            if (new := of - asked.get(task_id, frozenset()))
        }
        for task_id, new in origins.items():
            asked[task_id] = asked.get(task_id, frozenset()) | new
    return found


def _rows(alias: str, ids: Iterable[uuid.UUID]) -> Iterator[_Row]:
    wanted = sorted(ids)
    for at in range(0, len(wanted), TASKS_PER_LOOK):
        part = wanted[at : at + TASKS_PER_LOOK]
        for row in fetch(alias, UNSETTLED_BATCHES, ids=part):
            if is_uuid(row[1]):
                yield _Row(*row)


def _note(found: dict[uuid.UUID, Unsettled], of: Iterable[uuid.UUID], new: Unsettled) -> None:
    """Keep the first failed batch, or the first batch if no batch has failed, and count the others."""
    for origin in of:
        old = found.get(origin)
        if old is None:
            found[origin] = new
        else:
            shown = new if old.why is NOT_ENDED and new.why is FAILED else old
            found[origin] = replace(shown, others=old.others + 1)


def _followed(alias: str, hooks: list[_Hook], found: dict[uuid.UUID, Unsettled]) -> Origins:
    """Record hooks whose tasks are not done; return the tasks of the other hooks."""
    representatives = representatives_of(alias, {one.task_id for one in hooks})
    followed: Origins = {}
    for hook in hooks:
        state, task_id = representatives[hook.task_id]
        if state in DONE:
            followed[task_id] = followed.get(task_id, frozenset()) | hook.origins
        else:
            text = _("has ended, and the task %(id)s of its %(hook)s is %(state)s")
            why = text % {"id": hook.task_id, "hook": hook.option, "state": label_of(state)}
            _note(found, hook.origins, Unsettled(hook.batch, why))
    left = {task_id: of - found.keys() for task_id, of in followed.items()}
    return {task_id: of for task_id, of in left.items() if of}
