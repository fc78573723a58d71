"""``get_result()`` of Django's Tasks reads the result of the task that ``enqueue()`` returned."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.utils.timezone import get_fixed_timezone, now
from probe import framework

from django_txtasks.backends import compat

pytestmark = pytest.mark.usefixtures("rows")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"run_after": timedelta(hours=2)},
        {"run_after": 90},
        {"run_after": now().astimezone(get_fixed_timezone(330)) + timedelta(days=1)},
        {"run_after": now() - timedelta(days=1)},
        {"run_after": timedelta(0)},
        {"priority": 7, "queue_name": "mail", "max_attempts": 2, "max_crashes": 1},
    ],
    ids=["now", "later", "seconds", "elsewhere", "overdue", "at once", "others"],
)
def test_the_result_of_enqueueing_is_the_one_that_is_read(options):
    task = framework.add.using(**options)
    with transaction.atomic():
        result = task.enqueue(1, b={"c": [1.5, None]})
        assert task.get_result(result.id) == result
    assert task.get_result(result.id) == result
    result.refresh()
    assert task.get_result(result.id) == result
    assert result.enqueued_at.utcoffset() == timedelta(0)


def test_enqueueing_takes_one_statement_for_it(django_assert_num_queries):
    with transaction.atomic(), django_assert_num_queries(1):
        framework.add.using(run_after=60).enqueue(1)


def test_a_receiver_of_task_enqueued_sees_the_same():
    heard = []

    def hear(task_result, **_):
        heard.append(task_result)

    compat.task_enqueued.connect(hear)
    try:
        result = framework.add.enqueue(1)
    finally:
        compat.task_enqueued.disconnect(hear)
    assert heard == [framework.add.get_result(result.id)]
