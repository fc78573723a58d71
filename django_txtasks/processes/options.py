"""The settings of processes: the code that they run, and who starts them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from django_txtasks.core.ground.config import CoreConfig, parsed_by, switch
from django_txtasks.exceptions import ConfigError


def _release(key: str, value: Any) -> str | Callable[[], str]:
    if not isinstance(value, str) and not callable(value):
        raise ConfigError(
            f"TXTASKS['release'] is {value!r}: it must be a text such as '2026-11-27.1', or a function without "
            "arguments that returns one."
        )
    return cast("str | Callable[[], str]", value)


@dataclass(frozen=True, kw_only=True)
class ProcessConfig(CoreConfig):
    """The settings of processes.

    Attributes:
        with_runserver: ``manage.py runserver`` starts ``runworkers`` beside it.
        release: the release of the project's code, or a function that returns it.
    """

    with_runserver: bool = field(default=False, metadata=parsed_by(switch))
    release: str | Callable[[], str] = field(default="", metadata=parsed_by(_release))

    def release_now(self) -> object:
        """Return ``release``, or what its function returns."""
        return self.release() if callable(self.release) else self.release
