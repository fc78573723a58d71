"""A Celery app of a site, and its tasks: tests start real workers with ``celery -A probe.on_celery worker``."""

import json
import os

from celery import shared_task

from django_txtasks.contrib.celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "settings_for_tests")
app = Celery("probe")
app.conf.update(json.loads(os.environ.get("TXTASKS_TEST_CELERY", '{"broker_url": "memory://"}')))


class Unlucky(Exception):
    """Ends a transaction."""


@app.task
def run(key, seconds=0):
    """Write to the database that the task has run."""
    from probe.models import Run

    Run.objects.create(key=key)
    return key


@shared_task
def of_a_package(key):
    """A task of a package that knows neither this app nor this project."""
    run(key)


@app.task
def add(*numbers):
    return sum(sum(one) if isinstance(one, list) else one for one in numbers)


@app.task
def types_of(**values):
    """Return what arrived as text, because the result backend has types of its own."""
    return {name: repr(value) for name, value in values.items()}


@app.task(bind=True, max_retries=3)
def retried_in_atomic(self, key):
    """Fail once: the retry is sent, and then its exception ends the transaction."""
    from django.db import transaction

    with transaction.atomic():
        run(f"{key} {self.request.retries}")
        if not self.request.retries:
            raise self.retry(countdown=0)


@app.task(bind=True)
def replaced_in_atomic(self, key):
    """Be replaced by a group, whose exception ends the transaction."""
    from celery import group
    from django.db import transaction

    with transaction.atomic():
        run(f"{key} rolled back")
        raise self.replace(group(run.s(f"{key} 1"), run.s(f"{key} 2")))


@app.task
def sends_and_fails(key):
    """Send a task inside a transaction that rolls back, and one inside a transaction that commits."""
    from django.db import transaction

    try:
        with transaction.atomic():
            run.delay(f"{key} rolled back")
            raise Unlucky
    except Unlucky:
        with transaction.atomic():
            run.delay(f"{key} committed")
