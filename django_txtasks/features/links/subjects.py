"""From a business object to the text that its links have."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.apps import apps
from django.db import connections, router
from django.db.models import CompositePrimaryKey, Model

from django_txtasks.exceptions import InvalidOption

MOST_CHARACTERS = 200
"""Length of the column ``subject_id``. The model is not imported, because ``@task`` works before it is loaded."""


class Subject(NamedTuple):
    """A business object, as the row of a link has it.

    Attributes:
        type: the label of its model in small letters. A proxy has the label of its concrete model. Ids of content
            types would differ from database to database.
        id: its primary key, in the text that the database's own CAST makes of the column.
    """

    type: str
    id: str


def subject_of(found: Any, alias: str, where: str) -> Subject:
    """Return a saved object as a subject of tasks in one database.

    Args:
        where: the start of an error, such as "shop.tasks.pack has subject=".

    Raises:
        InvalidOption: no object of a model, no table row can be found by it, or the row is in another database.
    """
    if not isinstance(found, Model):
        kind = found if isinstance(found, type) else type(found)
        raise InvalidOption(
            f"{where} with {kind.__name__}; use an object of a model, such as an order."
        )
    label, key = type_of(type(found), where), type(found)._meta.pk
    if found._state.adding or found.pk is None:
        raise InvalidOption(
            f"{where} with an object of {label} that is not saved. Save it first, in the same transaction."
        )
    database = database_of(found)
    if database != alias:
        raise InvalidOption(
            f"{where} with an object of {label} in the database {database!r}, but the task is in {alias!r}, and a "
            f"link cannot leave its database. Enqueue the task with using={database!r}."
        )
    text = str(key.get_db_prep_value(found.pk, connections[alias]))
    if len(text) > MOST_CHARACTERS:
        raise InvalidOption(
            f"{where} with an object of {label} whose primary key has {len(text)} characters; "
            f"{MOST_CHARACTERS} is the most."
        )
    return Subject(label, text)


def type_of(model: type[Model], where: str) -> str:
    """Return the text by which links name a model.

    Args:
        where: the start of an error.

    Raises:
        InvalidOption: the primary key of the model has several columns.
    """
    label = str((model._meta.concrete_model or model)._meta.label_lower)
    if isinstance(model._meta.pk, CompositePrimaryKey):
        raise InvalidOption(
            f"{where} with {label}, whose primary key has several columns. Use a model whose primary key is one "
            "column."
        )
    return label


def model_named(label: str) -> type[Model] | None:
    """Return the model of a link; None: no installed app has it, as after a release without it."""
    try:
        return apps.get_model(label)
    except (LookupError, ValueError):
        return None


def database_of(found: Model) -> str:
    """Return the alias of the database to which an object is written, also if it was read from a replica."""
    return str(router.db_for_write(type(found), instance=found))
