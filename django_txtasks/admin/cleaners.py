"""The admin page of cleaners: which cleaners run, and when each last finished a pass."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from django_txtasks.admin import fields, shown
from django_txtasks.admin.pages import ProcessPages
from django_txtasks.models import Cleaner


@admin.register(Cleaner)
class CleanerAdmin(ProcessPages):
    """Cleaner processes, by their beats and passes."""

    ordering = ("-pk",)
    list_display = ("process", "health", "seen", "passed", "every", "started")
    fieldsets = ((None, {"fields": ("id", *list_display, "lease", "last_error")}),)
    passed = fields.age(_("last whole pass"), "passed_at")
    last_error = fields.line(_("error"), "error")

    @admin.display(description=_("cleaner"))
    def process(self, cleaner: Any) -> str:
        return shown.line(str(cleaner))

    @admin.display(description=_("health"))
    def health(self, cleaner: Any) -> str:
        """Show the cleaner's state: at work, alive without a recent pass, or gone."""
        from django_txtasks.lifecycle.cleaners import Seen  # imported by this page alone

        state = Seen.of(cleaner)
        if not state.is_there:
            return shown.badge("lost", _("gone"))
        if state.achieves:
            return shown.badge("alive", _("at work"))
        badge = shown.badge("silent", _("finishes no pass"))
        return format_html('{}<br><small class="quiet">{}</small>', badge, shown.line(state.error))

    @admin.display(description=_("interval"))
    def every(self, cleaner: Any) -> str:
        """Show the interval between passes."""
        return str(_("once")) if cleaner.interval is None else shown.in_seconds(cleaner.interval)
