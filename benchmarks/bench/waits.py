"""Async task functions that wait, as for an answer of another service; some write one row by Django's ORM.

``bench.tasks`` imports them only for ``async_tasks.py``: other benchmarks have no async function.
"""

import asyncio

import records

from bench.models import Row
from django_txtasks import task


@task(idempotent=True)
async def wait(key: int, seconds: float) -> None:
    """Wait, and record the end."""
    await asyncio.sleep(seconds)
    records.write(key)


@task(idempotent=True)
async def wait_and_write(key: int, seconds: float) -> None:
    """Wait, write a row, and record the end."""
    await asyncio.sleep(seconds)
    await Row.objects.acreate(key=key)
    records.write(key)
