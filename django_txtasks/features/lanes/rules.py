"""Lane rules: the limits of a lane, from the settings or from a person. Data, without a database."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from django_txtasks.exceptions import ConfigError

MOST_LANE_CHARACTERS = 200
MOST_AT_ONCE = 1_000_000
BURST_SECONDS = 0.25
"""Seconds of its rate that a lane may start at once if ``burst`` is left out; at least one task."""
KEYS = ("at_most", "rate", "burst", "weight")
_RATE = re.compile(r"([1-9][0-9]{0,8})/([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class LaneRule(NamedTuple):
    """The limits of one lane.

    Attributes:
        at_most: number of its tasks that may run at the same time, on all workers; None: no limit.
        rate: number of its tasks that may start in a second; None: no limit.
        burst: number of its tasks that may start at once after a pause; None: the rate of a quarter of a second.
        weight: its share of the slots beside other lanes, when not all waiting tasks fit.
    """

    at_most: int | None = None
    rate: float | None = None
    burst: int | None = None
    weight: float = 1.0

    @property
    def most_permits(self) -> float:
        """The capacity of the token bucket: the number of starts that can be saved up.

        It is the burst plus the rate of a quarter of a second, at most 0.5, because a worker that comes a moment
        late must not lower the rate.
        """
        rate = self.rate or 0.0
        burst = max(1.0, rate * BURST_SECONDS) if self.burst is None else float(self.burst)
        return burst + min(0.5, rate * BURST_SECONDS)

    def changed_by(self, override: Mapping[str, Any]) -> LaneRule:
        """Return the rule with the values that a person has written instead of the settings."""
        return self._replace(
            **{name: value for name, value in override.items() if value is not None}
        )


class LaneRules(NamedTuple):
    """All rules of the settings, by the name of a lane or by a pattern, which ends with ``*``."""

    rules: tuple[tuple[str, LaneRule], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def find(self, lane: str) -> LaneRule | None:
        """Return the rule with the lane's name, or with the longest matching pattern; None: no match."""
        found, length = None, -1
        for name, rule in self.rules:
            if name == lane:
                return rule
            if name.endswith("*") and lane.startswith(name[:-1]) and len(name) > length:
                found, length = rule, len(name)
        return found

    @property
    def names(self) -> list[str]:
        """All names and patterns."""
        return [name for name, _ in self.rules]


NO_LANES = LaneRules()


def problem_of_name(name: Any) -> str:
    """Return the problem of a lane's name, for an error; empty: no problem."""
    if not isinstance(name, str) or not name.isprintable() or name != name.strip():
        return "use printable text without spaces around it"
    if not 0 < len(name) <= MOST_LANE_CHARACTERS:
        return f"use text of 1 to {MOST_LANE_CHARACTERS} characters"
    return "'*' stands at the end of a pattern only" if "*" in name else ""


def parse_rules(value: Any) -> LaneRules:
    """Return the rules of ``TXTASKS["lanes"]``.

    Raises:
        ConfigError: the setting is invalid.
    """
    if not isinstance(value, dict):
        raise ConfigError(
            f"TXTASKS['lanes'] is {type(value).__name__}, it must be a dict: the name of a lane, or a pattern "
            "such as 'tenant:*', with its limits."
        )
    return LaneRules(tuple((name, _rule(name, of_lane)) for name, of_lane in value.items()))


def _rule(name: Any, value: Any) -> LaneRule:
    where = f"TXTASKS['lanes'][{name!r}]"
    plain = name[:-1] if isinstance(name, str) and name.endswith("*") else name
    if name != "*" and (problem := problem_of_name(plain)):
        raise ConfigError(f"{where}: {problem}.")
    if not isinstance(value, dict) or not value:
        raise ConfigError(f"{where} is {value!r}: it must be a dict with {_listed(KEYS)}.")
    if unknown := [key for key in value if key not in KEYS]:
        raise ConfigError(
            f"{where} has the unknown key {unknown[0]!r}. Known keys: {', '.join(KEYS)}."
        )
    return LaneRule(
        **{key: parse_value(key, one, f"{where}[{key!r}]") for key, one in value.items()}
    )


def parse_value(key: str, value: Any, where: str) -> Any:
    """Return one value of a rule.

    Args:
        where: the name of the value in an error.

    Raises:
        ConfigError: the value is invalid.
    """
    if key == "rate":
        found = _RATE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            raise ConfigError(
                f"{where} is {value!r}: use text such as '10/s', '100/m', '1000/h' or '5000/d'."
            )
        return int(found[1]) / _SECONDS[found[2]]
    if key == "weight":
        if type(value) not in (int, float) or not 0.001 <= value <= 1000:
            raise ConfigError(f"{where} is {value!r}: use a number from 0.001 to 1000.")
        return float(value)
    if type(value) is not int or not 1 <= value <= MOST_AT_ONCE:
        raise ConfigError(f"{where} is {value!r}: use a whole number, 1 or more.")
    return value


def _listed(names: Iterable[str]) -> str:
    *most, last = [repr(name) for name in names]
    return f"{', '.join(most)} or {last}"
