"""The cost of the queue for its database: transactions, rows and sessions of its processes, growth of history.

The processes count for themselves. PostgreSQL's ``pg_stat_database`` would count the whole site, and MariaDB the
whole server; both would have to be read twice, and know nothing of a day. The INSERT of a task is in the
transaction of the site, so it adds a row here, and no transaction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import Q, TextField
from django.db.models.functions import Cast

from django_txtasks.conf import get_config
from django_txtasks.core.ground.wording import counted
from django_txtasks.core.rows import cleaners
from django_txtasks.core.rows.workers import DRAIN_MARK, texts_in
from django_txtasks.database import sessions as known
from django_txtasks.database.transactions import is_in_test_case
from django_txtasks.insight.history_cost import history_cost
from django_txtasks.models import DatabaseNow, Worker
from django_txtasks.stats import sums

HOUR = timedelta(hours=1)
MOST_WORKERS = 5_000
HISTORY_MAX_AGE_SECONDS = 600.0
"""Age up to which a process shows the growth of history again: it reads 2,000 rows."""


@dataclass(frozen=True)
class DatabaseCost:
    """The cost of the queue for its database. None = not known.

    Attributes:
        transactions_per_second, rows_per_second, tasks_per_second: on average in the last hour. Rows were
            inserted, updated or deleted. Without ``stats`` the three are not known.
        sessions: database sessions of living workers, cleaners and drains. Not known behind a pooler, and on
            SQLite.
        history_mb_per_day: megabytes that finished tasks have added in the last day.
    """

    transactions_per_second: float | None = None
    rows_per_second: float | None = None
    tasks_per_second: float | None = None
    sessions: int | None = None
    history_mb_per_day: float | None = None

    @property
    def transactions_per_task(self) -> float | None:
        """Transactions for each task that has ended; None = none has ended."""
        return _ratio(self.transactions_per_second, self.tasks_per_second)

    @property
    def rows_per_task(self) -> float | None:
        """Written rows for each task that has ended; None = none has ended."""
        return _ratio(self.rows_per_second, self.tasks_per_second)

    @property
    def text(self) -> str:
        """The cost in a line, for commands; empty = nothing is known."""
        parts = []
        if self.transactions_per_second is not None:
            parts.append(
                f"{self.transactions_per_second:.1f} transactions/s{_each(self.transactions_per_task)}"
            )
        if self.rows_per_second is not None:
            parts.append(f"{self.rows_per_second:.1f} rows written/s{_each(self.rows_per_task)}")
        if self.sessions is not None:
            parts.append(counted(self.sessions, "session"))
        if self.history_mb_per_day is not None:
            parts.append(f"{self.history_mb_per_day:.1f} MB of history in the last day")
        return f"Cost for the database in the last hour: {', '.join(parts)}." if parts else ""

    def as_json(self) -> dict[str, Any]:
        """Return the cost for machines."""
        ratios = ("transactions_per_task", "rows_per_task")
        return {**asdict(self), **{name: getattr(self, name) for name in ratios}}


class Excess(NamedTuple):
    """A number above its bound in ``TXTASKS["database_budget"]``."""

    name: str
    value: float
    bound: float


def database_cost(using: str = "default") -> DatabaseCost:
    """Return what the queue costs this database.

    Raises:
        DatabaseError: the database cannot be reached, or has no task tables.
    """
    sessions = sessions_of(using)
    if not get_config().stats:
        return DatabaseCost(sessions=sessions)
    last = sums(HOUR, using)
    return DatabaseCost(
        transactions_per_second=last.transactions / last.seconds,
        rows_per_second=(last.rows_written + last.ended) / last.seconds,
        tasks_per_second=last.ended / last.seconds,
        sessions=sessions,
        history_mb_per_day=_history(using),
    )


def over_budget(cost: DatabaseCost) -> Iterator[Excess]:
    """Yield the numbers that are above their bounds."""
    for name, bound in get_config().database_budget.items():
        value = getattr(cost, name)
        if value is not None and value > bound:
            yield Excess(name, value, bound)


def sessions_of(alias: str) -> int | None:
    """Return the number of database sessions of living processes; None = not known."""
    if connections[alias].vendor == "sqlite":
        return None
    # as text: Python cannot parse each JSON that a database takes
    columns = {
        f"{name}_text": Cast(name, TextField()) for name in ("task_names", "sessions", "queues")
    }
    rows = (
        Worker.objects.using(alias)
        .annotate(now=DatabaseNow(), **columns)
        .annotate(is_drain=Q(task_names_text__contains=DRAIN_MARK))
        .filter(lost=False)
        .only("listening", "seen_at", "lease")[:MOST_WORKERS]
    )
    each = [_sessions(row, alias) for row in rows if not row.is_silent(row.now)]
    if not all(each):
        return None
    return sum(each) + sum(
        one.interval is not None and one.is_there for one in cleaners.seen(alias)
    )


def _sessions(row: Any, alias: str) -> int:
    """Return the sessions of one process; 0 = not known."""
    count = sum(map(known.is_known, texts_in(row.sessions_text)))
    listens = row.listening is not None and get_config().broker_url is None
    has_listener = listens and connections[alias].vendor == "postgresql"
    of_queues = (
        len(texts_in(row.queues_text)) * (1 + has_listener) if row.is_drain else has_listener
    )
    return count and count + of_queues


_kept: dict[str, tuple[float, float]] = {}


def _history(alias: str) -> float:
    at, size = _kept.get(alias, (0.0, 0.0))
    now = time.monotonic()
    if not at or now - at >= HISTORY_MAX_AGE_SECONDS or is_in_test_case(alias):
        size = float(history_cost(alias).mb_a_day)
        _kept[alias] = (now, size)
    return size


def forget() -> None:
    """Forget the growth of history that was read."""
    _kept.clear()


def _each(per_task: float | None) -> str:
    return "" if per_task is None else f" ({per_task:.1f} per task)"


def _ratio(number: float | None, tasks: float | None) -> float | None:
    return number / tasks if number is not None and tasks else None
