"""Django's AppConfig: finds every app's task functions, and imports what features register with Django.

It makes no query and no connection at start-up. Only ``runserver`` may start workers: see ``embedded``.
"""

from __future__ import annotations

import sys
from importlib import import_module

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from django_txtasks.assembly import AT_START


class TxTasksConfig(AppConfig):
    """The app ``django_txtasks``, label ``txtasks``."""

    name = "django_txtasks"
    label = "txtasks"
    verbose_name = _("Tasks")
    first_migration = "django_txtasks.migrations.0001_tables"

    def ready(self) -> None:
        for name in AT_START:
            import_module(name)
        autodiscover_modules("tasks")
        if sys.argv[1:2] == ["runserver"]:
            from django_txtasks import embedded

            embedded.start_with_runserver()
