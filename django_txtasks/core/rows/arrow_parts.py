"""Parts that features add to the arrows that rows take.

A feature overrides some methods of ``ArrowPart``, and names its module in ``assembly.FEATURES``. The module lists
its parts in ``PARTS``. Methods are called in the transaction that moves the rows, once for a list of rows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from django_txtasks.core.ground.seams import OF_ROWS, overriding

if TYPE_CHECKING:
    from django_txtasks.core.ground.config import CoreConfig
    from django_txtasks.core.rows.attempts import Ended, FollowUps
    from django_txtasks.core.rows.enqueueing import NewTask
    from django_txtasks.models import Outcome, Status


class ArrowPart:
    """The part of a feature in the arrows that rows take.

    Attributes:
        may_prune: a condition on finished rows; rows that do not fulfil it are not pruned yet.
    """

    may_prune = ""

    def leaving(
        self, alias: str, ids: Sequence[uuid.UUID], status: Status, outcome: Outcome
    ) -> FollowUps:
        """Act before rows of this status, which are locked, leave the live table with this outcome.

        Returns:
            The tasks that were enqueued for this.
        """
        return []

    def without_run(self, alias: str, names: Sequence[tuple[str, str]]) -> None:
        """Act after tasks that people or time have ended before a run. ``names``: queue and name of each."""

    def recovered(self, alias: str, ended: Sequence[Ended]) -> None:
        """Act after claims of a worker that is lost, or is about to end, have taken their arrows."""

    def recorded_last(self, alias: str, ended: Sequence[Ended]) -> None:
        """Act after the last record of a worker that is about to end, and will not act on it later."""

    def follow_ups(
        self, alias: str, ended: Sequence[Ended], config: CoreConfig
    ) -> tuple[list[NewTask], list[NewTask]]:
        """Return further tasks to enqueue with these arrows: tasks that get hints, and tasks for a later time.

        Args:
            ended: all arrows, without attempts that have finished and have no hooks.
        """
        return [], []


class Parts(NamedTuple):
    """The overridden methods of the parts of all features.

    Attributes:
        may_prune: the conditions of all parts.
    """

    leaving: tuple[Callable[..., FollowUps], ...]
    without_run: tuple[Callable[..., None], ...]
    recovered: tuple[Callable[..., None], ...]
    recorded_last: tuple[Callable[..., None], ...]
    follow_ups: tuple[Callable[..., tuple[list[NewTask], list[NewTask]]], ...]
    may_prune: str


@cache
def parts() -> Parts:
    """Import the modules, and return their parts."""
    every = [one for module in OF_ROWS.modules for one in module.PARTS]
    found = [one for one in every if isinstance(one, ArrowPart)]
    return Parts(
        overriding(ArrowPart.leaving, found),
        overriding(ArrowPart.without_run, found),
        overriding(ArrowPart.recovered, found),
        overriding(ArrowPart.recorded_last, found),
        overriding(ArrowPart.follow_ups, found),
        "".join(one.may_prune for one in found),
    )


def leaving(alias: str, ids: Sequence[uuid.UUID], status: Status, outcome: Outcome) -> FollowUps:
    """Let each part act before rows leave the live table."""
    return [task for act in parts().leaving for task in act(alias, ids, status, outcome)]


def without_run(alias: str, names: Sequence[tuple[str, str]]) -> None:
    """Let each part act after tasks have ended before a run."""
    for act in parts().without_run:
        act(alias, names)


def recovered(alias: str, ended: Sequence[Ended]) -> None:
    """Let each part act after claims have taken their arrows without their worker."""
    for act in parts().recovered:
        act(alias, ended)


def recorded_last(alias: str, ended: Sequence[Ended]) -> None:
    """Let each part act after the last record of a worker."""
    for act in parts().recorded_last:
        act(alias, ended)
