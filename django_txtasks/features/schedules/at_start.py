"""``migrate`` copies the schedules of the code into the database that it has migrated."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.db.models.signals import post_migrate


def bring_schedules(
    *, using: str, verbosity: int = 1, stdout: Any = None, **other_facts: Any
) -> None:
    """Copy the schedules of this code into a database that was just migrated, and report it.

    Do nothing after ``flush``, which sends the same signal without a plan, in test databases, and if the
    table is missing, as after ``migrate txtasks zero``.
    """
    from django_txtasks import signals
    from django_txtasks.conf import get_config
    from django_txtasks.features.schedules import periodic as scheduling
    from django_txtasks.features.schedules.code_versions import has_table

    if "plan" not in other_facts or not scheduling.declared(using):
        return
    if not get_config().syncs_schedules or not has_table(using):
        return
    done = scheduling.bring(using)
    if done:
        signals.schedules_synchronised.emit(database=using, done=done)
    if done and verbosity and stdout is not None:
        stdout.write(f"Schedules of {using!r} are as in the code: {done}.")


post_migrate.connect(bring_schedules, sender=apps.get_app_config("txtasks"))
