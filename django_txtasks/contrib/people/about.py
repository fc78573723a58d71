"""The business objects that the task of a question is about, as links for a person who may view them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_permission_codename
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from django_txtasks.contrib.people.models import Question, alias_of_people
from django_txtasks.features.links.subjects import model_named
from django_txtasks.models import Link

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite

MOST_OBJECTS = 10


def objects_of(
    question: Question, request: HttpRequest, site: AdminSite | None = None
) -> list[tuple[str, str]]:
    """Return the name and the address of each object that has a page which the reader may view.

    Args:
        site: the admin site whose pages are preferred; None: the address of ``get_absolute_url()`` is.
    """
    rows = Link.objects.using(alias_of_people()).filter(task_id=question.task_id)
    found = []
    for link in rows.order_by("subject_type", "subject_id")[:MOST_OBJECTS]:
        one = _object(link)
        if one is None:
            continue
        addresses = [_own_address(one, request.user), _address_in_admin(one, request, site)]
        address = next(filter(None, reversed(addresses) if site else addresses), "")
        if address:
            found.append((f"{one._meta.verbose_name} {one}", address))
    return found


def _object(link: Link) -> Any:
    model = model_named(link.subject_type)
    if model is None:
        return None
    try:
        return model._default_manager.using(alias_of_people()).filter(pk=link.subject_id).first()
    except (ValueError, ValidationError):  # a key of another release, whose column had another type
        return None


def _own_address(one: Any, user: Any) -> str:
    """Return the address of the object's own page, for a user who may view or change objects of its model."""
    opts = one._meta
    codenames = [get_permission_codename(act, opts) for act in ("view", "change")]
    if not any(user.has_perm(f"{opts.app_label}.{codename}") for codename in codenames):
        return ""
    try:
        return str(one.get_absolute_url())
    except (AttributeError, NoReverseMatch):
        return ""


def _address_in_admin(one: Any, request: HttpRequest, site: AdminSite | None) -> str:
    if not apps.is_installed("django.contrib.admin"):
        return ""
    from django.contrib import admin
    from django.contrib.admin.utils import quote

    site = site or admin.site
    pages = site._registry.get(type(one))
    if not (
        pages and site.has_permission(request) and pages.has_view_or_change_permission(request, one)
    ):
        return ""
    name = f"admin:{one._meta.app_label}_{one._meta.model_name}_change"
    try:
        return reverse(name, args=[quote(str(one.pk))], current_app=site.name)
    except NoReverseMatch:
        return ""
