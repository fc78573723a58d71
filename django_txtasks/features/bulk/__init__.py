"""The task ``django_txtasks.bulk``: it changes tasks for a person, if they are too many for one request.

Each process declares it, as it declares the notices. So this module is small, and imports the operations only
where such a task runs. ``ordering`` enqueues it.
"""

from __future__ import annotations

from typing import Any

from django_txtasks.context import TaskContext
from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.declaring import declaration_of
from django_txtasks.functions import TaskFunction

NAME = "django_txtasks.bulk"  # also in ``operations.pages``, which not every process imports


def _bulk(
    context: TaskContext,
    *,
    verb: str,
    status: str,
    filters: dict[str, Any],
    click: list[str],
    spread: float,
    by: str,
    total: int | None,
) -> dict[str, Any]:
    """Change all tasks of a choice in slices, and return the counts of all attempts.

    Another attempt goes on behind the last slice. It leaves alone the tasks of earlier slices.

    Args:
        click: the moment of the order; tasks that come later are left.
        total: the number of chosen tasks; None = unknown.
    """
    from django_txtasks.features.bulk.attempt import BulkAttempt
    from django_txtasks.models import Status
    from django_txtasks.operations.choice import Choice
    from django_txtasks.operations.rows import Click
    from django_txtasks.operations.slices import Order

    order = Order(
        name=verb, choice=Choice(**filters), alias=context._alias, spread=spread, by=by,
        status=Status(status), clicked=Click(*click), task=context.task_id,
        watcher=BulkAttempt(context, total),
    )  # fmt: skip
    *_, moved = order.carry_out()
    return moved.as_json()


_DECLARATION = declaration_of(_bulk, name=NAME, options={"idempotent": True, "takes_context": True})
registry.register(_DECLARATION)
bulk: TaskFunction[..., Any] = TaskFunction(_bulk, _DECLARATION)
