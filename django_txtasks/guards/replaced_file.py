"""A cleaner of SQLite opens its file again if another file was given its name."""

from __future__ import annotations

from collections.abc import Iterable

from django_txtasks.core.cleaning.parts import Beside, StepContext
from django_txtasks.guards.file import refuse_replaced


class RefusesReplacedFile(Beside):
    """Refuses to work with a file that was replaced."""

    def __init__(self, alias: str) -> None:
        self._alias = alias

    def begin(self) -> None:
        refuse_replaced(self._alias)


def steps(context: StepContext) -> Iterable[Beside]:
    """Return the work beside the passes."""
    return [RefusesReplacedFile(context.alias)]
