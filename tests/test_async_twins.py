"""Functions that query have async twins, named as Django names them; the polling view of the docs works."""

import asyncio
import inspect
import json
import re
import threading
import uuid
from pathlib import Path

import helpers
import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connections
from django.test import AsyncRequestFactory
from probe import tasks

import django_txtasks
from django_txtasks import BatchHandle, CancelResult, TaskHandle, batch
from django_txtasks.exceptions import InvalidArguments
from django_txtasks.models import Task

pytestmark = pytest.mark.once

TWINS = [
    *(
        (django_txtasks, name)
        for name in ("enqueue_task", "enqueue_many", "cancel_task", "cancel_tasks")
    ),
    *(
        (django_txtasks, name)
        for name in ("status_of", "get_handle", "get_batch", "publish", "resume")
    ),
    *((TaskHandle, name) for name in ("status", "progress", "result", "cancel")),
    (BatchHandle, "status"),
]
ASK_NOBODY = {"batch", "external", "periodic", "resume_url", "subscribe", "task", "tasks_of"}
"""Public functions that ask no database or return a queryset, and ``batch``, whose block is a transaction."""


def until_end(coroutine):
    """Run it, and end the sessions of its threads, because no request does so here."""

    async def closing():
        try:
            return await coroutine
        finally:
            await sync_to_async(connections.close_all)()

    result = asyncio.run(closing())
    helpers.wait_until(
        lambda: not any("txtasks-results" in one.name for one in threading.enumerate())
    )
    return result


@pytest.mark.parametrize(("owner", "name"), TWINS, ids=lambda one: getattr(one, "__name__", one))
def test_the_twin_takes_what_the_function_takes(owner, name):
    one, twin = getattr(owner, name), getattr(owner, f"a{name}")
    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(one)
    if owner is django_txtasks:
        assert f"a{name}" in django_txtasks.__all__


def test_every_public_function_that_asks_the_database_has_one():
    functions = {
        name for name in django_txtasks.__all__ if inspect.isfunction(getattr(django_txtasks, name))
    }
    twins = {
        name for name in functions if inspect.iscoroutinefunction(getattr(django_txtasks, name))
    }
    assert {f"a{name}" for name in functions - twins - ASK_NOBODY} == twins


def test_handles_and_their_cancel(rows):
    async def run():
        handle = await django_txtasks.aget_handle(str(one.id))
        assert handle == one
        assert await handle.astatus() == await django_txtasks.astatus_of(one.id) == "pending"
        assert await handle.aprogress() is None
        assert await django_txtasks.acancel_task(one.id) is CancelResult.CANCELLED
        first, second = await django_txtasks.aenqueue_many([(keyed, ["a"]), (keyed, ["b"])])
        assert await django_txtasks.acancel_tasks(tasks.note, unique_key="k") == {
            first.id: CancelResult.CANCELLED,
            second.id: CancelResult.CANCELLED,
        }

    keyed = tasks.note.using(unique_key="k")
    one = tasks.note.enqueue()
    until_end(run())
    assert not Task.objects.exists()


def test_batches(rows):
    async def run():
        same = await django_txtasks.aget_batch(str(made.id))
        assert same == made
        assert (await same.astatus()).waiting == 1
        with pytest.raises(LookupError, match="There is no batch"):
            await django_txtasks.aget_batch(uuid.uuid4())

    with batch(name="a") as made:
        tasks.note.enqueue()
    until_end(run())


def test_bad_input_is_answered_as_ever(rows):
    for call in (
        django_txtasks.aget_handle,
        django_txtasks.astatus_of,
        django_txtasks.acancel_task,
    ):
        with pytest.raises(InvalidArguments, match="'no id'"):
            until_end(call("no id"))


def test_the_polling_view_of_the_docs(rows):
    page = Path(__file__).parents[1] / "docs/how-to/results.md"
    (text,) = [
        one
        for one in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
        if "async def" in one
    ]
    names = {}
    exec(text, names)  # noqa: S102 -- it is ours

    def asked(task_id):
        answer = until_end(names["price"](AsyncRequestFactory().get("/"), task_id))
        return answer.status_code, json.loads(answer.content)

    waits, failed = tasks.give.enqueue(7), tasks.give.enqueue(8)
    assert asked(waits.id) == (202, {"status": "waits or runs"})
    failed.cancel()
    assert asked(failed.id) == (500, {"status": "cancelled"})
    call_command("runworkers", batch=True, verbosity=0)
    assert asked(str(waits.id)) == (200, {"result": 7})
    assert asked(uuid.uuid4()) == (404, {"status": "unknown"})
