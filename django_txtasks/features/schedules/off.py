"""Schedules that a person has turned off: for how long, by whom, and why.

The row has the time. The admin's log has the person and the reason, as for each other change that a person makes.
A site without the admin has only the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import DatabaseError, InterfaceError, router, transaction
from django.utils import translation
from django.utils.translation import gettext as _

from django_txtasks.models import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

FOR_LONG = timedelta(days=1)
"""Time after which a schedule that a person has turned off is a warning."""
MOST_ENTRIES = 1000
"""Number of entries of the admin's log that are read for all schedules that are off."""
CLOCKS = timedelta(hours=1)
"""Largest difference between the clocks of the database and of the process that wrote the admin's log."""
_LOCALE = Path(__file__).parents[2] / "locale"


def off_for(row: Any) -> timedelta | None:
    """Return for how long a schedule has been off because a person wants it so; None: it is on, or off otherwise.

    A cleaner or ``sync`` leaves an error in a row that it turns off. An imported schedule is off until a person
    turns it on for the first time.

    Args:
        row: has the attribute ``now``, the database's time.
    """
    if row.enabled or row.error or is_new_import(row):
        return None
    times = [one for one in (row.watched_from, row.last_at) if one is not None and one <= row.now]
    return row.now - max(times) if times else timedelta(0)


def is_new_import(row: Any) -> bool:
    """Return True if a schedule was imported, and no person has changed it or turned it on since."""
    has_run = row.last_at is not None or row.last_task is not None
    return not (row.from_code or row.edited or row.code_versions or row.enabled or has_run)


def said_when_off(reason: str) -> str:
    """Return what the admin's log says of a schedule that is turned off, in the language of the person."""
    text = _("turned off")
    return f"{text}: {reason}" if reason else text


def authors(since: Mapping[str, datetime]) -> dict[str, str]:
    """Return who has turned schedules off, and why, as the admin's log has it.

    Schedules without an entry are left out, and all of them if the log cannot be read. Call it outside a
    transaction of one database: the log may be in another one.

    Args:
        since: when each schedule was turned off, by name.
    """
    found: dict[str, str] = {}
    if not since or not apps.is_installed("django.contrib.admin"):
        return found
    with suppress(DatabaseError, InterfaceError):
        for name, at, who, text in _entries(since):
            if name not in found and text.startswith(_words()) and _fits(at, since[name]):
                found[name] = f"{who}, {text}"
    return found


def _entries(names: Iterable[str]) -> Iterator[tuple[str, datetime, str, str]]:
    from django.contrib.admin.models import LogEntry
    from django.contrib.contenttypes.models import ContentType

    with transaction.atomic(using=router.db_for_read(LogEntry)):
        kind = ContentType.objects.get_for_model(Schedule)
        rows = LogEntry.objects.filter(content_type=kind, object_id__in=list(names))
        for one in rows.select_related("user").order_by("-pk")[:MOST_ENTRIES]:
            yield str(one.object_id), one.action_time, str(one.user), one.get_change_message()


@cache
def _words() -> tuple[str, ...]:
    """Return the beginnings of such entries, in the languages of the package."""
    found = []
    for language in (None, *(one.name for one in _LOCALE.iterdir())):
        with translation.override(language):
            found.append(said_when_off(""))
    return tuple(found)


def _fits(at: datetime, since: datetime) -> bool:
    """Return False for an entry of an earlier time at which the schedule was turned off."""
    return (at.tzinfo is None) != (since.tzinfo is None) or at > since - CLOCKS
