"""Bases of pages and of their parts: Django's ``ModelAdmin``, and a page that renews itself by ``live.js``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.formats import time_format
from django.utils.html import format_html
from django.utils.translation import gettext as _

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin

ASKED = "fragment"
"""URL parameter with a number that the answer repeats; so a copy from a cache is known as one."""
RELOAD_SECONDS = 2
"""Seconds after which the page of a task is renewed while something is awaited, also without JavaScript."""


def live_part(request: HttpRequest, name: str, seconds: int) -> dict[str, Any]:
    """Return the context ``live`` of a template: the attributes of the part that renews itself.

    Args:
        name: name of the part, which no other page has.
        seconds: time between two tries; 0 = the part does not renew itself.
    """
    now = timezone.now()
    at = time_format(timezone.localtime(now) if timezone.is_aware(now) else now, "H:i")
    attributes = format_html(
        'data-txtasks-live="{}" data-seconds="{}" data-asked="{}" data-at="{}" data-texts="{}"',
        name, seconds, request.GET.get(ASKED, ""),
        at, json.dumps(_texts()),
    )  # fmt: skip
    return {"live": {"attributes": attributes, "seconds": seconds}}


class LivePage(ModelAdmin):
    """The page of a row, which renews itself while something is awaited."""

    def is_awaited(self, request: HttpRequest, row: Any) -> bool:
        """Return True while the page shall renew itself."""
        return False

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add the attributes of the part that renews itself."""
        row = context["original"]
        seconds = RELOAD_SECONDS if self.is_awaited(request, row) else 0
        context = {**context, **live_part(request, f"row {row.pk}", seconds)}
        return super().render_change_form(request, context, *args, **kwargs)


def _texts() -> dict[str, str]:
    """Return the sentences of the script. It replaces the names in braces."""
    return {
        "stale": _("Not renewed since {at}: {reason}"),
        "login": _("you are logged out. Load the page again, and log in."),
        "other": _(
            "another page has come in its place, from {place}. Load the page again; you may have to log in."
        ),
        "status": _("the site answers with status {status}."),
        "silent": _(
            "no answer has come. The site or the network is down, or you have to log in: load the page again."
        ),
        "slow": _("the site has not answered in time."),
        "copy": _("an old copy of the page has come, perhaps from a cache before the site."),
        "focus": _("a link or button of this page has the focus. Click beside it."),
    }
