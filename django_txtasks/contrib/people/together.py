"""The chosen questions of a list, and one answer to several of a kind. Each of them refuses by itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from django.core.exceptions import BadRequest
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_txtasks.contrib.people import desk, showing, values
from django_txtasks.contrib.people.kinds import Kind, find
from django_txtasks.contrib.people.models import Question, alias_of_people
from django_txtasks.contrib.people.wanted import MOST_KEY


class Outcome(NamedTuple):
    """The outcome of one answer to several questions.

    Attributes:
        answered: the questions whose answers count.
        refused: the other questions, each with the reason.
        given: the answer to the first of these questions, as JSON.
        form: a form to fill in again, because it is valid for none of the questions; None: it is for some.
    """

    answered: list[Question]
    refused: list[tuple[Question, Any]]
    given: Mapping[str, Any]
    form: Any


def chosen(keys: Collection[str], user: Any) -> tuple[list[Question], list[str]]:
    """Return the chosen questions that the person may see, and a text about the others.

    The text does not say which of the others exist.
    """
    if not all(key.isdecimal() and len(key) < 20 and int(key) <= MOST_KEY for key in keys):
        raise BadRequest("A chosen question has a key that no question can have.")
    rows = Question.objects.using(alias_of_people()).filter(pk__in=keys)
    rows = rows.select_related("assignee").order_by("due_at", "id")
    found = [one for one in rows if showing.is_visible(one, user)]
    number = len({int(key) for key in keys}) - len(found)
    text = ngettext(
        "%(number)s of the chosen questions is not there any more, or is not shown to you.",
        "%(number)s of the chosen questions are not there any more, or are not shown to you.",
        number,
    )
    return found, [text % {"number": number}] if number else []


def form_of(kind: Kind, questions: Sequence[Question], user: Any) -> Any:
    """Return the empty form for several questions; with their suggested values, if these are alike."""
    form = desk.form_of(kind, questions[0], user)
    if any(one.suggested != questions[0].suggested for one in questions):
        form.initial = {}
    return form


def answer(
    kind: Kind, questions: Sequence[Question], user: Any, data: Mapping[str, Any]
) -> Outcome:
    """Answer each question for which the form is valid.

    Args:
        data: the fields of the page.
    """
    filled = [(one, desk.form_of(kind, one, user, data)) for one in questions]
    if not any(desk.is_valid(form) for _question, form in filled):
        told = [_errors_of(form) for _question, form in filled]
        differ = any(one != told[0] for one in told)
        refused = [(one, text) for (one, _form), text in zip(filled, told, strict=True)]
        return Outcome([], refused if differ else [], {}, filled[0][1])
    answered: list[tuple[Question, Any]] = []
    refused = []
    for question, form in filled:
        is_valid = desk.is_valid(form)
        reason: Any = desk.answer(question, user, form) if is_valid else _errors_of(form)
        if reason:
            refused.append((question, reason))
        else:
            answered.append((question, form))
    given = values.of_form(answered[0][1]) if answered else {}
    return Outcome([one for one, _form in answered], refused, given, None)


def _errors_of(form: Any) -> str:
    """Return the errors of a form as one line, each with the label of its field."""
    found = []
    for name, errors in form.errors.items():
        label = f"{form[name].label}: " if name in form.fields else ""
        found.append(label + " ".join(map(str, errors)))
    return " ".join(found)


def said(outcome: Outcome) -> str:
    """Return the text that confirms the answers that count."""
    if not outcome.answered:
        return ""
    kind = find(outcome.answered[0].kind)
    words = {
        "number": len(outcome.answered),
        "all": len(outcome.answered) + len(outcome.refused),
        "titles": ", ".join(one.title for one in outcome.answered),
        "answer": showing.in_one_line(showing.in_words(kind, outcome.given)),
    }
    text = _("%(number)s of %(all)s answered. Your answer is saved: %(titles)s. %(answer)s")
    return text % words
