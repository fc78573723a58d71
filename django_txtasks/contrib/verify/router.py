"""A router that keeps the storm's processes away from all databases but the scratch database."""

from __future__ import annotations

from typing import Any

from django_txtasks.contrib.verify.project import Scene

ALIAS = Scene.here().alias
OURS = {"txtasks", "txtasks_verify"}


class ScratchRouter:
    """Routes this package to the scratch database; migrates no app of the user."""

    def db_for_read(self, model: Any, **_: Any) -> str | None:
        return ALIAS if model._meta.app_label in OURS else None

    db_for_write = db_for_read

    def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool:
        return db == ALIAS and app_label in OURS
