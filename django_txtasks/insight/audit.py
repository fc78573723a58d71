"""The audit: looks for rows that should not be there. It only reads, locks nothing, and counts up to a limit."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from django.db import DatabaseError, models

from django_txtasks.conf import Config
from django_txtasks.core.rows import statements
from django_txtasks.database.errors import is_timeout, text_of
from django_txtasks.database.execute import fetch_value
from django_txtasks.insight.deaths import NAME as DYING
from django_txtasks.insight.deaths import Deaths, deaths
from django_txtasks.insight.finding import MAX_COUNTED_ROWS, Finding
from django_txtasks.insight.no_writes import NAME as NO_WRITES
from django_txtasks.insight.no_writes import NoWrites, no_writes
from django_txtasks.insight.questions import QUESTIONS, Question, View
from django_txtasks.insight.reading import reading
from django_txtasks.models import Worker

MAX_EXAMPLES = 3
STATEMENT_SECONDS = 10.0
"""Longest time for one question, on PostgreSQL."""


def audit(alias: str, config: Config, long_running_after: timedelta | None = None) -> list[Finding]:
    """Return the findings, problems first.

    If the database takes no writes, this comes first, and findings that would follow from it are left out. Worker
    processes that die again and again come next.

    Args:
        long_running_after: report tasks without a time limit that a living worker has run for longer; None: as
            the setting says.
    """
    with reading(alias, STATEMENT_SECONDS):
        view = _view(alias, config, long_running_after or config.long_running_after)
        refusal = no_writes(alias, is_anyone_alive=view.is_anyone_alive)
        dying = deaths(alias)
    found = [
        finding
        for question in QUESTIONS
        if not _explains(refusal, question) and (finding := _answer(question, view))
    ]
    if dying is not None:
        found = [_without_revival(one, dying) for one in found]
        found.insert(0, Finding(DYING, dying.fact, dying.remedy, dying.suspicion))
    if refusal is not None:
        found.insert(0, Finding(NO_WRITES, refusal.fact, refusal.remedy, refusal.effect))
    return sorted(found, key=lambda finding: not finding.is_problem)


def _without_revival(found: Finding, dying: Deaths) -> Finding:
    """Return a finding without the advice to revive tasks that may end processes again."""
    if found.name != "dead" or not dying.suspects:
        return found
    functions = ", ".join(one.function for one in dying.suspects)
    return replace(
        found,
        action=f"Read why in the admin. Revive none of {functions} yet: see the problem above.",
    )


def _explains(refusal: NoWrites | None, question: Question) -> bool:
    return refusal is not None and refusal.explains and question.follows


def _view(alias: str, config: Config, long_running_after: timedelta) -> View:
    workers = tuple(Worker.objects.using(alias).order_by("id")[:MAX_COUNTED_ROWS])
    return View(alias, config, long_running_after, _now(alias), workers)


def _now(alias: str) -> datetime:
    found = fetch_value(alias, statements.NOW)
    now = found if isinstance(found, datetime) else datetime.fromisoformat(found)
    return now if now.tzinfo else now.replace(tzinfo=timezone.utc)


def _answer(question: Question, view: View) -> Finding | None:
    """Ask one question. A question that the database does not answer in time is a finding itself."""
    try:
        with reading(view.alias, STATEMENT_SECONDS):
            asked = question.ask(view)
            found = asked if isinstance(asked, list) else _ids(asked)
            causes = question.causes(view) if found else []
    except DatabaseError as error:
        return _unanswered(question, error)
    if not found:
        return None
    return Finding(
        question.name, question.title, question.action, question.meaning,
        len(found), tuple(found[:MAX_EXAMPLES]), question.is_problem, tuple(causes),
    )  # fmt: skip


def _unanswered(question: Question, error: DatabaseError) -> Finding:
    name, title = f"unanswered:{question.name}", f"question not answered: {question.title}"
    action = (
        "Ask again when the database is less busy."
        if is_timeout(error)
        else "Ask again when the error is fixed."
    )
    return Finding(name, title, action, f"The database did not answer: {text_of(error)}")


def _ids(rows: models.QuerySet[Any]) -> list[str]:
    """Return ids, at most one more than ``MAX_COUNTED_ROWS``."""
    return [str(pk) for pk in rows.order_by().values_list("pk", flat=True)[: MAX_COUNTED_ROWS + 1]]
