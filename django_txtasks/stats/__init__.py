"""Figures of tasks for pages, monitors and scripts. They only read, whole sets with one statement.

Workers append their counts every 15 s, and a cleaner adds these rows up once per pass. The readers include rows
that are not added up yet.
"""

from django_txtasks.stats.by_cause import Cause, Causes, causes
from django_txtasks.stats.curve import chart, charts
from django_txtasks.stats.reading import functions, totals
from django_txtasks.stats.records import (
    Chart,
    Deploy,
    Functions,
    FunctionStats,
    Histogram,
    Point,
    QueueTimes,
    Sums,
    Totals,
)
from django_txtasks.stats.releases import deploys
from django_txtasks.stats.sums import sums

__all__ = [
    "Cause",
    "Causes",
    "Chart",
    "Deploy",
    "FunctionStats",
    "Functions",
    "Histogram",
    "Point",
    "QueueTimes",
    "Sums",
    "Totals",
    "causes",
    "chart",
    "charts",
    "deploys",
    "functions",
    "sums",
    "totals",
]
