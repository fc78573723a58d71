"""Releases of a site's code, one after another, in one process."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import django_txtasks
from django_txtasks import backends
from django_txtasks.core.declaring import registry
from django_txtasks.features.events import api as events
from django_txtasks.features.schedules import periodic

MODULE = "shop.tasks"


class Releases:
    """The task functions of the module ``shop.tasks``, as one release after another declares them.

    Attributes:
        ran: what the functions have noted by ``ran.append(…)``.
        code: the names of the latest release.
    """

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.code: dict[str, Any] = {}

    def deploy(self, source: str) -> dict[str, Any]:
        """Forget the functions of the release before, and run this source, a text of Python."""
        for name, one in list(registry._declarations.items()):
            if one.function.__module__ == MODULE or name.startswith(f"{MODULE}."):
                registry._declarations.pop(name, None)
        periodic._declared.clear()
        events._subscribers.clear()
        self.code = {
            "__name__": MODULE,
            "ran": self.ran,
            "wraps": functools.wraps,
            "signature": inspect.signature,
            "django_task": backends.task,
            **{name: getattr(django_txtasks, name) for name in ("task", "periodic", "subscribe")},
        }
        exec(source, self.code)  # noqa: S102 -- a module whose text changes from release to release
        return self.code
