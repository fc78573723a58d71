"""The cleaner closes questions that need no answer: their task has ended, or its wait has."""

from __future__ import annotations

import uuid
from typing import Any

from django.db import router
from django.utils.translation import gettext as _now
from django.utils.translation import gettext_lazy as _

from django_txtasks.contrib.people.asking import close
from django_txtasks.contrib.people.lists import (
    MOST_COUNTED,
    Place,
    in_force,
    open_kinds,
    open_rows,
    place_of,
)
from django_txtasks.contrib.people.models import Question, alias_of_people
from django_txtasks.database.side_tables import SideTable

ROWS_PER_LOOK = 500


def sweep(alias: str, begin: tuple[str, Place] | None) -> tuple[int, Any]:
    """Close such questions among the next open ones.

    Args:
        begin: the kind and the place behind which the look begins; None: the first kind.

    Returns:
        The number of closed questions, and where the next look begins; None: the look was the last one.
    """
    kinds = [one for one in open_kinds(alias) if begin is None or one >= begin[0]]
    if not kinds:
        return 0, None
    after = begin[1] if begin is not None and begin[0] == kinds[0] else None
    rows = list(open_rows(alias, kinds[0], after)[:ROWS_PER_LOOK])
    # Both facts are final: they are still true at the UPDATE. A row that was answered meanwhile stays.
    needed = {one.pk for one in in_force(alias, rows)}
    overtaken = [one.pk for one in rows if one.pk not in needed]
    closed = close(alias, overtaken) if overtaken else 0
    if len(rows) == ROWS_PER_LOOK:
        return closed, (kinds[0], place_of(rows[-1]))
    return closed, (kinds[1], None) if len(kinds) > 1 else None


def _is_in(alias: str) -> bool:
    """Return True for the database of the users: only there are questions, whatever was migrated elsewhere."""
    return alias == alias_of_people() and bool(router.allow_migrate_model(alias, Question))


def of_wait(alias: str, task_id: uuid.UUID, name: str) -> tuple[str, str] | None:
    """Return the open question of a wait as a sentence, and what to do."""
    asked = Question.objects.using(alias).filter(task_id=task_id, name=name, closed_at=None).first()
    if asked is None:
        return None
    text = _now("It waits for a person, who answers the question %(title)s (%(kind)s).")
    facts = {"title": repr(asked.title), "kind": asked.kind}
    return text % facts, _now("Answer it in the list of questions.")


def open_questions(alias: str) -> int:
    """Return the number of open questions, up to ``MOST_COUNTED``."""
    return Question.objects.using(alias).filter(closed_at=None)[:MOST_COUNTED].count()


TABLE = SideTable(
    Question._meta.db_table, is_in=_is_in, sweep=sweep,
    page="people_question_changelist", label=_("Questions"),
    of_wait=of_wait, for_people=open_questions,
)  # fmt: skip
