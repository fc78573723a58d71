"""The acts of people: take, give back, give to a colleague, hide, note, answer.

Each act is one short transaction, or a savepoint of the caller's. It returns None if it counts, or a ``Refusal``.
The permission and ``not_by`` are checked before: rows never change them. The UPDATE checks the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.forms import BaseForm
from django.utils.translation import gettext as _

from django_txtasks.contrib.people import refusals, values
from django_txtasks.contrib.people.holding import FREE_COLUMNS, held_by, is_free_for
from django_txtasks.contrib.people.kinds import Kind, get, name_of_kind
from django_txtasks.contrib.people.lists import (
    ASSIGN,
    ROWS_PER_LOOK,
    Place,
    first_places,
    free_rows,
    in_force,
    is_for,
    kinds_for,
    place_of,
    rows_at,
)
from django_txtasks.contrib.people.models import (
    MOST_NOTE_CHARACTERS,
    Question,
    alias_of_people,
    key_of,
    name_of,
)
from django_txtasks.contrib.people.record import note_in_log
from django_txtasks.contrib.people.refusals import Refusal
from django_txtasks.core.ground import payload
from django_txtasks.database.transactions import repeated
from django_txtasks.exceptions import InvalidOption
from django_txtasks.features.steps.answering import Awaited, bring
from django_txtasks.features.steps.context import moment_of
from django_txtasks.models import DatabaseNow


def take(question: Any, user: Any) -> Refusal | None:
    """Give the question to this person, until ``hold`` of its kind has passed. Taking it again extends the time.

    Args:
        question: a ``Question``, or its id.
    """
    alias, row = _row(question)
    if refusal := refusals.before(alias, row, user):
        return refusal
    taken = _update(
        alias, row, is_free_for(user), hidden_until=None, **held_by(user, get(row.kind))
    )
    return _told(alias, row, user, taken)


def take_next(user: Any, kind: Kind | str | None = None) -> Question | None:
    """Take the question that is due first, of all that this person may take; None: no question is free.

    People who call it at the same time get different questions.

    Args:
        kind: the only kind to take, or its name; None: all kinds that the person may answer.
    """
    alias, name = alias_of_people(), name_of_kind(kind)
    mine = [one.name for one in kinds_for(user) if name in (None, one.name)]
    for head in sorted(_heads(alias, mine, user), key=place_of):
        taken = repeated(alias, partial(_take_first, alias, get(head.kind), user))
        if taken is not None:
            return taken
    return None


def give_back(question: Any, user: Any, note: str = "") -> Refusal | None:
    """Make the question free again, if this person has it.

    Args:
        note: a remark for the next person, of at most 500 characters; empty: the former note stays.
    """
    alias, row = _row(question)
    if row is None:
        return refusals.gone()
    given = _update(alias, row, Q(assignee=user.pk), **FREE_COLUMNS, **_note(row, user, note))
    if given:
        return None
    return refusals.after(alias, row, user) or refusals.not_yours()


def give_to(question: Any, user: Any, to: Any, note: str = "") -> Refusal | None:
    """Give the question to another person, whether or not a person has it. The admin's log gets an entry.

    Args:
        user: the person who decides this, with the permission ``txtasks_people.assign_question``.
        to: the user who gets the question, and who must be allowed to answer it.
        note: as of ``give_back``.
    """
    alias, row = _row(question)
    if not user.has_perm(ASSIGN):
        return refusals.lacks(ASSIGN)
    if refusal := refusals.before(alias, row, to, reader=user):
        return refusal
    kind = get(row.kind)
    with transaction.atomic(using=alias):
        columns = {**held_by(to, kind), "hidden_until": None, **_note(row, user, note)}
        given = _update(alias, row, Q(), **columns)
        if given:
            note_in_log(user, row, _("Given to %(who)s.") % {"who": name_of(to)})
    return _told(alias, row, user, given)


def hide(
    question: Any, user: Any, until: datetime | timedelta | None, note: str = ""
) -> Refusal | None:
    """Make the question free, and leave it out of the list *free*, of all people, until a time.

    It becomes overdue as before. A person who takes it shows it again.

    Args:
        until: an aware datetime, or the time from now on, at most 100 years; None: show it again now.
        note: as of ``give_back``.

    Raises:
        InvalidOption: ``until`` has another type, or is a naive datetime, or too far away.
    """
    is_aware = isinstance(until, datetime) and until.utcoffset() is not None
    if not (is_aware or until is None or isinstance(until, timedelta)):
        raise InvalidOption(f"until is {until!r}; use a timedelta, an aware datetime, or None.")
    until = None if until is None else moment_of(until, "until")
    alias, row = _row(question)
    if refusal := refusals.before(alias, row, user):
        return refusal
    moment = DatabaseNow() + until if isinstance(until, timedelta) else until
    columns = {"hidden_until": moment, **({} if until is None else FREE_COLUMNS)}
    hidden = _update(alias, row, is_free_for(user), **columns, **_note(row, user, note))
    return _told(alias, row, user, hidden)


def hide_for_me(question: Any, user: Any, *, hidden: bool = True, note: str = "") -> Refusal | None:
    """Leave the question out of this person's list *free* and of ``take_next``; make it free if the person has it.

    The other lists have it as before, so that the person can show it again.

    Args:
        hidden: False: show it again.
        note: as of ``give_back``. If another person has the question, a note is refused.
    """
    alias, row = _row(question)
    if refusal := refusals.before(alias, row, user):
        return refusal

    def work() -> int:
        with transaction.atomic(using=alias):
            # two people who hide it at the same time write the list one after the other
            now = _still_open(alias, row).select_for_update().first()
            if now is None:
                return 0
            others = [one for one in now.hidden_for if one != key_of(user)]
            columns = {"hidden_for": [*others, key_of(user)] if hidden else others}
            if hidden and now.assignee_id == user.pk:
                columns |= FREE_COLUMNS
            noted = _note(row, user, note)
            return _update(alias, row, is_free_for(user) if noted else Q(), **columns, **noted)

    return _told(alias, row, user, repeated(alias, work))


def write_note(question: Any, user: Any, note: str) -> Refusal | None:
    """Change the remark of a question that is free or that this person has; empty: delete it."""
    alias, row = _row(question)
    if refusal := refusals.before(alias, row, user):
        return refusal
    columns: dict[str, Any] = {"note": "", "noted_as": ""}
    if note.strip():
        columns = _note(row, user, note) or {"note": F("note")}  # an UPDATE needs a column
    return _told(alias, row, user, _update(alias, row, is_free_for(user), **columns))


def answer(question: Any, user: Any, data: Mapping[str, Any] | BaseForm) -> Refusal | None:
    """Answer the question, if it is free or this person has it. The task goes on after the commit, in a worker.

    In an open transaction, the answer is committed with the other changes of that transaction. The row of the task
    is locked until then.

    Args:
        data: a valid form of the kind, or a dict with each field of the form's class and no other field, such as
            ``cleaned_data``. An object becomes its primary key; decimals, dates, times and UUIDs become text. Pass
            the form if its ``clean()`` or ``__init__()`` adds or removes fields.

    Raises:
        InvalidOption: the data has other fields than the form, or the form is not valid or of another class.
        InvalidArguments: the data cannot be stored as JSON.
    """
    alias, row = _row(question)
    if refusal := refusals.before(alias, row, user):
        return refusal
    given = values.of_answer(get(row.kind), data)

    def work() -> int:
        with transaction.atomic(using=alias):
            # bring() locks the row of the task first, as the task does when it asks or gives up: no deadlock
            counts = bring(Awaited(alias, row.task_id, row.name), given)
            answered = counts and _update(
                alias, row, is_free_for(user), **_closing(row, user, given)
            )
            if not answered:
                transaction.set_rollback(True, using=alias)
            return int(answered)

    return _told(alias, row, user, repeated(alias, work))


def open_question(question: Any) -> Question | None:
    """Return the question if it still needs an answer, or None. A function of ``on_due`` calls this first."""
    alias, row = _row(question)
    found = [] if row is None or row.closed_at is not None else [row]
    return next(iter(in_force(alias, found)), None)


def _row(question: Any) -> tuple[str, Any]:
    """Return the alias, and the row as it is now, or None."""
    alias, pk = alias_of_people(), getattr(question, "pk", question)
    return alias, Question.objects.using(alias).filter(pk=pk).first()


def _update(alias: str, row: Question, condition: Q, **columns: Any) -> int:
    """Change the row if it is open and the condition is true; return the number of changed rows."""
    rows = _still_open(alias, row).filter(condition)
    return repeated(alias, lambda: rows.update(**columns))


def _still_open(alias: str, row: Question) -> QuerySet[Question]:
    return Question.objects.using(alias).filter(pk=row.pk, closed_at=None)


def _heads(alias: str, names: Sequence[str], user: Any) -> list[Question]:
    """Return the first free row of each kind for this person; another one if that is far behind."""
    first = rows_at(alias, first_places(alias, [free_rows(alias, one) for one in names], 1))
    heads = {one.kind: one for one in first if is_for(user, one)}
    behind = [free_rows(alias, one.kind) for one in first if one.kind not in heads]
    for row in rows_at(alias, first_places(alias, behind, ROWS_PER_LOOK)):
        if row.kind not in heads or not is_for(user, heads[row.kind]):
            heads[row.kind] = row
    return list(heads.values())


def _take_first(alias: str, kind: Kind, user: Any) -> Question | None:
    """Take the first free row of a kind that no other person is taking."""
    after: Place | None = None
    with transaction.atomic(using=alias):
        while True:
            # one row at a time, so that the others stay for people who look now
            locked = free_rows(alias, kind.name, after).select_for_update(skip_locked=True)
            row = locked.first()
            if row is None:
                return None
            after = place_of(row)
            if not is_for(user, row):
                after = _place_before_own(alias, kind, user, after)
                continue
            if not in_force(alias, [row]):
                continue
            if _update(alias, row, is_free_for(user), **held_by(user, kind)):
                return Question.objects.using(alias).get(pk=row.pk)


def _place_before_own(alias: str, kind: Kind, user: Any, after: Place) -> Place:
    """Return the place before the next free row for this person, as far as one read goes."""
    for row in free_rows(alias, kind.name, after)[:ROWS_PER_LOOK]:
        if is_for(user, row):
            break
        after = place_of(row)
    return after


def _told(alias: str, row: Question, user: Any, changed: int) -> Refusal | None:
    if changed:
        return None
    return refusals.after(alias, row, user) or refusals.changed()


def _note(row: Question, user: Any, note: str) -> dict[str, str]:
    """Return the columns of a note. Empty, or as it was: the note and its author stay."""
    text = payload.clean_text(note.strip())[:MOST_NOTE_CHARACTERS]
    return {"note": text, "noted_as": name_of(user)} if text and text != row.note else {}


def _closing(row: Question, user: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "closed_at": DatabaseNow(),
        "assignee_id": None,
        "answered_by_id": user.pk,
        "answered_as": name_of(user),
        "agreed": values.agrees(row.suggested, given),
    }
