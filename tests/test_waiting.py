"""handle.result(): returns the result of a task to a waiting caller, or raises the reason why there is none."""

import asyncio
import gc
import threading
import uuid

import helpers
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction
from django.db.backends.signals import connection_created
from probe import tasks

from django_txtasks import (
    ResultTimeout,
    ResultUnavailable,
    TaskFailed,
    enqueue_many,
    enqueue_task,
    get_handle,
)
from django_txtasks.exceptions import InvalidArguments, InvalidOption
from django_txtasks.features.results import polling
from django_txtasks.models import FinishedTask, Status, Task

pytestmark = pytest.mark.usefixtures("rows", "quick")

VALUE = {"a": [1, 2.5, None, "ä"]}


def run(coroutine):
    """Run it, and close the session of the thread that asked the database for it."""

    async def run_and_close():
        try:
            return await coroutine
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(run_and_close())


def both(handle, timeout=60.0):
    """Wait in sync and in async code; return what both say."""
    found = []
    for wait in (
        lambda: handle.result(timeout),
        lambda: run(handle.aresult(timeout)),
    ):
        try:
            found.append(wait())
        except (TaskFailed, ResultTimeout, ResultUnavailable) as error:
            found.append((type(error), str(error)))
    assert found[0] == found[1]
    return found[0]


def test_the_result_is_what_the_function_returned():
    with helpers.working():
        assert both(enqueue_task(tasks.give, VALUE)) == VALUE
        assert both(enqueue_task(tasks.note)) is None


def test_it_waits_through_failures():
    with helpers.working():
        assert both(enqueue_task(tasks.fail_until, 3)) is None


def test_a_dead_task_has_no_result_but_its_last_error():
    handle = enqueue_task(tasks.fail.using(max_attempts=2), "no paper")
    with (
        helpers.working(),
        pytest.raises(TaskFailed, match=r"is dead: .*ValueError: no paper") as e,
    ):
        handle.result(60)
    assert e.value.state == "dead"
    assert [entry["attempt"] for entry in e.value.errors] == [1, 2]
    assert both(handle)[0] is TaskFailed


@pytest.mark.parametrize("outcome", ["cancelled", "expired", "discarded"])
def test_what_never_ran_has_no_result(outcome):
    handle = enqueue_task(tasks.note)
    handle.cancel()
    FinishedTask.objects.update(outcome=outcome)
    assert both(handle) == (TaskFailed, f"Task {handle.id} is {outcome}")


def test_who_has_waited_long_enough_hears_of_it_and_the_task_goes_on():
    handle = enqueue_task(tasks.give, 1)
    kind, text = both(handle, 0.05)
    assert kind is ResultTimeout
    assert text == f"Task {handle.id} has not ended within 0.05 s. It goes on."
    assert isinstance(ResultTimeout(), TimeoutError)
    assert both(handle, 0)[0] is ResultTimeout
    with helpers.working():
        assert both(handle) == 1


def test_what_is_held_is_waited_for():
    handle = enqueue_task(tasks.give, 1)
    Task.objects.update(status=Status.HELD)
    assert both(handle, 0.05)[0] is ResultTimeout


def test_a_request_that_was_merged_gets_the_result_of_the_run():
    keyed = tasks.give.using(unique_key="same")
    first = enqueue_task(keyed, 1)
    others = [enqueue_task(keyed, n) for n in range(2, 5)]
    with helpers.working():
        results = {both(one) for one in [first, *others]}
    assert len(results) == 1


def test_what_was_rolled_back_has_no_result():
    with transaction.atomic():
        handle = enqueue_task(tasks.note)
        transaction.set_rollback(True)
    kind, text = both(handle)
    assert kind is ResultUnavailable
    assert "rolled back" in text


def test_in_its_own_transaction_it_would_wait_for_ever():
    with transaction.atomic():
        handle = enqueue_task(tasks.note)
        with pytest.raises(ResultUnavailable, match="non_atomic_requests"):
            handle.result()


def test_in_a_task_it_would_keep_a_slot():
    handle = enqueue_task(tasks.wait_for_another)
    with helpers.working(), pytest.raises(TaskFailed, match="on_success"):
        handle.result(60)


def test_where_nothing_is_kept_there_is_no_result(txtasks):
    txtasks(keep_finished=0)
    kind, text = both(enqueue_task(tasks.note))
    assert kind is ResultUnavailable
    assert "keep_finished" in text


def test_with_autocommit_off_it_would_wait_for_ever():
    transaction.set_autocommit(False)
    try:
        handle = enqueue_task(tasks.note)
        with pytest.raises(ResultUnavailable, match="COMMIT"):
            handle.result()
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_nothing_keeps_an_event_loop():
    handle = enqueue_task(tasks.give, 1)
    with helpers.working():
        assert run(handle.aresult(60)) == 1
    assert run_until_timeout() is ResultTimeout
    gc.collect()
    assert not any(polling._of_loop.values())


def run_until_timeout():
    Task.objects.all().delete()
    later = enqueue_task(tasks.give.using(run_after=3600), 1)
    try:
        return run(later.aresult(0.05))
    except ResultTimeout as error:
        return type(error)


@pytest.mark.parametrize("timeout", ["5", True, object(), float("nan")])
def test_a_timeout_is_a_time(timeout):
    with pytest.raises(InvalidOption, match="timeout="):
        enqueue_task(tasks.note).result(timeout)


def test_a_handle_from_its_id():
    handle = enqueue_task(tasks.give.using(queue_name="default"), 7)
    assert get_handle(handle.id) == get_handle(str(handle.id)) == handle
    with helpers.working():
        assert get_handle(handle.id).result(60) == 7
    assert get_handle(handle.id) == handle
    with pytest.raises(ResultUnavailable, match="no row"):
        get_handle(uuid.uuid4())
    with pytest.raises(InvalidArguments, match="get_handle"):
        get_handle("seven")


def test_a_thousand_coroutines_cost_one_statement_at_a_time():
    handles = enqueue_many([(tasks.give, [n]) for n in range(1000)])
    seen = []

    def count(execute, sql, params, many, context):
        seen.append(sql)
        return execute(sql, params, many, context)

    def watch(connection, **_):
        if threading.current_thread().name.startswith("txtasks-results"):
            connection.execute_wrappers.append(count)

    async def wait_for_all():
        return await asyncio.gather(*(one.aresult(60) for one in handles))

    connection_created.connect(watch)
    try:
        with helpers.working(threads=4):
            assert run(wait_for_all()) == list(range(1000))
    finally:
        connection_created.disconnect(watch)
    assert 0 < len(seen) < 500


def test_one_of_many_coroutines_gives_up_and_the_others_go_on():
    stays, ends = enqueue_task(tasks.give.using(run_after=3600), 1), enqueue_task(tasks.give, 2)

    async def wait():
        with pytest.raises(ResultTimeout):
            await stays.aresult(0.05)
        found = await asyncio.gather(stays.aresult(1), ends.aresult(60), return_exceptions=True)
        return found

    with helpers.working():
        gave_up, result = run(wait())
    assert isinstance(gave_up, ResultTimeout)
    assert result == 2


def test_threads_wait_beside_each_other():
    handles, found = [enqueue_task(tasks.give, n) for n in range(5)], {}

    def wait(number):
        found[number] = handles[number].result(60)
        connection.close()

    threads = [threading.Thread(target=wait, args=[n]) for n in range(5)]
    for one in threads:
        one.start()
    with helpers.working():
        for one in threads:
            one.join()
    assert found == {n: n for n in range(5)}
