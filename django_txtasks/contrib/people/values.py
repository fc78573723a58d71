"""Values of forms as JSON, which an answer keeps, and JSON as the first values of a form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django import forms
from django.contrib.auth import get_user_model
from django.core.exceptions import ValidationError
from django.db.models import Model, QuerySet
from django.utils.dateparse import parse_duration
from django.utils.duration import duration_iso_string

from django_txtasks.contrib.people.kinds import Kind
from django_txtasks.core.ground import payload
from django_txtasks.exceptions import InvalidOption


def as_json(value: Any) -> Any:
    """Return the ``cleaned_data`` of a form, or a part of it, as values that JSON has.

    An object becomes its primary key. Decimals, dates, times and UUIDs become text; a datetime with a time zone
    becomes text in UTC, so that an instant has one text. Other values stay.
    """
    if isinstance(value, Mapping):
        return {key: as_json(one) for key, one in value.items()}
    if isinstance(value, Model):
        return as_json(value.pk)
    if isinstance(value, (list, tuple, set, frozenset, QuerySet)):
        return [as_json(one) for one in value]
    if isinstance(value, timedelta):
        return duration_iso_string(value)
    if isinstance(value, datetime) and value.utcoffset() is not None:
        with suppress(OverflowError):  # on the first and the last day of the calendar
            value = value.astimezone(timezone.utc)
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
    fields = list(_fields(kind))
    names = ", ".join(fields) or "no fields"
    if not isinstance(given, Mapping):
        raise InvalidOption(
            f"{option} of question {kind.name!r} is {given!r}; use a dict with the fields of "
            f"{kind.form.__name__}: {names}."
        )
    unknown = [one for one in given if one not in fields]
    missing = [one for one in fields if one not in given] if needs_all else []
    if unknown or missing:
        wrong = f"the unknown field {unknown[0]!r}" if unknown else f"no field {missing[0]!r}"
        raise InvalidOption(
            f"{option} of question {kind.name!r} has {wrong}; {kind.form.__name__} has {names}."
        )
    values: dict[str, Any] = as_json(given)
    payload.encode(values, name=option)
    return values


def of_form(form: forms.BaseForm) -> dict[str, Any]:
    """Return the ``cleaned_data`` of a valid form as JSON.

    Raises:
        InvalidArguments: values that cannot be stored as JSON.
    """
    values: dict[str, Any] = as_json(form.cleaned_data)
    payload.encode(values, name="the answer")
    return values


def of_answer(kind: Kind, data: Any) -> dict[str, Any]:
    """Return an answer as JSON.

    Args:
        data: a valid form of the kind, which decides by itself about its fields; or a mapping with each field of
            the form's class.

    Raises:
        InvalidOption: another value, a form that is not valid, or a mapping with other fields.
        InvalidArguments: values that cannot be stored as JSON.
    """
    if not isinstance(data, forms.BaseForm):
        return checked_fields(kind, "the answer", data, needs_all=True)
    if not (isinstance(data, kind.form) and data.is_valid()):
        raise InvalidOption(
            f"the answer of question {kind.name!r} is a {type(data).__name__} that is not valid, or of another "
            f"class; use a {kind.form.__name__} whose is_valid() is True."
        )
    return of_form(data)


def as_initial(kind: Kind, suggested: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return suggested values as the first values of the form.

    The form writes a number, a date or a time in the reader's language and time zone, but leaves text as it is.
    Then the form would read 1.500 as 1500 in German.
    """
    fields = _fields(kind)
    return {name: of_field(fields.get(name), value) for name, value in (suggested or {}).items()}


def of_field(field: Any, value: Any) -> Any:
    """Return the value of a field from the text that ``as_json`` makes of it. Other text stays."""
    if isinstance(value, str):
        for kinds, read in _READ.items():
            if isinstance(field, kinds):
                with suppress(ValueError, InvalidOperation):
                    found = read(value)
                    return value if found is None else found
    return value


_READ: dict[Any, Callable[[str], Any]] = {
    forms.DecimalField: Decimal,
    (forms.DateTimeField, forms.SplitDateTimeField): datetime.fromisoformat,
    forms.DateField: date.fromisoformat,
    forms.TimeField: time.fromisoformat,
    forms.DurationField: parse_duration,
}


def agrees(suggested: Mapping[str, Any] | None, data: Mapping[str, Any]) -> bool | None:
    """Return True if the answer has each suggested value; None: nothing was suggested.

    A field that the form does not have any more does not count.
    """
    common = {name: one for name, one in (suggested or {}).items() if name in data}
    return all(data[name] == one for name, one in common.items()) if common else None


def keys_of(users: Iterable[Any], option: str) -> list[str]:
    """Return the keys of users as text, without None.

    Raises:
        InvalidOption: no collection, or a value that is no key of a user, and would exclude no user.
    """
    if isinstance(users, (str, bytes, Mapping)) or not isinstance(users, Iterable):
        raise InvalidOption(f"{option} is {users!r}; use a list of users, or of their keys.")
    return [_key(one, option) for one in users if one is not None]


def _key(user: Any, option: str) -> str:
    key: Any = get_user_model()._meta.pk
    try:
        found = key.to_python(getattr(user, "pk", user))
    except ValidationError:
        found = None
    if found is None:
        raise InvalidOption(
            f"{option} has {user!r}, which is neither a saved user nor the key of a user. Use user.pk."
        )
    return str(found)


def _fields(kind: Kind) -> Mapping[str, forms.Field]:
    fields: Mapping[str, forms.Field] = getattr(kind.form, "base_fields", {})
    return fields
