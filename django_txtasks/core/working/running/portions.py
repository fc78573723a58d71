"""The portions of a claim: which of its attempts a slot gets at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from django_txtasks.core.ground.seams import Composed
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.turn import Capacity

Divided = Callable[[Sequence[Attempt]], Iterable[list[Attempt]]]
"""Divides attempts into slot runs, in which one attempt follows another."""


class Portion(NamedTuple):
    """Attempts of a claim. ``is_call``: True = one call of their function gets them all."""

    attempts: list[Attempt]
    is_call: bool


class Portions:
    """Divides claims. A feature may give several attempts to one call. Only the loop uses it.

    Args:
        names: of the task functions that the worker runs.
    """

    def __init__(self, names: Iterable[str]) -> None:
        pass

    @property
    def are_calls(self) -> bool:
        """True if the next turn claims ahead for calls of several attempts."""
        return False

    def widened(self, capacity: Capacity) -> Capacity:
        """Return the capacity of the next turn, with the attempts of full calls."""
        return capacity

    def learn(self, claimed: Sequence[Attempt], short: frozenset[str]) -> None:
        """Choose what the turn after one with these claims claims ahead.

        Args:
            short: names of the short tasks. They are next if calls have had their turn.
        """

    def of(self, claimed: Sequence[Attempt], divided: Divided) -> Iterator[Portion]:
        """Yield the portions.

        Args:
            divided: divides the attempts that no call gets together with others.
        """
        for run in divided(claimed):
            yield Portion(run, False)


PORTIONS: Composed[type[Portions]] = Composed(
    "django_txtasks.core.working.running.portions.Portions"
)
"""The class with what features add."""
