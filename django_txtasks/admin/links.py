"""Addresses of the pages of one admin site, which may have only some of the pages."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import quote
from django.urls import NoReverseMatch, reverse
from django.utils.html import conditional_escape, format_html


def url(site: str, page: str, *keys: Any) -> str:
    """Return the address of a page of this app; empty if the admin site has no such page."""
    quoted = [quote(str(key)) for key in keys]
    try:
        return reverse(f"admin:txtasks_{page}", args=quoted, current_app=site)
    except NoReverseMatch:
        return ""


def to(address: str, text: Any) -> str:
    """Return a link; only its text if there is no address."""
    return (
        format_html('<a href="{}">{}</a>', address, text) if address else conditional_escape(text)
    )
