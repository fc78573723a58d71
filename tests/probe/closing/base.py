"""The wrapper of the tests' own backend, with another close."""

from importlib import import_module
from typing import Any

from django.conf import settings

_theirs: Any = import_module(f"{settings.DATABASES['default']['ENGINE']}.base")


class DatabaseWrapper(_theirs.DatabaseWrapper):
    """Closes its session as a backend does that has a loop of its own, whose work is cancelled.

    Attributes:
        errors: what the next calls of ``close()`` raise.
    """

    errors: list[BaseException] = []

    def _close(self) -> None:
        if self.errors:
            raise self.errors.pop()
        super()._close()
