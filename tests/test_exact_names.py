"""Names that differ in case, accents or spaces at the end are different names, on every database."""

import re

import helpers
import pytest
from django.core.management import call_command
from django.db import connection
from probe import tasks

from django_txtasks.features.lanes import claiming as lanes
from django_txtasks.models import PausedQueue, Schedule, Task
from django_txtasks.operations import pausing

pytestmark = pytest.mark.usefixtures("rows", "quick")
QUEUES = ["mail", "Mail", "mail ", "MAIL", "café", "cafe", "cafe\u0301", "ﬁle", "file", "ß", "ss"]
on_mariadb = pytest.mark.skipif(connection.vendor != "mysql", reason="others have no collations")


def enqueue_in_each():
    return {
        queue: tasks.note.using(queue_name=queue).enqueue(f"key {n}").id
        for n, queue in enumerate(QUEUES)
    }


@pytest.mark.smoke
def test_a_worker_serves_queues_with_similar_names(txtasks):
    txtasks(queues=QUEUES)
    with helpers.working(queues=QUEUES):
        for n, queue in enumerate(QUEUES):
            tasks.note.using(queue_name=queue).enqueue(f"key {n}")
            helpers.wait_until(lambda: not Task.objects.exists())
    assert [helpers.runs(f"key {n}") for n in range(len(QUEUES))] == [1] * len(QUEUES)


@pytest.mark.parametrize("queue", ["mail", "mail ", "cafe"])
def test_a_worker_of_one_queue_leaves_the_others_alone(txtasks, queue):
    txtasks(queues=QUEUES)
    ids = enqueue_in_each()
    call_command("runworkers", batch=True, queue=[queue], verbosity=0)
    assert set(Task.objects.values_list("pk", flat=True)) == set(ids.values()) - {ids[queue]}


def test_a_pause_is_that_of_one_queue(txtasks):
    txtasks(queues=QUEUES)
    ids = enqueue_in_each()
    for queue in ("mail", "café"):
        assert pausing.pause("default", queue)
    assert pausing.pause("default", "Mail")
    assert pausing.resume("default", "Mail")
    assert set(PausedQueue.objects.values_list("pk", flat=True)) == {"mail", "café"}
    with helpers.working(queues=QUEUES):
        helpers.wait_until(lambda: Task.objects.count() == 2)
    assert set(Task.objects.values_list("pk", flat=True)) == {ids["mail"], ids["café"]}


def test_lanes_with_similar_names_are_different_lanes(txtasks):
    names = ["mail", "Mail", "café", "cafe"]
    txtasks(lanes={name: {"at_most": 1} for name in names})
    for n, name in enumerate(names):
        tasks.note.using(lane=name).enqueue(f"key {n}")
    with helpers.working():
        helpers.wait_until(lambda: not Task.objects.exists())
    lanes.create("default", names)
    assert len(helpers.execute("SELECT name FROM txtasks_lane")) == len(names)


def test_schedules_with_similar_names_are_different_schedules():
    for name in ("nightly", "Nightly", "nightly ", "nightlý"):
        Schedule.objects.create(name=name, task_name="probe.tasks.note", every=60)
    assert Schedule.objects.count() == 4
    assert Schedule.objects.get(name="nightly ").name == "nightly "


def test_people_search_for_names_in_any_case(txtasks):
    txtasks(lanes={"Tenants": {"at_most": 1}})
    tasks.note.using(lane="Tenants").enqueue("x")
    assert Task.objects.filter(task_name__icontains="PROBE.tasks").count() == 1
    assert Task.objects.filter(lane__icontains="tenant").count() == 1


@on_mariadb
def test_every_text_column_has_an_exact_collation():
    """Except JSON, whose type has a collation of its own."""
    rows = helpers.execute(
        "SELECT table_name, column_name, collation_name FROM information_schema.columns"
        " WHERE table_schema = DATABASE() AND table_name LIKE 'txtasks%%'"
        " AND (data_type = 'varchar' OR column_name IN ('value', 'text'))"
    )
    assert len(rows) > 50
    assert {collation for *_, collation in rows} == {"utf8mb4_nopad_bin"}


# -- tables that somebody has converted to another collation ------------------------------------------


@pytest.fixture(params=[["task.queue_name", "pausedqueue.queue_name"]])
def inexact(request):
    """Give columns the collation that a server takes by default, as CONVERT TO does."""
    before = {}
    for table, column in (one.split(".") for one in request.param):
        ((_, create),) = helpers.execute(f"SHOW CREATE TABLE txtasks_{table}")
        (before[table, column],) = re.findall(rf"^ *(`{column}` .*?),?$", create, re.MULTILINE)
    for (table, _), definition in before.items():
        inexact = definition.replace("utf8mb4_nopad_bin", "utf8mb4_general_ci")
        assert inexact != definition
        helpers.execute(f"ALTER TABLE txtasks_{table} MODIFY {inexact}")
    yield
    helpers.empty_tables()
    for (table, _), definition in before.items():
        helpers.execute(f"ALTER TABLE txtasks_{table} MODIFY {definition}")


@on_mariadb
@pytest.mark.parametrize("ageing", [None, 60])
def test_a_turn_that_meets_a_row_twice_takes_it_once(inexact, txtasks, ageing):
    txtasks(queues=["mail", "Mail"], **({} if ageing is None else {"ageing": ageing}))
    with helpers.working(queues=["mail", "Mail"], threads=2):
        for n in range(5):  # one by one, to a worker that has more room
            tasks.note.using(queue_name="mail").enqueue(f"key {n}")
            helpers.wait_until(lambda: not Task.objects.exists())
    assert [helpers.runs(f"key {n}") for n in range(5)] == [1] * 5


@on_mariadb
@pytest.mark.parametrize("inexact", [["task.lane"]], indirect=True)
def test_lanes_that_are_one_to_the_server_run_each_task_once(inexact, txtasks):
    names = ["one", "One"]
    txtasks(lanes={name: {"at_most": 5} for name in names})
    for n in range(6):
        tasks.note.using(lane=names[n % 2]).enqueue(f"key {n}")
    with helpers.working(threads=4):
        helpers.wait_until(lambda: not Task.objects.exists())
    assert [helpers.runs(f"key {n}") for n in range(6)] == [1] * 6
