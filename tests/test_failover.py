"""A failover with a moment in which the database only reads: old sessions answer, and can write nothing."""

import threading
import time
from collections import Counter
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import DatabaseError, OperationalError, connection, connections, transaction
from probe import tasks

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.rows import workers
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.worker import Worker as RealWorker
from django_txtasks.database import sessions
from django_txtasks.database.errors import ends_session, is_refusal
from django_txtasks.database.transactions import own_transaction
from django_txtasks.models import Status, Worker
from django_txtasks.processes import probes
from django_txtasks.processes.probes import Liveness
from django_txtasks.processes.shutdown import Shutdown

pytestmark = [
    pytest.mark.usefixtures("rows", "quick"),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="what PostgreSQL has"),
]


class Failover:
    """New sessions of the test's database may only read, for a while; this one may write."""

    def __init__(self):
        self.failures = 0
        self.skipped = 0

    def begin(self):
        self._set("SET default_transaction_read_only = on")
        helpers.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    def end(self):
        """End a failover: existing sessions do not change."""
        self._set("RESET default_transaction_read_only")

    def count(self, **facts):
        self.failures += 1

    def count_skipped(self, **facts):
        self.skipped += 1

    def _set(self, change):
        helpers.execute("SET default_transaction_read_only = off")
        name = connection.settings_dict["NAME"]
        helpers.execute(f'ALTER DATABASE "{name}" {change}')


@pytest.fixture
def failover():
    """Ends what the test has begun."""
    one = Failover()
    signals.database_failed.connect(one.count)
    signals.row_skipped.connect(one.count_skipped)
    yield one
    signals.database_failed.disconnect(one.count)
    signals.row_skipped.disconnect(one.count_skipped)
    one.end()


def claimed_by(worker):
    """A task that may run again, claimed by a worker without a process."""
    handle = tasks.slow_once.enqueue("rescued", 0)
    assert helpers.claim(worker).claimed
    return handle


def register(lease):
    return workers.register(
        "default", queues=["default"], task_names=[], threads=1, listening=None, lease=lease
    )


@contextmanager
def cleaning():
    """A cleaner in a thread."""
    over = threading.Event()
    cleaner = Cleaner(get_config())
    done = Counter()
    with helpers.second_session(
        lambda: cleaner.run(lambda seconds: over.wait(min(seconds, 0.1)), done.update)
    ):
        try:
            yield done
        finally:
            over.set()


@pytest.mark.parametrize("lost_already", [True, False], ids=["recovering", "declaring lost"])
def test_a_cleaner_recovers_tasks_after_a_read_only_moment(lost_already, failover, txtasks):
    txtasks(heartbeat_interval=0.05, lease=1)
    worker = register(get_config().lease)
    handle = claimed_by(worker)
    if not lost_already:
        Worker.objects.filter(pk=worker).update(lease=0.3, sessions=[])  # else ours would be ended
    failover.begin()
    if lost_already:
        workers.give_up("default", worker)
    with cleaning():
        helpers.wait_until(lambda: failover.failures)
        failover.end()
        helpers.wait_until(lambda: helpers.row(handle.id).status == Status.PENDING)


def test_a_claim_that_this_session_may_not_write_is_not_skipped(failover):
    worker = register(get_config().lease)
    claimed_by(worker)
    workers.give_up("default", worker)
    helpers.execute("SET default_transaction_read_only = on")
    cleaner = Cleaner(get_config())
    with pytest.raises(DatabaseError):
        cleaner.rescue.recover_lost()
    assert not failover.skipped


def test_a_worker_that_starts_in_a_read_only_moment_works_after_it(failover):
    handle = tasks.note.enqueue("after")
    config, inbox = get_config(), HintInbox()
    stop = Shutdown(10, inbox.wake)
    subscription = helpers.subscription(*config.queues)
    worker = RealWorker(config, subscription, threads=1, inbox=inbox, stop=stop)
    failover.begin()
    with helpers.second_session(worker.run):
        try:
            helpers.wait_until(lambda: failover.failures)
            failover.end()
            helpers.wait_until(lambda: helpers.finished(handle.id))
        finally:
            stop.request()


@pytest.fixture
def no_password():
    """Return a function: call it, and the next two attempts of this thread to connect raise LookupError."""
    refused = []

    def begin():
        wrapper = connections["default"]
        get_params = wrapper.get_connection_params

        def ask():
            if len(refused) < 2:
                refused.append(wrapper.alias)
                raise LookupError("no token to be had")
            return get_params()

        wrapper.get_connection_params = ask

    begin.refused = refused
    return begin


def test_a_worker_waits_for_a_backend_that_has_no_password(no_password, caplog):
    handle = tasks.note.enqueue("after")
    config, inbox = get_config(), HintInbox()
    subscription = helpers.subscription(*config.queues)
    stop = Shutdown(10, inbox.wake)

    def work():
        no_password()
        RealWorker(config, subscription, threads=1, inbox=inbox, stop=stop, until_idle=True).run()

    with helpers.second_session(work):
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert len(no_password.refused) == 2
    assert "it cannot connect: LookupError: no token to be had" in caplog.text


def test_a_worker_that_starts_without_a_password_waits_for_it(no_password):
    handle = tasks.note.enqueue("after")

    def work():
        no_password()
        call_command("runworkers", batch=True)

    with helpers.second_session(work):
        helpers.wait_until(lambda: helpers.finished(handle.id))
    assert len(no_password.refused) == 2


def test_a_database_without_a_password_keeps_no_other_one_from_being_cleaned_once(no_password):
    def clean():
        no_password()
        with pytest.raises(
            CommandError, match=r"'default' was not cleaned: .*LookupError: no token"
        ):
            call_command("runcleaner", once=True)

    with helpers.second_session(clean):
        pass


@pytest.mark.parametrize("error", [ImproperlyConfigured("no NAME"), TypeError("no such option")])
def test_wrong_settings_of_a_database_are_not_waited_for(error):
    def connect():
        wrapper = connections["default"]
        sessions.wait_for_any_backend("default")
        wrapper.get_connection_params = lambda: (_ for _ in ()).throw(error)
        with pytest.raises(type(error)):
            wrapper.ensure_connection()

    with helpers.second_session(connect):
        pass


def test_a_session_that_has_just_ended_takes_no_writes():
    """Though the next statement opens another one: else a cut would count as what the statement has met."""
    with (
        pytest.raises(OperationalError) as cut,
        own_transaction("default", limit=timedelta(seconds=9)),
    ):
        helpers.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    with pytest.raises(DatabaseError) as met:
        helpers.execute("SELECT 1 / 0")
    assert not workers.can_write("default", cut.value)
    assert workers.can_write("default", met.value)


class FromMySQL(Exception):
    """As mysqlclient raises: a number, and no state."""


@pytest.mark.parametrize("code", [1053, 1927, 2006, 2013, 3169, 4031])
def test_codes_of_sessions_that_are_gone(code):
    assert ends_session(raised_for(FromMySQL(code, "gone")))


@pytest.mark.parametrize("code", [1205, 1213, 3140, 3819, 4025])
def test_codes_of_what_a_session_has_met(code):
    assert not ends_session(raised_for(FromMySQL(code, "a constraint")))


def test_a_session_that_was_frozen_in_a_transaction_is_gone():
    helpers.execute("SET idle_in_transaction_session_timeout = '10ms'")
    with pytest.raises(DatabaseError) as cut, transaction.atomic():
        helpers.execute("SELECT 1")
        time.sleep(0.2)
        helpers.execute("SELECT 1")
    assert ends_session(cut.value)


def raised_for(cause):
    error = OperationalError(*cause.args)
    error.__cause__ = cause
    return error


def test_an_error_of_another_service_has_no_code_of_a_database():
    """Else a worker that waits for a password would not be live."""

    def connect():
        wrapper = connections["default"]
        sessions.wait_for_any_backend("default")
        wrapper.get_connection_params = lambda: {}["token"]
        with pytest.raises(OperationalError) as raised:
            wrapper.ensure_connection()
        assert not is_refusal(raised.value)

    with helpers.second_session(connect):
        pass


def test_a_cleaner_waits_for_a_backend_that_has_no_password(no_password, caplog):
    ended = []

    def clean():
        no_password()
        Cleaner(get_config()).run(lambda pause: bool(ended), ended.append)

    with helpers.second_session(clean):
        helpers.wait_until(lambda: ended)
    assert len(no_password.refused) == 2
    assert "it cannot connect: LookupError: no token to be had" in caplog.text


def test_a_working_worker_goes_on_after_a_read_only_moment(failover):
    with helpers.working(threads=1) as worker:
        me = worker.writer.id
        failover.begin()
        helpers.wait_until(lambda: failover.failures)
        handle = tasks.note.enqueue("after")
        failover.end()
        helpers.wait_until(lambda: helpers.finished(handle.id))
        assert worker.writer.id == me


def test_one_row_that_the_database_refuses_costs_a_cleaner_no_session():
    """With a new session it would count the silence of workers from the start, each time."""
    worker = register(get_config().lease)
    handle = claimed_by(worker)
    workers.give_up("default", worker)
    helpers.execute("UPDATE txtasks_task SET crashes = 2147483647 WHERE id = %s", handle.id.hex)
    cleaner = Cleaner(get_config())
    before = sessions.session_of_thread("default")
    cleaner.run_once()
    assert sessions.session_of_thread("default") == before
    assert helpers.row(handle.id).status == Status.CLAIMED


@pytest.mark.parametrize(
    "sql", ["SELECT pg_sleep(10)", "LOCK TABLE probe_run"], ids=["time", "lock"]
)
def test_a_statement_that_took_too_long_costs_a_cleaner_no_session(sql):
    cleaner = Cleaner(get_config())
    with helpers.locked("UPDATE probe_run SET key = 'x'"):
        helpers.execute("SET statement_timeout = 50")
        helpers.execute("SET lock_timeout = 20")
        with pytest.raises(OperationalError) as caught:
            helpers.execute(f"BEGIN; {sql}")
    session = connections["default"].connection
    cleaner._heal(caught.value, 1)
    assert connections["default"].connection is session
    connection.close()


@pytest.mark.parametrize("refused", [True, False])
def test_liveness_ends_where_the_database_answers_and_refuses_the_beat(refused, monkeypatch):
    """One that is away is waited for."""
    one, begin = Liveness(get_config().lease), time.monotonic()
    one.ended(refused=refused)
    assert one.is_live()
    monkeypatch.setattr(
        time, "monotonic", lambda: begin + probes.REFUSAL_TIMEOUT.total_seconds() + 10
    )
    one.turned()
    one.ended(refused=refused)
    assert one.is_live() is not refused
    one.wrote()
    assert one.is_live()


def test_a_read_only_database_refuses_and_one_that_is_away_does_not(failover):
    failover.begin()
    other = connection.copy()
    with pytest.raises(DatabaseError) as caught, other.cursor() as cursor:
        cursor.execute("DELETE FROM probe_run")
    other.close()
    assert is_refusal(caught.value)
    away = connection.copy()
    away.settings_dict = {**away.settings_dict, "PORT": "1"}
    with pytest.raises(OperationalError) as caught:
        away.ensure_connection()
    assert not is_refusal(caught.value)
