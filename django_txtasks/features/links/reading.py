"""The tasks of a business object, and the state of a task as an expression of a query."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections
from django.db.models import Model, OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Coalesce

from django_txtasks.exceptions import InvalidOption
from django_txtasks.features.links.subjects import database_of, model_named, subject_of, type_of
from django_txtasks.models import GONE, ExactText, FinishedTask, Link, Outcome, Status, Task

_WITH_ROW = [*Status.values, *Outcome.values]


def tasks_of(subject: Model | QuerySet[Any] | type[Model]) -> QuerySet[Any]:
    """Return the links of the tasks that are about an object, live and finished, the newest first.

    Each link has ``task_id``, ``task_name`` and ``task_state``, which is the result of ``status_of``, and also
    ``subject_type`` and ``subject_id``. Read a part, such as ``tasks_of(order)[:20]``: no index helps to count.

    Args:
        subject: a saved object; a queryset, for the tasks of all its objects; or a model, for a subquery:
            ``Order.objects.filter(Exists(tasks_of(Order).filter(task_state="dead")))``.

    Raises:
        InvalidOption: another value, or an object that is not saved.
    """
    found: QuerySet[Any] = links_of(subject).annotate(task_name=_name(), task_state=state())
    return found.filter(task_state__in=_WITH_ROW)


def links_of(subject: Model | QuerySet[Any] | type[Model]) -> QuerySet[Link]:
    """Return the links of ``tasks_of()``, and those whose task has no row any more. It raises the same."""
    where, links = "tasks_of() was called", Link._default_manager.order_by("-task_id")
    if isinstance(subject, QuerySet):
        label = type_of(subject.model, where)
        keys = subject.values(txtasks_subject=_as_text("pk"))
        return links.using(subject.db).filter(subject_type=label, subject_id__in=keys)
    if isinstance(subject, type) and issubclass(subject, Model):
        return links.filter(
            subject_type=type_of(subject, where), subject_id=_as_text(OuterRef("pk"))
        )
    if isinstance(subject, Model):
        alias = database_of(subject)
        one = subject_of(subject, alias, where)
        return links.using(alias).filter(subject_type=one.type, subject_id=one.id)
    raise InvalidOption(
        f"{where} with {type(subject).__name__}; use an object, a queryset, or a model."
    )


def links_named(alias: str, subject_type: str, subject_id: str) -> QuerySet[Link]:
    """Return the links of the tasks about one object, the newest first; the object may have been deleted.

    Args:
        subject_type: label of the model, in any case of letters. A proxy has the links of its concrete model.
        subject_id: the primary key as text, in any form that the model's field takes.
    """
    label, key, model = subject_type.lower(), subject_id, model_named(subject_type)
    if model is not None:
        label = type_of(model, "A task is linked")
        field = model._meta.pk
        with suppress(ValidationError, ValueError, TypeError):
            key = str(field.get_db_prep_value(field.to_python(subject_id), connections[alias]))
    links = Link._default_manager.using(alias).order_by("-task_id")
    return links.filter(subject_type=label, subject_id=key)


def state() -> Coalesce:
    """Return the state of the task whose id is in the column ``task_id``, as an expression.

    Each look is a subquery for one value. For EXISTS or a join, a planner could read all tasks.
    """
    served_by = FinishedTask._default_manager.filter(
        pk=OuterRef("task_id"), outcome=Outcome.MERGED, merged_into__isnull=False
    )
    return Coalesce(
        _live("task_id", "status"),
        Subquery(
            served_by.values(
                txtasks_state=Coalesce(
                    _live("merged_into", "status"),
                    _finished("merged_into", "outcome"),
                    Value(GONE),
                    output_field=ExactText(),
                )
            )
        ),
        _finished("task_id", "outcome"),
        Value(GONE),
        output_field=ExactText(),
    )


def _name() -> Coalesce:
    return Coalesce(_live("task_id", "task_name"), _finished("task_id", "task_name"))


def _live(task_id: str, column: str) -> Subquery:
    return Subquery(Task._default_manager.filter(pk=OuterRef(task_id)).values(column))


def _finished(task_id: str, column: str) -> Subquery:
    return Subquery(FinishedTask._default_manager.filter(pk=OuterRef(task_id)).values(column))


def _as_text(key: Any) -> Cast:
    return Cast(key, TextField())
