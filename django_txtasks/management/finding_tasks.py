"""The tasks that a person names on the command line: by id, or by a business object."""

from __future__ import annotations

import uuid

from django.apps import apps
from django.core.management.base import CommandError

from django_txtasks.exceptions import InvalidOption
from django_txtasks.features.links.reading import links_named
from django_txtasks.features.links.subjects import model_named
from django_txtasks.insight.finding import manage
from django_txtasks.management.console import near
from django_txtasks.models import FinishedTask, Task


def id_of(text: str, alias: str) -> uuid.UUID:
    """Return an id.

    Raises:
        CommandError: not an id. The message names the way by a business object.
    """
    try:
        return uuid.UUID(text)
    except ValueError:
        by_object = manage("txtasks_explain --of shop.order 31", alias)
        raise CommandError(
            f"{text!r} is not the id of a task, which is a UUID. To find the tasks of a business object by its "
            f"model and its key: {by_object}"
        ) from None


def tasks_of_object(alias: str, model: str, key: str, most: int) -> list[tuple[uuid.UUID, str]]:
    """Return id and function of the newest tasks of a business object; the function is empty if the row is gone.

    Raises:
        CommandError: no task was found.
    """
    try:
        ids = list(links_named(alias, model, key).values_list("task_id", flat=True)[:most])
    except InvalidOption as error:
        raise CommandError(str(error)) from None
    if not ids:
        raise CommandError(_without_links(alias, model, key))
    names: dict[uuid.UUID, str] = {}
    for table in (FinishedTask, Task):
        rows = table._default_manager.using(alias).filter(pk__in=ids)
        names.update(rows.values_list("pk", "task_name"))
    return [(one, names.get(one, "")) for one in ids]


def _without_links(alias: str, model: str, key: str) -> str:
    if model_named(model) is None:
        meant = near(model.lower(), [one._meta.label_lower for one in apps.get_models()])
        return (
            f"No installed app has the model {model!r}{meant}. Give app.model, such as shop.order."
        )
    return (
        f"No task in database {alias!r} is linked to {model} {key}. A task is linked by using(subject=…) or "
        "ctx.link(). Its link goes with its row, so a task that has finished and is not kept "
        "(TXTASKS['keep_finished']) has none."
    )
