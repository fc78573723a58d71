"""The choice of tasks that an operation changes: ids, or filters from a closed list."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.timezone import is_aware

from django_txtasks.core.ground.wording import counted
from django_txtasks.exceptions import InvalidChoice

FILTERS = ("queue", "task", "cause", "error", "lane", "since")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The chosen tasks. All filters that are given must match.

    Attributes:
        ids: ids of tasks; then there are no filters.
        queue, task, lane: the exact name.
        cause: fingerprint of the last failure, as in the column.
        error: text in the last error's class or message, in any case of letters.
        since: tasks that were due at or after this time, or not longer ago than this. A retried task was due when
            its last attempt was due.
        limit: the highest number of tasks.
    """

    ids: tuple[uuid.UUID, ...] = ()
    queue: str | None = None
    task: str | None = None
    cause: int | None = None
    error: str | None = None
    lane: str | None = None
    since: datetime | timedelta | None = None
    limit: int | None = None

    @property
    def filters(self) -> dict[str, Any]:
        """The filters that are given, by name."""
        return {name: found for name in FILTERS if (found := getattr(self, name)) is not None}

    def __str__(self) -> str:
        if len(self.ids) == 1:
            return str(self.ids[0])
        if self.ids:
            return counted(len(self.ids), "id")
        said = [f"{name}={value}" for name, value in self.filters.items()]
        return ", ".join(said + [f"limit={self.limit}"] * (self.limit is not None))


def choice_of(ids: Iterable[uuid.UUID | str] | uuid.UUID | str, **filters: Any) -> Choice:
    """Return the choice, checked.

    Raises:
        InvalidChoice: neither an id nor a filter, both of them, or a value that no task can have.
    """
    several = [ids] if isinstance(ids, (str, uuid.UUID)) else ids
    choice = Choice(ids=tuple(dict.fromkeys(map(id_of, several))), **filters)
    if not choice.ids and not choice.filters:
        raise InvalidChoice(
            f"Say which tasks: their ids, or a filter ({', '.join(FILTERS)}). No call changes all tasks."
        )
    if choice.ids and (choice.filters or choice.limit is not None):
        raise InvalidChoice(f"Ids were given, and also {_given(choice)}. Leave one of them out.")
    for name in ("queue", "task", "error", "lane"):
        value = getattr(choice, name)
        if value is not None and not (isinstance(value, str) and value and "\0" not in value):
            raise InvalidChoice(f"{name} is {value!r}; it must be text, and not empty.")
    for name, least, most in (("cause", -(2**63), 2**63 - 1), ("limit", 1, 2**31)):
        value = getattr(choice, name)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_number and least <= value <= most):
            raise InvalidChoice(f"{name} is {value!r}; it must be a whole number from {least} on.")
    _check_since(choice.since)
    return choice


def id_of(value: uuid.UUID | str) -> uuid.UUID:
    """Return an id.

    Raises:
        InvalidChoice: not an id, for example only its beginning.
    """
    if isinstance(value, uuid.UUID):
        return value
    try:
        return uuid.UUID(value)
    except (ValueError, AttributeError, TypeError):
        raise InvalidChoice(
            f"{value!r} is not the full id of a task. An id has 32 hexadecimal digits, such as "
            "01a208ef-62c3-7faa-8073-9693b620cb0c."
        ) from None


def seconds_of(spread: Any) -> float:
    """Return a span in seconds; 0 for None.

    Raises:
        InvalidChoice: not a time, or a negative one.
    """
    if spread is None:
        return 0.0
    seconds = spread.total_seconds() if isinstance(spread, timedelta) else spread
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    if not (is_number and 0 <= seconds <= timedelta(days=365).total_seconds()):
        raise InvalidChoice(
            f"spread is {spread!r}; it must be a timedelta or seconds, from 0 to 365 days."
        )
    return float(seconds)


def _check_since(since: Any) -> None:
    if since is None:
        return
    if isinstance(since, timedelta):
        if since <= timedelta(0) or since > timedelta(days=36_500):
            raise InvalidChoice(f"since is {since}; as a timedelta it must be more than 0.")
    elif not (isinstance(since, datetime) and is_aware(since)):
        raise InvalidChoice(
            f"since is {since!r}; it must be a datetime with a time zone, or a timedelta."
        )


def _given(choice: Choice) -> str:
    return ", ".join([*choice.filters, *["limit"] * (choice.limit is not None)])
