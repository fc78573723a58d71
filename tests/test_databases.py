"""Several databases: each has its own tables, its own workers, and one cleaner looks after all."""

from __future__ import annotations

import json
import os
import signal
from datetime import timedelta
from io import StringIO

import helpers
import pytest
from django.contrib.admin import site
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection, connections, transaction
from probe import tasks
from proxy import Proxy

from django_txtasks import checks, enqueue_many
from django_txtasks.admin.actions import ACTS, take
from django_txtasks.admin.lists import TaskAdmin
from django_txtasks.exceptions import InvalidArguments
from django_txtasks.models import FinishedTask, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")
BOTH = ["--database=default", "--database=second"]


@pytest.fixture
def second(second_database):
    """Another database of the same server, with our tables; gives the environment of commands."""
    call_command("migrate", "txtasks", database="second", verbosity=0, skip_checks=True)
    yield second_database
    helpers.wait_until(lambda: not Worker.objects.using("second").filter(lost=False))


@pytest.fixture
def start(second, processes):
    """Start commands that know both databases; they have ended before the second one is dropped."""
    yield lambda *arguments, **more: processes.start(*arguments, env=second, **more)
    processes.end()


def there(function):
    return function.using(using="second")


def finished(alias, handle):
    return FinishedTask.objects.using(alias).filter(pk=handle.id).exists()


def a_task_survives_its_worker():
    """In the default database: it runs, its worker is killed, a cleaner notices, and another one finishes it."""
    handle = tasks.slow_once.enqueue("one")
    helpers.wait_until(lambda: helpers.runs("one"))
    (pid,) = helpers.worker_pids()
    os.kill(pid, signal.SIGKILL)
    helpers.wait_until(lambda: finished("default", handle))


@pytest.mark.usefixtures("second")
def test_a_task_belongs_to_the_transaction_of_its_database():
    with pytest.raises(RuntimeError), transaction.atomic(using="second"):
        there(tasks.give).enqueue(1)
        raise RuntimeError
    assert not Task.objects.using("second").exists()
    with transaction.atomic(using="second"):
        handle = there(tasks.give).enqueue(1)
        assert handle.using == "second"
    assert Task.objects.using("second").filter(pk=handle.id).exists()
    assert not Task.objects.exists()


@pytest.mark.usefixtures("broker")
def test_one_command_serves_both_and_one_cleaner_recovers_in_both(start):
    start("runworkers", *BOTH, with_cleaner=True)
    handles = {
        "default": tasks.slow_once.enqueue("here"),
        "second": there(tasks.slow_once).enqueue("there"),
    }
    for alias, handle in handles.items():
        claimed = Task.objects.using(alias).filter(pk=handle.id, status="claimed")
        key = "here" if alias == "default" else "there"
        helpers.wait_until(lambda claimed=claimed, key=key: claimed.exists() and helpers.runs(key))
    pids = {alias: Worker.objects.using(alias).get(lost=False).pid for alias in handles}
    assert pids["default"] != pids["second"]
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)
    for alias, handle in handles.items():
        helpers.wait_until(lambda alias=alias, handle=handle: finished(alias, handle))


def test_a_database_that_is_away_keeps_no_other_waiting(processes, txtasks):
    txtasks(lease=4, heartbeat_interval=0.1)
    nowhere = {"NAME": "/nowhere/at/all"} if connection.vendor == "sqlite" else {"PORT": "1"}
    with helpers.second_alias(**nowhere) as env:
        started = [processes.start(name, *BOTH, env=env) for name in ("runworkers", "runcleaner")]
        a_task_survives_its_worker()
        cleaner = started[1]
        helpers.wait_until(lambda: "Cleaner of 'second': cannot use" in processes.log_of(cleaner))
        assert all(process.poll() is None for process in started)
        cleaner.send_signal(signal.SIGTERM)
        assert cleaner.wait(helpers.PATIENCE) == 0
        processes.end()


@pytest.mark.skipif(connection.vendor == "sqlite", reason="a file has no network")
def test_a_database_that_never_answers_keeps_no_other_waiting(processes, txtasks):
    txtasks(lease=4, heartbeat_interval=0.1)
    server = connection.settings_dict
    hole = Proxy(server["HOST"], int(server["PORT"]), swallow=True)
    with hole, helpers.second_alias(HOST="127.0.0.1", PORT=str(hole.port)) as env:
        processes.start("runworkers", *BOTH, env=env)
        cleaner = processes.start("runcleaner", *BOTH, env=env)
        a_task_survives_its_worker()
        cleaner.send_signal(signal.SIGTERM)
        assert cleaner.wait(helpers.PATIENCE) == 0


@pytest.mark.usefixtures("second")
def test_a_pass_goes_on_after_a_database_that_fails():
    lost = there(tasks.note).enqueue("later")
    connections["second"].close()
    with connections["second"].cursor() as cursor:
        cursor.execute("UPDATE txtasks_task SET expires_at = enqueued_at")
    helpers.execute("ALTER TABLE txtasks_finishedtask RENAME TO elsewhere")
    try:
        with pytest.raises(CommandError, match="Database 'default' was not cleaned"):
            call_command("runcleaner", *BOTH, once=True, stdout=StringIO())
    finally:
        helpers.execute("ALTER TABLE elsewhere RENAME TO txtasks_finishedtask")
    assert FinishedTask.objects.using("second").get(pk=lost.id).outcome == "expired"


class OtherTaskAdmin(TaskAdmin):
    """As the guide tells: the pages of another database."""

    def get_queryset(self, request):
        return super().get_queryset(request).using("second")


@pytest.fixture
def superuser():
    user = get_user_model().objects.create_superuser("ada")
    yield user
    user.delete()


@pytest.mark.usefixtures("second")
def test_the_admin_can_show_another_database_and_act_on_it(rf, superuser):
    handle = there(tasks.note).using(run_after=timedelta(hours=1)).enqueue("there")
    pages, request = OtherTaskAdmin(Task, site), rf.get("/")
    request.user = superuser
    assert str(handle.id) in pages.changelist_view(request).render().content.decode()
    page = pages.changeform_view(request, str(handle.id)).render().content.decode()
    assert "probe.tasks.note" in page
    assert take(request, pages.get_queryset(request), ACTS["hold"])[0].changed == 1
    assert Task.objects.using("second").get(pk=handle.id).status == "held"


@pytest.mark.usefixtures("second")
def test_a_thread_that_breaks_ends_the_cleaner(monkeypatch):
    def breaks(self):
        raise RuntimeError("a bug")

    monkeypatch.setattr("django_txtasks.core.cleaning.cleaner.Cleaner.find_lost", breaks)
    with pytest.raises(RuntimeError, match="a bug"):
        call_command("runcleaner", *BOTH)


@pytest.mark.parametrize("command", ["runworkers", "runcleaner"])
def test_a_database_that_cannot_be_asked_at_all_is_no_database_that_is_away(command, monkeypatch):
    def broken(databases):
        raise ImproperlyConfigured(f"no driver for {databases}")

    monkeypatch.setattr(checks, "refusals", broken)
    with pytest.raises(ImproperlyConfigured, match="no driver"):
        call_command(command)


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize("command", ["runworkers", "runcleaner"])
def test_a_database_from_which_a_router_keeps_tasks_away_is_refused(command, settings):
    settings.DATABASE_ROUTERS = [OrdersElsewhere()]
    with pytest.raises(CommandError, match="A router keeps tasks away from database 'second'"):
        call_command(command, *BOTH)


@pytest.mark.once
def test_so_many_tasks_of_each_database(start):
    enqueue_many((tasks.give, [number]) for number in range(3))
    enqueue_many((there(tasks.give), [number]) for number in range(3))
    assert start("runworkers", *BOTH, "--max-tasks=2").wait(helpers.PATIENCE) == 0
    for alias in ("default", "second"):
        assert FinishedTask.objects.using(alias).count() == 2
        assert Task.objects.using(alias).count() == 1


@pytest.mark.usefixtures("second")
@pytest.mark.filterwarnings("error")
def test_many_calls_for_two_databases_are_written_in_both_or_in_none():
    calls = [(one, (number,)) for number in range(50) for one in (there(tasks.give), tasks.give)]
    with pytest.raises(InvalidArguments):
        enqueue_many([*calls, (tasks.give, (object(),))])
    assert not Task.objects.exists()
    assert not Task.objects.using("second").exists()
    handles = enqueue_many(calls)
    assert [handle.using for handle in handles] == ["second", "default"] * 50
    for number, handle in enumerate(handles):
        assert Task.objects.using(handle.using).get(pk=handle.id).args == [number // 2]


@pytest.mark.usefixtures("second")
def test_a_pass_over_both_says_of_which_it_tells():
    output = StringIO()
    call_command("runcleaner", *BOTH, once=True, json=True, stdout=output)
    told = [json.loads(line)["database"] for line in output.getvalue().splitlines()]
    assert told == ["default", "second"]
    output = StringIO()
    call_command("runcleaner", *BOTH, once=True, stdout=output)
    assert [line.split(":")[0] for line in output.getvalue().splitlines()] == told


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "One process serves one database, but these are 'default', 'second'"),
        (["--probe-port=8099"], "this command would start 2. Start one command for each"),
        (["--liveness-file=alive"], "this command would start 2. Start one command for each"),
    ],
)
def test_what_one_process_cannot_do_for_two_databases(options, message):
    with pytest.raises(CommandError, match=message):
        call_command("runworkers", *BOTH, *options)


def test_an_alias_may_be_given_as_a_keyword_and_is_served_once():
    handle = tasks.give.enqueue(1)
    call_command("runworkers", "--database=default", "--database=default", batch=True, verbosity=0)
    assert finished("default", handle)
    call_command("runworkers", database="default", batch=True, verbosity=0)


class OrdersElsewhere:
    """A router that writes orders to ``second``, and tasks only to ``default``."""

    def db_for_write(self, model, **hints):
        return "second" if model._meta.app_label == "orders" else "default"

    def allow_migrate(self, db, app_label, **hints):
        return db == "default" or app_label == "orders"


class Sharded(OrdersElsewhere):
    """A router that cannot decide without a row."""

    def db_for_write(self, model, **hints):
        return hints["instance"].shard


class TasksEverywhere(OrdersElsewhere):
    """The same, but with tables for tasks on both."""

    def allow_migrate(self, db, app_label, **hints):
        return True


@pytest.mark.usefixtures("second")
def test_data_beside_which_no_task_can_be_written_are_told_of(settings):
    def found():
        return [one for one in checks.check_databases() if one.id == "txtasks.W021"]

    assert not found()
    settings.DATABASE_ROUTERS = [OrdersElsewhere()]
    (warning,) = found()
    assert "orders.Order, orders.Receipt: written to database 'second'" in warning.msg
    assert "--database second" in warning.hint
    settings.DATABASE_ROUTERS = [TasksEverywhere()]
    assert not found()
    settings.DATABASE_ROUTERS = [Sharded()]
    assert not found()
