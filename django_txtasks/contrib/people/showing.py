"""The values that the pages show: rows of a list, its tabs, and the parts of a question."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, PermissionsMixin
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.forms import ChoiceField, ModelChoiceField
from django.forms.utils import pretty_name
from django.utils import timezone
from django.utils.choices import flatten_choices
from django.utils.duration import duration_string
from django.utils.formats import localize, number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy as _lazy

from django_txtasks.contrib.people.holding import has_inactive_users
from django_txtasks.contrib.people.kinds import Kind, find
from django_txtasks.contrib.people.lists import ASSIGN, MOST_COUNTED, Box, sees_all
from django_txtasks.contrib.people.models import Question, alias_of_people, key_of, name_of
from django_txtasks.contrib.people.refusals import of_person, time_of
from django_txtasks.contrib.people.values import of_field
from django_txtasks.features.redaction.declaring import judged, parameters, redacted
from django_txtasks.models import FinishedTask, Task, Wait

LABELS: dict[Box, Any] = {
    Box.MINE: _lazy("Mine"),
    Box.FREE: _lazy("I may take"),
    Box.OVERDUE: _lazy("Overdue"),
    Box.ALL: _lazy("All"),
}
MOST_PEOPLE = 100
"""Names that the pages suggest to a manager who gives a question away. Other names may be typed."""
MOST_ARGUMENT_CHARACTERS = 500
LATELY = timedelta(days=7)
MOST_ANSWERED = 20
"""Answers of the reader in the last week that the page lists."""


@dataclass(frozen=True)
class Row:
    """A question as a page shows it.

    Attributes:
        person: the name of the person who has it; empty: it is free.
        until: the end of that time; empty: without an end.
        is_mine: the person is the reader.
        is_hidden_for_me: the reader has hidden it from the reader's own lists.
        may_no_more: the person may not answer it any more, because the permission is gone.
        why_not: the reason why the reader may not answer; empty: the reader may.
    """

    question: Question
    person: str
    until: str
    is_mine: bool
    is_hidden_for_me: bool = False
    may_no_more: bool = False
    why_not: str = ""

    @property
    def due(self) -> str:
        """The time from which it is overdue; empty: never."""
        return time_of(self.question.due) if self.question.due else ""

    @property
    def is_overdue(self) -> bool:
        """True from the due time on."""
        return bool(self.question.due_at <= timezone.now())

    @property
    def hidden(self) -> str:
        """The time until which it is hidden; empty: it is not."""
        until = self.question.hidden_until
        return time_of(until) if until and until > timezone.now() else ""


def rows_of(questions: Iterable[Question], reader: Any) -> list[Row]:
    """Return questions for a page. Managers see which persons may not answer any more."""
    may: dict[tuple[Any, str], bool] = {}  # has_perm() reads the database for each user
    is_manager, found = reader.has_perm(ASSIGN), []
    for question in questions:
        row = row_of(question, reader)
        if is_manager and row.person:
            key = (question.assignee_id, question.kind)
            if key not in may:
                may[key] = _may_answer(question)
            row = replace(row, may_no_more=not may[key])
        found.append(replace(row, why_not=str(of_person(question, reader, reader) or "")))
    return found


def row_of(question: Question, reader: Any) -> Row:
    """Return a question for a page."""
    user, until = question.assignee, question.taken_until
    is_hidden = key_of(reader) in question.hidden_for
    if user is None or not user.is_active or (until and until <= timezone.now()):
        return Row(question, "", "", False, is_hidden)
    is_mine = user.pk == reader.pk
    return Row(question, name_of(user), time_of(until) if until else "", is_mine, is_hidden)


def is_visible(question: Question, reader: Any) -> bool:
    """Return True if the reader may answer the kind, has the question, has answered it, or sees all."""
    kind = find(question.kind)
    own = (question.assignee_id, question.answered_by_id)
    return reader.pk in own or sees_all(reader) or bool(kind and kind.allows(reader))


def number(count: int) -> str:
    """Return the number of a list, which stops at 1,000, as the reader's language writes it."""
    text = number_format(count, use_l10n=True, force_grouping=True)
    return f"{text}+" if count >= MOST_COUNTED else text


def arguments_of(question: Question) -> list[tuple[str, str]]:
    """Return the arguments of the task, which never change, by name; values that look secret are redacted."""
    alias = alias_of_people()
    for model in (Task, FinishedTask):
        row = model._default_manager.using(alias).filter(pk=question.task_id)
        found = row.values_list("task_name", "args", "kwargs").first()
        if found is not None:
            return _arguments(*found)
    return []


def answered_lately(reader: Any) -> list[Question]:
    """Return the questions that the reader has answered in the last week, the latest first, at most 20."""
    rows = Question.objects.using(alias_of_people()).filter(answered_by=reader.pk)
    lately = rows.filter(closed_at__gte=timezone.now() - LATELY)
    return list(lately.order_by("-closed_at")[:MOST_ANSWERED])


def answers_of(questions: Iterable[Question]) -> dict[int, list[tuple[str, str]]]:
    """Return the answers of questions by key, each by label of the form. Values that look secret are redacted.

    A question is left out if it has no answer, or if the answer was removed with the old task.
    """
    answered = {
        (one.task_id, one.name): one for one in questions if one.answered_as or one.by_machine
    }
    rows = Wait._default_manager.using(alias_of_people())
    rows = rows.filter(task_id__in={task_id for task_id, _name in answered})
    found = {}
    for task_id, name, value in rows.values_list("task_id", "name", "value"):
        question = answered.get((task_id, name))
        if question is not None and value is not None:
            found[question.pk] = in_words(find(question.kind), json.loads(value))
    return found


def in_words(kind: Kind | None, answer: Any) -> list[tuple[str, str]]:
    """Return an answer, which is JSON, by label of the form. Values that look secret are redacted."""
    value = redacted(answer)
    if not isinstance(value, dict):
        return [(_("The answer"), _text(value))]
    return values_of(kind, value)


def is_own_answer(question: Question, reader: Any, given: Any) -> bool:
    """Return True if this is the answer that the reader has given before, such as by a double click."""
    alias = alias_of_people()
    rows = Question.objects.using(alias).filter(pk=question.pk, answered_by=reader.pk)
    waits = Wait._default_manager.using(alias).filter(task_id=question.task_id, name=question.name)
    texts = waits.values_list("value", flat=True) if rows.exists() else []
    return any(json.loads(text) == given for text in texts if text is not None)


def in_one_line(answer: Iterable[tuple[str, str]]) -> str:
    """Return an answer as a part of a line."""
    return " · ".join(f"{label}: {value}" for label, value in answer if value)


def values_of(
    kind: Kind | None, values: Mapping[str, Any], most: int | None = MOST_ARGUMENT_CHARACTERS
) -> list[tuple[str, str]]:
    """Return JSON values by field as label and text. A choice has the text of its label.

    Args:
        most: characters of a text that are kept; None: all.
    """
    fields = getattr(kind.form, "base_fields", {}) if kind is not None else {}
    return [
        (
            str(getattr(fields.get(name), "label", None) or pretty_name(name)),
            _value(of_field(fields.get(name), value), _choices(fields.get(name)), most),
        )
        for name, value in values.items()
    ]


def _choices(field: Any) -> dict[str, str]:
    """Return the labels of a field's choices by value. Rows of a model are not read."""
    if not isinstance(field, ChoiceField) or isinstance(field, ModelChoiceField):
        return {}
    choices: Any = field.choices
    pairs: Iterable[tuple[Any, Any]] = flatten_choices(choices)
    return {str(value): str(label) for value, label in pairs}


def _value(value: Any, choices: Mapping[str, str], most: int | None) -> str:
    if isinstance(value, list):
        return ", ".join(_value(one, choices, most) for one in value)
    if str(value) in choices:
        return choices[str(value)]
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, datetime) and value.utcoffset() is not None:
        with suppress(OverflowError):  # on the first and the last day of the calendar
            value = timezone.localtime(value)
    if isinstance(value, (date, time, Decimal)):
        return str(localize(value))
    if isinstance(value, timedelta):
        return duration_string(value)
    return "" if value is None else _text(value, most)


def people_for(kind: Kind | None) -> list[tuple[str, str]]:
    """Return user name and name of the first people who may answer; of a kind of None, of all active users."""
    users: Any = get_user_model()
    rows = users._base_manager.using(alias_of_people()).order_by(users.USERNAME_FIELD)
    if has_inactive_users():
        rows = rows.filter(is_active=True)
    if kind is not None and kind.may is not None and issubclass(users, PermissionsMixin):
        rows = rows.filter(Q(is_superuser=True) | Exists(_permissions_of(kind.may)))
    return [(one.get_username(), name_of(one)) for one in rows[:MOST_PEOPLE]]


def _permissions_of(may: str) -> QuerySet[Permission]:
    """Return the rows of a permission that a user of the outer query has.

    ``ModelBackend.with_perm()`` refuses a permission with a second dot, and users without ``is_active``.
    """
    app, _dot, codename = may.partition(".")
    owners = Q(group__user=OuterRef("pk")) | Q(user=OuterRef("pk"))
    return Permission.objects.filter(owners, content_type__app_label=app, codename=codename)


def _may_answer(question: Question) -> bool:
    kind = find(question.kind)
    return kind is not None and kind.allows(question.assignee)


def _arguments(task_name: str, args: Any, kwargs: Any) -> list[tuple[str, str]]:
    values = redacted(judged(args, task_name))
    names = parameters(task_name)
    named = [
        (names[place] if place < len(names) else str(place + 1), value)
        for place, value in enumerate(values if isinstance(values, list) else [])
    ]
    named += redacted(kwargs).items() if isinstance(kwargs, dict) else []
    return [(name, _text(value)) for name, value in named if value is not None]


def _text(value: Any, most: int | None = MOST_ARGUMENT_CHARACTERS) -> str:
    """Return a value as text; a text that was shortened ends with an ellipsis."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if most is None or len(text) <= most else f"{text[:most]}…"
