"""Django's AppConfig: finds every app's task functions, and connects to the signals of ``migrate``.

It makes no query and no connection at start-up. Only ``runserver`` may start workers: see ``embedded``.
"""

from __future__ import annotations

import sys
from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class TxTasksConfig(AppConfig):
    """The app ``django_txtasks``, label ``txtasks``."""

    name = "django_txtasks"
    label = "txtasks"
    verbose_name = _("Tasks")
    first_migration = "django_txtasks.migrations.0001_tables"

    def ready(self) -> None:
        from django_txtasks import (  # noqa: F401 -- register themselves; need models
            announcements,
            bulk,
            checks,
            notices,
        )

        autodiscover_modules("tasks")
        post_migrate.connect(bring_schedules, sender=self)
        if sys.argv[1:2] == ["runserver"]:
            from django_txtasks import embedded

            embedded.start_with_runserver()


def bring_schedules(
    *, using: str, verbosity: int = 1, stdout: Any = None, **other_facts: Any
) -> None:
    """Copy the schedules of this code into a database that was just migrated, and report it.

    Do nothing after ``flush``, which sends the same signal without a plan, in test databases, and if the
    table is missing, as after ``migrate txtasks zero``.
    """
    from django_txtasks import signals
    from django_txtasks.conf import get_config
    from django_txtasks.schedules import periodic as scheduling
    from django_txtasks.schedules.code_versions import has_table

    if "plan" not in other_facts or not scheduling.declared(using):
        return
    if not get_config().syncs_schedules or not has_table(using):
        return
    done = scheduling.bring(using)
    if done:
        signals.schedules_synchronised.emit(database=using, done=done)
    if done and verbosity and stdout is not None:
        stdout.write(f"Schedules of {using!r} are as in the code: {done}.")
