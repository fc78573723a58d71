"""``runworkers --processes 1..4`` where the database, or a pooler, has sessions for fewer processes."""

import helpers
import pytest
from django.db import connection
from probe import tasks
from servers import PgBouncer
from test_sessions_of_slots import on_postgres
from test_slot_sessions import has_roles, role, start  # noqa: F401 -- a fixture

from django_txtasks.models import Task, Worker
from django_txtasks.processes.scaling_rule import (
    AGAIN_SECONDS,
    SHORT_SECONDS,
    Load,
    Own,
    ScalingRule,
)

pytestmark = pytest.mark.usefixtures("rows")

LIMIT = {
    "postgresql": "ALTER ROLE {} CONNECTION LIMIT {}",
    "mysql": "ALTER USER {} WITH MAX_USER_CONNECTIONS {}",
}
ENOUGH_FOR_ONE = 6
"""Sessions of a watcher and of one process of two threads; a second process would need three more, at least."""
SHED = "because for 30 s processes of this command have got no database session"


def never_idle(command, processes, count, seconds):
    """Let this many tasks or more wait until a process has ended; return their handles."""
    handles = []

    def has_ended_one():
        if Task.objects.count() < count:
            keys = map(str, range(count))
            handles.extend(tasks.atomic_slow.enqueue(key, seconds) for key in keys)
        return SHED in processes.log_of(command)

    helpers.wait_until(has_ended_one, what=lambda: processes.log_of(command))
    return handles


@has_roles
def test_at_the_limit_of_the_user_a_process_ends_and_the_tasks_go_on(role, txtasks, processes):  # noqa: F811
    txtasks(poll_interval=0.2)
    helpers.execute(LIMIT[connection.vendor].format(role, ENOUGH_FOR_ONE))
    options = ("--processes=1..4", "--threads=2", "--within=4")
    command = start(role, processes, *options, TXTASKS_TEST_SHORT_SECONDS="1")
    handles = never_idle(command, processes, 20, 0.2)

    def log():
        return processes.log_of(command)

    assert "starts more worker processes" in log()
    helpers.wait_until(lambda: Worker.objects.count() == 1, what=log)
    handles.append(tasks.atomic_slow.enqueue("more", 0.2))
    helpers.wait_until(lambda: all(helpers.finished(one.id) for one in handles), what=log)
    command.terminate()
    assert command.wait(60) == 0, log()


@on_postgres
def test_a_process_ends_where_a_pooler_lets_its_clients_wait(txtasks, processes):
    """Tasks hold two or more of three sessions. With a second process they take the third, and loops wait."""
    txtasks(poll_interval=0.2)
    with PgBouncer(int(connection.settings_dict["PORT"]), sessions=3) as pooler:
        env = {"TXTASKS_DATABASE_URL": pooler.url, "TXTASKS_TEST_SHORT_SECONDS": "1"}
        options = ("--processes=1..2", "--threads=2", "--within=4")
        command = processes.start("runworkers", *options, env=env)
        handles = never_idle(command, processes, 6, 7.0)

        def log():
            return processes.log_of(command)

        helpers.wait_until(lambda: all(helpers.finished(one.id) for one in handles), what=log)
        assert "FATAL" not in log()
        command.terminate()
        assert command.wait(60) == 0, log()


# -- the rule ---------------------------------------------------------------------------------------

BUSY = Load(20.0, 400, 4)


def rule_with(staying, times, *, answers=True, least=1):
    """Return a rule that has heard of a missing session at these times, and its answers."""
    rule = ScalingRule(least, 8, 4, 30.0)
    ends = []
    for now in times:
        if rule.sessions.note(now, staying - len(ends), is_short=True, answers=answers):
            ends.append(now)
    return rule, ends


@pytest.mark.once
def test_one_process_ends_after_a_while_and_each_while_later_one_more():
    _, ends = rule_with(4, range(1000, 1200))
    assert ends == [1000 + SHORT_SECONDS, 1000 + 2 * SHORT_SECONDS, 1000 + 3 * SHORT_SECONDS]


@pytest.mark.once
def test_in_an_outage_no_process_ends():
    assert rule_with(4, range(1000, 1200), answers=False)[1] == []


@pytest.mark.once
def test_no_process_starts_while_one_gets_no_session():
    rule, _ = rule_with(2, [1000])
    assert rule.change(1000, BUSY, Own(2)) == 0
    rule.sessions.note(1010, 2, is_short=False, answers=True)
    assert rule.change(1010, BUSY, Own(2)) == 2


@pytest.mark.once
def test_after_an_end_one_more_is_tried_from_time_to_time():
    rule, (ended,) = rule_with(4, range(1000, 1040))
    rule.sessions.note(1050, 3, is_short=False, answers=True)
    assert rule.change(ended + AGAIN_SECONDS - 1, BUSY, Own(3)) == 0
    assert rule.change(ended + AGAIN_SECONDS, BUSY, Own(3)) == 1
