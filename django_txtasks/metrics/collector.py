"""The metrics for a registry of prometheus_client, beside the project's own metrics."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import router
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector as BaseCollector

from django_txtasks.metrics.kept import samples
from django_txtasks.metrics.names import METRICS
from django_txtasks.models import Task


class Collector(BaseCollector):
    """Collects the metrics of one database: ``REGISTRY.register(Collector())``. They are at most 15 s old.

    Args:
        using: alias of the database; None = the one to which the router sends reads of tasks.
    """

    def __init__(self, using: str | None = None) -> None:
        self._using = using

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        alias = self._using or router.db_for_read(Task)
        found = samples(alias)
        for name, metric in METRICS.items():
            family = Metric(name.removesuffix("_total"), metric.help, metric.kind)
            for one in found:
                if one.metric == name:
                    labels = {"database": alias, **one.labels}
                    family.add_sample(name + one.suffix, labels, float(one.value))
            if family.samples:
                yield family

    def describe(self) -> list[Metric]:
        """Return nothing, so that a registration reads no database."""
        return []
