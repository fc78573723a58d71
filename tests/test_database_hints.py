"""Hints without RabbitMQ: PostgreSQL's NOTIFY after the commit, trusted with nothing."""

import ctypes
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from urllib.parse import urlsplit

import helpers
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from probe import tasks
from proxy import Proxy
from servers import PgBouncer, Postgres

from django_txtasks import batch, enqueue_many, enqueue_task, hints, signals
from django_txtasks.conf import get_config
from django_txtasks.core.enqueueing.commit_hints import notify_on_commit
from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.exceptions import TimedOut
from django_txtasks.hints.delivery import Delivery, Hint
from django_txtasks.hints.sending import message as hint_message
from django_txtasks.hints.sending import rest as resting
from django_txtasks.hints.sending.buffer import BUFFER_IDS
from django_txtasks.models import Task
from django_txtasks.operations import operators

if connection.vendor == "postgresql":
    from django_txtasks.hints import channel, listener, reserve, sender
    from django_txtasks.hints.broker import consumer, publisher
    from django_txtasks.hints.listener import HintListener
    from django_txtasks.hints.session import session

pytestmark = [
    pytest.mark.usefixtures("rows", "ended"),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="what PostgreSQL has"),
]

NEVER = 600  # a poll interval that no test lives to see: what runs was told by a hint
LISTENING = (
    "query LIKE '%%txtasks: LISTEN%%' AND pid <> pg_backend_pid() AND datname = current_database()"
)


@pytest.fixture
def ended():
    """No session of a sender outlives its test."""
    yield
    hints.flush()


@pytest.fixture
def hints_only(txtasks):
    """Tasks run by hints alone: workers scan once when they start, and once when they begin to hear."""
    txtasks(database_hints=True, poll_interval=NEVER, hint_retry_interval=0.2)


@pytest.fixture
def quick_test(monkeypatch):
    """A listener finds out soon that it is deaf."""
    monkeypatch.setattr(listener, "TEST_EVERY_SECONDS", 0.2)
    monkeypatch.setattr(listener, "TEST_SECONDS", 2)
    monkeypatch.setattr(listener, "TRY_AGAIN_SECONDS", 0.3)


@contextmanager
def listening(alias="default", queues=("default",), wait=True):
    """A listener and its hints, without those that only say that it listens."""
    heard = []
    one = HintListener(alias, queues, lambda hint: heard.append(hint) if hint.ids else None)
    one.start()
    try:
        if wait:
            helpers.wait_until(lambda: one.connected, what="it hears")
        yield one, heard
    finally:
        one.stop()
    assert not one._thread.is_alive()


def notify_as_documented(queue, text):
    """As docs/reference/hints.md has it."""
    helpers.execute(
        "SELECT pg_notify('txtasks_' || 'txtasks_task'::regclass::oid || '_'"
        " || left(encode(sha256(convert_to(%s, 'UTF8')), 'hex'), 32), %s)", queue, text,
    )  # fmt: skip


@contextmanager
def told(signal):
    """The facts of each time that an event is told."""
    facts = []

    def note(**more):
        facts.append(more)

    signal.connect(note)
    yield facts
    signal.disconnect(note)


def ids(heard):
    return [task_id for hint in list(heard) for task_id in hint.ids]


def sessions_of(condition):
    return helpers.execute(
        f"SELECT count(*) FROM pg_stat_activity WHERE {condition} AND pid <> pg_backend_pid()"
    )[0][0]


def server_of(url):
    parts = urlsplit(url)
    return {
        "HOST": parts.hostname,
        "PORT": str(parts.port),
        "NAME": parts.path[1:],
        "USER": parts.username,
        "PASSWORD": "",
    }


# -- what is told -----------------------------------------------------------------------------------


def test_a_committed_task_starts_without_a_scan(hints_only):
    with helpers.working():
        for number in range(5):
            with transaction.atomic():
                enqueue_task(tasks.note, f"told {number}")
            helpers.wait_until(lambda n=number: helpers.runs(f"told {n}"))


def test_nothing_is_told_of_what_was_rolled_back(hints_only):
    with listening() as (_, heard):
        with transaction.atomic():
            enqueue_task(tasks.note)
            transaction.set_rollback(True)
        with transaction.atomic():
            kept = enqueue_task(tasks.note)
            with pytest.raises(ZeroDivisionError), transaction.atomic():
                enqueue_task(tasks.note)
                raise ZeroDivisionError
        helpers.wait_until(lambda: ids(heard))
        after = enqueue_task(tasks.note)
        helpers.wait_until(lambda: after.id in ids(heard))
    assert ids(heard) == [kept.id, after.id]


def test_nothing_is_told_before_the_commit(hints_only):
    with listening() as (_, heard):
        with transaction.atomic():
            handle = enqueue_task(tasks.note)
            other = uuid.uuid4()
            sender.of_process("default").notify({"default": [other]})
            helpers.wait_until(lambda: ids(heard) == [other])
        helpers.wait_until(lambda: ids(heard) == [other, handle.id])


def test_ten_thousand_tasks_of_one_transaction_run_without_waiting_for_a_scan(hints_only, txtasks):
    txtasks(keep_finished=0)
    with helpers.working():
        enqueue_many((tasks.nothing, ()) for _ in range(10_000))
        helpers.wait_until(lambda: not sum(helpers.counts().values()))


def test_ids_beyond_the_buffer_are_told_as_more(hints_only):
    with listening() as (_, heard):
        handles = enqueue_many((tasks.note, ()) for _ in range(BUFFER_IDS + 1))
        helpers.wait_until(lambda: len(ids(heard)) == BUFFER_IDS)
    assert ids(heard) == [handle.id for handle in handles[:-1]]
    assert all(hint.more for hint in heard)


def test_ids_that_fit_are_told_without_more_in_few_messages(hints_only):
    with listening() as (_, heard):
        enqueue_many((tasks.note, ()) for _ in range(BUFFER_IDS))
        helpers.wait_until(lambda: len(ids(heard)) == BUFFER_IDS)
    assert not any(hint.more for hint in heard)
    assert len(heard) == BUFFER_IDS // channel.IDS_PER_HINT


def test_the_longest_message_is_one_that_postgresql_takes():
    with session("default") as raw:
        ids_of_all = [uuid.uuid4()] * channel.IDS_PER_HINT
        name = "\N{GRINNING FACE}" * 100
        channel.send(raw, name, hint_message.encode(ids_of_all, more=True))


def test_a_hint_does_not_wait_for_the_disk_and_leaves_the_session_as_it_was():
    with session("default") as raw:
        seen = []
        raw.add_notify_handler(lambda told: seen.append(told.payload))
        channel.listen(raw, ["mail"])
        raw.execute("SET synchronous_commit = on")
        channel.send(raw, "mail", b"{}")
        ((after,),) = raw.execute("SHOW synchronous_commit").fetchall()
    assert (seen, after) == (["{}"], "on")
    assert "'synchronous_commit', 'off', true" in channel._NOTIFY


def test_what_comes_while_the_sender_rests_is_packed_together(hints_only, monkeypatch):
    monkeypatch.setattr(resting, "REST", 1e9)
    monkeypatch.setattr(resting, "LONGEST_REST_SECONDS", 1)
    monkeypatch.setattr(resting, "BUSY_PER_SECOND", 0.001)  # also where both cores are busy
    with listening() as (_, heard):
        handles = [enqueue_task(tasks.note) for _ in range(50)]
        helpers.wait_until(lambda: len(ids(heard)) == 50)
    assert ids(heard) == [handle.id for handle in handles]
    assert len(heard) < 25


def at_rest():
    """This process's sender, with a session, after it has received all of its own hints."""
    ours = sender.of_process("default")
    helpers.wait_until(lambda: ours._session and not ours._woken and ours._rest.is_over())
    return ours


def test_a_hint_waits_for_no_other_thread(hints_only):
    with listening() as (_, heard):
        first = enqueue_task(tasks.note)
        ours = at_rest()
        ours._wake_up, theirs = WakeUp(), ours._wake_up  # the thread sleeps on
        second = enqueue_task(tasks.note)
        helpers.wait_until(lambda: second.id in ids(heard))
        assert ours._unanswered is not None
        ours._wake_up = theirs
        theirs.wake()
        helpers.wait_until(lambda: ours._unanswered is None)
    assert ids(heard) == [first.id, second.id]


def test_a_hint_leaves_a_session_to_who_uses_it(hints_only):
    with listening() as (_, heard):
        enqueue_task(tasks.note)
        ours = at_rest()
        with ours._in_use.held():
            second = enqueue_task(tasks.note)
            assert ours._unanswered is None and ours._woken
        helpers.wait_until(lambda: second.id in ids(heard))


def test_what_one_hint_has_no_room_for_is_sent_by_the_other_thread(hints_only):
    with listening(queues=["default", "mail"]) as (_, heard):
        enqueue_task(tasks.note)
        at_rest()
        with transaction.atomic():
            handles = enqueue_many([(tasks.note, ()), (tasks.mail, ())])
        helpers.wait_until(lambda: {one.id for one in handles} <= set(ids(heard)))
        at_rest()
        many = enqueue_many((tasks.note, ()) for _ in range(channel.IDS_PER_HINT + 1))
        helpers.wait_until(lambda: {one.id for one in many} <= set(ids(heard)))
    assert len(ids(heard)) == 1 + len(handles) + len(many)


def test_while_an_answer_does_not_come_other_threads_run(hints_only):
    """Also with psycopg's compiled parts, in which libpq's own wait would stop this one."""
    with listening() as (_, heard):
        enqueue_task(tasks.note)
        ours = at_rest()
        pid = ours._session.connection.info.backend_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            second = enqueue_task(tasks.note)
            helpers.wait_until(ours._in_use.is_held)
        finally:
            os.kill(pid, signal.SIGCONT)
        helpers.wait_until(lambda: second.id in ids(heard))


def test_a_session_that_does_not_answer_is_given_up(hints_only, monkeypatch):
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.2)
    with listening() as (_, heard), told(signals.hints_failed) as failures:
        enqueue_task(tasks.note)
        frozen = at_rest()._session.connection.info.backend_pid
        os.kill(frozen, signal.SIGSTOP)
        try:
            second = enqueue_task(tasks.note)
            helpers.wait_until(lambda: second.id in ids(heard))
        finally:
            os.kill(frozen, signal.SIGCONT)
    assert "no answer" in failures[0]["error"]


def test_a_session_that_does_not_answer_the_sender_s_own_thread_is_given_up(
    hints_only, monkeypatch
):
    monkeypatch.setattr(channel, "ANSWER_SECONDS", 0.2)
    with listening(queues=["default", "mail"]) as (_, heard):
        enqueue_task(tasks.note)
        frozen = at_rest()._session.connection.info.backend_pid
        os.kill(frozen, signal.SIGSTOP)
        try:
            with transaction.atomic():
                handles = enqueue_many([(tasks.note, ()), (tasks.mail, ())])
            helpers.wait_until(lambda: {one.id for one in handles} <= set(ids(heard)))
        finally:
            os.kill(frozen, signal.SIGCONT)


@pytest.mark.parametrize("place", ["the thread", "who has committed"])
def test_a_session_that_the_server_has_ended_while_it_was_idle_is_no_failure(hints_only, place):
    """``idle_session_timeout``, a firewall, or a pooler ends what is idle."""
    with listening() as (_, heard), told(signals.hints_failed) as failures:
        enqueue_task(tasks.note)
        ours = at_rest()
        ended = ours._session.connection
        helpers.execute(f"SELECT pg_terminate_backend({ended.info.backend_pid})")
        helpers.wait_until(lambda: channel.has_ended(ended))
        if place == "the thread":
            ours._wake()
            helpers.wait_until(lambda: ours._session is None)
        second = enqueue_task(tasks.note)
        helpers.wait_until(lambda: second.id in ids(heard))
    assert not failures


@pytest.mark.parametrize("place", ["_send_at_once", "_wake"])
def test_a_time_limit_in_the_midst_of_it_stops_no_hint(hints_only, monkeypatch, place):
    monkeypatch.setattr(sender, "LOOK_SECONDS", 0.1)

    def interrupted(*_):
        ours._woken = place == "_wake"
        raise TimedOut

    with listening() as (_, heard):
        enqueue_task(tasks.note)
        ours = at_rest()
        with monkeypatch.context() as patch, ours._in_use.held():
            patch.setattr(ours, place, interrupted)
            with pytest.raises(TimedOut):  # the task that is to end does not go on
                enqueue_task(tasks.note, "second")
        second = Task.objects.get(args=["second"])
        helpers.wait_until(lambda: second.pk in ids(heard))


def test_what_goes_wrong_after_the_commit_is_told_in_the_log(hints_only, monkeypatch):
    monkeypatch.setattr(sender.NotifySender, "notify", None)
    with told(signals.hints_unsent) as failures:
        with transaction.atomic():
            handle = enqueue_task(tasks.note)
        assert helpers.row(handle.id)
    assert [one["database"] for one in failures] == ["default"]


def test_a_thread_that_an_error_has_ended_is_started_again(hints_only, monkeypatch):
    def worse(error):
        raise MemoryError

    monkeypatch.setattr(threading, "excepthook", lambda about: None)
    with listening() as (_, heard):
        enqueue_task(tasks.note)
        ours = at_rest()
        with monkeypatch.context() as patch:
            patch.setattr(ours, "_failed", worse)
            patch.setattr(ours, "_has_to_do", worse)
            ours._wake()
            helpers.wait_until(lambda: ours._thread is None)
        second = enqueue_task(tasks.note)
        helpers.wait_until(lambda: second.id in ids(heard))


def test_a_sender_has_one_thread_though_who_started_it_was_interrupted(hints_only, monkeypatch):
    start = threading.Thread.start

    def interrupted(thread):
        start(thread)
        raise TimedOut

    with listening() as (_, heard):
        ours = sender.of_process("default")
        with monkeypatch.context() as patch, pytest.raises(TimedOut):
            patch.setattr(threading.Thread, "start", interrupted)
            ours._start()
        ours._start()
        first = enqueue_task(tasks.note)
        older = threading.Thread(target=ours._run, daemon=True)  # it was started before another one
        older.start()
        older.join(10)
        assert not older.is_alive()
        second = enqueue_task(tasks.note)
        helpers.wait_until(lambda: {first.id, second.id} <= set(ids(heard)))
    mine = [one for one in threading.enumerate() if one.name == "txtasks-hints"]
    assert mine == [ours._thread]


def test_a_hint_whose_answer_never_comes_is_sent_again(hints_only):
    """The session ends between the hint and its answer: nobody knows whether it was sent."""
    with listening() as (_, heard):
        enqueue_task(tasks.note)
        ours = at_rest()
        ours._session.connection.pgconn.finish()
        second = enqueue_task(tasks.note)
        helpers.wait_until(lambda: second.id in ids(heard))
        helpers.wait_until(lambda: not ours._has_to_do())


def test_a_queue_is_told_to_those_who_serve_it(hints_only):
    with listening(queues=["mail"]) as (_, heard):
        enqueue_task(tasks.note)
        mail = enqueue_task(tasks.mail)
        helpers.wait_until(lambda: ids(heard))
    assert ids(heard) == [mail.id]


def test_follow_ups_are_told(hints_only):
    with helpers.working():
        tasks.told.enqueue("value")
        helpers.wait_until(lambda: helpers.counts()["finished"] == 2)


def test_a_task_that_is_resumed_by_a_person_starts_at_once(hints_only):
    handle = tasks.note.enqueue("resumed")
    operators.hold("default", [handle.id])
    with helpers.working():
        with transaction.atomic():
            notify_on_commit("default", operators.resume("default", [handle.id]))
        helpers.wait_until(lambda: helpers.runs("resumed"))


# -- who is told ------------------------------------------------------------------------------------


def test_a_site_in_another_schema_of_the_database_is_told_nothing(hints_only):
    helpers.execute("CREATE SCHEMA other")
    helpers.execute("CREATE TABLE other.txtasks_task (LIKE txtasks_task)")
    try:
        options = {"options": "-c search_path=other"}
        with (
            helpers.second_alias(OPTIONS=options),
            listening() as (_, heard),
            listening("second") as (_, heard_by_other),
        ):
            theirs, ours = uuid.uuid4(), uuid.uuid4()
            sender.of_process("second").notify({"default": [theirs]})
            helpers.wait_until(lambda: ids(heard_by_other))
            sender.of_process("default").notify({"default": [ours]})
            helpers.wait_until(lambda: ids(heard))
            assert (ids(heard), ids(heard_by_other)) == ([ours], [theirs])
            hints.flush()
    finally:
        helpers.execute("DROP SCHEMA other CASCADE")


def test_every_worker_is_told_and_one_runs_the_task(hints_only):
    with helpers.working(), helpers.working():
        for number in range(20):
            enqueue_task(tasks.note, f"once {number}")
        helpers.wait_until(lambda: helpers.counts()["finished"] == 20)
    assert helpers.runs() == 20


def test_a_full_worker_that_was_told_scans_when_it_has_room(hints_only):
    with helpers.working(threads=1) as worker:
        tasks.released.clear()
        tasks.until_released.enqueue("first")
        helpers.wait_until(lambda: helpers.runs("first"))
        helpers.wait_until(lambda: not worker.inbox.source._delivery.is_on)
        tasks.note.enqueue("second")
        helpers.wait_until(lambda: worker.inbox.source._delivery._has_missed)
        tasks.released.set()
        helpers.wait_until(lambda: helpers.runs("second"))


def test_what_is_told_to_a_full_worker_is_one_scan_later():
    heard = []
    one = Delivery(heard.append)
    for told_ids in ([uuid.uuid4()], [uuid.uuid4()]):
        one.listen(False)
        one.put(told_ids)
    assert not heard
    for _ in range(2):
        one.listen(True)
        one.listen(False)
    assert [(list(hint.ids), hint.more) for hint in heard] == [([], True)]


def test_garbage_is_dropped(hints_only):
    with told(signals.hint_refused) as refused, listening() as (one, heard):
        for text in ("", "garbage", "[" * 5000, "[1]", '{"queue": "default"}',
                     '{"ids": ["no id"]}', "b" * 32):  # fmt: skip
            notify_as_documented("default", text)
        handle = enqueue_task(tasks.note)
        helpers.wait_until(lambda: ids(heard) == [handle.id])
        assert one.connected
    assert len(refused) == 7


# -- who is not there -------------------------------------------------------------------------------


def test_a_listener_whose_session_was_ended_hears_again_and_scans(hints_only):
    with helpers.working() as worker:
        old = helpers.execute(f"SELECT pid FROM pg_stat_activity WHERE {LISTENING}")
        assert helpers.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {LISTENING}"
        )
        helpers.wait_until(
            lambda: (
                (new := helpers.execute(f"SELECT pid FROM pg_stat_activity WHERE {LISTENING}"))
                and new != old
            )
        )
        helpers.wait_until(lambda: worker.inbox.connected)
        tasks.note.enqueue("after")
        helpers.wait_until(lambda: helpers.runs("after"))


def test_a_worker_that_begins_to_hear_scans_for_what_was_sent_before(hints_only):
    heard = []
    one = HintListener("default", ["default"], heard.append)
    one.start()
    helpers.wait_until(lambda: one.connected)
    helpers.wait_until(lambda: heard, seconds=10)
    one.stop()
    assert [(list(hint.ids), hint.more) for hint in heard] == [([], True)]


def test_a_sender_whose_session_was_ended_sends_again(hints_only):
    with listening() as (_, heard):
        enqueue_task(tasks.note)
        helpers.wait_until(lambda: ids(heard))
        with told(signals.hints_failed) as failures:
            sending = "query LIKE 'SELECT set_config%%pg_notify%%' AND datname = current_database()"
            assert sessions_of(sending) == 1
            helpers.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {sending}"
            )
            helpers.wait_until(lambda: not sessions_of(sending))
            first = enqueue_task(tasks.note)  # nobody has noticed yet
            helpers.wait_until(lambda: first.id in ids(heard))
    assert [facts["database"] for facts in failures] == ["default"] * len(failures)


def test_hints_come_back_after_a_restart_of_the_database(hints_only):
    with (
        Postgres() as server,
        helpers.second_alias(**server_of(server.url)),
        listening("second") as (one, heard),
    ):
        first, last = uuid.uuid4(), uuid.uuid4()
        sender.of_process("second").notify({"default": [first]})
        helpers.wait_until(lambda: ids(heard))
        server.stop()
        helpers.wait_until(lambda: not one.connected)
        sender.of_process("second").notify({"default": [uuid.uuid4()]})
        server.start()
        helpers.wait_until(lambda: one.connected)

        def told_again():
            sender.of_process("second").notify({"default": [last]})
            return last in ids(heard)

        helpers.wait_until(told_again)
        hints.flush()


def test_a_role_without_a_free_connection_enqueues_all_the_same(hints_only):
    few = f"few_{uuid.uuid4().hex}"
    helpers.execute(f"CREATE ROLE {few} LOGIN CONNECTION LIMIT 0")
    helpers.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {few}")
    try:
        with helpers.second_alias(USER=few), told(signals.hints_failed) as failures:
            sender.of_process("second").notify({"default": [uuid.uuid4()]})
            helpers.wait_until(lambda: failures)
            assert "too many connections" in failures[0]["error"]
            with listening() as (_, heard), told(signals.hints_resumed) as resumed:
                helpers.execute(f"ALTER ROLE {few} CONNECTION LIMIT 10")
                helpers.wait_until(lambda: resumed)
                helpers.wait_until(lambda: ids(heard))  # it was kept
            hints.flush()
    finally:
        helpers.execute(f"DROP OWNED BY {few}")
        helpers.execute(f"DROP ROLE {few}")


def test_a_limit_for_idle_sessions_ends_no_listener(hints_only):
    role = f"idle_{uuid.uuid4().hex}"
    helpers.execute(f"CREATE ROLE {role} LOGIN")
    helpers.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    helpers.execute(f"ALTER ROLE {role} SET idle_session_timeout = '1s'")
    try:
        with (
            helpers.second_alias(USER=role),
            told(signals.hints_failed) as failures,
            listening("second") as (one, heard),
        ):
            time.sleep(2)
            handle = enqueue_task(tasks.note)
            helpers.wait_until(lambda: handle.id in ids(heard))
            assert one.connected and not failures
    finally:
        hints.flush()
        helpers.execute(f"DROP OWNED BY {role}")
        helpers.execute(f"DROP ROLE {role}")


def test_a_database_that_cannot_be_reached_is_one_warning(hints_only, caplog):
    caplog.set_level(logging.DEBUG, logger="django_txtasks")
    with helpers.second_alias(PORT="1"), listening("second", wait=False):
        helpers.wait_until(lambda: sum("no session" in line for line in caplog.messages) > 1)
    levels = [one.levelname for one in caplog.records if "no session" in one.getMessage()]
    assert levels[0] == "WARNING"
    assert set(levels[1:]) == {"DEBUG"}


def test_a_pooler_is_noticed_and_said_once(hints_only, quick_test):
    port = int(connection.settings_dict["PORT"])
    with PgBouncer(port) as pooler, helpers.second_alias(PORT=str(pooler.port), HOST="127.0.0.1"):
        with told(signals.hints_unheard) as warnings:
            with listening("second", wait=False) as (one, _):
                helpers.wait_until(lambda: warnings)
                tried = threading.Event()
                one._send_test, send_test = (lambda: (send_test(), tried.set())), one._send_test
                assert tried.wait(helpers.PATIENCE)  # and it tries again
                assert not one.connected
            assert len(warnings) == 1
        with listening() as (_, heard):  # who sends may be behind it
            task_id = uuid.uuid4()
            sender.of_process("second").notify({"default": [task_id]})
            helpers.wait_until(lambda: ids(heard) == [task_id])
            hints.flush()


def channels_of_sessions(alias, most=20):
    """Return the channels to which the sessions behind a pooler listen, by the sessions that it gives us."""
    found = set()
    for _ in range(most):
        with session(alias) as raw, raw.cursor() as cursor:
            cursor.execute("SELECT pg_listening_channels()")
            found |= {name for (name,) in cursor.fetchall()}
    return found


def test_no_session_of_a_pooler_is_left_listening_for_queues(hints_only, quick_test):
    port = int(connection.settings_dict["PORT"])
    with PgBouncer(port) as pooler, helpers.second_alias(PORT=str(pooler.port), HOST="127.0.0.1"):
        with (
            told(signals.hints_unheard) as warnings,
            listening("second", queues=["default", "mail"], wait=False),
        ):
            helpers.wait_until(lambda: warnings)
        with session("second") as raw:
            (prefix,) = raw.execute("SELECT 'txtasks_' || 'txtasks_task'::regclass::oid").fetchone()
        names = {f"{prefix}_{channel._digits(queue).decode()}" for queue in ("default", "mail")}
        assert not names & channels_of_sessions("second")
        before = pooler.home.output().count("not linked")
        for _ in range(30):
            sender.of_process("default").notify({"default": [uuid.uuid4()], "mail": [uuid.uuid4()]})
            hints.flush()
        assert pooler.home.output().count("not linked") == before


def test_a_pooler_that_gives_a_session_until_the_end_lets_hints_through(hints_only, quick_test):
    port = int(connection.settings_dict["PORT"])
    with (
        PgBouncer(port, "session") as pooler,
        helpers.second_alias(PORT=str(pooler.port), HOST="127.0.0.1"),
    ):
        with listening("second") as (_, heard):
            task_id = uuid.uuid4()
            sender.of_process("default").notify({"default": [task_id]})
            helpers.wait_until(lambda: ids(heard) == [task_id])
        helpers.wait_until(lambda: not channels_of_sessions("second"))


def test_a_listener_that_has_become_deaf_opens_another_session(hints_only, quick_test, monkeypatch):
    """Its connection leads nowhere and nobody says so, as behind a firewall that has forgotten it."""
    monkeypatch.setattr(listener, "TEST_EVERY_SECONDS", 1)
    port = int(connection.settings_dict["PORT"])
    with (
        Proxy("127.0.0.1", port) as proxy,
        helpers.second_alias(PORT=str(proxy.port), HOST="127.0.0.1"),
        listening("second") as (one, heard),
    ):
        # between two tests its own connection is the only one
        (pair,) = helpers.wait_until(lambda: len(proxy._pairs) == 1 and list(proxy._pairs))
        vars(pair)["down"] = lambda data: None
        helpers.wait_until(lambda: proxy._pairs and pair not in proxy._pairs)
        helpers.wait_until(lambda: one.connected)
        task_id = uuid.uuid4()
        sender.of_process("default").notify({"default": [task_id]})
        helpers.wait_until(lambda: ids(heard) == [task_id])


# -- processes --------------------------------------------------------------------------------------


def fork_by_c_code():
    """Fork as uWSGI does: Python's ``os.register_at_fork`` hears nothing of it."""
    return ctypes.PyDLL(None).fork()


@pytest.mark.parametrize("fork", [os.fork, fork_by_c_code])
def test_a_forked_child_sends_by_a_session_of_its_own(hints_only, fork):
    with listening() as (_, heard):
        first = enqueue_task(tasks.note)
        helpers.wait_until(lambda: ids(heard) == [first.id])
        of_parent = sender.of_process("default")

        def send_in_a_child():
            """Return the id that a child has sent; None = the child was hung."""
            of_child = uuid.uuid4()
            child = fork()
            if not child:
                _send_as_a_child(of_child, of_parent)
            status = os.waitpid(child, 0)[1]
            assert status in (0, signal.SIGALRM)
            return None if status else of_child

        # A child of C code is hung if another thread wanted the interpreter's lock at that moment: see sender.py.
        of_child = next(filter(None, (send_in_a_child() for _ in range(5))))
        helpers.wait_until(lambda: of_child in ids(heard))
        last = uuid.uuid4()
        sender.of_process("default").notify({"default": [last]})
        helpers.wait_until(lambda: last in ids(heard))


def _send_as_a_child(of_child, of_parent):
    """Send a hint and end this process: with status 1 if the sender is the parent's, after 10 s in any case.

    A hung child would keep the pipes of pytest-xdist's process, which then would wait for ever.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(10)
    is_of_parent = True
    try:
        ours = sender.of_process("default")
        ours.notify({"default": [of_child]})
        hints.flush()
        is_of_parent = ours is of_parent
    finally:
        os._exit(int(is_of_parent))


def uwsgi(worker, *options):
    """Return the module that uWSGI gives to its processes: worker 0 = the process that forks the others."""
    return SimpleNamespace(
        opt=dict.fromkeys(options, True),
        worker_id=lambda: worker,
        mule_id=lambda: 0,
        i_am_the_spooler=lambda: None,
    )


def test_no_thread_is_there_when_uwsgi_forks_its_workers(hints_only, monkeypatch, caplog):
    """They may hang for good. The same process becomes a worker where uWSGI has no master: then it sends."""
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi(0))
    with listening() as (_, heard):
        first = enqueue_task(tasks.note)
        assert not any(one.name == "txtasks-hints" for one in threading.enumerate())
        assert "py-call-uwsgi-fork-hooks = true" in caplog.text
        monkeypatch.setitem(sys.modules, "uwsgi", uwsgi(1))
        second = enqueue_task(tasks.note)
        helpers.wait_until(lambda: {first.id, second.id} <= set(ids(heard)))


def test_hints_are_sent_while_uwsgi_loads_if_it_tells_python_of_its_forks(hints_only, monkeypatch):
    monkeypatch.setitem(sys.modules, "uwsgi", uwsgi(0, "master", "py-call-uwsgi-fork-hooks"))
    with listening() as (_, heard):
        first = enqueue_task(tasks.note)
        helpers.wait_until(lambda: ids(heard) == [first.id])


def test_a_sender_that_is_closed_in_its_own_thread_ends(hints_only, monkeypatch):
    """As where uWSGI runs the exit handlers in the thread that a signal has come to."""
    errors = []

    def close(**_):
        try:
            sender.close_all()
        except RuntimeError as error:
            errors.append(error)
        closed.set()

    closed = threading.Event()
    monkeypatch.setattr(sender, "open_session", None)
    signals.hints_failed.connect(close)
    try:
        enqueue_task(tasks.note)
        assert closed.wait(60)
    finally:
        signals.hints_failed.disconnect(close)
    assert not errors


SHORT = """
import django
django.setup()
from probe import tasks
tasks.note.enqueue("short")
"""


def test_a_process_that_ends_at_once_has_sent_its_hints(processes, hints_only):
    with listening() as (_, heard):
        env = processes._environment()
        subprocess.run([sys.executable, "-c", SHORT], env=env, check=True, timeout=60)
        helpers.wait_until(lambda: ids(heard))


def test_workers_and_senders_are_processes(processes, hints_only):
    worker = processes.start("runworkers")
    helpers.wait_until(
        lambda: helpers.execute("SELECT 1 FROM txtasks_worker WHERE listening"),
        what=lambda: processes.log_of(worker),
    )
    env = processes._environment()
    subprocess.run([sys.executable, "-c", SHORT], env=env, check=True, timeout=60)
    helpers.wait_until(lambda: helpers.runs("short"), what=lambda: processes.log_of(worker))
    worker.terminate()
    assert worker.wait(60) == 0
    helpers.wait_until(lambda: not sessions_of("datname = current_database()"))


def test_a_worker_in_this_process_leaves_no_thread_and_no_session(hints_only, txtasks):
    txtasks(
        poll_interval=0.2
    )  # after a slow scan, which reads a part of the rows, another one follows
    before = set(threading.enumerate())
    tasks.note.enqueue("batch")
    call_command("runworkers", batch=True, verbosity=0)
    hints.flush()
    assert helpers.runs("batch")
    helpers.wait_until(lambda: set(threading.enumerate()) <= before)
    helpers.wait_until(lambda: not sessions_of("datname = current_database()"))


def test_a_sender_with_nothing_to_do_closes_its_session(hints_only, monkeypatch):
    monkeypatch.setattr(sender, "IDLE_SECONDS", 0.2)
    monkeypatch.setattr(sender, "LOOK_SECONDS", 0.2)
    with listening() as (_, heard):
        for _ in range(2):
            handle = enqueue_task(tasks.note)
            helpers.wait_until(lambda one=handle: one.id in ids(heard))
            helpers.wait_until(lambda: sender.of_process("default")._session is None)


def test_a_sender_keeps_its_session_between_hints(hints_only):
    seen = set()
    with listening() as (_, heard):
        for _ in range(4):
            handle = enqueue_task(tasks.note)
            helpers.wait_until(lambda one=handle: one.id in ids(heard))
            time.sleep(resting.LONGEST_REST_SECONDS * 2)  # it rests, then waits for more
            seen.add(sender.of_process("default")._session.connection.info.backend_pid)
    assert len(seen) == 1


# -- while RabbitMQ is away ---------------------------------------------------------------------------


@pytest.fixture
def cut_off(broker, txtasks):
    """RabbitMQ by a proxy, and a site whose tasks run by hints alone."""
    url = urlsplit(broker)
    with Proxy(url.hostname, url.port) as proxy:
        txtasks(
            broker_url=broker.replace(f":{url.port}/", f":{proxy.port}/"),
            database_hints=True, poll_interval=NEVER,
        )  # fmt: skip
        yield proxy
        publisher.close_all()


def publisher_of_process():
    return publisher.of_process(get_config())


def runs_by_hint(key):
    tasks.note.enqueue(key)
    helpers.wait_until(lambda: helpers.runs(key), what=key)


def test_while_rabbitmq_is_away_postgresql_tells_workers_and_then_rabbitmq_again(
    cut_off, monkeypatch
):
    monkeypatch.setattr(reserve, "KEEP_SECONDS", 0.0)
    with helpers.working() as worker:
        source = worker.inbox.source
        runs_by_hint("before")
        assert source._reserve is None
        assert not sender._senders._senders  # a hint goes one way
        cut_off.cut(away=NEVER)
        tasks.note.enqueue("notices")
        helpers.wait_until(lambda: publisher_of_process().is_away)
        helpers.wait_until(lambda: source._reserve is not None and source._reserve.connected)
        runs_by_hint("while it is away")
        sender.close_all()
        publisher_of_process()._buffer._waiting.clear()  # a hint is lost if it was being sent: then nothing waits
        cut_off.cut(away=0)
        helpers.wait_until(lambda: source._first.connected and not publisher_of_process().is_away)
        runs_by_hint("after it")
        assert not sender._senders._senders
        helpers.wait_until(lambda: source._reserve is None, what="the worker's second session ends")
        runs_by_hint("long after it")


def test_a_sender_that_comes_back_later_is_heard_meanwhile(cut_off):
    with helpers.working() as worker:
        source = worker.inbox.source
        cut_off.cut(away=NEVER)
        helpers.wait_until(lambda: source._reserve is not None and source._reserve.connected)
        cut_off.cut(away=0)
        helpers.wait_until(lambda: source._first.connected)
        task = enqueue_task(tasks.note, "by PostgreSQL")  # which the publisher tells of, too
        sender.of_process("default").notify({"default": [task.id]})
        helpers.wait_until(lambda: helpers.runs("by PostgreSQL"))
        for number in range(30):  # more than RabbitMQ gives to a consumer that acknowledges none
            runs_by_hint(f"{number}")
            sender.of_process("default").notify({"default": [uuid.uuid4()]})


@pytest.mark.parametrize("end", ["settled", "declined"])
def test_hints_of_both_that_come_together_are_both_ended(end):
    """RabbitMQ gives no more hints to a consumer that never acknowledges the first ten."""
    inbox, ended, ids = HintInbox(), [], [uuid.uuid4(), uuid.uuid4()]

    def hint_of(kind, name, task_id):
        ways = {"settle": f"{name} settled", "decline": f"{name} declined"}
        return kind(
            [task_id], False, **{way: partial(ended.append, text) for way, text in ways.items()}
        )

    inbox.deliver(hint_of(consumer.Hint, "RabbitMQ's", ids[0]))
    inbox.deliver(hint_of(Hint, "PostgreSQL's", ids[1]))
    inbox.wait(0)
    if end == "settled":
        inbox.looked_up(ids)
    else:
        inbox.decline()
    assert sorted(ended) == [f"PostgreSQL's {end}", f"RabbitMQ's {end}"]


def test_a_site_that_wants_no_hints_of_the_database_scans_while_rabbitmq_is_away(cut_off, txtasks):
    txtasks(database_hints=False, poll_interval=0.1)
    with helpers.working() as worker:
        cut_off.cut(away=NEVER)
        tasks.note.enqueue("found")
        helpers.wait_until(lambda: helpers.runs("found"))
        assert not hasattr(worker.inbox.source, "_reserve")
        assert not sender._senders._senders


# -- where it is off --------------------------------------------------------------------------------


def test_where_it_is_off_enqueueing_leaves_no_trace(txtasks):
    txtasks(database_hints=False)
    with transaction.atomic():
        enqueue_task(tasks.note)
        assert not connection.run_on_commit
    assert not sender._senders._senders
    assert hints.of_database(get_config(), helpers.subscription(), print) is None


def test_in_a_test_run_it_is_off_unless_the_setting_says_so(txtasks):
    assert not get_config().has_database_hints
    txtasks(database_hints=True)
    assert get_config().has_database_hints


def test_outside_a_test_run_it_is_on_unless_there_is_a_broker(txtasks, monkeypatch):
    monkeypatch.delattr("django.test.utils._TestState.saved_data")
    assert get_config().has_database_hints
    txtasks(broker_url="amqp://localhost/")
    assert not get_config().has_database_hints


# ---- what is due soon, or comes of an end that no worker has brought about


@pytest.mark.parametrize("end", ["cancel", "admin"])
def test_the_hook_of_a_batch_that_no_worker_ends_comes_at_once(hints_only, end):
    with batch(name="b", on_failure=tasks.tell_of_batch):
        handle = tasks.note.using(run_after=3600).enqueue()
    with helpers.working():
        for _ in range(2):
            enqueue_task(tasks.nothing).result(helpers.PATIENCE)
        if end == "cancel":
            handle.cancel()
        else:
            operators.cancel("default", [handle.id], keep=True)
        helpers.wait_until(lambda: helpers.runs("failure b failed"))


def test_a_short_sleep_ends_in_time(hints_only):
    """A look ahead that comes later, and a scan, would not find it before."""
    with helpers.working():
        enqueue_task(tasks.nothing).result(helpers.PATIENCE)
        handle = tasks.sleep_between.enqueue("s", 1)
        assert handle.result(helpers.PATIENCE) == 2
