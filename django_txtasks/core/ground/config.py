"""The settings that the core reads, and the check of a setting.

Features add settings in classes of their own, and ``django_txtasks.conf`` composes the whole. ``assembly`` names
that class; without it, ``get_config`` returns a ``CoreConfig``.
"""

from __future__ import annotations

import contextlib
import difflib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cached_property, lru_cache, partial
from typing import Any, TypeVar

from django.conf import settings
from django.core.signals import setting_changed

from django_txtasks.core.ground.retention import (
    KeepFinished,
    Retention,
    check_kept,
    check_queues,
    parse_dead,
    parse_kept,
)
from django_txtasks.core.ground.seams import Composed
from django_txtasks.exceptions import ConfigError

C = TypeVar("C", bound="CoreConfig")

LONGEST_DURATION = timedelta(days=36525)
"""Longest duration of a setting. Databases add it to a time, or subtract it."""


def parsed_by(parser: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Return the metadata of a field whose value in ``TXTASKS`` is no plain duration.

    Args:
        parser: takes the key and the value; returns the field's value, or raises ConfigError.
    """
    return {"parser": parser}


def _duration(key: str, value: Any) -> timedelta:
    what = f"TXTASKS[{key!r}] is {value!r}"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError, ValueError):  # for example NaN
            value = timedelta(seconds=value)
    if not isinstance(value, timedelta) or value > LONGEST_DURATION:
        raise ConfigError(
            f"{what}: use seconds (a number) or a datetime.timedelta, of 100 years at most"
            f"{', or None to keep them for ever' if key == 'keep_finished' else ''}."
        )
    if value < timedelta(0) or (not value and key not in ("keep_finished", "grace")):
        raise ConfigError(f"{what}: it must be longer than zero.")
    return value


def _duration_or_none(key: str, value: Any) -> timedelta | None:
    return None if value is None else _duration(key, value)


def _keep_finished(key: str, value: Any) -> KeepFinished:
    return parse_kept(value, partial(_duration_or_none, key))


def _discard_dead_after(key: str, value: Any) -> dict[str, timedelta | None]:
    return parse_dead(value, partial(_duration_or_none, key))


def _queues(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"TXTASKS['queues'] is {value!r}: it must be a list of names.")
    if not value or len(set(value)) < len(value):
        raise ConfigError(f"TXTASKS['queues'] is {value!r}: name at least one queue, each once.")
    for name in value:
        if not name or len(name) > 100 or "@" in name or not name.isprintable():
            raise ConfigError(
                f"TXTASKS['queues'] has {name!r}: a queue name has 1 to 100 printable characters "
                "and no '@'."
            )
    return tuple(value)


@dataclass(frozen=True, kw_only=True)
class CoreConfig:
    """The settings of the core. Durations are timedelta; in the setting a number means seconds.

    Attributes:
        queues: the queues that tasks may use; a worker serves all of them by default.
        poll_interval: time between two scans of a worker for due tasks.
        heartbeat_interval: time between two beats of a worker, which renew its lease.
        lease: silence after which a worker may be declared lost; at least 3 beats.
        clean_interval: time between two passes of a cleaner.
        keep_finished: time for which finished tasks are kept; 0 = not at all, None = for ever. Or a dict of
            such times by queue, with ``*`` for all others; a time can also be a dict of times by outcome. In a
            dict, 0 = until the cleaner's next pass if another queue keeps tasks with this outcome.
        discard_dead_after: time after which a cleaner discards dead tasks, by queue, with ``*`` for all
            others; None, or a queue that is not covered = never.
        grace: time for which running tasks may continue after the first stop signal.
        hint_retry_interval: time after which a hint is looked up again if its row is not there yet.
        hint_give_up_after: time after which such a hint is dropped.
        retry_base: wait after the first failure; it doubles with each further failure.
        retry_ceiling: the longest wait between two attempts.
        ageing: the priority of a due task increases by 1 each time it has waited this long; None = never.
        long_running_after: age from which a claim without a time limit is shown and reported.
    """

    queues: tuple[str, ...] = field(default=("default",), metadata=parsed_by(_queues))
    poll_interval: timedelta = timedelta(seconds=1)
    heartbeat_interval: timedelta = timedelta(seconds=1)
    lease: timedelta = timedelta(seconds=15)
    clean_interval: timedelta = timedelta(seconds=30)
    keep_finished: KeepFinished = field(
        default=timedelta(days=7), metadata=parsed_by(_keep_finished)
    )
    discard_dead_after: Mapping[str, timedelta | None] = field(
        default_factory=dict, metadata=parsed_by(_discard_dead_after)
    )
    grace: timedelta = timedelta(seconds=30)
    hint_retry_interval: timedelta = timedelta(seconds=2)
    hint_give_up_after: timedelta = timedelta(seconds=10)
    retry_base: timedelta = timedelta(seconds=5)
    retry_ceiling: timedelta = timedelta(hours=1)
    ageing: timedelta | None = field(default=None, metadata=parsed_by(_duration_or_none))
    long_running_after: timedelta = timedelta(hours=1)

    def __post_init__(self) -> None:
        if self.lease < 3 * self.heartbeat_interval:
            raise ConfigError(
                f"TXTASKS['lease'] is {self.lease}, TXTASKS['heartbeat_interval'] is {self.heartbeat_interval}: "
                "a lease shorter than 3 beats declares living workers lost. Lengthen the lease or beat more often."
            )
        if self.hint_give_up_after < self.hint_retry_interval:
            raise ConfigError(
                f"TXTASKS['hint_give_up_after'] is {self.hint_give_up_after}, shorter than "
                f"TXTASKS['hint_retry_interval'] ({self.hint_retry_interval}): a hint would be forgotten before "
                "its row is looked up again."
            )
        if self.retry_ceiling < self.retry_base:
            raise ConfigError(
                f"TXTASKS['retry_ceiling'] is {self.retry_ceiling}, shorter than "
                f"TXTASKS['retry_base'] ({self.retry_base}). Raise the ceiling."
            )
        check_kept(self.keep_finished, self.queues)
        check_queues("discard_dead_after", self.discard_dead_after, self.queues)

    @classmethod
    def keys(cls) -> Sequence[str]:
        """Return the keys of ``TXTASKS``, in the order in which an error lists them."""
        return [one.name for one in fields(cls)]

    @classmethod
    def implied(cls) -> dict[str, Any]:
        """Return values, by key, that other settings of the site imply. ``TXTASKS`` has precedence."""
        return {}

    @property
    def broker_address(self) -> str:
        """Address of the message broker, for people; "none" without one."""
        return "none"

    @property
    def has_database_hints(self) -> bool:
        """True if the database itself tells workers of new tasks."""
        return False

    @property
    def queues_of_workers(self) -> tuple[str, ...]:
        """The queues whose tasks workers run."""
        return self.queues

    def release_now(self) -> object:
        """Return the release of the code of this process.

        Raises:
            Exception: the function of the site has failed.
        """
        return ""

    def of(self, kind: type[C]) -> C:
        """Return these settings as the settings of a feature, whose class is ``kind``."""
        if not isinstance(self, kind):
            raise TypeError(f"{kind.__name__} is not part of the settings")
        return self

    @cached_property
    def retention(self) -> Retention:
        """The times for which finished tasks are kept, by queue and outcome."""
        return Retention(self.keep_finished)

    def keeps(self, outcome: str) -> bool:
        """Return True if tasks with this outcome get a finished row."""
        return self.retention.keeps(outcome)


CONFIG: Composed[type[CoreConfig]] = Composed(f"{__name__}.CoreConfig")
"""The class of the site's settings."""


def parse_as(kind: type[C], setting: Any) -> C:
    """Return the settings of a TXTASKS dict as an object of this class.

    Raises:
        ConfigError: not a dict, unknown keys, wrong types, or values that contradict each other.
    """
    if not isinstance(setting, dict):
        raise ConfigError(f"TXTASKS is {type(setting).__name__}, it must be a dict.")
    refuse_unknown_keys("TXTASKS", setting, kind.keys())
    parsers = {one.name: one.metadata.get("parser", _duration) for one in fields(kind)}
    return kind(**{key: parsers[key](key, value) for key, value in setting.items()})


@lru_cache(maxsize=1)
def get_config() -> CoreConfig:
    """Return the site's settings. Raise ConfigError if they are wrong."""
    kind, setting = CONFIG.whole, getattr(settings, "TXTASKS", {})
    if isinstance(setting, dict):
        setting = {**kind.implied(), **setting}
    return parse_as(kind, setting)


def _reset(*, setting: str, **_: Any) -> None:
    if setting in ("TXTASKS", "TASKS"):
        get_config.cache_clear()


setting_changed.connect(_reset)


def in_test_run() -> bool:
    """Return True if Django's test environment is set up, as by its test runner or by pytest-django."""
    utils = sys.modules.get("django.test.utils")
    return hasattr(getattr(utils, "_TestState", None), "saved_data")


def switch(key: str, value: Any) -> bool:
    """Return a setting that is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"TXTASKS[{key!r}] is {value!r}: it must be True or False.")
    return value


def refuse_unknown_keys(name: str, setting: Mapping[Any, Any], known: Sequence[str]) -> None:
    """Raise ConfigError if the setting of this name has a key that is not known."""
    for key in setting:
        if key not in known:
            near = difflib.get_close_matches(str(key).lower(), known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else f" Known keys: {', '.join(known)}."
            raise ConfigError(f"{name} has the unknown key {key!r}.{hint}")
