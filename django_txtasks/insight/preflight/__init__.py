"""The preflight: names and calls of all waiting tasks against the functions that this code declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache, partial

from django.db import DatabaseError, connections

from django_txtasks.database.errors import is_timeout, text_of
from django_txtasks.features.reports.whose import Living, Whose, living
from django_txtasks.features.schedules import periodic
from django_txtasks.insight.preflight.cases import (
    ELSEWHERE,
    OF_HOOK,
    Case,
    Kind,
    cases_of,
    cases_of_call,
    cases_of_hooks,
)
from django_txtasks.insight.preflight.shapes import (
    MOST_BATCHES,
    Call,
    hooks_of_batches,
    shapes_of_rows,
)
from django_txtasks.models import Schedule, Task

MOST_FINDINGS = 1_000
"""Number of different findings. Rows of further ones are only counted."""
MOST_SCHEDULES = 10_000
MOST_SHAPES = 10_000
"""Number of shapes whose cases are remembered."""
NOT_ALL = 4
"""Number in the exit code if not all rows could be read."""
EDIT_SCHEDULE = "Edit or disable the schedule, in the admin or with manage.py txtasks_schedules."
FORGET_SCHEDULE = (
    "The code no longer declares this schedule: manage.py txtasks_schedules sync disables it."
)


@dataclass
class Finding:
    """A case, with the number of its rows by state, and the id of one of them."""

    case: Case
    sample: str
    counts: Counter[str] = field(default_factory=Counter)


@dataclass
class Report:
    """The result of a preflight.

    Attributes:
        tasks, schedules: the numbers of rows that were checked.
        elsewhere: the tasks among them that were not compared, because another system has their functions.
        left_out: number of rows in findings beyond ``MOST_FINDINGS``.
        trouble: why not all rows could be read; empty = all were read.
    """

    findings: dict[Case, Finding] = field(default_factory=dict)
    tasks: int = 0
    schedules: int = 0
    elsewhere: Counter[Whose] = field(default_factory=Counter)
    left_out: int = 0
    trouble: str = ""

    @property
    def exit_code(self) -> int:
        """The sum of 1 for unknown names, 2 for arguments that do not fit, 4 if not all rows could be read."""
        numbers = {case.kind.value for case in self.findings}
        return sum(numbers) + (NOT_ALL if self.trouble or self.left_out else 0)

    def sorted(self) -> list[Finding]:
        """Return unknown names, then arguments, then notes, each by function."""
        kinds = [*Kind]
        return sorted(
            self.findings.values(), key=lambda one: (kinds.index(one.case.kind), one.case[1:])
        )

    def add(self, cases: Iterable[Case], *, state: str, count: int, sample: str) -> None:
        """Count rows that have these cases."""
        for case in cases:
            found = self.findings.get(case)
            if found is None:
                if len(self.findings) >= MOST_FINDINGS:
                    self.left_out += count
                    continue
                found = self.findings[case] = Finding(case, sample)
            found.counts[state] += count


def preflight(alias: str, seconds: float) -> Report:
    """Check the live tasks, their hooks, open batches and schedules of a database. It only reads.

    Tasks whose code is in another system are only counted: a drain hands them over, or a living worker in another
    language runs them. So are schedules of queues that are handed over.

    Args:
        seconds: longest time to read tasks, and again to read batches.
    """
    report = Report()
    if Task._meta.db_table not in connections[alias].introspection.table_names():
        return report  # a new database, before its first migrate
    crew = living(alias)
    cases = lru_cache(MOST_SHAPES)(partial(cases_of, crew))
    try:
        for shape, count, sample in shapes_of_rows(alias, seconds):
            report.tasks += count
            whose = crew.whose(shape.queue_name, shape.task_name)
            if whose in ELSEWHERE:
                report.elsewhere[whose] += count
            report.add(cases(shape), state=shape.status, count=count, sample=sample)
        batches, is_cut = hooks_of_batches(alias, seconds)
        if is_cut:
            report.trouble = f"Only {MOST_BATCHES:,} open batches were checked: there are more."
        for hooks, count, sample in batches:
            found = cases_of_hooks(crew, hooks, "a batch", OF_HOOK)
            report.add(found, state="open", count=count, sample=sample)
    except DatabaseError as error:
        if not is_timeout(error):
            raise
        report.trouble = f"Not all rows could be read in {seconds:g} s: {text_of(error)}"
    _check_schedules(report, alias, crew)
    return report


def _check_schedules(report: Report, alias: str, crew: Living) -> None:
    """Check the rows of schedules. Leave out rows that ``migrate`` replaces by what this code declares.

    A cleaner enqueues a task only if its queue is handed over, or if its code declares the function. So a worker
    in another language with this function does not help a schedule.
    """
    columns = (
        "name",
        "task_name",
        "queue_name",
        "args",
        "kwargs",
        "enabled",
        "from_code",
        "edited",
    )
    declared = periodic.declared(alias)
    rows = Schedule.objects.using(alias).order_by("pk").only(*columns)[: MOST_SCHEDULES + 1]
    for row in rows:
        if report.schedules == MOST_SCHEDULES:
            text = f"Only {MOST_SCHEDULES:,} schedules were checked: there are more."
            report.trouble = f"{report.trouble} {text}".strip()
            return
        report.schedules += 1
        if crew.whose(row.queue_name, row.task_name) is Whose.HANDED:
            continue
        is_of_code = row.from_code and not row.edited
        if is_of_code and row.name in declared:
            continue
        is_sound = isinstance(row.args, list) and isinstance(row.kwargs, dict)
        call = Call(len(row.args), tuple(sorted(row.kwargs))) if is_sound else Call(None, None)
        cases = cases_of_call(row.task_name, f"schedule {row.name}", call)
        action = FORGET_SCHEDULE if is_of_code else EDIT_SCHEDULE
        is_note = is_of_code or not row.enabled
        report.add(
            [one._replace(kind=Kind.NOTE if is_note else one.kind, action=action) for one in cases],
            state="enabled" if row.enabled else "disabled",
            count=1,
            sample=row.name,
        )
