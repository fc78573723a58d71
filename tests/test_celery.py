"""Celery tasks that are sent inside a transaction, run by a real Celery worker."""

import datetime
import decimal
import uuid

import handing
import helpers
import pytest
from django.db import transaction

pytest.importorskip("celery", reason="celery is not installed")
import celery_site
from celery import chain, chord, group
from celery.result import AsyncResult
from probe import on_celery
from probe.models import Run

from django_txtasks.models import FinishedTask, Task

pytestmark = pytest.mark.once  # test_celery_rows.py has the rows of each database
app, run, add = on_celery.app, on_celery.run, on_celery.add
SECONDS = helpers.PATIENCE


@pytest.fixture(scope="module")
def with_worker(django_db_setup, django_db_blocker, tmp_path_factory):
    with django_db_blocker.unblock():
        site = celery_site.CelerySite("rabbitmq", tmp_path_factory.mktemp("celery"))
        try:
            site.start_worker()
            yield site
        finally:
            site.end()


@pytest.fixture
def site(with_worker, rows, txtasks):
    txtasks(**celery_site.SETTINGS)
    celery_site.point(app, with_worker.configuration)
    yield with_worker
    celery_site.let_go(app)


@pytest.fixture
def site_of_files(rows, txtasks, tmp_path):
    """Its worker does not run yet: it may read half a file of a message."""
    txtasks(**celery_site.SETTINGS)
    with celery_site.here("filesystem", tmp_path) as found:
        yield found


def hand_over():
    return handing.hand_over("celery").handed


def keys():
    return sorted(Run.objects.values_list("key", flat=True))


def test_a_rolled_back_transaction_sends_nothing(site):
    with transaction.atomic():
        run.delay("gone")
        transaction.set_rollback(True)
    with transaction.atomic():
        result = run.delay("kept")
    assert hand_over() == 1
    assert result.get(SECONDS) == "kept"
    assert keys() == ["kept"]


def test_outside_a_transaction_it_sends_as_ever(site):
    assert run.delay("at once").get(SECONDS) == "at once"
    assert not Task.objects.exists()


VALUES = {
    "id": uuid.UUID(int=7),
    "price": decimal.Decimal("1.20"),
    "at": datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.timezone.utc),
    "day": datetime.date(2026, 3, 1),
    "raw": b"\xff\x00",
    "text": "Größe \x7f",
    "large": 1e16,
    "keys": {"a": [None, True]},
}


def as_text(values):
    return {name: repr(value) for name, value in values.items()}


def test_arguments_arrive_with_their_types(site):
    with transaction.atomic():
        result = on_celery.types_of.delay(**VALUES)
    hand_over()
    assert result.get(SECONDS) == as_text(VALUES)


@pytest.mark.parametrize(
    "value", [float("inf"), "a\x00b", {"a": {}}, ["deep"]], ids=["inf", "nul", "dict", "deep"]
)
def test_arguments_that_a_json_column_cannot_keep_arrive_too(value, site):
    for _ in range(25 if value == ["deep"] else 0):
        value = [value]
    with transaction.atomic():
        result = on_celery.types_of.delay(value=value)
    hand_over()
    assert result.get(SECONDS) == {"value": repr(value)}


def test_chain_group_and_chord_run_and_return_results(site):
    with transaction.atomic():
        in_a_row = chain(add.s(1, 2), add.s(3), add.s(4)).apply_async()
        beside = group(add.s(1), add.s(2)).apply_async()
        in_the_end = chord([add.s(1, 2), add.s(3, 4)], add.s()).apply_async()
        linked = add.apply_async((1,), link=run.si("linked"))
    with handing.handing_over("celery"):  # a chord's end is a task that is due in a second
        assert in_a_row.get(SECONDS) == 10
        assert beside.get(SECONDS) == [1, 2]
        assert in_the_end.get(SECONDS) == 10
    assert AsyncResult(linked.id, app=app).get(SECONDS) == 1
    helpers.wait_until(lambda: keys() == ["linked"])


def test_a_retry_inside_a_transaction_is_not_rolled_back(site):
    with transaction.atomic():
        on_celery.retried_in_atomic.delay("a")
    hand_over()
    helpers.wait_until(lambda: keys() == ["a 1"])


def test_the_replacement_of_a_task_is_not_rolled_back(site):
    with transaction.atomic():
        result = on_celery.replaced_in_atomic.delay("a")
    hand_over()
    assert result.get(SECONDS) == ["a 1", "a 2"]
    assert keys() == ["a 1", "a 2"]


def test_a_task_sends_inside_its_own_transactions(site):
    with transaction.atomic():
        on_celery.sends_and_fails.delay("a")
    with handing.handing_over("celery"):
        helpers.wait_until(lambda: keys() == ["a committed"])
    assert FinishedTask.objects.filter(outcome="handed").count() == 2


def test_a_task_of_another_package_is_a_row_too(site):
    with transaction.atomic():
        on_celery.of_a_package.delay("a")
        assert Task.objects.get().task_name == "probe.on_celery.of_a_package"
    hand_over()
    helpers.wait_until(lambda: keys() == ["a"])


def test_a_row_without_a_message_gets_one(site):
    from django_txtasks.features.hand_over.external import external

    handle = external("probe.on_celery.run", queue_name="celery").enqueue("raw")
    hand_over()
    assert AsyncResult(str(handle.id), app=app).get(SECONDS) == "raw"


def test_another_transport_of_kombu_takes_the_same_messages(site_of_files):
    with transaction.atomic():
        run.delay("gone")
        transaction.set_rollback(True)
    with transaction.atomic():
        beside = group(run.s("a"), run.s("b")).apply_async()
        values = on_celery.types_of.apply_async((), VALUES, compression="gzip")
    assert hand_over() == 3
    site_of_files.start_worker()
    assert beside.get(SECONDS) == ["a", "b"]
    assert values.get(SECONDS) == as_text(VALUES)
    assert keys() == ["a", "b"]
