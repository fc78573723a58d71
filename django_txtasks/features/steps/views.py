"""The page of ``resume_url()``. It asks before it acts, because programs such as mail scanners open links, too."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from django_txtasks.exceptions import InvalidToken
from django_txtasks.features.steps.answering import bring, of_url


@csrf_exempt  # the secret URL permits the request, and not a cookie
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def resume_view(request: HttpRequest, signed: str) -> HttpResponse:
    """Show a button, and deliver the value on POST. 404: no such token. 410: the value does not count any more."""
    try:
        awaited, value = of_url(signed)
    except InvalidToken:
        return _page(request, "unknown", 404)
    if request.method != "POST":
        return _page(request, "asks", 200, name=awaited.name, value=value)
    counts = bring(awaited, value)
    return _page(request, "done" if counts else "too_late", 200 if counts else 410)


def _page(request: HttpRequest, state: str, status: int, **shown: object) -> HttpResponse:
    response = render(request, "txtasks/resume.html", {"state": state, **shown}, status=status)
    response["Referrer-Policy"] = "no-referrer"  # the URL is the secret
    return response
