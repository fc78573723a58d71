"""The targets of ``TXTASKS["hand_over"]``."""

from __future__ import annotations

from functools import partial
from inspect import iscoroutinefunction

from django.utils.module_loading import import_string

from django_txtasks.conf import Config
from django_txtasks.exceptions import ConfigError
from django_txtasks.features.hand_over.target import Target
from django_txtasks.features.hand_over.targets.calling import CalledTarget
from django_txtasks.features.hand_over.targets.functions import FunctionTarget


def target_of(config: Config, queue: str) -> Target:
    """Return the target of a queue that is handed over. A thread calls it if it runs code that is not ours.

    Raises:
        ConfigError: the setting names no object that can be a target.
    """
    exchange = config.hand_over[queue].exchange
    if exchange is not None:  # it has a limit for each wait
        from django_txtasks.features.hand_over.targets.exchanges import (
            ExchangeTarget,  # imports pika
        )

        return ExchangeTarget(config, exchange)
    return CalledTarget(partial(make, config, queue), queue)


def make(config: Config, queue: str) -> Target:
    """Return a new target of a queue whose rows do not go to an exchange.

    Raises:
        ConfigError: the setting names no object that can be a target.
    """
    entry, where = config.hand_over[queue], f"TXTASKS['hand_over'][{queue!r}]"
    try:
        found = import_string(entry.to) if isinstance(entry.to, str) else entry.to
    except ImportError as error:
        raise ConfigError(f"{where} is {entry.to!r}, which cannot be imported: {error}") from error
    if hasattr(found, "txtasks_target"):
        target: Target = found.txtasks_target(queue, ordered=entry.ordered)
        return target
    if iscoroutinefunction(found):
        raise ConfigError(f"{where} is {entry.to!r}, an async function: name a plain function.")
    if callable(found):
        return FunctionTarget(found)
    raise ConfigError(
        f"{where} is {entry.to!r}, a {type(found).__name__}: name a function, or an app whose class is "
        "django_txtasks.contrib.celery.Celery."
    )
