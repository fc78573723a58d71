"""Floats come back as floats, from arguments, results and hooks, whatever a database makes of a number."""

import json

import helpers
import pytest
from django.db import connection
from probe import tasks

from django_txtasks import enqueue_many, enqueue_task
from django_txtasks.core.ground import payload
from django_txtasks.models import FinishedTask, Task

pytestmark = pytest.mark.usefixtures("rows")

FLOATS = [
    *(1.0, -1.0, 0.1, 1e15, 123456789012345680.0, 1e16, -1e16, 1e22, 1e23, 1.5e300),
    *(1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 1e-7),
]
TEXTS = ["1e+16", '"1e+16', 'a "1e+16" b', "\\", '\\"', '\\\\" 2e+20', ", 1e+16, ", "é1e+99"]
VALUE = {"floats": FLOATS, "texts": TEXTS, **dict.fromkeys(TEXTS, 1e16), "int": 10**16}


def exactly(value):
    """Return text that tells 1e16 from 10**16, which are equal; PostgreSQL keeps no order of keys."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("number", [1, 30], ids=["one", "many"])
def test_arguments_come_back_as_they_were(number):
    calls = [(tasks.note, (VALUE,), {}), (tasks.told, (), {"value": VALUE})] * number
    handles = enqueue_many(calls) if number > 1 else [enqueue_task(f, *a, **k) for f, a, k in calls]
    for (_, args, kwargs), handle in zip(calls, handles, strict=True):
        row = Task.objects.get(pk=handle.id)
        assert exactly([row.args, row.kwargs]) == exactly([list(args), kwargs])


def test_results_and_what_hooks_get_come_back_as_they_were(quick):
    handle = tasks.told.enqueue(VALUE, failures=0)
    with helpers.working():
        helpers.wait_until(lambda: helpers.finished(handle.id))
        helpers.wait_until(
            lambda: FinishedTask.objects.filter(task_name="probe.tasks.tell").first()
        )
    told = FinishedTask.objects.get(task_name="probe.tasks.tell").args[0]
    assert exactly(helpers.finished(handle.id).result) == exactly(VALUE)
    assert exactly([told["args"], told["result"]]) == exactly([[VALUE], VALUE])


def test_only_the_sign_of_zero_may_get_lost():
    """On PostgreSQL, as the documentation says."""
    kept = exactly(helpers.row(tasks.give.enqueue(-0.0).id).args)
    assert kept == ("[0.0]" if connection.vendor == "postgresql" else "[-0.0]")


@pytest.mark.once
def test_a_float_without_exponent_counts_with_all_its_digits():
    with pytest.raises(payload.InvalidArguments, match="bytes of JSON"):
        tasks.give.enqueue([1e300] * 1000)
