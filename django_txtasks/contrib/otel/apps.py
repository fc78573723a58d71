"""The app that turns spans on: ``"django_txtasks.contrib.otel"`` in ``INSTALLED_APPS``."""

from __future__ import annotations

from django.apps import AppConfig

from django_txtasks.exceptions import LibraryMissing
from django_txtasks.features.traces import tracing


class OpenTelemetry(AppConfig):
    """The span of an attempt begins a trace of its own, with a link to the span of the enqueueing.

    Attributes:
        is_child: True = it is a child of that span, in the same trace.
    """

    name = "django_txtasks.contrib.otel"
    label = "txtasks_otel"
    default = True
    is_child = False

    def ready(self) -> None:
        try:
            from django_txtasks.contrib.otel.tracer import OpenTelemetryTracer
        except ModuleNotFoundError as error:
            raise LibraryMissing(
                "django_txtasks.contrib.otel is in INSTALLED_APPS and needs opentelemetry-api, which is not "
                "installed: pip install opentelemetry-api"
            ) from error
        tracing.add_tracer(OpenTelemetryTracer(is_child=self.is_child))


class OpenTelemetryInOneTrace(OpenTelemetry):
    """The span of an attempt is a child of the span of the enqueueing, so both are in one trace."""

    default = False
    is_child = True
