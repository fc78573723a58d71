"""The person who has a question: conditions for its row, which depend on the time of the database's clock."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Exists, OuterRef, Q

from django_txtasks.contrib.people.kinds import Kind
from django_txtasks.models import DatabaseNow


def is_free() -> Q:
    """Return the condition that no person has the question, that ``hold`` has passed or the user is inactive."""
    free = Q(assignee=None) | Q(taken_until__lte=DatabaseNow())
    if not has_inactive_users():
        return free
    users = get_user_model()
    inactive = users._base_manager.filter(pk=OuterRef("assignee_id"), is_active=False)
    return free | Q(Exists(inactive))


def has_inactive_users() -> bool:
    """Return True if users have a column ``is_active``. A project's own users may always be active."""
    try:
        get_user_model()._meta.get_field("is_active")
    except FieldDoesNotExist:
        return False
    return True


def is_free_for(user: Any) -> Q:
    """Return the condition that this person may take or answer the question: it is free, or the person has it."""
    return Q(assignee=user.pk) | is_free()


def held_by(user: Any, kind: Kind) -> dict[str, Any]:
    """Return the columns of a question that this person has from now on."""
    until = None if kind.hold is None else DatabaseNow() + kind.hold
    return {"assignee_id": user.pk, "taken_at": DatabaseNow(), "taken_until": until}


FREE_COLUMNS: dict[str, Any] = {"assignee_id": None, "taken_at": None, "taken_until": None}
"""The columns of a question that no person has."""
