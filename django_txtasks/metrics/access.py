"""Access to the metrics: for programs that have the token, and for users who may view tasks."""

from __future__ import annotations

from collections.abc import Sequence
from secrets import compare_digest

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, InterfaceError, connections, router, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_txtasks.conf import get_config
from django_txtasks.database.errors import text_of
from django_txtasks.metrics.exposition import CONTENT_TYPE, text
from django_txtasks.models import Task

REFUSED = (
    "Send the token of TXTASKS['metrics_token'] in the header 'Authorization: Bearer …', or log in as a user with "
    "the permission txtasks.view_task.\n"
)
ABSENT = "The database did not answer: it is not known whether you may read the metrics.\n"


@login_not_required  # a program has a token and no login
@transaction.non_atomic_requests
@never_cache
@require_safe
def view(request: HttpRequest) -> HttpResponse:
    """Answer with the metrics of one database: that of the router, or ``?db=`` an alias. Route it in your urls."""
    if not has_token(request.headers.get("Authorization", "")):
        try:
            if not _may_view(request):
                return _plain(403, REFUSED)
        except (DatabaseError, InterfaceError):  # the rows of sessions and users are there, too
            return _plain(503, ABSENT)
    alias = request.GET.get("db") or router.db_for_read(Task)
    if alias not in connections:
        return _plain(400, "There is no such database.\n")
    return _plain(*_answer([alias]))


def answer(aliases: Sequence[str], authorization: str) -> tuple[int, str]:
    """Return status code and text for the probe port, which asks for the token only if there is one.

    Args:
        authorization: value of the request's header.
    """
    if get_config().metrics_token and not has_token(authorization):
        return 403, REFUSED
    return _answer(aliases)


def has_token(authorization: str) -> bool:
    """Return True if the value of the header Authorization has the token of the settings."""
    token = get_config().metrics_token
    scheme, _, given = authorization.partition(" ")
    return bool(token) and scheme.lower() == "bearer" and _is_same(given.strip(), token)


def _is_same(given: str, token: str) -> bool:
    """Compare in a time that tells nothing about the token."""
    return compare_digest(given.encode(), token.encode())


def _may_view(request: HttpRequest) -> bool:
    user = getattr(request, "user", None)  # a site may have no users
    return user is not None and user.has_perm("txtasks.view_task")


def _answer(aliases: Sequence[str]) -> tuple[int, str]:
    try:
        return 200, text(aliases)
    except (DatabaseError, InterfaceError) as error:
        for alias in aliases:
            connections[alias].close_if_unusable_or_obsolete()
        return 503, f"The database did not answer: {' '.join(text_of(error).split())}\n"


def _plain(code: int, body: str) -> HttpResponse:
    return HttpResponse(body, status=code, content_type=CONTENT_TYPE)
