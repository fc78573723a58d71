"""Retention rules: how long finished tasks are kept, by queue and outcome. Data, without a database."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django_txtasks.exceptions import ConfigError

OTHERS = "*"
"""Key for all queues that are not named, or for all outcomes that are not named."""
OUTCOMES = ("succeeded", "cancelled", "discarded", "expired", "merged", "handed")
"""The values of ``models.Outcome``."""

Age = timedelta | None
"""A time for which rows are kept; None = for ever."""
KeepFinished = Age | Mapping[str, Age | Mapping[str, Age]]
"""A value of ``TXTASKS["keep_finished"]``: one time, or times by queue and perhaps by outcome."""


class Kind(NamedTuple):
    """Rows of these queues and outcomes.

    Attributes:
        queues: names of queues.
        but_these: True: all queues except ``queues``.
        outcomes: the outcomes; empty = all.
    """

    queues: tuple[str, ...] = ()
    but_these: bool = True
    outcomes: tuple[str, ...] = ()


class Horizon(NamedTuple):
    """The age from which a cleaner removes rows.

    Attributes:
        kinds: the kinds of rows that it removes at this age; empty = each row of this age is removed.
    """

    age: timedelta
    kinds: tuple[Kind, ...] = ()


class Retention:
    """The times for which finished tasks are kept.

    Args:
        kept: the setting, checked by ``parse``.
    """

    def __init__(self, kept: KeepFinished) -> None:
        by_queue = kept if isinstance(kept, Mapping) else {OTHERS: kept}
        self._ages = {queue: _by_outcome(ages) for queue, ages in by_queue.items()}
        every = [age for ages in self._ages.values() for age in ages.values()]
        self.longest = max((age for age in every if age is not None), default=None)
        """The longest time, without rows that are kept for ever; None = all are kept for ever."""
        self._kept_anywhere = {
            outcome: any(ages[outcome] != timedelta(0) for ages in self._ages.values())
            for outcome in OUTCOMES
        }
        self.horizons = [
            self._horizon(age) for age in sorted({age for age in every if age is not None})
        ]
        """One for each distinct time, the shortest first."""

    def keeps(self, outcome: str) -> bool:
        """Return True if tasks with this outcome get a finished row: in at least one queue the time is not 0."""
        return self._kept_anywhere[outcome]

    def age(self, queue: str, outcome: str) -> Age:
        """Return the time for which tasks of this queue with this outcome are kept."""
        ages = self._ages.get(queue) or self._ages.get(OTHERS)
        return None if ages is None else ages.get(outcome, self.longest)

    def _horizon(self, age: timedelta) -> Horizon:
        """Return which rows are removed at this age.

        At the longest age each row may go, so the statement needs no condition on the queue or the outcome.
        """
        is_last = age == self.longest and OTHERS in self._ages
        if is_last and all(None not in ages.values() for ages in self._ages.values()):
            return Horizon(age)
        queues: dict[tuple[str, ...], list[str]] = {}
        for queue, ages in sorted(self._ages.items()):
            if outcomes := tuple(one for one in OUTCOMES if ages[one] == age):
                queues.setdefault(outcomes, []).append(queue)
        return Horizon(age, tuple(self._kind(names, some) for some, names in queues.items()))

    def _kind(self, queues: list[str], outcomes: tuple[str, ...]) -> Kind:
        some = () if outcomes == OUTCOMES else outcomes
        if OTHERS not in queues:
            return Kind(tuple(queues), False, some)
        return Kind(tuple(sorted(self._ages.keys() - set(queues))), True, some)


def _by_outcome(ages: Age | Mapping[str, Age]) -> dict[str, Age]:
    if not isinstance(ages, Mapping):
        return dict.fromkeys(OUTCOMES, ages)
    return {one: ages[one] if one in ages else ages[OTHERS] for one in OUTCOMES}


def parse_kept(value: Any, age: Callable[[Any], Age]) -> KeepFinished:
    """Return the value of ``TXTASKS["keep_finished"]`` with times as timedelta.

    Args:
        age: returns one time as timedelta, and raises ConfigError if it is wrong.

    Raises:
        ConfigError: the setting is invalid.
    """
    if not isinstance(value, dict):
        return age(value)
    if not value or not all(isinstance(queue, str) for queue in value):
        raise ConfigError(
            f"TXTASKS['keep_finished'] is {value!r}: a dict has times by the names of queues, '*' for all others."
        )
    return {
        queue: _parse_outcomes(queue, one, age) if isinstance(one, dict) else age(one)
        for queue, one in value.items()
    }


def _parse_outcomes(queue: str, value: dict[Any, Any], age: Callable[[Any], Age]) -> dict[str, Age]:
    where = f"TXTASKS['keep_finished'][{queue!r}]"
    for outcome in value.keys() - {OTHERS, *OUTCOMES}:
        near = difflib.get_close_matches(str(outcome).lower(), OUTCOMES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"{where} has the unknown outcome {outcome!r}.{hint} Use {', '.join(OUTCOMES)}, "
            "and '*' for all others."
        )
    unsaid = [one for one in OUTCOMES if one not in value]
    if unsaid and OTHERS not in value:
        raise ConfigError(
            f"{where} says nothing of the outcome {unsaid[0]!r}: name it, or '*' for all others."
        )
    return {outcome: age(one) for outcome, one in value.items()}


def check_kept(kept: KeepFinished, queues: Sequence[str]) -> None:
    """Raise ConfigError if ``keep_finished`` names an unknown queue, or leaves one out."""
    if not isinstance(kept, Mapping):
        return
    check_queues("keep_finished", kept, queues)
    unsaid = set(queues) - kept.keys()
    if unsaid and OTHERS not in kept:
        raise ConfigError(
            f"TXTASKS['keep_finished'] says nothing of the queue {min(unsaid)!r}: "
            "name it, or '*' for all others."
        )


def check_queues(key: str, by_queue: Mapping[str, Any], queues: Sequence[str]) -> None:
    """Raise ConfigError if a setting by queue names an unknown queue."""
    unknown = by_queue.keys() - {OTHERS, *queues}
    if unknown:
        hint = (
            f" For a time by outcome, use {{'*': {{{min(unknown)!r}: ...}}}}."
            if key == "keep_finished" and min(unknown) in OUTCOMES
            else ""
        )
        raise ConfigError(
            f"TXTASKS[{key!r}] names the queue {min(unknown)!r}, which is not among "
            f"TXTASKS['queues']: {', '.join(queues)}. Use '*' for all that are not named.{hint}"
        )


def parse_dead(value: Any, age: Callable[[Any], Age]) -> dict[str, Age]:
    """Return the value of ``TXTASKS["discard_dead_after"]`` with times as timedelta; None = never.

    Raises:
        ConfigError: the setting is invalid.
    """
    if not isinstance(value, dict) or not all(isinstance(queue, str) for queue in value):
        raise ConfigError(
            f"TXTASKS['discard_dead_after'] is {value!r}: it must be a dict with times by the names of queues, "
            "'*' for all others. None = never."
        )
    return {queue: age(one) for queue, one in value.items()}


def horizons_of_dead(by_queue: Mapping[str, Age]) -> list[Horizon]:
    """Return the ages at which a cleaner discards dead tasks, the shortest first."""
    if not by_queue:
        return []
    return Retention({OTHERS: None, **by_queue}).horizons
