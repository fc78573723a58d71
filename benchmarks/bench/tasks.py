"""Task functions that do nothing but say that they ran."""

import time

import records

from django_txtasks import task


@task(idempotent=True)
def idempotent(key: int, payload: str = "") -> None:
    """A no-op that may run twice."""
    records.write(key)


@task
def default(key: int, payload: str = "") -> None:
    """A no-op that says nothing about crashes."""
    records.write(key)


@task(idempotent=True)
def nap(key: int, seconds: float) -> None:
    """A task that waits for something."""
    records.write(key)
    time.sleep(seconds)
