"""A database that takes no writes: workers and cleaners run, but cannot record that they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from django.db import router
from django.utils.translation import gettext as _

from django_txtasks.guards.read_only import read_only
from django_txtasks.models import Task

NAME = "no_writes"
"""Name of the problem and of the finding, for programs."""


class NoWrites(NamedTuple):
    """Sentences for people, in the language of the reader.

    Attributes:
        explains: True = it explains why no worker and no cleaner seems to be alive. False = this process cannot
            write, and it is unknown whether others can.
    """

    fact: str
    effect: str
    remedy: str
    explains: bool

    @property
    def text(self) -> str:
        """All sentences."""
        return f"{self.fact} {self.effect} {self.remedy}"


def no_writes(alias: str, *, is_anyone_alive: Callable[[], bool]) -> NoWrites | None:
    """Return what to say about a database that takes no writes; None = nothing.

    A replica is no problem as long as it shows a living worker or cleaner: it is there to be read.

    Args:
        is_anyone_alive: returns True if a worker, a drain or a cleaner has beaten lately. It is called only if
            this process cannot write.

    Raises:
        DatabaseError: the database cannot be reached.
    """
    found = read_only(alias)
    if found is None:
        return None
    is_primary = alias == router.db_for_write(Task)
    if is_anyone_alive() and not (found.is_everywhere and is_primary):
        return None
    if found.is_everywhere:
        fact = _("The database takes no writes: %(reason)s.")
        effect = _(
            "So no task starts or ends, and workers and cleaners that run cannot record it. They go on by "
            "themselves when the database takes writes again."
        )
    else:
        fact = _("This process cannot write to the database: %(reason)s.")
        effect = _(
            "If workers and cleaners cannot either, they may run although they do not seem to be alive."
        )
    return NoWrites(fact % {"reason": found.reason}, effect, str(found.remedy), found.is_everywhere)
