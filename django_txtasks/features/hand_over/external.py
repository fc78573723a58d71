"""Tasks whose code is elsewhere: a drain hands their rows over, or workers in other languages claim them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from django_txtasks.core.declaring.declaring import declaration_of
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.enqueueing.calls import bind
from django_txtasks.core.ground import payload
from django_txtasks.features.hand_over.rows import MESSAGE
from django_txtasks.functions import TaskFunction
from django_txtasks.options import OF_USING, UsingOptions, refuse_unknown

if TYPE_CHECKING:
    from typing_extensions import Unpack


def external(
    name: str, *, queue_name: str, expires: timedelta | float | None = None
) -> ExternalTask:
    """Return a task whose code is in another system, to enqueue it like a task function.

    It takes any arguments. ``subscribe("order.paid")(external(...))`` lets it take an event.

    Args:
        name: the name by which the other system knows it, such as ``"billing.invoice"``.
        queue_name: a queue of ``TXTASKS["hand_over"]`` or ``TXTASKS["external_queues"]``.
        expires: a task that was not handed over within this time, also one of a hook, is cancelled.

    Raises:
        InvalidDeclaration: the name is too long or not printable, the queue's name is no text, or ``expires`` is
            not more than zero.
    """
    return ExternalTask(name, queue_name, expires=expires)


class ExternalTask(TaskFunction[..., Any]):
    """A task of another system; see ``external``."""

    is_external = True

    def __init__(
        self,
        name: str,
        queue_name: str,
        options: UsingOptions | None = None,
        *,
        expires: timedelta | float | None = None,
    ) -> None:
        said = {"queue_name": queue_name, "expires": expires}
        declaration = declaration_of(_is_elsewhere, name=name, options=said)
        if declaration.expires is not None:  # the spec is that of a hook: a late reply is of no use
            declaration.task_spec["expires"] = declaration.expires.total_seconds()
        super().__init__(_is_elsewhere, declaration, options)

    def __repr__(self) -> str:
        return f"<external task {self.declaration.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_names, (
            self.declaration.name,
            self.declaration.queue_name,
            self.declaration.expires,
            self.options,
        )

    def using(self, **options: Unpack[UsingOptions]) -> ExternalTask:
        """Return this task with other options for the tasks that are enqueued through it.

        An option that is left out, or None, stays as it is.
        """
        name = self.declaration.name
        refuse_unknown(f"{name}.using()", options, OF_USING)
        said = {option: value for option, value in options.items() if value is not None}
        changed = cast("UsingOptions", {**self.options, **said})
        return _copy(self.declaration, changed)

    def with_message(
        self, message: Mapping[str, Any], *, task_id: uuid.UUID | None = None
    ) -> ExternalTask:
        """Return this task for one call whose message is made already: the target sends it as it is.

        Args:
            message: what JSON knows; the column ``headers`` has it under the key
                ``features.hand_over.rows.MESSAGE``.
            task_id: the id that the message has already; None: the row gets a new one.

        Raises:
            UnknownQueue, InvalidOption: as ``enqueue_task``.
            InvalidArguments: a database cannot keep a value of the message, such as text with a NUL character.
        """
        one = _copy(self.declaration, self.options)
        bound = bind(one)
        payload.refuse_unstorable(message, name=f"The message of {self.declaration.name}")
        headers = json.dumps({MESSAGE: message}, separators=(",", ":"), allow_nan=False)
        defaults = bound.defaults._replace(headers=headers)
        one._bound = bound._replace(defaults=defaults, task_id=task_id)
        return one


def _copy(declaration: Declaration, options: UsingOptions) -> ExternalTask:
    """Return an external task with this declaration and these options of ``using()``."""
    return _of_names(declaration.name, declaration.queue_name, declaration.expires, options)


def _of_names(
    name: str, queue_name: str, expires: timedelta | None, options: UsingOptions
) -> ExternalTask:
    return ExternalTask(name, queue_name, options, expires=expires)


def _is_elsewhere(*args: Any, **kwargs: Any) -> None:
    raise TypeError("The code of an external task is in another system. Enqueue it.")
