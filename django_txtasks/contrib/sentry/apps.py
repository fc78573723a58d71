"""The app that turns Sentry's traces on: ``"django_txtasks.contrib.sentry"`` in ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig

from django_txtasks.exceptions import LibraryMissing
from django_txtasks.features.traces import tracing


class Sentry(AppConfig):
    """Spans and transactions of tasks.

    Attributes:
        checks_in: True = the tasks of schedules check in, too. Sentry bills a cron monitor for each schedule.
    """

    name = "django_txtasks.contrib.sentry"
    label = "txtasks_sentry"
    default = True
    checks_in = False

    def ready(self) -> None:
        try:
            from django_txtasks.contrib.sentry.tracer import SentryTracer
        except ModuleNotFoundError as error:
            raise LibraryMissing(
                "django_txtasks.contrib.sentry is in INSTALLED_APPS and needs sentry-sdk, which is not installed: "
                "pip install sentry-sdk"
            ) from error
        tracing.add_tracer(SentryTracer(checks_in=self.checks_in))


class SentryWithCheckIns(Sentry):
    """The tasks of schedules check in, too."""

    default = False
    checks_in = True
