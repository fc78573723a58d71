"""Facts about functions that are kept for quick enqueues, and values that no other call may have."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from probe import tasks, times

from django_txtasks import batch, enqueue_many
from django_txtasks.core.enqueueing.calls import bind
from django_txtasks.core.rows import enqueueing

pytestmark = pytest.mark.usefixtures("rows")
LATER = datetime(2040, 1, 1, tzinfo=timezone.utc)


def of_keys():
    enqueue_many((tasks.note.using(unique_key=f"key {number}"), []) for number in range(30))


def of_times():
    for number in range(30):
        tasks.note.using(run_after=LATER + timedelta(seconds=number)).enqueue()


def of_expiries():
    for number in range(30):
        tasks.note.using(expires=LATER + timedelta(seconds=number)).enqueue()


def of_batches():
    for _ in range(30):
        with batch():
            tasks.note.enqueue()


@pytest.mark.parametrize("enqueue", [of_keys, of_times, of_expiries, of_batches])
def test_values_of_one_call_drive_nothing_out_of_the_memory(enqueue):
    tasks.note.enqueue()
    memories = enqueueing._own_columns, enqueueing._shared
    before = [memory.cache_info().currsize for memory in memories]
    enqueue()
    after = [memory.cache_info().currsize for memory in memories]
    assert [now - then for now, then in zip(after, before, strict=True)] <= [2, 2]
    hits = [memory.cache_info().hits for memory in memories]
    tasks.note.enqueue()
    assert [memory.cache_info().hits for memory in memories] == [one + 1 for one in hits]


def test_calls_that_wait_for_others_of_their_key_share_what_is_remembered():
    """Their due time is the database's to say, so that their rows say the same."""
    bound = bind(times.see_settled)
    bound.known.clear()
    for number in range(5):
        times.see_settled.enqueue(str(number))
    assert len(bound.known) == 1
