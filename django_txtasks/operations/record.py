"""The trace of a call: one entry of the admin's log, and one signal. Each changed task has its own signal, too."""

from __future__ import annotations

import getpass
from typing import Any
from uuid import UUID

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldError
from django.db import DatabaseError, InterfaceError, router, transaction
from django.db.models import Model
from django.utils.translation import gettext as _

from django_txtasks import signals
from django_txtasks.core.ground import payload
from django_txtasks.models import Task
from django_txtasks.operations.choice import Choice
from django_txtasks.operations.moved import Moved

MAX_CHARACTERS = 200


def user_of_process() -> str:
    """Return the name of the user who runs this process; empty if unknown."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return ""


class Record:
    """The trace of one call.

    An entry of the admin's log needs a user of the site. If a call has no user of the site, as in a shell, the
    entry gets the user with the name of the system's user. If there is no such user, it gets the first active
    superuser. Its text names the system's user.
    """

    def __init__(
        self, name: str, done: str, choice: Choice, by: Any, *, task: UUID | None = None
    ) -> None:
        """Begin the trace.

        Args:
            task: the task whose first entry in the admin's log gets the counts, instead of an entry of its own.
        """
        self._name, self._done, self._choice = name, done, choice
        self._by = payload.storable(str(by) or user_of_process()) or "?"
        self._entry: Any = None
        has_log = apps.is_installed("django.contrib.admin")
        if has_log and task is not None:
            self._entry = _first_entry_of(task)
        self._user_id: Any = _user_of(by, self._by) if has_log and task is None else None

    def note(self, moved: Moved) -> None:
        """Write the counts so far into the entry, in the transaction of the slice."""
        if not moved.changed:
            return
        if self._entry is None and self._user_id is not None:
            self._entry = self._new_entry(moved)
        if self._entry is not None:
            self._entry.change_message = self._text(moved)
            self._entry.save()

    def tell(self, moved: Moved) -> None:
        """Send the signal of the whole call."""
        if moved.changed:
            signals.tasks_operated.emit(
                verb=self._name, changed=moved.changed, choice=str(self._choice), by=self._by
            )

    def _text(self, moved: Moved) -> str:
        facts = {"done": self._done, "n": moved.changed, "which": self._choice, "by": self._by}
        return payload.storable(_("Tasks %(done)s: %(n)s (%(which)s), by %(by)s.") % facts)

    def _new_entry(self, moved: Moved) -> Any:
        from django.contrib.admin.models import CHANGE, LogEntry
        from django.contrib.contenttypes.models import ContentType

        only = moved.samples[0] if len(self._choice.ids) == 1 else None
        shown = f"{only.task} {only.id}" if only is not None else str(self._choice)
        return LogEntry(
            user_id=self._user_id,
            content_type_id=ContentType.objects.get_for_model(Task).pk,
            object_id=None if only is None else str(only.id),
            object_repr=payload.storable(shown)[:MAX_CHARACTERS],
            action_flag=CHANGE,
        )


def note_act(row: Model, text: str, by: str) -> bool:
    """Write into the admin's log that a command has changed a row, for the user whom ``Record`` names.

    Returns:
        False: it was not written. The admin is not installed, there is no user, or this process may not write it.
    """
    if not apps.is_installed("django.contrib.admin"):
        return False
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    try:
        with transaction.atomic(using=router.db_for_write(LogEntry)):
            user = _user_of(by, by)
            if user is None:
                return False
            LogEntry.objects.create(
                user_id=user,
                content_type_id=ContentType.objects.get_for_model(type(row)).pk,
                object_id=str(row.pk),
                object_repr=payload.storable(str(row))[:MAX_CHARACTERS],
                action_flag=CHANGE,
                change_message=payload.storable(f"{text} ({by})" if by else text),
            )
    except (DatabaseError, InterfaceError):
        return False
    return True


def _user_of(by: Any, name: str) -> Any:
    """Return the key of the user that an entry gets; None = there is no such user.

    Args:
        by: a user of the site, or a name.
        name: the name of the system's user.
    """
    if getattr(by, "pk", None) is not None:
        return by.pk
    users: Any = get_user_model()._default_manager.order_by("pk")
    namesake = users.filter(**{get_user_model().USERNAME_FIELD: name}).first()
    if namesake is not None:
        return namesake.pk
    try:
        superuser = users.filter(is_superuser=True, is_active=True).first()
    except FieldError:  # the project's users have no such fields
        return None
    return None if superuser is None else superuser.pk


def _first_entry_of(task: UUID) -> Any:
    """Return the entry that was written when the task was ordered; None = it was deleted."""
    from django.contrib.admin.models import LogEntry
    from django.contrib.contenttypes.models import ContentType

    content_type = ContentType.objects.get_for_model(Task)
    entries = LogEntry.objects.filter(content_type=content_type, object_id=str(task))
    return entries.order_by("pk").first()
