"""Django's checks of the Celery apps with an outbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from django.core.checks import CheckMessage, Error, Warning, register

from django_txtasks.exceptions import ConfigError

if TYPE_CHECKING:
    from django_txtasks.conf import Config
    from django_txtasks.contrib.celery.app import Celery

_apps: WeakSet[Any] = WeakSet()
RIGHT: dict[str, object] = {"task_serializer": "json", "task_protocol": 2}
"""Settings of Celery without which a row cannot keep a message."""
OF_ONE_PROCESS = ("rpc",)
"""Result backends that send a result to the process that has sent the task."""


def add(app: Celery) -> None:
    """Check this app from now on."""
    _apps.add(app)


@register("txtasks")
def check_celery(**_: Any) -> list[CheckMessage]:
    """Check the apps that this process has made. Opens no connection."""
    from django_txtasks.conf import get_config

    try:
        config = get_config()
    except ConfigError:
        return []  # E001 names the fault
    return [found for app in sorted(_apps, key=_name) for found in _check(app, config)]


def _check(app: Celery, config: Config) -> Iterator[CheckMessage]:
    from django_txtasks.contrib.celery.rows import queues_of

    queues, name = queues_of(app, config), _name(app)
    if len(queues) != 1:
        found = f"The queues {', '.join(map(repr, queues))} are" if queues else "No queue is"
        yield Error(
            f"{found} handed over to the Celery app {name!r}, whose tasks go to one queue.",
            hint="Leave the app in one of these entries of TXTASKS['hand_over']."
            if queues
            else f"Name the app by its path in one entry, such as {setting_for(app)}. A path that cannot be "
            "imported "
            "here is ignored.",
            id="txtasks.E040",
        )
    kept: dict[str, object] = {
        "task_serializer": app.conf.task_serializer,
        "task_protocol": int(app.conf.task_protocol),
    }
    if wrong := [key for key, right in RIGHT.items() if kept[key] != right]:
        yield Error(
            f"The Celery app {name!r} has {' and '.join(f'{key} = {kept[key]!r}' for key in wrong)}. A row keeps "
            "JSON of protocol 2: inside a transaction, sending raises.",
            hint=" ".join(f"Set {key} = {RIGHT[key]!r}." for key in wrong),
            id="txtasks.E041",
        )
    backend = str(app.conf.result_backend or "").partition(":")[0]
    if backend in OF_ONE_PROCESS:
        yield Warning(
            f"The Celery app {name!r} has the result backend {backend!r}: the results of tasks that are sent "
            "inside a transaction are lost, because they go to the process that sent them.",
            hint="Use a backend that keeps results, such as Redis or a database. Or silence this check, if "
            "nothing reads them.",
            id="txtasks.W040",
        )


def setting_for(app: Any) -> str:
    """Return the setting that hands a queue over to this app, for people."""
    return f"TXTASKS = {{'queues': [..., 'celery'], 'hand_over': {{'celery': '{_name(app)}.celery.app'}}}}"


def _name(app: Any) -> str:
    return str(app.main or "")
