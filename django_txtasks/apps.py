"""Django's entry: finds every app's task functions. No query and no connection at start-up."""

from __future__ import annotations

from django.apps import AppConfig
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
