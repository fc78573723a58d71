"""State that async tasks of a real worker leave in shared threads: the next call finds it, no other task does."""

import helpers
import pytest
from django.db import connection
from probe import sessions
from test_sessions_of_slots import LEFT, MINE, has_sessions

from django_txtasks.models import FinishedTask, Task

pytestmark = pytest.mark.usefixtures("rows", "quick")
BENDING, CLEAN = 40, 100
SET, GET = {
    "postgresql": ("SET search_path = public, s{}", "SHOW search_path"),
    "mysql": ("SET @tenant = 's{}'", "SELECT @tenant"),
    "sqlite": ("CREATE TEMP TABLE s{} (id int)", "SELECT max(name) FROM sqlite_temp_master"),
}[connection.vendor]


def run(*calls, threads=4):
    """Run tasks at the same time on one loop; return their results in the order of the calls."""
    ids = [function.enqueue(*arguments).id for function, *arguments in calls]
    with helpers.working(kind="loop", async_tasks=200, threads=threads):
        helpers.wait_until(
            lambda: not Task.objects.filter(pk__in=ids, status__in=["pending", "claimed"]).exists()
        )
    done = FinishedTask.objects.in_bulk(ids)
    return [done[one].result if one in done else helpers.row(one).errors for one in ids]


def test_a_setting_stays_for_the_next_call_and_for_no_other_task():
    [before] = run((sessions.see_after, GET))
    bent = [(sessions.see_after, GET, SET.format(number)) for number in range(BENDING)]
    found = run(*bent, *[(sessions.see_after, GET)] * CLEAN)
    assert [one[0][0][-4:].strip(", ") for one in found[:BENDING]] == [
        f"s{number}" for number in range(BENDING)
    ]
    assert found[BENDING:] == [before] * CLEAN


@pytest.mark.parametrize(("sql", "asked"), LEFT, ids=[sql for sql, _ in LEFT])
def test_what_a_task_leaves_in_its_session_no_later_one_finds(sql, asked):
    ask = (sessions.see_after, asked)
    [before] = run(ask, threads=1)
    found = run((sessions.see_after, "SELECT 1", sql), *[ask] * 20, threads=1)
    assert found == [[["1"]], *[before] * 20]


def test_a_tenant_stays_for_the_next_call_and_for_no_other_task():
    bent = [(sessions.see_tenant, f"tenant {number}") for number in range(BENDING)]
    found = run(*bent, *[(sessions.see_tenant,)] * CLEAN)
    assert found == [*[one[1] for one in bent], *[None] * CLEAN]


def test_a_transaction_that_a_task_leaves_open_is_undone():
    left = [(sessions.leave_in_transaction, f"left {number}") for number in range(4)]
    assert run(*left, *[(sessions.see_tenant,)] * 20, threads=1) == [None] * 24
    assert helpers.runs() == 0


@has_sessions
def test_the_worker_s_row_has_the_sessions_of_the_shared_threads():
    """So that a cleaner can end them if the worker is lost."""
    ids = [sessions.see_after.enqueue(MINE).id for _ in range(20)]
    with helpers.working(kind="loop", async_tasks=200, threads=2):
        helpers.wait_until(lambda: FinishedTask.objects.filter(pk__in=ids).count() == 20)
        used = {FinishedTask.objects.get(pk=one).result[0][0] for one in ids}
        helpers.wait_until(lambda: used <= known_sessions())
    assert 1 <= len(used) <= 2


def known_sessions():
    from django_txtasks.models import Worker

    text = Worker.objects.values_list("sessions", flat=True).get()
    return {one.split(" ")[0] for one in text}
