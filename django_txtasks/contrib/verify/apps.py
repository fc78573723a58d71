"""The app that only a storm's processes install; its tables are in the scratch database."""

from __future__ import annotations

from django.apps import AppConfig


class VerifyConfig(AppConfig):
    """The app ``django_txtasks.contrib.verify``, label ``txtasks_verify``."""

    name = "django_txtasks.contrib.verify"
    label = "txtasks_verify"
    default_auto_field = "django.db.models.BigAutoField"
