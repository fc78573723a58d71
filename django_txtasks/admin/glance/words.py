"""Numbers, times and addresses of the page *At a glance*."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from django_txtasks.admin import links, shown
from django_txtasks.core.ground.wording import span, whole
from django_txtasks.overview import Count

MOST_SECONDS = 3e9
"""Longest time that is shown, in seconds. A time limit written by hand may be infinite, or no number."""


class Links:
    """Addresses of the pages of one admin site; empty if the site has no such page."""

    def __init__(self, site: str) -> None:
        self._site = site

    def tasks(self, **filters: str) -> str:
        """Return the list of tasks with these filters."""
        url = self.page("task_changelist")
        return url and f"{url}?{urlencode(filters)}"

    def page(self, name: str, *args: Any) -> str:
        """Return a page of this app."""
        return links.url(self._site, name, *args)


def number(count: Count | int) -> str:
    """Return a number with separators, and a plus if there are more."""
    if isinstance(count, int):
        return whole(count)
    return f"{number(count.number)}{'+' * count.is_capped}"


def counted(noun: Any, amount: int) -> str:
    return str(noun % {"number": amount, "n": number(amount)})


def age_of(count: Count) -> str:
    """Return the age of a count that the database did not renew in time; empty if it is new."""
    if count.age < 1:
        return ""
    return _("%(span)s ago") % {"span": span(timedelta(seconds=count.age))}


def exact(seconds: float) -> str:
    return shown.short_span(timedelta(seconds=seconds)) if seconds < 1 else rough(seconds)


def rough(seconds: float) -> str:
    return span(timedelta(seconds=0 if math.isnan(seconds) else min(seconds, MOST_SECONDS)))
