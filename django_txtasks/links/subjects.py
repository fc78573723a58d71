"""From a business object to the text that its links have."""

from __future__ import annotations

from typing import NamedTuple

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


def subject_of(found: Model, alias: str, where: str) -> Subject:
    """Return a saved object as a subject of tasks in one database.

    Args:
        where: the start of an error, such as "shop.tasks.pack has subject=".

    Raises:
        InvalidOption: no table row can be found by this object, or the row is in another database.
    """
    label, key = type_of(type(found)), type(found)._meta.pk
    if isinstance(key, CompositePrimaryKey):
        raise InvalidOption(
            f"{where} with an object of {label}, whose primary key has several columns. Use an object whose "
            "primary key is one column."
        )
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


def type_of(model: type[Model]) -> str:
    """Return the text by which links name a model."""
    concrete = model._meta.concrete_model or model
    return str(concrete._meta.label_lower)


def database_of(found: Model) -> str:
    """Return the alias of the database to which an object is written, also if it was read from a replica."""
    return str(router.db_for_write(type(found), instance=found))
