"""``python -m django_txtasks.contrib.verify.prepare``: create the tables in the scratch database, and its
schedule.

Only this package's migrations run, without Django's signals, because the user's apps would miss their
tables when they react to a migration.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone

import django


def main() -> None:
    """Migrate this package, create the storm's own tables, and start the schedule."""
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
    """Write the schedule, and note its first tick: from then on each tick must have a task."""
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
