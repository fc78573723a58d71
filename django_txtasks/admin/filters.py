"""Filters of the lists. Their choices come from code and settings, not from the table.

SELECT DISTINCT over a million rows would cost more than the page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin.bounded import BY_KEY
from django_txtasks.admin.numbers import RETRYING, by_queue, by_state, with_numbers
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.models import DatabaseNow, Lane, Outcome, Status, TaskQuerySet

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

    Choices = Iterable[tuple[str, _StrOrPromise]]
    """Values of a filter, each with its label."""

MOST_LANES = 50
"""Highest number of lanes in the filter."""
UNKNOWN = "@unknown"
"""Choice for names that no setting and no installed app has. A queue name never contains "@"."""


class ChoiceFilter(admin.SimpleListFilter):
    """Filter on one column. A value that is not among the choices finds nothing."""

    column: str

    def has_output(self) -> bool:
        """Stay in the list while a value is chosen: Django drops a filter that has no choices, with its value."""
        return super().has_output() or self.value() is not None

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Narrow the list to the chosen value."""
        value = self.value()
        if value is None:
            return queryset
        return self.narrow(queryset, value) if self.takes(value) else queryset.none()

    def takes(self, value: str) -> bool:
        """Return True for the values that may find rows."""
        return value in {choice for choice, _ in self.lookup_choices}

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the rows for a value that the filter takes."""
        return queryset.filter(**{self.column: value})


class StateFilter(ChoiceFilter):
    """Live tasks by state. Tasks that are retried are pending, and a choice of their own."""

    title, parameter_name, column = _("state"), "state", "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [*Status.choices, (RETRYING, _("retrying"))]

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Add the numbers, which are read only where the page is shown."""
        labels = {value: str(label) for value, label in self.lookup_choices}
        return with_numbers(
            super().choices(changelist),
            changelist,
            lambda found: {labels[state]: count for state, count in by_state(found).items()},
        )

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        if value == RETRYING:
            return queryset.filter(status=Status.PENDING, cause__isnull=False)
        return super().narrow(queryset, value)


class OutcomeFilter(ChoiceFilter):
    """Finished tasks by outcome."""

    title, parameter_name, column = _("outcome"), "outcome", "outcome"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return Outcome.choices


class _NamedFilter(ChoiceFilter):
    """Filter on a column of names, with one more choice for all unknown names."""

    unknown: _StrOrPromise

    def known(self) -> Iterable[str]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
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

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Add the numbers of the chosen state."""
        state = changelist.params.get("state")
        state = state[-1] if isinstance(state, list) else state
        return with_numbers(
            super().choices(changelist), changelist, lambda found: by_queue(found, state)
        )


class _AnyName(ChoiceFilter):
    """Filter on a column of names, of which the URL may have any."""

    def takes(self, value: str) -> bool:
        return "\0" not in value  # PostgreSQL refuses a statement with a NUL


class LaneFilter(_AnyName):
    """Tasks by lane. The choices are the first lanes by name; the URL may name any lane."""

    title, parameter_name, column = _("lane"), "lane", "lane"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        alias = model_admin.get_queryset(request).db
        known = Lane.objects.using(alias).order_by("pk").values_list("pk", flat=True)
        return [(name, name) for name in known[:MOST_LANES]]


class TaskFilter(_NamedFilter, _AnyName):
    """Tasks by task function. The choices are the declared functions; the URL may name any function."""

    title, parameter_name, column = _("task"), "task", "task_name"
    unknown = _("(not declared in this code)")

    def known(self) -> Iterable[str]:
        return registry.names()


class RunningFilter(ChoiceFilter):
    """Claimed tasks without a time limit that have been running for long."""

    title, parameter_name = _("running"), "running"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [("long", _("running long without a timeout"))]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        assert isinstance(queryset, TaskQuerySet)  # noqa: S101 -- for the type checker
        return queryset.running_long(get_config().long_running_after)


class DueFilter(ChoiceFilter):
    """Pending tasks by due time."""

    title, parameter_name = _("due"), "due"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [("later", _("later")), ("due", _("due")), ("overdue", _("overdue"))]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        assert isinstance(queryset, TaskQuerySet)  # noqa: S101 -- for the type checker
        if value == "later":
            return queryset.in_state(Status.PENDING).filter(run_after__gt=DatabaseNow())
        if value == "due":
            return queryset.due()
        # The cleaner has sent hints in two passes without effect: the queue has no worker, or too few.
        patience = 2 * get_config().clean_interval
        return queryset.in_state(Status.PENDING).filter(run_after__lt=DatabaseNow() - patience)


class TwiceFilter(ChoiceFilter):
    """Tasks of which an attempt finished although its worker had been declared lost."""

    title, parameter_name = _("late finishes"), BY_KEY

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        return [("yes", _("may have run twice"))]

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        from django_txtasks.insight.twice import ids_of  # imported by this filter alone

        return queryset.filter(pk__in=ids_of(queryset.db, queryset.model))
