"""PostgreSQL only: storage parameters that keep the tables healthy as queues.

SET takes SHARE UPDATE EXCLUSIVE, like VACUUM itself: nobody who reads or writes tasks waits, nothing is
rewritten, and nothing needs more rights than those of the tables' owner. Values that somebody has set by hand
are replaced; change them after this migration.

A task dies twice, when it is claimed and when it is finished. The server's default lets a fifth of a table die
before it is vacuumed: 400,000 rows beside 2,000,000 that are due later. Here 1,000 dead rows are enough, at
full speed; how often PostgreSQL looks is ``autovacuum_naptime``, of the server alone. Vacuum does not cut
empty pages off the end of a file that the next burst fills again: for that it would lock everybody out.

Pages are filled to the half, so that the next version of a row finds room beside the last one. A beat, and
what else changes no indexed column, then touches no index (HOT); a claim writes less (see docs/explanation/performance.md).
A full table is twice as large for it, until it is worked through.

History is large and only its oldest rows die: there the default's fractions are made smaller, and its slow
pace is kept.
"""

from typing import Any

from django.db import migrations
from django.db.migrations.operations.base import Operation

QUEUE = {
    "autovacuum_vacuum_scale_factor": "0",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_vacuum_cost_delay": "0",
    "vacuum_truncate": "off",
    "fillfactor": "50",
}


class SetStorage(Operation):
    """Set storage parameters of a model's table on PostgreSQL; do nothing elsewhere."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, model_name: str, parameters: dict[str, str]) -> None:
        self.model_name = model_name
        self.parameters = parameters

    def state_forwards(self, app_label: str, state: Any) -> None:
        """Leave the models as they are."""

    def database_forwards(self, app_label: str, editor: Any, _before: Any, after: Any) -> None:
        pairs = ", ".join(f"{name} = {value}" for name, value in self.parameters.items())
        self._alter(app_label, editor, after, f"SET ({pairs})")

    def database_backwards(self, app_label: str, editor: Any, before: Any, _after: Any) -> None:
        self._alter(app_label, editor, before, f"RESET ({', '.join(self.parameters)})")

    def describe(self) -> str:
        return f"Set storage parameters of {self.model_name} on PostgreSQL"

    @property
    def migration_name_fragment(self) -> str:
        return f"{self.model_name.lower()}_storage"

    def _alter(self, app_label: str, editor: Any, state: Any, change: str) -> None:
        model, connection = state.apps.get_model(app_label, self.model_name), editor.connection
        if connection.vendor == "postgresql" and self.allow_migrate_model(connection.alias, model):
            editor.execute(f"ALTER TABLE {editor.quote_name(model._meta.db_table)} {change}")


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0002_failure_and_recovery'),
    ]

    operations = [
        SetStorage("Task", QUEUE),
        SetStorage("Worker", QUEUE),
        SetStorage("FinishedTask", {
            "autovacuum_vacuum_scale_factor": "0.02",
            "autovacuum_vacuum_insert_scale_factor": "0.05",
        }),
    ]
