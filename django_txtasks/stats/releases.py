"""The releases of the project's code that workers have run."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Min

from django_txtasks.models import EndedWorker, Worker
from django_txtasks.stats.records import Deploy


def deploys(using: str = "default") -> tuple[Deploy, ...]:
    """Return each release that ``TXTASKS["release"]`` has named, the oldest first.

    Ended workers are remembered as long as finished tasks. A release that comes back keeps its first time.
    """
    first: dict[str, datetime] = {}
    for model in (EndedWorker, Worker):
        named = model.objects.using(using).exclude(release="").values_list("release")
        for release, started_at in named.annotate(first=Min("started_at")):
            if started_at is not None:
                first[release] = min(started_at, first.get(release, started_at))
    return tuple(
        Deploy(release, seen)
        for release, seen in sorted(first.items(), key=lambda pair: pair[::-1])
    )
