"""A crashed worker is declared lost at once by two signs; one alone is a link that was cut."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import uuid
from urllib.parse import urlsplit

import helpers
import pika
import pytest
from django.conf import settings as django_settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from probe import tasks
from probe.models import Run
from proxy import Proxy

from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.cleaning.failure_detector import FailureDetector
from django_txtasks.core.cleaning.suspicion import GRACE_AT_HOME_SECONDS, GRACE_SECONDS
from django_txtasks.core.rows import cleaning, workers
from django_txtasks.database import sessions
from django_txtasks.hints.broker.will import LastWillConnection, LastWillConsumer
from django_txtasks.models import Status, Worker

pytestmark = pytest.mark.usefixtures("rows")

on_server = pytest.mark.skipif(
    "sqlite3" in django_settings.DATABASES["default"]["ENGINE"],
    reason="SQLite has no sessions: there silence is the second signal",
)
NEVER = 600
A_BEAT = 1.0


class Clock:
    """Monotonic seconds that a test moves."""

    now = 1000.0

    def __call__(self):
        return self.now


class Wills:
    """The last wills that RabbitMQ has delivered in a test."""

    def __init__(self):
        self.unbroken = 1
        self.settled = []
        self._waiting = []

    def deliver(self, worker, number):
        will = type("Will", (), {"worker": worker, "number": number})()
        will.settle = lambda: self.settled.append((worker, number))
        self._waiting.append(will)

    def take(self):
        taken, self._waiting = self._waiting, []
        return taken


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def wills():
    return Wills()


@pytest.fixture
def detector(wills, clock):
    return FailureDetector(get_config(), "default", wills, clock)


def lost(detector, clock, seconds=0.0, step=0.05):
    """Let time pass while the detector looks; return the ids of the workers that it would declare lost."""
    found = {worker.id for worker, _ in detector.lost()}
    for _ in range(round(seconds / step)):
        clock.now += step
        found |= {worker.id for worker, _ in detector.lost()}
    return found


def register(host="elsewhere"):
    """A worker on another machine: here the cleaner would see the test's own process."""
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )
    helpers.execute("UPDATE txtasks_worker SET host = %s WHERE id = %s", host, worker.hex)
    return worker


def beat(worker, will):
    with transaction.atomic():
        assert workers.beat("default", worker, running=0, listening=True, will=will)


def crashed_worker(detector, will=1):
    """A worker that this detector has seen to beat, and whose database session has ended since."""
    known = []

    def live():
        known.append(register())
        beat(known[0], will)

    with helpers.second_session(live):
        pass
    list(detector.lost())
    with helpers.second_session(lambda: beat(known[0], will)):
        pass
    session, *_ = Worker.objects.get(pk=known[0]).sessions
    helpers.wait_until(lambda: sessions.is_gone("default", session) is not False)
    return known[0]


@on_server
def test_last_will_and_ended_session_together_are_enough(detector, wills, clock):
    list(detector.lost())
    worker = crashed_worker(detector)
    wills.deliver(worker, 1)
    assert lost(detector, clock) == set()
    assert lost(detector, clock, 2 * GRACE_SECONDS) == {worker}
    assert wills.settled == [(worker, 1)]


@on_server
@pytest.mark.parametrize(
    ("alive", "expected"), [(True, set()), (False, {1})], ids=["running", "zombie"]
)
def test_a_process_that_the_cleaner_can_see_is_believed(alive, expected, detector, wills, clock):
    """Both links were cut, and the machine is too busy to have them back in a moment."""
    list(detector.lost())
    worker = crashed_worker(detector)
    process = subprocess.Popen(["sleep", "60" if alive else "0"])
    if not alive:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    helpers.is_run_by(process.pid)
    wills.deliver(worker, 1)
    assert {1 for _ in lost(detector, clock, 2)} == expected
    process.kill()
    process.wait()


@on_server
def test_a_process_that_is_gone_from_this_machine_is_lost_sooner(detector, wills, clock):
    list(detector.lost())
    worker = crashed_worker(detector)
    helpers.end_process_of_worker()
    wills.deliver(worker, 1)
    assert lost(detector, clock) == set()
    assert lost(detector, clock, 2 * GRACE_AT_HOME_SECONDS, step=0.01) == {worker}


def test_a_last_will_alone_is_a_suspicion(detector, wills, clock):
    list(detector.lost())
    worker = register()  # in this session, which is there
    beat(worker, 1)
    wills.deliver(worker, 1)
    assert lost(detector, clock, A_BEAT) == set()
    assert Worker.objects.get().suspected_at


@on_server
def test_an_ended_session_alone_is_nothing(detector, clock):
    list(detector.lost())
    crashed_worker(detector)
    assert lost(detector, clock, 14) == set()
    assert lost(detector, clock, 2)


@on_server
def test_a_beat_after_both_signals_saves_the_worker(detector, wills, clock):
    """Both of its links were cut and are there again."""
    list(detector.lost())
    worker = crashed_worker(detector)
    wills.deliver(worker, 1)
    assert lost(detector, clock, GRACE_SECONDS / 2, step=0.01) == set()
    beat(worker, 2)
    assert lost(detector, clock, 5) == set()
    assert Worker.objects.get().suspected_at is None


@on_server
def test_a_beat_under_the_old_will_delays_the_verdict(detector, wills, clock):
    """It has not noticed yet that its connection to RabbitMQ is gone."""
    list(detector.lost())
    worker = crashed_worker(detector)
    wills.deliver(worker, 1)
    assert lost(detector, clock, GRACE_SECONDS / 2, step=0.01) == set()
    with helpers.second_session(lambda: beat(worker, 1)):
        pass
    session, *_ = Worker.objects.get().sessions
    helpers.wait_until(lambda: sessions.is_gone("default", session) is not False)
    assert Worker.objects.get().suspected_at
    assert lost(detector, clock, GRACE_SECONDS * 0.8, step=0.01) == set()
    assert lost(detector, clock, GRACE_SECONDS) == {worker}


@on_server
def test_a_worker_not_seen_to_beat_since_the_cleaners_links_are_there_has_its_lease(
    detector, wills, clock
):
    """What cut the cleaner's links may have cut the worker's, too."""
    worker = crashed_worker(FailureDetector(get_config(), "default", wills, clock))
    list(detector.lost())
    wills.deliver(worker, 1)
    assert lost(detector, clock, 14) == set()
    assert lost(detector, clock, 2) == {worker}


@on_server
@pytest.mark.parametrize("link", ["database", "rabbitmq"])
def test_a_cleaner_that_lost_a_link_itself_counts_anew(link, detector, wills, clock):
    list(detector.lost())
    worker = crashed_worker(detector)
    wills.deliver(worker, 1)
    list(detector.lost())
    if link == "database":
        connection.close()
    else:
        wills.unbroken = 2
    assert lost(detector, clock, 10) == set()


@on_server
def test_without_its_own_link_to_rabbitmq_a_cleaner_waits_for_the_lease(detector, wills, clock):
    list(detector.lost())
    worker = crashed_worker(detector)
    wills.deliver(worker, 1)
    list(detector.lost())
    wills.unbroken = 0
    assert lost(detector, clock, 10) == set()


@on_server
def test_a_cleaner_that_never_had_a_link_to_rabbitmq_waits_for_the_lease(detector, wills, clock):
    """Another cleaner has written the suspicion down."""
    wills.unbroken = 0
    list(detector.lost())
    worker = crashed_worker(detector)
    wills.deliver(worker, 1)
    assert lost(detector, clock, 10) == set()


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_will_of_another_number_is_void(number):
    worker = register()
    beat(worker, 1)
    assert not cleaning.suspect("default", worker, number)
    assert cleaning.suspect("default", worker, 1)
    assert not cleaning.suspect("default", uuid.uuid4(), 1)


@on_server
def test_a_will_of_a_worker_whose_row_is_locked_waits(detector, wills, clock):
    """A slow turn of its own, which ends in a moment."""
    list(detector.lost())
    worker = register()
    beat(worker, 1)
    wills.deliver(worker, 1)
    with helpers.locked("UPDATE txtasks_worker SET beat = beat + 1"):
        list(detector.lost())
        assert wills.settled == []
    list(detector.lost())
    assert wills.settled == [(worker, 1)]
    assert Worker.objects.get().suspected_at


def test_where_the_database_cannot_tell_two_beats_of_silence_are_the_second_signal(
    detector, wills, clock
):
    """SQLite, or a pooler in between."""
    list(detector.lost())
    worker = register()
    beat(worker, 1)
    helpers.execute("UPDATE txtasks_worker SET sessions = %s", json.dumps([""]))
    assert lost(detector, clock, 5) == set()
    wills.deliver(worker, 1)
    beat(worker, 1)
    helpers.execute("UPDATE txtasks_worker SET sessions = %s", json.dumps([""]))
    assert lost(detector, clock, 2 * A_BEAT - 0.1) == set()
    assert lost(detector, clock, 2 * GRACE_SECONDS) == {worker}


def test_suspects_are_looked_at_often_and_others_every_beat(detector, wills, clock):
    list(detector.lost())
    worker = register()
    beat(worker, 1)
    assert detector.pause(A_BEAT) == A_BEAT
    wills.deliver(worker, 1)
    pauses = []
    for _ in range(6):
        list(detector.lost())
        pauses.append(detector.pause(A_BEAT))
    assert pauses == [0.02, 0.05, 0.1, 0.1, 0.1, 0.1]
    clock.now += 20
    assert detector.pause(A_BEAT) == A_BEAT


@on_server
def test_a_session_is_gone_when_its_connection_is():
    seen = []
    with helpers.second_session(lambda: seen.append(sessions.session_of_thread("default"))):
        pass
    own = sessions.session_of_thread("default")
    helpers.wait_until(lambda: sessions.is_gone("default", seen[0]))
    assert sessions.is_gone("default", own) is False
    connection.close()
    assert sessions.session_of_thread("default") != own
    assert sessions.is_gone("default", "") is None


@on_server
def test_a_reused_number_is_another_session():
    """After a restart of the server its numbers begin anew: the start tells them apart."""
    number, started, user = sessions.session_of_thread("default").split(" ", 2)
    other = f"{number} {float(started) - 1000:.6f} {user}"
    assert sessions.is_gone("default", other) is (
        True if connection.vendor == "postgresql" else None
    )
    with helpers.second_session(lambda: sessions.end("default", [other])):
        pass
    assert helpers.execute("SELECT 1")


@on_server
def test_a_lost_workers_frozen_session_is_ended_and_its_locks_with_it(clock):
    """A slot that was stopped inside its transaction holds what the next attempt needs."""
    Run.objects.create(key="locked")
    cleaner, worker = Cleaner(get_config(), clock=clock), register()
    frozen, committed, held, release = [], [], threading.Event(), threading.Event()

    def hold():
        with contextlib.suppress(DatabaseError, InterfaceError):
            with transaction.atomic():
                Run.objects.update(attempt=1)
                frozen.append(sessions.session_of_thread("default"))
                held.set()
                release.wait(helpers.PATIENCE)
            committed.append("after all")

    with helpers.second_session(hold):
        assert held.wait(helpers.PATIENCE)
        helpers.execute("UPDATE txtasks_worker SET sessions = %s", json.dumps(["", frozen[0]]))
        for _ in range(17):
            cleaner.find_lost()
            clock.now += 1
        assert Worker.objects.get(pk=worker).lost
        Run.objects.update(attempt=2)
        release.set()
    assert not committed
    assert Run.objects.get().attempt == 2


@pytest.fixture
def endless_leases(broker, txtasks):
    """Endless leases, so that only two signs can prove a crash, and only hints announce tasks."""
    txtasks(heartbeat_interval=0.5, lease=NEVER, poll_interval=NEVER, clean_interval=NEVER)


@pytest.fixture
def crowd(processes, endless_leases, broker):
    """A cleaner, and a function that starts a worker: both with their links up."""
    processes.start("runcleaner")
    # A worker that is killed before the cleaner's own links are there is nothing but silent to it.
    helpers.wait_until(lambda: listens_for_wills(broker), what="the cleaner's link")

    def start(**env):
        before = set(Worker.objects.values_list("pk", flat=True))
        processes.start("runworkers", "--threads=2", env=env)
        return helpers.wait_until(
            lambda: Worker.objects.filter(will__gt=0, beat__gt=4).exclude(pk__in=before).first()
        )

    return start


def listens_for_wills(broker):
    not_yet_declared = contextlib.suppress(pika.exceptions.ChannelClosedByBroker)
    with not_yet_declared, pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        queue = amqp.channel().queue_declare(f"{get_config().queue_prefix}.@lost", passive=True)
        return queue.method.consumer_count > 0
    return False


def pid_of(key):
    return helpers.wait_until(lambda: Run.objects.filter(key=key).order_by("-id").first()).pid


def test_a_killed_workers_task_starts_again_without_waiting_for_the_lease(crowd):
    victim = crowd()
    idempotent = tasks.slow_once.enqueue("idempotent")
    default = tasks.slow.enqueue("default")
    pid_of("idempotent")
    pid_of("default")
    os.kill(victim.pid, signal.SIGKILL)
    helpers.wait_until(lambda: helpers.finished(idempotent.id))
    helpers.wait_until(lambda: helpers.row(default.id).status == Status.DEAD)
    assert helpers.runs("idempotent") == 2
    assert Worker.objects.get(lost=True).pk == victim.pk


def through(url, proxy):
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace(f":{parts.port}", f":{proxy.port}")).geturl()


@pytest.fixture
def links(broker, txtasks):
    """Proxies in front of RabbitMQ and of the database, and the settings of a worker behind them."""
    amqp, rows_ = urlsplit(broker), urlsplit(os.environ["TXTASKS_DATABASE_URL"])
    with Proxy(amqp.hostname, amqp.port) as to_broker, Proxy(rows_.hostname, rows_.port) as to_rows:
        settings = {**django_settings.TXTASKS, "broker_url": through(broker, to_broker), "grace": 1}
        settings |= {
            "heartbeat_interval": 0.5,
            "lease": NEVER,
            "poll_interval": NEVER,
            "clean_interval": NEVER,
        }
        env = {
            "TXTASKS_SETTINGS": json.dumps(settings),
            "TXTASKS_DATABASE_URL": through(os.environ["TXTASKS_DATABASE_URL"], to_rows),
        }
        yield to_broker, to_rows, env


@on_server
@pytest.mark.parametrize(
    "cut", [pytest.param("rabbitmq", marks=pytest.mark.once), "database", "both"]
)
def test_a_living_worker_whose_links_are_cut_is_not_declared_lost(cut, links, crowd, processes):
    to_broker, to_rows, env = links
    worker = crowd(**env)
    handle = tasks.slow_once.enqueue("running", seconds=6)
    # Its row is seen before its connection has heard of that: a cut then would be a failure of the task.
    helpers.wait_until(
        lambda: "running is at sleep" in logs(processes), what=lambda: logs(processes)
    )
    for _ in range(5):
        seen = Worker.objects.get(pk=worker.pk)
        if cut != "database":
            to_broker.cut_all()
        if cut != "rabbitmq":
            to_rows.cut_all()
        newer = {"beat__gt": seen.beat + 1} | ({} if cut == "database" else {"will__gt": seen.will})
        alive = Worker.objects.filter(pk=worker.pk, **newer)
        helpers.wait_until(alive.exists, what=lambda: logs(processes))
    assert helpers.wait_until(lambda: helpers.finished(handle.id)).attempt == 1
    assert not Worker.objects.filter(lost=True).exists()
    processes.end()


def logs(processes):
    return "\n".join(map(processes.log_of, processes.started))


@pytest.mark.once
def test_a_worker_that_stops_in_good_order_leaves_no_suspicion(crowd, processes, broker):
    suspected = []
    worker = crowd()
    os.kill(worker.pid, signal.SIGTERM)
    helpers.wait_until(lambda: not Worker.objects.filter(pk=worker.pk).exists())
    processes.end()
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        queue = amqp.channel().queue_declare(f"{get_config().queue_prefix}.@lost", passive=True)
        suspected.append(queue.method.message_count)
    assert suspected == [0]


@pytest.mark.once
def test_a_will_is_renewed_before_rabbitmq_runs_out_of_patience(broker, txtasks, monkeypatch):
    """A delivery that is not acknowledged for half an hour costs the channel."""
    me = uuid.uuid4()
    will = LastWillConnection(get_config(), "default", lambda: None)
    will.start()
    helpers.wait_until(lambda: will.number_for(me) == 1)
    monkeypatch.setattr("django_txtasks.hints.broker.will.RENEW_AFTER_SECONDS", 1.0)
    helpers.wait_until(lambda: will.number_for(me) == 2)
    will.stop()
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        lost_wills = amqp.channel().queue_declare(
            f"{get_config().queue_prefix}.@lost", passive=True
        )
    assert lost_wills.method.message_count == 0


@pytest.mark.once
def test_a_worker_with_a_new_id_has_a_new_will(broker):
    will = LastWillConnection(get_config(), "default", lambda: None)
    will.start()
    first, second = uuid.uuid4(), uuid.uuid4()
    helpers.wait_until(lambda: will.number_for(first) == 1)
    helpers.wait_until(lambda: will.number_for(second) == 2)
    will.stop()


@pytest.mark.once
def test_what_is_no_will_is_dropped(broker):
    wills = LastWillConsumer(get_config(), "default", lambda: None)
    wills.start()
    helpers.wait_until(lambda: wills.unbroken)
    good = {"worker": str(uuid.uuid4()), "will": 3}
    bodies = [b"", b"null", b"[1]", b"\xff\x00", b'{"worker": "x", "will": 1}', b"9" * 70_000]
    bodies += [json.dumps({**good, "will": number}).encode() for number in (-1, 2**40, "1", None)]
    with pika.BlockingConnection(pika.URLParameters(broker)) as amqp:
        channel = amqp.channel()
        for body in [*bodies, json.dumps(good).encode()]:
            channel.basic_publish("", f"{get_config().queue_prefix}.@lost", body)
    (taken,) = helpers.wait_until(wills.take)
    assert (str(taken.worker), taken.number) == (good["worker"], 3)
    wills.stop()
