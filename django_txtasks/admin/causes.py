"""Live tasks by cause: the filters of their list, the order in which it reads rows, and the sentence above it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import links, shown
from django_txtasks.admin.bounded import ReadOrder, order_of_tasks
from django_txtasks.admin.filters import ChoiceFilter
from django_txtasks.admin.numbers import RETRYING
from django_txtasks.core.ground.wording import whole
from django_txtasks.database.dialect import dialect_of
from django_txtasks.models import Status
from django_txtasks.stats import by_cause, releases

if TYPE_CHECKING:
    from django_txtasks.admin.filters import Choices

MAX_CHOICES = 10
"""Highest number of causes and exceptions in a filter."""
MAX_CAUSES = 200
_STOPPED = (Status.DEAD.value, Status.HELD.value, RETRYING)
"""Choices of the filter *state* beside which causes are offered."""
_LOWEST = -(2**63)
_PLACE = ("status", "queue", "low", "high")
_PART = """
    SELECT {columns} FROM {table}
     WHERE {is_failed} AND {failed_status} = {status}
       AND queue_name = {queue} AND cause >= {low} AND cause <= {high}
     ORDER BY cause, run_after, id LIMIT {limit}
"""
_PARTS = "SELECT part.* FROM (VALUES {places}) AS place(status, queue, low, high), LATERAL ({part}) AS part"
_VALUES = "(%s, %s, CAST(%s AS bigint), CAST(%s AS bigint))"


@dataclass(frozen=True)
class CauseOrder(ReadOrder):
    """The index of causes, place by place: each state, queue and cause is a range of its own.

    Attributes:
        cause: only tasks of this cause; None = of all causes.
        exception: only tasks of causes with this class path; empty = of all causes.
        state: only tasks in this state; None = in each state.
    """

    cause: int | None = None
    exception: str = ""
    state: Status | None = None
    _places: dict[str, list[tuple[str, str, int, int]]] = field(default_factory=dict, compare=False)
    _cut: set[str] = field(
        default_factory=set, compare=False
    )  # databases that may have more ranges

    def as_sql(
        self, connection: Any, table: str, columns: str, limit: int
    ) -> tuple[str, list[Any]]:
        places = self._read_places(connection.alias) or [("", "", 0, 0)]
        values = [value for place in places for value in place]
        is_postgresql, dialect = connection.vendor == "postgresql", dialect_of(connection)
        forced = f" FORCE INDEX ({self.index})" if connection.vendor == "mysql" else ""
        part = _PART.format(
            columns=columns, table=table + forced, limit=limit,
            is_failed=dialect.is_failed, failed_status=dialect.failed_status,
            **{name: f"place.{name}" if is_postgresql else "%s" for name in _PLACE},
        )  # fmt: skip
        if is_postgresql:  # it plans the part once for all places
            parts = _PARTS.format(places=", ".join([_VALUES] * len(places)), part=part)
        else:
            parts = " UNION ALL ".join([f"SELECT * FROM ({part}) AS part"] * len(places))  # noqa: S608
        return f"SELECT * FROM ({parts}) AS parts LIMIT {limit}", values  # noqa: S608

    def leaves_out(self, alias: str) -> bool:
        """Return True if there may be more ranges than the list reads."""
        self._read_places(alias)
        return alias in self._cut

    def _read_places(self, alias: str) -> list[tuple[str, str, int, int]]:
        """Return status, queue, lowest and highest cause of each range; they are read once."""
        if alias not in self._places:
            self._places[alias] = [
                (status.value, queue, low, high)
                for status, queue, low, high in self._ranges(alias)
                if self.state in (None, status)
            ]
        return self._places[alias]

    def _ranges(self, alias: str) -> Iterator[tuple[Status, str, int, int]]:
        """Yield at most ``by_cause.MAX_PROBES`` ranges, so that each database can read them in one statement."""
        first = self.state if self.state in by_cause.STATES else Status.DEAD
        if self.exception:
            wanted = set(fingerprints(alias, self.exception))
            places, is_cut = by_cause.places_of(alias, first)
            for status, queue, cause in places:
                if cause in wanted:
                    yield status, queue, cause, cause
        else:
            low, high = (_LOWEST, -_LOWEST - 1) if self.cause is None else (self.cause,) * 2
            queues, is_cut = by_cause.queues_of(alias, first)
            for status, queue in queues:
                yield status, queue, low, high
        if is_cut:
            self._cut.add(alias)


def order_of_list(chosen: Mapping[str, Any]) -> ReadOrder:
    """Return the order in which live tasks are read: by cause, if a filter asks for failed tasks."""
    state = chosen.get("state")
    cause, exception = parsed(chosen.get("cause")), chosen.get("exception") or ""
    if cause is None and not exception and state != RETRYING:
        return order_of_tasks(chosen)
    status = Status.PENDING if state == RETRYING else state
    return CauseOrder(
        "txtasks_cause", ("queue_name", "cause", "run_after", "id"), _("those of the first queues and causes"),
        list_order=("-run_after", "-id"), cause=cause, exception=exception,
        state=Status(status) if status in Status.values else None,
    )  # fmt: skip


def parsed(value: str | None) -> int | None:
    """Return the fingerprint that a URL names; None = it names none."""
    text = value or ""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
        return None
    number = int(text)
    return number if _LOWEST <= number <= -_LOWEST - 1 else None


def fingerprints(alias: str, exception: str) -> list[int]:
    """Return the causes whose newest error has this class path."""
    found = by_cause.causes(MAX_CAUSES, alias).causes
    return sorted(
        {
            one.fingerprint
            for one in found
            if one.exception == exception and one.fingerprint is not None
        }
    )


class _CausesFilter(ChoiceFilter):
    """A filter whose choices are read only in lists of tasks that have failed."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        if request.GET.get("state") not in _STOPPED and self.parameter_name not in request.GET:
            return []
        alias = model_admin.get_queryset(request).db
        return self.choices_of(by_cause.causes(MAX_CHOICES, alias).causes)

    def choices_of(self, found: Iterable[by_cause.Cause]) -> list[tuple[str, str]]:
        raise NotImplementedError


class CauseFilter(_CausesFilter):
    """Failed tasks of one cause. The choices have the most dead tasks; the URL may name any cause."""

    title, parameter_name = _("cause"), "cause"

    def choices_of(self, found: Iterable[by_cause.Cause]) -> list[tuple[str, str]]:
        return [
            (str(one.fingerprint), shown.line(f"{_name(one.exception)}: {_name(one.task)}", 60))
            for one in found
            if one.fingerprint is not None
        ]

    def takes(self, value: str) -> bool:
        return parsed(value) is not None

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(cause=parsed(value))


class ExceptionFilter(_CausesFilter):
    """Failed tasks of the causes that end with one class of exception."""

    title, parameter_name = _("exception"), "exception"

    def choices_of(self, found: Iterable[by_cause.Cause]) -> list[tuple[str, str]]:
        names = dict.fromkeys(one.exception for one in found if one.exception)
        return [(name, shown.line(name, 60)) for name in names]

    def takes(self, value: str) -> bool:
        return True

    def narrow(self, queryset: QuerySet[Any], value: str) -> QuerySet[Any]:
        return queryset.filter(cause__in=fingerprints(queryset.db, value))


def link(site_name: str, cause: int | None) -> str:
    """Return a link to the list of all tasks of a cause."""
    if cause is None:
        return shown.EMPTY
    url = links.url(site_name, "task_changelist")
    return links.to(f"{url}?cause={cause}", _("all tasks of this cause")) if url else shown.EMPTY


def sentence(alias: str, value: str | None) -> str:
    """Return how many tasks a cause has; empty if the URL names no cause."""
    cause = parsed(value)
    if cause is None:
        return ""
    numbers = by_cause.numbers_of(cause, alias)
    texts = {
        status: whole(number) + "+" * is_capped for status, (number, is_capped) in numbers.items()
    }
    return gettext("Tasks of this cause: %(dead)s dead, %(retrying)s retrying, %(held)s held.") % {
        "dead": texts[Status.DEAD],
        "retrying": texts[Status.PENDING],
        "held": texts[Status.HELD],
    }


def before_act(alias: str, value: str | None, *, revives: bool) -> tuple[str, str]:
    """Return what a page says that asks before the tasks of a cause are changed: the cause, and a warning.

    Both are empty if the URL names no cause. The warning is about tasks that would fail again.
    """
    fingerprint = parsed(value)
    cause = None if fingerprint is None else by_cause.cause_of(fingerprint, alias)
    if cause is None:
        return "", ""
    facts = {"task": cause.task, "error": cause.error or gettext("unknown error")}
    if cause.since:
        text = gettext("Cause: %(task)s has failed with %(error)s since release %(since)s.")
    else:
        text = gettext("Cause: %(task)s has failed with %(error)s.")
    about = text % (facts | {"since": cause.since})
    return about, _may_fail_again(alias, cause.since) if revives else ""


def _may_fail_again(alias: str, since: str) -> str:
    """Return why revived tasks may fail again; empty: a newer or an older release runs now."""
    running = releases.newest_running(alias)
    if since and running == since:
        text = gettext(
            "Workers still run release %(release)s. Unless something else was repaired, these tasks will fail "
            "again."
        )
        return text % {"release": since}
    if since and running:
        return ""
    return gettext("Unless the cause was repaired, these tasks will fail again.")


def _name(path: str) -> str:
    return path.rpartition(".")[2] or gettext("unknown")
