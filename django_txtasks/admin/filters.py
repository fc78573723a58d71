"""The filters beside the lists. Their choices come from code and settings, never from the table:
a SELECT DISTINCT over a million rows would cost more than the page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_txtasks.conf import get_config
from django_txtasks.declarations import registry
from django_txtasks.models import DatabaseNow, Lane, Outcome, Status, TaskQuerySet

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

MOST_LANES = 50
"""Lanes that the filter offers."""
UNKNOWN = "@unknown"
"""The filter's choice for names that are in no setting and no installed app. No queue's name has an "@"."""


class ChoiceFilter(admin.SimpleListFilter):
    """One column, compared with one of the choices; any other value in the URL finds nothing."""

    column: str

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Narrow the list to the chosen value."""
        value = self.value()
        if value is None:
            return queryset
        if value not in {choice for choice, _ in self.lookup_choices}:
            return queryset.none()
        return self.narrow(queryset, value)

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the rows of a value that is one of the choices."""
        return queryset.filter(**{self.column: value})


class StateFilter(ChoiceFilter):
    """Live tasks by state."""

    title, parameter_name, column = _("state"), "state", "status"

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, _StrOrPromise]]:
        return Status.choices


class OutcomeFilter(ChoiceFilter):
    """Finished tasks by how they ended."""

    title, parameter_name, column = _("outcome"), "outcome", "outcome"

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, _StrOrPromise]]:
        return Outcome.choices


class _NamedFilter(ChoiceFilter):
    """A column of names, and one choice for all names that are unknown here."""

    unknown: _StrOrPromise

    def known(self) -> Iterable[str]:
        raise NotImplementedError

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, _StrOrPromise]]:
        return [*((name, name) for name in self.known()), (UNKNOWN, self.unknown)]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == UNKNOWN:
            return queryset.exclude(**{f"{self.column}__in": list(self.known())})
        return super().narrow(queryset, value)


class QueueFilter(_NamedFilter):
    """Tasks by queue, for the queues of TXTASKS."""

    title, parameter_name, column = _("queue"), "queue", "queue_name"
    unknown = _("(not in TXTASKS['queues'])")

    def known(self) -> Iterable[str]:
        return get_config().queues


class LaneFilter(ChoiceFilter):
    """Tasks by lane: the first of those that workers know. Any lane's name may stand in the URL."""

    title, parameter_name, column = _("lane"), "lane", "lane"

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, _StrOrPromise]]:
        alias = model_admin.get_queryset(request).db
        known = Lane.objects.using(alias).order_by("pk").values_list("pk", flat=True)
        return [(name, name) for name in known[:MOST_LANES]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset if value is None else self.narrow(queryset, value)


class TaskFilter(_NamedFilter):
    """Tasks by task function, for the functions that installed apps declare."""

    title, parameter_name, column = _("task"), "task", "task_name"
    unknown = _("(not declared in this code)")

    def known(self) -> Iterable[str]:
        return registry.names()


class RunningFilter(ChoiceFilter):
    """Claimed tasks that nothing will end: they have no time limit, and have been running for long."""

    title, parameter_name = _("running"), "running"

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, _StrOrPromise]]:
        return [("long", _("running long without a timeout"))]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        long_ago = DatabaseNow() - get_config().long_running_after
        return queryset.filter(status=Status.CLAIMED, timeout__isnull=True, started_at__lt=long_ago)


class DueFilter(ChoiceFilter):
    """Pending tasks by whether their time has come."""

    title, parameter_name = _("due"), "due"

    def lookups(
        self, request: HttpRequest, model_admin: Any
    ) -> Iterable[tuple[str, _StrOrPromise]]:
        return [("later", _("later")), ("due", _("due")), ("overdue", _("overdue"))]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        assert isinstance(queryset, TaskQuerySet)  # noqa: S101 -- for the type checker
        if value == "later":
            return queryset.in_state(Status.PENDING).filter(run_after__gt=DatabaseNow())
        if value == "due":
            return queryset.due()
        # Two rounds of the cleaner have not helped: nobody serves the queue, or too few do.
        patience = 2 * get_config().clean_interval
        return queryset.in_state(Status.PENDING).filter(run_after__lt=DatabaseNow() - patience)
