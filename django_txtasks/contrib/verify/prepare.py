"""``python -m django_txtasks.contrib.verify.prepare``: make the tables in the scratch database, and its schedule.

Only our own migrations run, and without Django's signals: what the user's apps do after a migration
would miss their tables.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone

import django


def main() -> None:
    """Migrate our app, create the storm's own tables, and begin the schedule."""
    django.setup()
    _make_tables()
    _begin_schedule()


def _make_tables() -> None:
    from django.db import connections
    from django.db.migrations.executor import MigrationExecutor

    from django_txtasks.contrib.verify.models import Counter, Effect
    from django_txtasks.contrib.verify.project import Scene

    connection = connections[Scene.here().alias]
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes("txtasks"))
    with connection.schema_editor() as editor:
        editor.create_model(Effect)
        editor.create_model(Counter)
    Counter.objects.create()


def _begin_schedule() -> None:
    """Write the schedule, and note its first tick: from that one on, each has to have a task."""
    from django_txtasks.contrib.verify import journal
    from django_txtasks.contrib.verify.plan import TICK_SECONDS
    from django_txtasks.contrib.verify.project import SCHEDULE, Scene
    from django_txtasks.contrib.verify.tasks import tick
    from django_txtasks.models import Schedule

    first = int(time.time()) + TICK_SECONDS
    Schedule.objects.create(
        name=SCHEDULE,
        task_name=tick.declaration.name,
        every=TICK_SECONDS,
        catch_up="all",
        next_at=datetime.fromtimestamp(first, timezone.utc),
    )
    journal.note(Scene.here().journals, journal.SENT, "ticks", first)


if __name__ == "__main__":
    main()
