"""The table of questions: one row for each question that a task has asked. The answer is in the task's wait."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from django.conf import settings
from django.db import models, router
from django.utils.translation import gettext_lazy as _

from django_txtasks.models import DatabaseNow, ExactText, Moment, PartlyIndexed, TaskId

NEVER = datetime(9999, 12, 30, tzinfo=timezone.utc)
"""The time in ``due_at`` of a question that is never overdue. A column with NULL would have no order."""
MOST_TITLE_CHARACTERS = 200
MOST_NOTE_CHARACTERS = 500


class Question(PartlyIndexed):
    """A question that a task has asked people.

    A question is open until ``closed_at``. An open question is free, or a person has it until ``taken_until``. If
    the task was cancelled, or its wait got a value in another way, the row stays open until the cleaner closes it:
    ``lists.in_force`` finds such rows.
    """

    id = models.BigAutoField(primary_key=True)
    task_id = TaskId(editable=False)
    name = ExactText(_("name"), max_length=100, help_text=_("the name of the task's wait"))
    kind = ExactText(_("kind"), max_length=100)
    title = ExactText(_("title"), max_length=MOST_TITLE_CHARACTERS)
    asked_at = Moment(_("asked"), db_default=DatabaseNow())
    due_at = Moment(_("due"), help_text=_("the year 9999: never overdue"))
    assignee = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+",
        verbose_name=_("person"), help_text=_("the person who has the question; empty = it is free"),
    )  # fmt: skip
    taken_at = Moment(_("taken"), null=True)
    taken_until = Moment(
        _("held until"), null=True, help_text=_("empty = until it is answered or given back")
    )
    hidden_until = Moment(_("hidden until"), null=True)
    suggested = models.JSONField(null=True, help_text=_("first values of the form"))
    not_by = models.JSONField(
        default=list, help_text=_("keys, as text, of the users who must not answer")
    )
    hidden_for = models.JSONField(
        default=list, db_default=models.Value([], models.JSONField()),
        help_text=_("keys, as text, of the users who do not want it in their lists"),
    )  # fmt: skip
    note = ExactText(_("note"), max_length=MOST_NOTE_CHARACTERS, db_default="", blank=True)
    noted_as = ExactText(
        _("noted as"), max_length=200, db_default="", blank=True,
        help_text=_("the name of the person who wrote the note"),
    )  # fmt: skip
    by_machine = models.BooleanField(_("by a machine"), db_default=False)
    agreed = models.BooleanField(
        _("agreed"), null=True, help_text=_("the answer was as suggested; empty = nothing was")
    )
    answered_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+",
        verbose_name=_("answered by"), db_index=False,
    )  # fmt: skip
    answered_as = ExactText(
        _("answered as"), max_length=200, db_default="",
        help_text=_("the name of the person, which stays when the user is deleted"),
    )  # fmt: skip
    closed_at = Moment(_("closed"), null=True, help_text=_("empty = the question is open"))

    objects: models.Manager[Question] = models.Manager()

    class Meta:
        db_table = "txtasks_question"
        verbose_name = _("question")
        verbose_name_plural = _("questions")
        default_permissions = ("view",)
        permissions = (("assign_question", _("Can give questions to other people")),)
        constraints = (
            models.UniqueConstraint(fields=["task_id", "name"], name="txtasks_question_once"),
        )
        # PostgreSQL would sort after a search for IS NULL, so it needs the condition. MariaDB and MySQL, whose
        # indexes have no conditions, use the second index for both.
        indexes = (
            models.Index(
                fields=["kind", "due_at", "id"],
                name="txtasks_question_open", condition=models.Q(closed_at__isnull=True),
            ),
            models.Index(
                fields=["closed_at", "kind", "due_at", "id"], name="txtasks_question_closed"
            ),
            models.Index(fields=["answered_by", "closed_at"], name="txtasks_question_answers"),
        )  # fmt: skip

    def __str__(self) -> str:
        return str(self.title)

    @property
    def due(self) -> datetime | None:
        """The time from which the question is overdue; None: never."""
        return None if self.due_at >= NEVER else self.due_at


def alias_of_people() -> str:
    """Return the alias of the database with the questions, which must be that of the users and the tasks."""
    return router.db_for_write(Question)


def key_of(user: Any) -> str:
    """Return the key of a user as text, as ``not_by`` has it.

    Args:
        user: a user, or a user's primary key.
    """
    return str(getattr(user, "pk", user))


def name_of(user: Any) -> str:
    """Return the name of a user for people: the full name, or the user name if it is empty."""
    full = getattr(user, "get_full_name", str)()
    return str(full or user.get_username())[:200]
