"""Values of forms as JSON: what an answer keeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import Model, QuerySet
from django.utils.duration import duration_iso_string

from django_txtasks.contrib.people.kinds import Kind
from django_txtasks.exceptions import InvalidOption
from django_txtasks.rules import payload


def as_json(value: Any) -> Any:
    """Return the ``cleaned_data`` of a form, or a part of it, as values that JSON has.

    An object becomes its primary key. Decimals, dates, times and UUIDs become text. Other values stay.
    """
    if isinstance(value, Mapping):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, Model):
        return as_json(value.pk)
    if isinstance(value, (list, tuple, set, frozenset, QuerySet)):
        return [as_json(one) for one in value]
    if isinstance(value, timedelta):
        return duration_iso_string(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return str(value) if isinstance(value, (Decimal, UUID)) else value


def checked_fields(kind: Kind, option: str, given: Any, *, needs_all: bool) -> dict[str, Any]:
    """Return values by field of the kind's form as JSON.

    Args:
        needs_all: True: each field of the form must be there.

    Raises:
        InvalidOption: not a mapping, or fields that the form does not have, or that are missing.
        InvalidArguments: values that cannot be stored as JSON.
    """
    fields = list(getattr(kind.form, "base_fields", {}))
    if not isinstance(given, Mapping):
        raise InvalidOption(
            f"{option} of question {kind.name!r} is {given!r}; use a dict with the fields of "
            f"{kind.form.__name__}: {', '.join(fields)}."
        )
    unknown = [one for one in given if one not in fields]
    missing = [one for one in fields if one not in given] if needs_all else []
    if unknown or missing:
        wrong = f"the unknown field {unknown[0]!r}" if unknown else f"no field {missing[0]!r}"
        raise InvalidOption(
            f"{option} of question {kind.name!r} has {wrong}; {kind.form.__name__} has {', '.join(fields)}."
        )
    values: dict[str, Any] = as_json(given)
    payload.encode(values, name=option)
    return values


def agrees(suggested: Mapping[str, Any] | None, data: Mapping[str, Any]) -> bool | None:
    """Return True if the answer has each suggested value; None: nothing was suggested."""
    if not suggested:
        return None
    return all(data.get(name) == value for name, value in suggested.items())


def keys_of(users: Collection[Any]) -> list[str]:
    """Return the keys of users as text, without None."""
    return [str(getattr(one, "pk", one)) for one in users if one is not None]
