"""Parts that features add to an enqueueing.

A feature overrides some methods of ``Moment`` or ``CallPart``, and names its module in ``assembly.FEATURES``. The
module lists its parts in ``PARTS``. It is imported by the first enqueueing, because a web process that enqueues
nothing does not need it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple

from django_txtasks.core.ground.seams import OF_CALLS, overriding

if TYPE_CHECKING:
    from django_txtasks.core.enqueueing.calls import BoundFunction, Call
    from django_txtasks.core.enqueueing.handles import CoreHandle
    from django_txtasks.core.rows.enqueueing import NewTask

_IS_ON = methodcaller("is_on")


class Moment:
    """Something that surrounds each enqueueing while it is on, such as a tracer."""

    def is_on(self) -> bool:
        """Return True if the present call is surrounded. Called for each enqueueing, so it must be quick."""
        return False

    def begin(self, calls: Sequence[Call]) -> tuple[Sequence[Call], Any]:
        """Return the calls as they are to be written, and what ``end`` gets.

        Raises:
            TxTasksError: the calls are refused, before any SQL.
        """
        raise NotImplementedError

    def end(self, kept: Any, handles: Sequence[CoreHandle], error: BaseException | None) -> None:
        """Note the end of a call that began.

        Args:
            handles: the handles of the new tasks.
            error: why the call has failed; None = it has not.
        """


class CallPart:
    """The part of a feature whose options a call may have.

    Attributes:
        options: names of its options of ``using()``.
    """

    options: Collection[str] = ()

    def bind(self, bound: BoundFunction, said: Mapping[str, Any]) -> BoundFunction:
        """Return a function with the options of this part, once for all of its calls.

        Args:
            said: the options of ``using()``, checked one by one.

        Raises:
            InvalidOption: they contradict each other, before any SQL.
        """
        return bound

    def columns(self, bound: BoundFunction, texts: Mapping[str, str | None]) -> Mapping[str, Any]:
        """Return the values of a row that the texts of options decide, by column.

        Args:
            texts: the texts of one call by option; None: the call has no text.
        """
        return {}

    def of_call(
        self, bound: BoundFunction, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> BoundFunction:
        """Return a function with what this part adds to one call; only if ``is_of``."""
        return bound

    def check_database(self, alias: str) -> None:
        """Refuse a database, before rows are written there. Called for each enqueueing, so it must be quick.

        Raises:
            UnsupportedDatabase: before any row is written.
        """

    def check(self, bound: BoundFunction) -> None:
        """Refuse options that do not fit together.

        Raises:
            InvalidOption: before any SQL.
        """

    def is_of(self, bound: BoundFunction) -> bool:
        """Return True if ``owners`` and ``written`` are to be called for calls of this function."""
        return False

    def owners(
        self, alias: str, made: Sequence[tuple[BoundFunction, NewTask]]
    ) -> dict[uuid.UUID, uuid.UUID]:
        """Return the ids of tasks that are not to be written, each with the id of the task in its place."""
        return {}

    def written(self, alias: str, made: Sequence[tuple[BoundFunction, NewTask]]) -> None:
        """Write further rows of tasks that were just written, in the same transaction."""


class Parts(NamedTuple):
    """The parts of all features.

    Attributes:
        moments: the parts around enqueueings, the outermost first.
        of_calls: the parts that write, or keep calls from being written.
        checks: the checks of all parts, if they check anything.
        binds, columns, databases: their other methods, if they override them.
    """

    moments: tuple[Moment, ...] = ()
    of_calls: tuple[CallPart, ...] = ()
    checks: tuple[Callable[[BoundFunction], None], ...] = ()
    binds: tuple[Callable[..., BoundFunction], ...] = ()
    columns: tuple[Callable[..., Mapping[str, Any]], ...] = ()
    databases: tuple[Callable[[str], None], ...] = ()


@cache
def parts() -> Parts:
    """Import the modules, and return their parts."""
    found = [one for module in OF_CALLS.modules for one in module.PARTS]
    of_calls = [one for one in found if isinstance(one, CallPart)]
    return Parts(
        tuple(one for one in found if isinstance(one, Moment)),
        tuple(one for one in of_calls if type(one).is_of is not CallPart.is_of),
        overriding(CallPart.check, of_calls),
        overriding(CallPart.bind, of_calls),
        overriding(CallPart.columns, of_calls),
        overriding(CallPart.check_database, of_calls),
    )


def is_surrounded() -> bool:
    """Return True if a moment is on."""
    return any(map(_IS_ON, parts().moments))


def of_function(bound: BoundFunction) -> tuple[CallPart, ...]:
    """Return the parts for calls of a function."""
    return tuple(one for one in parts().of_calls if one.is_of(bound))


def check(bound: BoundFunction) -> None:
    """Let each part refuse the function with its options."""
    for refuse in parts().checks:
        refuse(bound)


def check_database(alias: str) -> None:
    """Let each part refuse the database."""
    for refuse in parts().databases:
        refuse(alias)
