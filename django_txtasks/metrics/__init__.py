"""Metrics for Prometheus, read from the database. A process imports this folder with the first request for them.

* ``names``: the metrics
* ``samples``: their values, from ``overview`` and ``stats``
* ``kept``: values that were read a moment ago
* ``exposition``: the text that Prometheus reads
* ``access``: a view for the site, and an answer for the probe port of a cleaner
* ``collector``: for a registry of prometheus_client
"""

from django_txtasks.metrics.access import answer, view
from django_txtasks.metrics.exposition import text

__all__ = ["answer", "text", "view"]
