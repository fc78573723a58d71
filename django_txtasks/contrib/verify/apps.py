"""The app that only a storm's processes install; its tables are in the scratch database."""

from __future__ import annotations

from django.apps import AppConfig

from django_txtasks.contrib.verify.project import Scene


class VerifyConfig(AppConfig):
    """The app ``django_txtasks.contrib.verify``, label ``txtasks_verify``."""

    name = "django_txtasks.contrib.verify"
    label = "txtasks_verify"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Declare the async task functions, if the storm has an event loop."""
        if Scene.here().async_tasks:
            import django_txtasks.contrib.verify.async_tasks  # noqa: F401
