"""Steps of a task: the effects of a step in the task's database happen once for all attempts."""

from __future__ import annotations

import inspect
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from functools import cached_property
from typing import Any, TypeVar

from django.db import connections, transaction

from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.values import LONGEST_SPAN, from_now
from django_txtasks.core.ground import payload
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.database.transactions import repeated
from django_txtasks.exceptions import InvalidOption, StepRefused, Suspended, WaitTimedOut
from django_txtasks.features.steps import rows as steps
from django_txtasks.features.steps import waits

MOST_NAME_CHARACTERS = 100
Result = TypeVar("Result")


class Steps:
    """The steps of one attempt.

    Apps with waits of their own use ``begin``, ``in_transaction``, and the functions of ``features/steps/waits``.
    """

    def __init__(self, alias: str, attempt: Attempt) -> None:
        self._alias, self._attempt = alias, attempt
        self._begun: set[str] = set()

    def run(
        self,
        name: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return the value of a step, which is run if no attempt has done it; see ``TaskContext.step``."""
        self.begin(name)
        if name in self._done:
            return json.loads(self._done[name])
        with ExitStack() as stack:
            self._enter_transaction(stack, name)
            value = text_of_value(name, function(*args, **kwargs))
            steps.keep(self._alias, self._attempt, name, value)
        return json.loads(value)

    def sleep_until(self, name: str, until: datetime | timedelta | float) -> None:
        """Return if the time has come, or else suspend the task; see ``TaskContext.sleep_until``."""
        self.begin(name)
        wait = self.in_transaction(name, waits.begin, name, moment_of(until, "when"), is_sleep=True)
        if not (wait.ended or wait.is_over):
            raise Suspended(name)

    def wait_for(self, name: str, timeout: timedelta | float | None) -> Any:
        """Return the value that has arrived, or else suspend the task; see ``TaskContext.wait_for``."""
        self.begin(name)
        until = None if timeout is None else span_of(timeout, "timeout")
        wait = self.in_transaction(name, waits.begin, name, until, is_sleep=False)
        if wait.is_over and not wait.ended:
            wait = self.in_transaction(name, waits.give_up, name)
        if not wait.ended:
            raise Suspended(name)
        if wait.value is None:
            raise WaitTimedOut(
                f"Nobody has brought a value for {name!r} in time; it is too late now."
            )
        return json.loads(wait.value)

    def in_transaction(
        self, step: str, function: Callable[..., Result], /, *args: Any, **kwargs: Any
    ) -> Result:
        """Call ``function(alias, attempt, …)`` in a transaction of its own, repeated if the database asks for it.

        Raises:
            StepRefused: a transaction is open.
        """

        def work() -> Result:
            with ExitStack() as stack:
                self._enter_transaction(stack, step)
                return function(self._alias, self._attempt, *args, **kwargs)

        return repeated(self._alias, work)

    @cached_property
    def _done(self) -> dict[str, str]:
        return steps.done_before(self._alias, self._attempt)

    def begin(self, name: str) -> None:
        """Note that this attempt has begun the step or wait of this name.

        Raises:
            StepRefused: the task is ``atomic=True``, or the name is invalid or was used in this attempt.
        """
        check_name(name)
        declaration = registry.find(self._attempt.task_name)
        if declaration is not None and declaration.atomic:
            raise StepRefused(
                f"{self._attempt.task_name} is atomic=True: all of it is one transaction, in which step {name!r} "
                "could not be committed by itself. Drop atomic=True, or the step."
            )
        if name in self._begun:
            raise StepRefused(
                f"Step {name!r} was begun before in this attempt: the next attempt could not tell the two apart. "
                "Give each step a name of its own, such as f'mail {number}' in a loop."
            )
        self._begun.add(name)

    def _enter_transaction(self, stack: ExitStack, name: str) -> None:
        connection = connections[self._alias]
        if not connection.in_atomic_block and not connection.get_autocommit():
            raise StepRefused(
                f"Step {name!r} was begun with autocommit off: it is a transaction of its own. Turn it on before."
            )
        try:
            stack.enter_context(transaction.atomic(using=self._alias, durable=True))
        except RuntimeError as error:
            raise StepRefused(
                f"Step {name!r} was begun inside transaction.atomic(), or in another step: it is a transaction of "
                "its own, and what is rolled back around it would be. Begin it outside."
            ) from error


def span_of(value: Any, option: str) -> timedelta:
    """Return a time limit that a row can store: a timedelta of at most 100 years.

    Raises:
        InvalidOption: another type, or a longer time.
    """
    span = moment_of(value, option)
    if isinstance(span, datetime):
        raise InvalidOption(f"{option} is {value!r}; use a timedelta or seconds.")
    return span


def moment_of(value: Any, option: str) -> datetime | timedelta:
    """Return a time that a row can store: a timedelta of at most 100 years, or an aware datetime in UTC.

    Raises:
        InvalidOption: another type, or a time that a row cannot store.
    """
    value = from_now(value, option)
    if isinstance(value, timedelta) and abs(value) <= LONGEST_SPAN:
        return value
    if isinstance(value, datetime) and value.utcoffset() is not None and 1970 <= value.year <= 9000:
        return value.astimezone(timezone.utc)
    raise InvalidOption(
        f"{option} is {value!r}; use a timedelta or seconds, of 100 years at most"
        f"{', or an aware datetime, as of django.utils.timezone.now()' if option in ('when', 'due') else ''}."
    )


def check_name(name: Any) -> None:
    """Raise StepRefused unless the name is text that can name a step."""
    is_text = isinstance(name, str) and 0 < len(name) <= MOST_NAME_CHARACTERS and name.isprintable()
    is_text = is_text and name == name.strip()  # for MariaDB "a" equals "a "
    if not is_text:
        raise StepRefused(
            f"A step, or a key, was called {name!r}: say its name first, printable text of 1 to "
            f"{MOST_NAME_CHARACTERS} characters, as in ctx.step('reserve', reserve_stock, order_id)."
        )


def text_of_value(name: str, value: Any) -> str:
    """Return the value of a step as JSON text.

    Raises:
        StepRefused: the value is a coroutine.
        InvalidArguments: the value cannot be stored as JSON.
    """
    if inspect.iscoroutine(value):
        value.close()
        raise StepRefused(
            f"Step {name!r} is an async function, and Django has no transactions in async code. Make it a sync "
            "one, and call it by await ctx.astep(…)."
        )
    return payload.encode(value, name=f"the value of step {name!r}")


def key_of(task_id: uuid.UUID | str, name: str) -> str:
    """Return the idempotency key of a request to another system; see ``TaskContext.key``."""
    check_name(name)
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{task_id} {name}"))
