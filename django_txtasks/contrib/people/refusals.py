"""Refusals: the reason why an act of a person did not count, as a text for that person."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from django_txtasks.contrib.people.holding import is_free_for
from django_txtasks.contrib.people.kinds import find
from django_txtasks.contrib.people.models import Question, key_of, name_of
from django_txtasks.models import FinishedTask, Outcome, Task, Wait


class Reason(str, enum.Enum):
    """The reasons of refusals."""

    ANSWERED = "answered"
    """A person, a machine or a token has answered."""
    TAKEN = "taken"
    """Another person has the question."""
    NOT_YOURS = "not yours"
    """The question is free, and only the person who has it may do this."""
    TOO_LATE = "too late"
    """The time limit of the wait has passed, and the task has noticed it."""
    CANCELLED = "cancelled"
    """The task was cancelled."""
    ENDED = "ended"
    """The task has ended, or its rows were deleted."""
    NOT_ALLOWED = "not allowed"
    """The person lacks the permission."""
    NOT_BY_YOU = "not by you"
    """The task has excluded the person, as for four eyes."""
    UNKNOWN_KIND = "unknown kind"
    """No installed app declares the kind."""
    CHANGED = "changed"
    """The question has changed in the meantime: the same act may succeed now."""
    TOO_LONG = "too long"
    """The note has too many characters."""


@dataclass(frozen=True)
class Refusal:
    """The reason why an act did not count. Its text is for the person, in the person's language."""

    reason: Reason
    text: str

    def __str__(self) -> str:
        return self.text


def before(
    alias: str, question: Question | None, user: Any, *, reader: Any = None
) -> Refusal | None:
    """Return a refusal if this person may not answer, or if the question needs no answer any more.

    Args:
        question: the row as it is now; None: it is gone.
        reader: the person who reads the refusal; None: the user, who is then addressed.
    """
    if question is None:
        return gone()
    reader = reader or user
    return of_person(question, user, reader) or _closed(alias, question, reader)


def after(alias: str, question: Question, user: Any) -> Refusal | None:
    """Return the reason why an UPDATE has changed nothing; None: it could change the row now."""
    rows = Question.objects.using(alias).filter(pk=question.pk)
    now = rows.select_related("assignee").first()
    if now is None:
        return gone()
    if closed := _closed(alias, now, user):
        return closed
    is_open = now.assignee is None or rows.filter(is_free_for(user)).exists()
    return None if is_open else _taken(now)


def unused(question: Question, refusal: Refusal, user: Any) -> str:
    """Return a refusal for the person whose answer did not count.

    Args:
        question: the row as it is now.
    """
    if question.closed_at is not None and question.answered_by_id == user.pk:
        text = _("Your second answer was not used. Your first answer of %(time)s counts.")
        return text % {"time": time_of(question.closed_at)}
    return _("Your answer was not used: %(reason)s") % {"reason": refusal}


def of_person(question: Question, user: Any, reader: Any) -> Refusal | None:
    """Return a refusal if this person may not answer, whether or not the question needs an answer."""
    kind, is_reader = find(question.kind), user.pk == reader.pk
    if kind is None:
        text = _(
            "No code here knows questions of the kind %(kind)s. Tell the people who look after this site."
        )
        return Refusal(Reason.UNKNOWN_KIND, text % {"kind": question.kind})
    if key_of(user) in question.not_by:
        text = _("%(who)s may not answer this question. Choose another person.")
        if is_reader:
            text = _(
                "You may not answer this question: another person has to. Leave it to a colleague."
            )
        return Refusal(Reason.NOT_BY_YOU, text % {"who": name_of(user)})
    if kind.allows(user):
        return None
    if not user.is_active or kind.may is None:
        return Refusal(Reason.NOT_ALLOWED, _("%(who)s is not active.") % {"who": name_of(user)})
    if is_reader:
        return lacks(kind.may)
    text = _("%(who)s lacks the permission %(permission)s. Choose another person.")
    return Refusal(Reason.NOT_ALLOWED, text % {"who": name_of(user), "permission": kind.may})


def _closed(alias: str, question: Question, reader: Any) -> Refusal | None:
    if question.closed_at is not None and (question.answered_as or question.by_machine):
        return _answered(question, reader)
    if overtaken := _overtaken(alias, question):
        return overtaken
    return None if question.closed_at is None else gone()  # the rows of its task were deleted


def lacks(permission: str) -> Refusal:
    """Return the refusal for a person without this permission."""
    text = _(
        "You lack the permission %(permission)s. Ask the people who manage the users of this site for it."
    )
    return Refusal(Reason.NOT_ALLOWED, text % {"permission": permission})


def gone() -> Refusal:
    """Return the refusal for a question whose task has ended."""
    return Refusal(
        Reason.ENDED, _("The task has ended, and needs no answer. Choose another question.")
    )


def changed() -> Refusal:
    """Return the refusal for a question that has changed and is open again."""
    return Refusal(Reason.CHANGED, _("The question has changed in the meantime. Please try again."))


def not_yours() -> Refusal:
    """Return the refusal for a question that the person does not have."""
    return Refusal(
        Reason.NOT_YOURS, _("You do not have this question, so you cannot give it back.")
    )


def _answered(question: Question, reader: Any) -> Refusal:
    if question.by_machine:
        text = _("A machine answered at %(time)s.")
    elif question.answered_by_id == reader.pk:
        text = _("You answered at %(time)s.")
    else:
        text = _("%(who)s answered at %(time)s. If you do not agree, talk to %(who)s.")
    values = {"who": question.answered_as, "time": time_at_end(question.closed_at)}
    return Refusal(Reason.ANSWERED, text % values)


def _overtaken(alias: str, question: Question) -> Refusal | None:
    """Return the refusal if the task has ended, or if its wait has, without this question."""
    task_id = question.task_id
    wait = Wait.objects.using(alias).filter(task_id=task_id, name=question.name).first()
    if wait is not None and wait.ended_at is not None:
        at = {"time": time_at_end(wait.ended_at)}
        if wait.value is None:
            text = _(
                "Too late: the time for an answer ended at %(time)s, and the task went on without one. Choose "
                "another question."
            )
            return Refusal(Reason.TOO_LATE, text % at)
        text = _("The answer came in another way at %(time)s. Choose another question.")
        return Refusal(Reason.ANSWERED, text % at)
    if Task.objects.using(alias).filter(pk=task_id).exists():
        return None
    past = FinishedTask.objects.using(alias).filter(pk=task_id).first()
    if past is None or past.outcome != Outcome.CANCELLED:
        return gone()
    text = _("The task was cancelled at %(time)s, and needs no answer. Choose another question.")
    return Refusal(Reason.CANCELLED, text % {"time": time_at_end(past.finished_at)})


def _taken(question: Question) -> Refusal:
    who = name_of(question.assignee)
    if question.taken_until is None:
        text = _(
            "%(who)s has this question. Choose another question, or ask %(who)s to give it back."
        )
        return Refusal(Reason.TAKEN, text % {"who": who})
    text = _(
        "%(who)s has this question until %(time)s. Choose another question, or ask %(who)s to give it back."
    )
    return Refusal(Reason.TAKEN, text % {"who": who, "time": time_at_end(question.taken_until)})


def time_at_end(moment: datetime | None) -> str:
    """Return a time for the end of a sentence, without a full stop of its own."""
    return time_of(moment).rstrip(".")


def time_of(moment: datetime | None) -> str:
    """Return a time in the current time zone and language, without its date if that is the current date."""
    if moment is None:
        return _("a time that cannot be read")
    local = timezone.localtime(moment)
    is_today = local.date() == timezone.localdate()
    return date_format(local, "TIME_FORMAT" if is_today else "SHORT_DATETIME_FORMAT")
