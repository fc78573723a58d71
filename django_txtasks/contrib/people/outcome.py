"""The part of a question's page about its task: how the task ended, and the other questions."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from django_txtasks.contrib.people import showing
from django_txtasks.contrib.people.models import Question, alias_of_people
from django_txtasks.contrib.people.refusals import time_at_end, time_of
from django_txtasks.models import FinishedTask, Status, Task, label_of

MOST_OTHERS = 20


class Other(NamedTuple):
    """Another question of the same task, for a page.

    Attributes:
        row: the question with the person who has it.
        said: who answered, and when; empty: it is open.
        answer: the answer in one line; empty: the question is open, or the answer was removed with the old task.
    """

    row: showing.Row
    said: str
    answer: str


def effect_of(question: Question) -> str:
    """Return the effect of the answer as a text; empty: the question has no answer."""
    if not (question.answered_as or question.by_machine):
        return ""
    alias = alias_of_people()
    status = Task.objects.using(alias).filter(pk=question.task_id).values_list("status", flat=True)
    if status.first() is None:
        past = FinishedTask.objects.using(alias).filter(pk=question.task_id).first()
        if past is None:
            return _("The task has ended.")
        words = {"time": time_of(past.finished_at), "outcome": label_of(past.outcome)}
        return _("The task ended at %(time)s: %(outcome)s") % words
    if status.first() in (Status.DEAD, Status.HELD):
        return _("The task has stopped, and a person who looks after tasks must help.")
    if Question.objects.using(alias).filter(task_id=question.task_id, closed_at=None).exists():
        return _("The task has gone on, and waits for the answer to another question.")
    return _("The task goes on with the answer that counts, and has not ended yet.")


def others_of(question: Question, reader: Any) -> list[Other]:
    """Return the other questions of the same task that the reader may see, the first asked first."""
    rows = Question.objects.using(alias_of_people()).filter(task_id=question.task_id)
    rows = rows.exclude(pk=question.pk).select_related("assignee").order_by("id")
    found = [one for one in rows[:MOST_OTHERS] if showing.is_visible(one, reader)]
    answers = showing.answers_of(found)
    return [
        Other(
            row, _said(row.question, reader), showing.in_one_line(answers.get(row.question.pk, []))
        )
        for row in showing.rows_of(found, reader)
    ]


def _said(question: Question, reader: Any) -> str:
    if question.closed_at is None:
        return ""
    if question.by_machine:
        text = _("A machine answered at %(time)s.")
    elif question.answered_by_id == reader.pk:
        text = _("You answered at %(time)s.")
    elif question.answered_as:
        text = _("%(who)s answered at %(time)s.")
    else:
        text = _("It was closed at %(time)s without an answer.")
    return text % {"who": question.answered_as, "time": time_at_end(question.closed_at)}
