"""PostgreSQL only: the workers' table and long values of tasks are vacuumed at fewer dead rows.

A busy queue leaves 1,000 dead rows within a second. A fleet of five workers leaves that many in
minutes, where each of its rows has died 200 times: each look at the workers walks past them. Chunks of long values of
tasks (TOAST) have 2 kB each, so 1,000 of them are 2 MB. The lock is that of VACUUM, as in 0003.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.db import migrations

SetStorage = import_module('django_txtasks.migrations.0003_storage_parameters').SetStorage
THRESHOLD, TOAST = 'autovacuum_vacuum_threshold', 'toast.autovacuum_vacuum_threshold'


class SetThreshold(SetStorage):  # type: ignore[misc,valid-type]
    """Set one storage parameter; ``before`` is what it was, None = there was none."""

    def __init__(self, model_name: str, parameter: str, value: str, before: str | None = None) -> None:
        super().__init__(model_name, {parameter: value})
        self.before = before

    def deconstruct(self) -> Any:
        """Return its arguments, for whoever writes migrations."""
        (parameter, value), = self.parameters.items()
        return type(self).__qualname__, [self.model_name, parameter, value, self.before], {}

    def database_backwards(self, app_label: str, editor: Any, before: Any, after: Any) -> None:
        """Set what was set before."""
        if self.before is None:
            super().database_backwards(app_label, editor, before, after)
            return
        (parameter,) = self.parameters
        self._alter(app_label, editor, before, f'SET ({parameter} = {self.before})')


class Migration(migrations.Migration):

    dependencies = [
        ('txtasks', '0022_exact_names'),
    ]

    operations = [
        SetThreshold('Worker', THRESHOLD, '50', '1000'),
        SetThreshold('Task', TOAST, '100'),
    ]
