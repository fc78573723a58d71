"""Items: the tasks that a function declared with ``@task(many=…)`` gets in one call. Each has its own outcome."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Sequence
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeVar

from django.db import connections

from django_txtasks import signals
from django_txtasks.core.ground import payload
from django_txtasks.core.ground.cancel_requests import NOBODY, CancelRequests
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.running import AttemptRun, running
from django_txtasks.exceptions import InvalidArguments, MarkRefused, TimedOut
from django_txtasks.signals import tracebacks
from django_txtasks.signals.logs import current

if TYPE_CHECKING:
    from django.db.models import Model

T = TypeVar("T")
_ONLY = "mark"
"""The key of the mark of an item."""


class Mark(NamedTuple):
    """The outcome that a function has given to an item.

    Attributes:
        result: JSON text; None = no result.
        error: None = the task has finished.
    """

    result: str | None = None
    error: BaseException | None = None


class Item(Generic[T]):
    """One task of a call: its argument, and the methods that decide its outcome.

    An item without an outcome has finished when the function returns, and has failed when the function raises.
    In a ``with item:`` block, the block decides: an exception fails the item and is not raised further, and at the
    end of the block the item has finished. Threads that the function starts may use items, too.

    Attributes:
        value: the argument of the task.
    """

    def __init__(
        self,
        value: T,
        attempt: Attempt,
        *,
        alias: str = "",
        requests: CancelRequests = NOBODY,
        ended: Callable[[Mark], Any] = lambda mark: mark,
        around: Sequence[Any] = (),
    ) -> None:
        self.value = value
        self._attempt, self._alias, self._requests, self._ended = attempt, alias, requests, ended
        self._around = around  # the transactions that were open before the call, as in a test
        self._mark: dict[str, Any] = {}
        self._tokens: list[tuple[Token[Any], Token[Any]]] = []

    def __repr__(self) -> str:
        return f"<item {self._attempt.task_name} {self.task_id}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} belongs to its call, in this process: give item.value to the other process."
        )

    def __copy__(self) -> Item[T]:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Item[T]:
        return self

    @property
    def task_id(self) -> uuid.UUID:
        """Id of the task's row."""
        return self._attempt.task_id

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1 on. It never goes down."""
        return self._attempt.number

    @property
    def failures(self) -> int:
        """Number of earlier attempts that failed."""
        return self._attempt.failures

    @property
    def cancelled(self) -> bool:
        """True once the worker has learned that this task is to stop. It looks once a second."""
        return self._requests.include(self.task_id, self.attempt)

    def key(self, name: str) -> str:
        """Return an idempotency key for a request to another system; see ``TaskContext.key``."""
        from django_txtasks.features.steps.context import key_of

        return key_of(self.task_id, name)

    def link(self, subject: Model) -> None:
        """Link the task to a business object; see ``TaskContext.link``. A direct call has no task to link.

        Raises:
            InvalidOption: not a saved object, or an object in another database.
            MarkRefused: the item has an outcome already, or the call is over.
        """
        from django_txtasks.features.links import rows

        self._refuse_second()
        if self._alias:
            where = f"{self._attempt.task_name} has called item.link()"
            rows.link(self._alias, self.task_id, subject, where)

    def finish(self, result: Any = None) -> None:
        """Give the task its outcome: it has finished, with this result.

        The worker records it within a second, also while the function still runs.

        Raises:
            InvalidArguments: the result cannot be stored as JSON. The item has no outcome yet.
            MarkRefused: the item has an outcome already, the call is over, or a transaction is open.
        """
        _refuse_in_transaction(self)
        text = None if result is None else payload.encode(result, name="result")
        self._take(Mark(result=text))

    def fail(self, error: Exception) -> None:
        """Give the task its outcome: it ends as if its function had raised this error.

        ``Retry``, ``Snooze``, ``Reject`` and ``TaskCancelled`` have the same meaning as if they were raised.

        Raises:
            MarkRefused: the item has an outcome already, or the call is over.
            TimedOut: the error is this one, of the time limit of the whole call.
        """
        if isinstance(error, TimedOut):
            raise error
        if not isinstance(error, Exception):
            raise TypeError(
                f"item.fail({error!r}): use an exception, such as one that was raised, or Reject('the reason')."
            )
        self._take(Mark(error=error))

    def __enter__(self) -> Item[T]:
        self._refuse_second()
        _refuse_in_transaction(self)
        attempt = self._attempt
        run = AttemptRun(attempt, self._alias)
        self._tokens.append((current.set(attempt.facts), running.set(run)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> bool:
        of_facts, of_run = self._tokens.pop()
        is_ours = not self._mark and isinstance(error, Exception)
        try:
            if is_ours:
                self.fail(error)  # type: ignore[arg-type]  # while log lines belong to the item
                close_lost_sessions()
        finally:
            current.reset(of_facts)
            running.reset(of_run)
        if error is None and not self._mark:
            self.finish()
        return is_ours

    def _take(self, mark: Mark) -> None:
        """Keep the first mark. One operation decides, so no interruption and no other thread comes between."""
        ended = self._ended(mark)
        if set_outcome(self, ended) is not ended:
            self._refuse_second()

    def _refuse_second(self) -> None:
        if self._mark:
            raise MarkRefused(
                f"{self!r} has an outcome already: the first finish(), fail() or 'with item:' counts, and each "
                "item has its outcome when its call is over."
            )


def _refuse_in_transaction(item: Item[Any]) -> None:
    """Refuse to finish a task whose effects may still be rolled back."""
    for one in connections.all(initialized_only=True):
        if one.in_atomic_block and one.atomic_blocks[-1] not in item._around:
            raise MarkRefused(
                f"{item!r} was marked in an open transaction of the database {one.alias!r}. The task could "
                "finish, and its effects be rolled back. Open the transaction inside 'with item:', or mark the "
                "items after the transaction."
            )


def open_transactions() -> list[Any]:
    """Return the ``atomic()`` blocks that are open in this thread."""
    return [block for one in connections.all(initialized_only=True) for block in one.atomic_blocks]


def close_lost_sessions() -> None:
    """Close the sessions of this thread that the database has ended, so that the next item gets a new one."""
    from django_txtasks.database.sessions import close  # only for a call that fails

    for one in connections.all(initialized_only=True):
        is_doubtful = one.connection is not None and one.errors_occurred and not one.in_atomic_block
        if is_doubtful and not one.is_usable():
            close(one)


def outcome_of(item: Item[Any]) -> Any:
    """Return what ``ended`` has returned for the mark of an item; None = it has no mark."""
    return item._mark.get(_ONLY)


def set_outcome(item: Item[Any], outcome: Any) -> Any:
    """Set what ``ended`` has returned, if the item has no mark. Return what the item has."""
    return item._mark.setdefault(_ONLY, outcome)


def end(item: Item[Any], mark: Mark) -> None:
    """Mark an item, if it has no mark."""
    if not item._mark:
        set_outcome(item, item._ended(mark))


def tell_late_error(name: str, count: int, error: BaseException) -> None:
    """Log an error that a call has raised after each of its items had an outcome."""
    text = f"{type(error).__name__}: {error}"
    signals.call_failed_late.emit(task=name, count=count, error=text, exception=error)
    tracebacks.forget_locals(error)


def refuse_value(name: str, value: Any) -> None:
    """Raise InvalidArguments if a function of many tasks has returned a value."""
    if value is not None:
        raise InvalidArguments(
            f"{name} returned a {type(value).__name__}: a function declared with many= returns nothing. Give each "
            "task its result by item.finish(result)."
        )


def call_of_one(
    function: Callable[[list[Item[Any]]], Any],
    attempt: Attempt,
    *,
    alias: str = "",
    requests: CancelRequests = NOBODY,
) -> Callable[[Any], Any]:
    """Return a function of one task's argument, which calls a function of many tasks with one item.

    It returns the item's result, and raises its error.
    """

    def call(value: Any, /) -> Any:
        around, pid = open_transactions(), os.getpid()
        item = Item(value, attempt, alias=alias, requests=requests, around=around)
        try:
            refuse_value(attempt.task_name, function([item]))
        except BaseException as error:
            # A child that the function has forked ends by its error. Ctrl-C ends a direct call.
            is_end = os.getpid() != pid or isinstance(error, KeyboardInterrupt)
            if is_end or outcome_of(item) is None:
                raise
            tell_late_error(attempt.task_name, 1, error)
        end(item, Mark())
        mark: Mark = outcome_of(item)
        if mark.error is not None:
            raise mark.error
        return None if mark.result is None else json.loads(mark.result)

    return call
