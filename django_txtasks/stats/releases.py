"""The releases of the project's code that workers have run."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Min

from django_txtasks.models import DatabaseNow, EndedWorker, Worker
from django_txtasks.stats.records import Deploy

MAX_WORKERS = 1000


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


def newest_running(using: str = "default") -> str:
    """Return the newest release that a living worker has named; empty = none has named one."""
    workers = Worker.objects.using(using).filter(lost=False).exclude(release="")
    rows = workers.annotate(now=DatabaseNow()).only("release", "seen_at", "lease")[:MAX_WORKERS]
    running = {one.release for one in rows if not one.is_silent(one.now)}
    return next((one.release for one in reversed(deploys(using)) if one.release in running), "")
