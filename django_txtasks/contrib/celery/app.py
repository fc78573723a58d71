"""The class ``Celery``: tasks that are sent inside a transaction become rows of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import TYPE_CHECKING, Any

import celery
from django.db import connections

from django_txtasks.contrib.celery import checks
from django_txtasks.contrib.celery.outgoing import BackendAtRest, Outgoing, Publisher

if TYPE_CHECKING:
    from django_txtasks.contrib.celery.messages import Template
    from django_txtasks.features.hand_over.target import Target

_kept: ContextVar[Publisher | None] = ContextVar("txtasks_celery_kept", default=None)
_goes_straight: ContextVar[bool] = ContextVar("txtasks_celery_straight", default=False)


class Celery(celery.Celery):  # type: ignore[misc]  # Celery has no types
    """A Celery app whose ``send_task`` writes a row inside a transaction of the tasks' database.

    The row's queue is the entry of ``TXTASKS["hand_over"]`` that names this app.

    Attributes:
        using: alias of the database of the rows; a subclass may name another one.
    """

    task_cls = "django_txtasks.contrib.celery.task:Task"
    using = "default"

    def on_init(self) -> None:
        """Let Django's checks look at this app."""
        super().on_init()
        checks.add(self)

    def send_task(  # noqa: PLR0917 -- as Celery has it
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        countdown: float | None = None,
        eta: Any = None,
        task_id: str | None = None,
        producer: Any = None,
        connection: Any = None,
        **options: Any,
    ) -> Any:
        """Write a row in the open transaction of the tasks' database; without one, send as Celery does.

        In a transaction ``producer`` and ``connection`` are not used. A retry and the replacement of a task go
        straight to the broker, because both raise an exception afterwards, which would roll back their row.

        Raises:
            InvalidOption: the message is not JSON, or no queue is handed over to this app.
            InvalidArguments: the message is too large for a row.
        """
        repeats = options.get("retries") or options.get("replaced_task_nesting")
        if repeats or _goes_straight.get() or not is_in_transaction(self.using):
            return super().send_task(
                name, args, kwargs, countdown, eta, task_id, producer, connection, **options
            )
        from django_txtasks.contrib.celery import rows

        options.pop("publisher", None)  # an old name of ``producer``
        row = rows.new_row(self, name, countdown, eta)
        publisher = Publisher(self)
        result = super().send_task(
            name, args, kwargs, task_id=task_id or str(row.id), producer=publisher, **options
        )
        rows.write(row, publisher.outgoing(), self._template)
        return result

    def message_for(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], task_id: uuid.UUID
    ) -> Outgoing:
        """Return Celery's message for a row that was written without Celery, such as a tick."""
        publisher = Publisher(self)
        super().send_task(name, args, kwargs, task_id=str(task_id), producer=publisher)
        return publisher.outgoing()

    def producer_or_acquire(self, producer: Any = None) -> AbstractContextManager[Any]:
        """Return the producer as a context. While it is a ``Publisher``, the result backend is at rest."""
        if isinstance(producer, Publisher):
            return _with_value(_kept, producer)
        context: AbstractContextManager[Any] = super().producer_or_acquire(producer)
        return context

    @cached_property
    def _template(self) -> Template:
        from django_txtasks.contrib.celery.messages import Template

        return Template.of(self)

    @property
    def backend(self) -> Any:
        """The result backend. While a message is kept, it hears nothing of the task.

        Redis and RPC would subscribe to the result: network I/O inside the transaction. Celery's own switch,
        ``denied_join_result()``, is one for the whole process: other threads could not wait for a result.
        """
        backend = super().backend
        return BackendAtRest(backend) if _kept.get() is not None else backend

    def txtasks_target(self, queue: str, *, ordered: bool) -> Target:
        """Return the target of ``TXTASKS["hand_over"]`` for the rows of a queue."""
        from django_txtasks.contrib.celery.target import CeleryTarget

        return CeleryTarget(self)


def going_straight() -> AbstractContextManager[Any]:
    """Send to the broker meanwhile, also inside a transaction."""
    return _with_value(_goes_straight, True)


@contextmanager
def _with_value(variable: ContextVar[Any], value: Any) -> Iterator[Any]:
    """Set a variable inside a block."""
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


def is_in_transaction(alias: str) -> bool:
    """Return True if this thread has a transaction open on the database. It opens no connection."""
    connection = connections[alias]
    if connection.in_atomic_block:
        return True
    return connection.connection is not None and not connection.get_autocommit()
