"""The setting of schedules."""

from __future__ import annotations

from dataclasses import dataclass, field

from django_txtasks.core.ground.config import CoreConfig, in_test_run, parsed_by, switch


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig(CoreConfig):
    """The setting of schedules.

    Attributes:
        sync_schedules: ``migrate`` copies schedules of the code into the database, and a starting cleaner
            adds new ones; see ``syncs_schedules``.
    """

    sync_schedules: bool = field(default=True, metadata=parsed_by(switch))

    @property
    def syncs_schedules(self) -> bool:
        """True if schedules of the code are copied into the database automatically. Never in test runs."""
        return self.sync_schedules and not in_test_run()
