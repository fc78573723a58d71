"""Django's entry: finds every app's task functions, and brings schedules into the database after ``migrate``.

No query and no connection at start-up.
"""

from __future__ import annotations

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

    def ready(self) -> None:
        from django_txtasks import checks, notices  # noqa: F401 -- register themselves; need models
        from django_txtasks.commit_hints import notify_on_commit
        from django_txtasks.lifecycle import batches

        batches.tell_workers = notify_on_commit
        autodiscover_modules("tasks")
        post_migrate.connect(bring_schedules, sender=self)


def bring_schedules(
    *, using: str, verbosity: int = 1, stdout: Any = None, **other_facts: Any
) -> None:
    """Bring the schedules of this code into a database that was just migrated, and say so.

    Not after ``flush``, which sends the same signal without a plan; not in test databases; and not where the table
    is not the one of this release, as after ``migrate txtasks 0014``.
    """
    from django_txtasks import scheduling, signals
    from django_txtasks.conf import get_config
    from django_txtasks.lifecycle.code_versions import has_table

    if "plan" not in other_facts or not scheduling.declared(using):
        return
    if not get_config().syncs_schedules or not has_table(using):
        return
    done = scheduling.bring(using)
    if done:
        signals.schedules_synchronised.emit(database=using, done=done)
    if done and verbosity and stdout is not None:
        stdout.write(f"Schedules of {using!r} are as in the code: {done}.")
