"""Pages of the admin, opened one after the other by Django's test client."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any


def opened(urls: Sequence[str], repeat: int, *, counts_rows: bool) -> dict[str, Any]:
    """Open each page; return by URL its status, statements, rows read, milliseconds of the database and in all.

    Each time is the median of ``repeat`` requests after a first one. One more request counts the rows read: the
    most of one statement, and all.
    """
    browser, found = client(), {}
    for url in urls:
        try:
            found[url] = _opened(browser, url, repeat, counts_rows=counts_rows)
        except Exception as error:
            raise RuntimeError(url) from error
    return found


def client() -> Any:
    """Return a client of a person who may do everything."""
    from django.contrib.auth.models import User
    from django.test import Client

    found = Client(raise_request_exception=True)
    user, _ = User.objects.get_or_create(username="ada", is_superuser=True, is_staff=True)
    found.force_login(user)
    return found


def tell(path: str, found: Any) -> None:
    """Write what was found for the benchmark."""
    Path(path).write_text(json.dumps(found))


def _opened(client: Any, url: str, repeat: int, *, counts_rows: bool) -> dict[str, Any]:
    status = client.get(url).status_code
    times, whole, number = [], [], 0
    for _ in range(repeat):
        _forget(url)
        begin = time.perf_counter()
        with _timed() as statements:
            client.get(url)
        whole.append(1000 * (time.perf_counter() - begin))
        times.append(1000 * sum(statements))
        number = len(statements)
    most = total = 0
    if counts_rows:
        from reads import explained

        _forget(url)
        with explained() as read:
            client.get(url)
        most, total = max((rows for rows, _ in read), default=0), sum(rows for rows, _ in read)
    return {
        "status": status,
        "statements": number,
        "database_ms": statistics.median(times),
        "ms": statistics.median(whole),
        "most_rows": most,
        "rows": total,
    }


def _forget(url: str) -> None:
    """Forget what this package keeps, so that these pages read anew each time. Lists keep numbers for 60 s."""
    if not ("/overview/" in url or "/metrics" in url):
        return
    if overview := sys.modules.get("django_txtasks.overview"):
        overview._forget()
    if kept := sys.modules.get("django_txtasks.metrics.kept"):
        kept.forget()


@contextmanager
def _timed() -> Iterator[list[float]]:
    """Yield the seconds of each statement, as they come."""
    from django.db import connections

    found: list[float] = []

    def timed(execute: Any, *call: Any) -> Any:
        begin = time.perf_counter()
        try:
            return execute(*call)
        finally:
            found.append(time.perf_counter() - begin)

    with ExitStack() as stack:
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(timed))
        yield found
