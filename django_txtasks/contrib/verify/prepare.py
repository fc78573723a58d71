"""``python -m django_txtasks.contrib.verify.prepare``: make the tables in the scratch database.

Only our own migrations run, and without Django's signals: what the user's apps do after a migration
would miss their tables.
"""

from __future__ import annotations

import django


def main() -> None:
    """Migrate our app and create the storm's own tables."""
    django.setup()
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


if __name__ == "__main__":
    main()
