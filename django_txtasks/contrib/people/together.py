"""One answer to several questions of a kind. Each question is answered, or refuses, by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from django_txtasks.contrib.people import desk, showing
from django_txtasks.contrib.people.kinds import Kind
from django_txtasks.contrib.people.models import Question


class Outcome(NamedTuple):
    """The outcome of one answer to several questions.

    Attributes:
        answered: the questions whose answers count.
        refused: for each other question, its title and the reason.
        form: a form to fill in again, because it is valid for none of the questions; None: it is for some.
    """

    answered: list[Question]
    refused: list[str]
    form: Any


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
    if not any(form.is_valid() for _question, form in filled):
        return Outcome([], [], filled[0][1])
    answered, refused = [], []
    for question, form in filled:
        if form.is_valid():
            reason: Any = desk.answer(question, user, form.cleaned_data)
        else:
            reason = " ".join(str(one) for errors in form.errors.values() for one in errors)
        if reason:
            refused.append(f"{question.title}: {reason}")
        else:
            answered.append(question)
    return Outcome(answered, refused, None)


def said(outcome: Outcome) -> str:
    """Return the text that confirms the answers that count."""
    if not outcome.answered:
        return ""
    first = outcome.answered[0]
    first.refresh_from_db()
    values = {
        "number": len(outcome.answered),
        "all": len(outcome.answered) + len(outcome.refused),
        "titles": ", ".join(one.title for one in outcome.answered),
        "answer": showing.in_one_line(showing.answer_of(first)),
    }
    text = _("%(number)s of %(all)s answered. Noted, will be done: %(titles)s. %(answer)s")
    return text % values
