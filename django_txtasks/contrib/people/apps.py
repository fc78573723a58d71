"""The app ``django_txtasks.contrib.people``: its side table, and its checks."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class PeopleConfig(AppConfig):
    """The app ``django_txtasks.contrib.people``, label ``txtasks_people``."""

    name = "django_txtasks.contrib.people"
    label = "txtasks_people"
    verbose_name = _("Questions")
    first_migration = "django_txtasks.contrib.people.migrations.0001_questions"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django_txtasks.contrib.people import checks, sweep  # noqa: F401 -- checks register themselves
        from django_txtasks.database import side_tables

        side_tables.add(sweep.TABLE)
