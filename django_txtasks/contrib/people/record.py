"""Entries of the admin's log, if the admin is installed."""

from __future__ import annotations

from typing import Any

from django.apps import apps

from django_txtasks.contrib.people.models import Question

MAX_CHARACTERS = 200


def note_in_log(user: Any, question: Question, text: str) -> None:
    """Write that this user has changed the question into the admin's log."""
    if not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    LogEntry.objects.create(
        user_id=user.pk,
        content_type_id=ContentType.objects.get_for_model(Question).pk,
        object_id=str(question.pk),
        object_repr=str(question)[:MAX_CHARACTERS],
        action_flag=CHANGE,
        change_message=text,
    )
