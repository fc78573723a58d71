"""A task asks: the row of its question, in the transaction of its wait.

In the comments, T is the task that asks, and P is a person who answers. Locks are taken in this order: the task's
row, its wait, its question.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model

from django_txtasks.context import TaskContext, steps_of
from django_txtasks.contrib.people import values
from django_txtasks.contrib.people.holding import held_by
from django_txtasks.contrib.people.kinds import Kind
from django_txtasks.contrib.people.models import (
    MOST_TITLE_CHARACTERS,
    NEVER,
    Question,
    alias_of_people,
    key_of,
)
from django_txtasks.core.ground import payload
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.exceptions import InvalidOption, StepRefused, Suspended, WaitTimedOut
from django_txtasks.features.steps import waits
from django_txtasks.features.steps.context import moment_of, span_of
from django_txtasks.features.steps.waits import WaitRow
from django_txtasks.functions import TaskFunction
from django_txtasks.models import DatabaseNow, Wait

Machine = Callable[[], Mapping[str, Any] | None]


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
        data: the cleaned values of the form as JSON, by field.
        by: primary key of the user who has answered; None: a machine, a token, or a user who was deleted.
        name: the name of that user at the time of the answer; empty: no person.
    """

    data: Any
    by: Any
    name: str


class Seen(NamedTuple):
    """The rows of a wait and of its question; None: the wait's value came in another way."""

    wait: WaitRow
    question: Question | None


@dataclass
class Asking:
    """One call of ``Kind.ask``, which describes the fields."""

    kind: Kind
    name: str
    title: str
    suggested: Mapping[str, Any] | None
    to: Any
    not_by: Collection[Any]
    due: datetime | timedelta | float | None
    timeout: timedelta | float | None
    on_due: TaskFunction[..., Any] | None

    def run(self, ctx: TaskContext, machine: Machine | None) -> Answer:
        """Return the answer, or suspend the task; see ``Kind.ask``."""
        self._check()
        steps, name = steps_of(ctx), self.name
        steps.begin(name)
        if machine is not None and not steps.in_transaction(name, _has_begun, name):
            given = machine()
            if given is not None:
                data = values.checked_fields(
                    self.kind, "the answer of machine()", given, needs_all=True
                )
                steps.in_transaction(name, self._answer_at_once, data)
        seen = steps.in_transaction(name, self._ask)
        if not seen.wait.ended:
            raise Suspended(name)
        if seen.wait.value is None:
            raise WaitTimedOut(f"No person has answered {name!r} in time; it is too late now.")
        data, question = json.loads(seen.wait.value), seen.question
        if question is None:
            return Answer(data, None, "")
        return Answer(data, question.answered_by_id, question.answered_as)

    def _check(self) -> None:
        """Replace the arguments by values that a row can keep.

        Raises:
            InvalidOption: an argument is invalid.
        """
        of_kind = self.kind.due if self.due is None else self.due
        self.due = None if of_kind is None else moment_of(of_kind, "due")
        self.timeout = None if self.timeout is None else span_of(self.timeout, "timeout")
        title = str(self.title).strip() or self.name
        self.title = payload.clean_text(title)[:MOST_TITLE_CHARACTERS]
        self.not_by = values.keys_of(self.not_by, f"not_by of question {self.kind.name!r}")
        if self.suggested is not None:
            self.suggested = values.checked_fields(
                self.kind, "suggested", self.suggested, needs_all=False
            )
        if self.on_due is not None and not isinstance(self.on_due, TaskFunction):
            raise InvalidOption(
                f"on_due of question {self.kind.name!r} is {self.on_due!r}; use a function that @task declares."
            )
        if self.on_due is not None and self.due is None:
            raise InvalidOption(
                f"Question {self.kind.name!r} has on_due= and is never due. Say due= here or in question()."
            )

    def _ask(self, alias: str, attempt: Attempt) -> Seen:
        """Write the wait and its question, unless they exist. If the time has passed, end both."""
        _check_alias(alias, attempt)
        # From here on T's row is locked: P and resume(), which lock it first, wait for the COMMIT.
        wait = waits.begin(alias, attempt, self.name, self.timeout, is_sleep=False)  # type: ignore[arg-type]
        question = _question(alias, attempt.task_id, self.name)
        if question is None and not wait.ended:
            question = self._write(alias, attempt)
        if wait.is_over and not wait.ended:
            wait = waits.give_up(alias, attempt, self.name)
        if wait.ended and question is not None and question.closed_at is None:
            close(alias, [question.pk])
        return Seen(wait, question)

    def _answer_at_once(self, alias: str, attempt: Attempt, data: dict[str, Any]) -> None:
        """Write the wait, the value and the closed question of a machine, unless another value was faster."""
        _check_alias(alias, attempt)
        # The exclusive lock of T's row comes first: a shared lock that grows can meet another in a deadlock.
        text = payload.encode(data, name="the answer of machine()")
        counts, _ = waits.end(alias, attempt.task_id, self.name, text)
        # This raises ClaimLost if T has lost its row, and then the value is rolled back.
        waits.begin(alias, attempt, self.name, None, is_sleep=False)
        if counts:
            agreed = values.agrees(self.suggested, data)
            self._write(alias, attempt, by_machine=True, closed_at=DatabaseNow(), agreed=agreed)

    def _write(self, alias: str, attempt: Attempt, **columns: Any) -> Question:
        due: Any = (
            DatabaseNow() + self.due if isinstance(self.due, timedelta) else self.due or NEVER
        )
        question = Question(
            task_id=attempt.task_id,
            name=self.name,
            kind=self.kind.name,
            title=self.title,
            due_at=due,
            suggested=self.suggested,
            not_by=self.not_by,
            **columns,
        )
        if not columns and (user := self._first_person(alias)) is not None:
            for column, value in held_by(user, self.kind).items():
                setattr(question, column, value)
        question.save(using=alias, force_insert=True)
        if self.on_due is not None and not columns:
            self.on_due.using(run_after=self.due, using=alias).enqueue(question.pk)
        return question

    def _first_person(self, alias: str) -> Any:
        if self.to is None or key_of(self.to) in self.not_by:
            return None
        people = get_user_model()._base_manager.using(alias)
        user = people.filter(pk=getattr(self.to, "pk", self.to)).first()
        return user if user is not None and self.kind.allows(user) else None


def close(alias: str, ids: Collection[int]) -> int:
    """Close questions without an answer; return the number of open ones."""
    still_open = Question.objects.using(alias).filter(pk__in=ids, closed_at=None)
    return still_open.update(closed_at=DatabaseNow(), assignee_id=None)


def _has_begun(alias: str, attempt: Attempt, name: str) -> bool:
    return Wait.objects.using(alias).filter(task_id=attempt.task_id, name=name).exists()


def _question(alias: str, task_id: uuid.UUID, name: str) -> Question | None:
    return Question.objects.using(alias).filter(task_id=task_id, name=name).first()


def _check_alias(alias: str, attempt: Attempt) -> None:
    if alias != alias_of_people():
        raise StepRefused(
            f"{attempt.task_name} asks people from the database {alias!r}, and the questions and the users are in "
            f"{alias_of_people()!r}. Enqueue the task there."
        )
