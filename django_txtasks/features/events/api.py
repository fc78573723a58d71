"""Events: one task for each subscribed task function, in the transaction of the publisher."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

from asgiref.sync import sync_to_async

from django_txtasks.conf import get_config
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.enqueueing import warn_caller
from django_txtasks.core.enqueueing.handles import Enqueueable
from django_txtasks.exceptions import InvalidDeclaration, UnknownEvent
from django_txtasks.handles import TaskHandle, enqueue_many

F = TypeVar("F", bound=Enqueueable[Any])

MOST_NAME_CHARACTERS = 200
_subscribers: dict[str, dict[str, Enqueueable[Any]]] = {}  # by event, and by name of the function


class NoSubscribersWarning(UserWarning):
    """An event was published that has no subscriber in this process."""


def subscribe(event: str) -> Callable[[F], F]:
    """Subscribe a task function to an event. A function may subscribe to several events.

    Use the decorator above ``@task``. The function gets the arguments of ``publish``.

    Args:
        event: text of at most 200 characters, such as ``"order.paid"``.

    Raises:
        InvalidDeclaration: the event is not such text, or the function is not a task function.
    """
    _check_name(event)

    def remember(function: F) -> F:
        declaration = getattr(function, "declaration", None)
        if not isinstance(declaration, Declaration):
            raise InvalidDeclaration(
                f"@subscribe({event!r}) was used on {function!r}, which is no task function. Declare it with "
                "@task, below @subscribe."
            )
        # by name, because a module may be loaded again
        _subscribers.setdefault(event, {})[declaration.name] = function
        return function

    return remember


def subscribers(event: str) -> list[str]:
    """Return the names of an event's subscribers in this process, sorted."""
    return sorted(_subscribers.get(event, ()))


def subscribed_events() -> list[str]:
    """Return the events with a subscriber in this process, sorted."""
    return sorted(_subscribers)


def publish(event: str, /, *args: Any, **kwargs: Any) -> list[TaskHandle]:
    """Enqueue one task for each subscriber of an event, in the current transaction.

    After an error, no task is enqueued. Each task has its own retries, queue and crash policy. An event without
    a subscriber gives a warning, because its name may be wrong.

    Args:
        args, kwargs: the arguments of each subscriber.

    Returns:
        The handles, sorted by the names of the functions.

    Raises:
        UnknownEvent: the event is not in ``TXTASKS["events"]``.
        InvalidArguments, UnknownQueue, InvalidOption: as ``enqueue_many``; the error names the subscriber.
    """
    known = get_config().events
    if known is not None and event not in known:
        raise UnknownEvent(
            f"The event {event!r} is not in TXTASKS['events'].{_meant(event, known)} Fix the name or add "
            "the event."
        )
    found = _subscribers.get(event, {})
    if not found:
        warn_caller(
            f"The event {event!r} has no subscribers in this process, so no task is enqueued."
            f"{_meant(event, subscribed_events())} Subscribers are known once their module is imported, as "
            "tasks.py of installed apps is.",
            NoSubscribersWarning,
        )
    return enqueue_many((found[name], args, kwargs) for name in sorted(found))


async def apublish(event: str, /, *args: Any, **kwargs: Any) -> list[TaskHandle]:
    """Like ``publish``, from async code; see ``aenqueue_task``."""
    return await sync_to_async(publish, thread_sensitive=True)(event, *args, **kwargs)


def _check_name(event: Any) -> None:
    is_text = isinstance(event, str) and 0 < len(event) <= MOST_NAME_CHARACTERS
    if not is_text or not event.isprintable():
        raise InvalidDeclaration(
            f"@subscribe({event!r}): say the event's name, printable text of 1 to {MOST_NAME_CHARACTERS} "
            "characters, as in @subscribe('order.paid')."
        )


def _meant(event: Any, known: Any) -> str:
    near = difflib.get_close_matches(str(event), known, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
