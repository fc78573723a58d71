"""Without a broker a killed worker is found by its process, or by its sessions and its silence; no other is."""

import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import helpers
import pytest
from django.conf import settings as django_settings
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from probe import tasks
from probe.models import Run
from proxy import Proxy

from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.failure_detector import FailureDetector, lives_here
from django_txtasks.core.cleaning.suspicion import GAP_SECONDS, FirstSign, Suspicion
from django_txtasks.core.rows import cleaning, workers
from django_txtasks.database import sessions
from django_txtasks.database.processes import PREFIX, is_there, mark_of, own_mark
from django_txtasks.models import Cleaner, Status, Worker

pytestmark = pytest.mark.usefixtures("rows")

on_server = pytest.mark.skipif(
    "sqlite3" in django_settings.DATABASES["default"]["ENGINE"], reason="SQLite has no sessions"
)
HALF_A_LEASE, TO_THE_LEASE, OVER_IT = 7.5, 14, 2
SHORT = 2.5
"""Seconds in which an ended process is noticed on any database."""
NEVER = 600


class Clock:
    """Monotonic seconds that a test moves."""

    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def detector(clock):
    """Of a cleaner that has no broker, and has looked."""
    detector = FailureDetector(get_config(), "default", None, clock)
    list(detector.lost())
    return detector


@pytest.fixture
def with_broker(clock):
    """A detector of a cleaner that hears RabbitMQ, which reports nothing."""
    wills = type("Wills", (), {"unbroken": 1, "take": lambda self: []})()
    detector = FailureDetector(get_config(), "default", wills, clock)
    list(detector.lost())
    return detector


def lost(detector, clock, seconds, step=0.5):
    """Let time pass while the detector looks; return the ids of the workers that it would declare lost."""
    found = {worker.id for worker, _ in detector.lost()}
    for _ in range(round(seconds / step)):
        clock.now += step
        found |= {worker.id for worker, _ in detector.lost()}
    return found


def register(host="elsewhere"):
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )
    Worker.objects.filter(pk=worker).update(host=host)
    return worker


def beat(worker, slot_sessions=()):
    with transaction.atomic():
        assert workers.beat(
            "default", worker, running=0, listening=None, slot_sessions=slot_sessions
        )


def cut_off(slot_sessions=()):
    """A worker on another machine, whose loop's session has ended."""
    known = []

    def live():
        known.append(register())
        beat(known[0], slot_sessions)

    with helpers.second_session(live):
        pass
    session, *_ = Worker.objects.get(pk=known[0]).sessions
    helpers.wait_until(lambda: sessions.is_gone("default", session) is not False)
    return known[0]


@contextmanager
def process_of_worker():
    """A process that runs, and is that of all workers."""
    process = subprocess.Popen(["sleep", "600"])
    helpers.is_run_by(process.pid)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


# -- on the cleaner's machine: the process itself ----------------------------------------------------


def test_a_worker_whose_process_has_ended_is_lost_soon(detector, clock):
    worker = cut_off()
    helpers.end_process_of_worker()
    assert lost(detector, clock, SHORT, step=0.05) == {worker}


@on_server
def test_with_its_session_gone_too_it_takes_two_looks(detector, clock):
    worker = cut_off()
    helpers.end_process_of_worker()
    assert lost(detector, clock, 0) == set()
    assert detector.pause(1.0) < 0.2
    assert lost(detector, clock, 0.2, step=0.2) == {worker}


@on_server
def test_behind_a_pooler_or_for_a_role_that_may_not_see_the_process_is_enough(detector, clock):
    worker = cut_off()
    helpers.end_process_of_worker()
    _, mark = Worker.objects.get().sessions
    Worker.objects.update(sessions=["", mark])
    assert lost(detector, clock, SHORT) == {worker}


def test_a_process_that_is_there_is_believed_until_the_lease(detector, clock):
    """All its sessions were cut, and its way to the database is away."""
    worker = cut_off()
    with process_of_worker() as process:
        assert lost(detector, clock, TO_THE_LEASE) == set()
        os.kill(process.pid, signal.SIGSTOP)
        assert lives_here(cleaning.living_workers("default")[0])
        assert lost(detector, clock, OVER_IT) == {worker}


@on_server
def test_an_ended_process_whose_session_is_there_has_its_lease(detector, clock):
    """The database has not heard of its end: a statement of its goes on."""
    worker = register()
    beat(worker)
    helpers.end_process_of_worker()
    assert lost(detector, clock, TO_THE_LEASE) == set()
    assert lost(detector, clock, OVER_IT) == {worker}


def test_a_number_that_is_used_again_is_another_process(detector, clock):
    worker = cut_off()
    with process_of_worker() as process:
        began, where = mark_of(process.pid).removeprefix(PREFIX).split()
        helpers.is_run_by(process.pid, f"{PREFIX}{int(began) - 1} {where}")
        assert lost(detector, clock, SHORT) == {worker}


@pytest.mark.parametrize("mark", ["elsewhere", "", f"{PREFIX}7"])
def test_a_container_with_the_same_host_name_is_not_this_machine(mark, detector, clock):
    """Its process has a number that nobody has here."""
    worker = cut_off()
    helpers.end_process_of_worker()
    if mark == "elsewhere":
        began = Worker.objects.get().sessions[-1].split()[1]
        mark = f"{PREFIX}{began} 0123456789ab"
    helpers.is_run_by(Worker.objects.get().pid, mark)
    assert lost(detector, clock, SHORT) == set()
    assert lost(detector, clock, HALF_A_LEASE - SHORT) == set()
    assert lost(detector, clock, TO_THE_LEASE) == {worker}


def test_a_row_without_a_mark_is_believed_if_its_number_is_there(detector, clock):
    cut_off()
    with process_of_worker() as process:
        helpers.is_run_by(process.pid, "")
        assert lost(detector, clock, TO_THE_LEASE) == set()


@pytest.mark.once
def test_a_mark_says_when_a_process_began_and_where():
    mark = own_mark()
    assert is_there(os.getpid(), mark) is True
    assert mark == mark_of(os.getpid()) != mark_of(1)
    child = os.fork()
    if not child:
        os._exit(own_mark() == mark)  # it has one of its own
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def newcomer(clock):
    """A detector of a cleaner that has just started: it has seen no worker beat."""
    return FailureDetector(get_config(), "default", None, clock)


def test_a_new_cleaner_needs_no_beat_of_a_process_that_has_ended_on_its_machine(clock):
    """Worker and cleaner have died together: a power cut, both out of memory, both restarted."""
    worker = cut_off()
    helpers.end_process_of_worker()
    assert lost(newcomer(clock), clock, SHORT, step=0.05) == {worker}


def test_a_new_cleaner_waits_for_the_lease_of_a_worker_elsewhere(clock):
    """It does not know what happened before it came."""
    worker = cut_off()
    detector = newcomer(clock)
    assert lost(detector, clock, TO_THE_LEASE) == set()
    assert lost(detector, clock, OVER_IT) == {worker}


@pytest.mark.parametrize("mark", ["elsewhere", ""])
def test_a_new_cleaner_takes_no_process_of_another_namespace_for_ended(mark, clock):
    """As after the restart of a container: two that live may share the name of the host."""
    worker = cut_off()
    helpers.end_process_of_worker()
    helpers.is_run_by(Worker.objects.get().pid, mark and f"{PREFIX}7 0123456789ab")
    detector = newcomer(clock)
    assert lost(detector, clock, TO_THE_LEASE) == set()
    assert lost(detector, clock, OVER_IT) == {worker}


def test_a_new_cleaner_knows_a_number_that_is_used_again(clock):
    worker = cut_off()
    with process_of_worker() as process:
        began, where = mark_of(process.pid).removeprefix(PREFIX).split()
        helpers.is_run_by(process.pid, f"{PREFIX}{int(began) - 1} {where}")
        assert lost(newcomer(clock), clock, SHORT) == {worker}


def test_a_new_cleaner_takes_a_zombie_for_ended(clock):
    worker = cut_off()
    process = subprocess.Popen(["sleep", "0"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    helpers.is_run_by(process.pid)
    found = lost(newcomer(clock), clock, SHORT)
    process.wait()
    assert found == {worker}


@on_server
def test_a_new_cleaner_waits_while_the_session_of_an_ended_process_is_there(clock):
    """What the process has sent may still be carried out."""
    worker = register()
    beat(worker)
    helpers.end_process_of_worker()
    detector = newcomer(clock)
    assert lost(detector, clock, TO_THE_LEASE) == set()
    assert lost(detector, clock, OVER_IT) == {worker}


def test_a_cleaner_whose_session_was_cut_needs_no_beat_of_an_ended_process(detector, clock):
    """All sessions were ended, and the worker died a moment later."""
    worker = cut_off()
    list(detector.lost())
    helpers.end_process_of_worker()
    connection.close()
    assert lost(detector, clock, SHORT, step=0.05) == {worker}


# -- on another machine: its sessions and its silence -------------------------------------------------


@on_server
def test_a_worker_without_a_session_that_is_silent_for_half_a_lease_is_lost(detector, clock):
    worker = cut_off()
    assert lost(detector, clock, HALF_A_LEASE) == set()
    assert lost(detector, clock, 3) == {worker}


@on_server
def test_a_beat_meanwhile_saves_it(detector, clock):
    """Its way to the database was away for a while."""
    worker = cut_off()
    assert lost(detector, clock, HALF_A_LEASE) == set()
    with helpers.second_session(lambda: beat(worker)):
        pass
    session, *_ = Worker.objects.get().sessions
    helpers.wait_until(lambda: sessions.is_gone("default", session))
    assert lost(detector, clock, HALF_A_LEASE) == set()


@on_server
@pytest.mark.parametrize("whose", ["loop", "slot"])
def test_a_worker_that_has_a_session_left_has_its_lease(whose, detector, clock):
    """It is frozen, or the link of its loop alone was cut."""
    ours = sessions.session_of_thread("default")
    if whose == "loop":
        worker = register()
        beat(worker)
    else:
        worker = cut_off([ours])
    assert lost(detector, clock, TO_THE_LEASE) == set()
    assert lost(detector, clock, OVER_IT) == {worker}


@on_server
@pytest.mark.parametrize("whose", ["the worker's", "the cleaner's"])
def test_behind_a_pooler_the_lease_decides(whose, detector, clock):
    worker = cut_off()
    if whose == "the worker's":
        Worker.objects.update(sessions=[""])
    else:
        sessions._known[connection.connection] = ""
    assert lost(detector, clock, TO_THE_LEASE) == set()
    assert lost(detector, clock, OVER_IT) == {worker}


@on_server
def test_a_cleaner_with_a_new_session_waits_for_the_next_beat(detector, clock):
    """What cut its own may have cut all others."""
    cut_off()
    list(detector.lost())
    connection.close()
    assert lost(detector, clock, TO_THE_LEASE) == set()


@on_server
def test_a_server_that_was_started_since_knows_nothing_of_older_sessions(detector, clock):
    worker = cut_off()
    number, started, server = Worker.objects.get().sessions[0].split(" ", 2)
    older = {
        "postgresql": f"{number} {started} 1000000000.123456",
        "mysql": f"{number} {float(started) - 1000:.0f} {server}",
    }
    Worker.objects.update(sessions=[older[connection.vendor]])
    assert lost(detector, clock, TO_THE_LEASE) == set()
    assert lost(detector, clock, OVER_IT) == {worker}


@on_server
def test_another_server_of_a_cluster_knows_nothing_of_the_first_ones_sessions(detector, clock):
    cut_off()
    number, started, _ = Worker.objects.get().sessions[0].split(" ", 2)
    Worker.objects.update(sessions=[f"{number} {started} root@other:3306"])
    assert lost(detector, clock, TO_THE_LEASE) == set()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="a role's rights on PostgreSQL")
def test_a_role_that_may_not_see_a_session_does_not_take_it_for_gone():
    stranger = f"stranger_{connection.settings_dict['NAME']}"
    seen, done = [], threading.Event()

    def live():
        seen.append(sessions.session_of_thread("default"))
        assert done.wait(helpers.PATIENCE)

    with helpers.second_session(live):
        helpers.wait_until(lambda: seen)
        assert sessions.are_gone("default", seen) is False
        helpers.execute(f"CREATE ROLE {stranger}")
        helpers.execute(f"SET ROLE {stranger}")
        try:
            assert sessions.are_gone("default", seen) is None
        finally:
            helpers.execute("RESET ROLE")
            helpers.execute(f"DROP ROLE {stranger}")
            done.set()


@on_server
def test_several_that_are_cut_off_at_once_have_their_leases(detector, clock):
    """A switch, a proxy, a zone: processes die one by one."""
    one, other = cut_off(), cut_off()
    assert lost(detector, clock, HALF_A_LEASE + 3) == set()
    with helpers.second_session(lambda: beat(other)):
        pass
    assert lost(detector, clock, 1) == {one}


@on_server
def test_while_the_server_takes_no_new_sessions_the_lease_decides(detector, clock, monkeypatch):
    """All connections that it allows are taken, or its name is not found: the worker cannot come back."""
    worker = cut_off()
    with monkeypatch.context() as patch:
        patch.setitem(connection.settings_dict, "PORT", 1)
        patch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        assert lost(detector, clock, HALF_A_LEASE) == set()
    assert lost(detector, clock, TO_THE_LEASE - HALF_A_LEASE - 0.5) == set()
    assert lost(detector, clock, OVER_IT) == {worker}


@on_server
def test_a_time_without_looks_does_not_count(detector, clock):
    """The cleaner's own statement was held up for a moment, and what did that held up the worker."""
    cut_off()
    assert lost(detector, clock, HALF_A_LEASE) == set()
    clock.now += 2 * GAP_SECONDS
    assert lost(detector, clock, 2) == set()


@on_server
def test_where_there_is_a_broker_its_word_is_waited_for(clock, with_broker):
    cut_off()
    Worker.objects.update(listening=True)
    assert lost(with_broker, clock, TO_THE_LEASE) == set()


@on_server
def test_a_broker_cannot_report_a_worker_in_another_language(clock, with_broker):
    """It has no connection to RabbitMQ, so its silence is the first sign, as if there were no broker."""
    worker = cut_off()
    assert lost(with_broker, clock, HALF_A_LEASE) == set()
    assert lost(with_broker, clock, TO_THE_LEASE - HALF_A_LEASE) == {worker}


@on_server
def test_a_silent_worker_elsewhere_is_looked_at_no_more_often_than_others(detector, clock):
    cut_off()
    list(detector.lost())
    for _ in range(5):
        clock.now += 1
        list(detector.lost())
        assert detector.pause(1.0) == 1.0


@on_server
def test_a_look_at_workers_that_beat_is_one_statement(detector):
    alive = [register(host) for host in ("elsewhere", workers.host_name()) for _ in range(5)]
    for _ in range(3):
        for worker in alive:
            beat(worker)
        with CaptureQueriesContext(connection) as asked:
            assert not list(detector.lost())
        assert len(asked) == 1


# -- real processes -----------------------------------------------------------------------------------


@pytest.fixture
def endless_leases(txtasks):
    """Endless leases, so that only two signs can prove a crash."""
    txtasks(heartbeat_interval=0.3, lease=NEVER, poll_interval=0.1, clean_interval=NEVER)


@pytest.fixture
def cleaner(processes, endless_leases):
    """A cleaner that has begun to look."""
    process = processes.start("runcleaner")
    helpers.wait_until(Cleaner.objects.exists, what=lambda: processes.log_of(process))


def start_worker(processes, **env):
    before = set(Worker.objects.values_list("pk", flat=True))
    processes.start("runworkers", "--threads=2", env=env)
    return helpers.wait_until(
        lambda: Worker.objects.filter(beat__gt=4).exclude(pk__in=before).first()
    )


def pid_of(key):
    return helpers.wait_until(lambda: Run.objects.filter(key=key).order_by("-id").first()).pid


def test_a_killed_workers_task_starts_again_without_broker_or_lease(processes, cleaner):
    victim = start_worker(processes)
    idempotent = tasks.slow_once.enqueue("idempotent")
    default = tasks.slow.enqueue("default")
    pid_of("idempotent")
    pid_of("default")
    os.kill(victim.pid, signal.SIGKILL)
    helpers.wait_until(lambda: helpers.finished(idempotent.id))
    helpers.wait_until(lambda: helpers.row(default.id).status == Status.DEAD)
    assert helpers.runs("idempotent") == 2
    assert Worker.objects.get(lost=True).pk == victim.pk


def test_worker_and_cleaner_that_are_killed_together_cost_no_lease(processes, cleaner):
    victim = start_worker(processes)
    idempotent = tasks.slow_once.enqueue("together")
    default = tasks.slow.enqueue("default")
    pid_of("together")
    pid_of("default")
    for pid in (*(one.pid for one in reversed(processes.started)), victim.pid):
        os.kill(pid, signal.SIGKILL)
    processes.start("runcleaner")
    processes.start("runworkers", "--threads=2")
    helpers.wait_until(lambda: helpers.finished(idempotent.id))
    helpers.wait_until(lambda: helpers.row(default.id).status == Status.DEAD)
    assert helpers.runs("together") == 2
    assert Worker.objects.get(lost=True).pk == victim.pk


@contextmanager
def running_behind_a_proxy(processes, *, elsewhere):
    """Give a proxy and the worker behind it, which runs a task; see that the task ends in its first attempt."""
    url = urlsplit(os.environ["TXTASKS_DATABASE_URL"])
    with Proxy(url.hostname, url.port) as proxy:
        through = url._replace(netloc=url.netloc.replace(f":{url.port}", f":{proxy.port}")).geturl()
        worker = start_worker(processes, TXTASKS_DATABASE_URL=through)
        if elsewhere:
            Worker.objects.update(host="elsewhere")
        handle = tasks.slow_once.enqueue("running", seconds=3)
        pid_of("running")
        yield proxy, worker
        assert helpers.wait_until(lambda: helpers.finished(handle.id)).attempt == 1
        assert not Worker.objects.filter(lost=True).exists()
        processes.end()


def beats_again(worker, seen):
    helpers.wait_until(Worker.objects.filter(pk=worker.pk, beat__gt=seen.beat + 2).exists)


@on_server
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_new_cleaner_does_not_declare_a_living_worker_lost(elsewhere, processes, cleaner):
    """Its sessions are cut, and the cleaner is killed and started again at the same moment."""
    with running_behind_a_proxy(processes, elsewhere=elsewhere) as (proxy, worker):
        (newest, *_) = processes.started
        for _ in range(3):
            seen = Worker.objects.get(pk=worker.pk)
            known = list(Cleaner.objects.values_list("pk", flat=True))
            newest.kill()
            proxy.reset_all()
            newest = processes.start("runcleaner")
            helpers.wait_until(Cleaner.objects.exclude(pk__in=known).exists)
            beats_again(worker, seen)


@on_server
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_living_worker_whose_sessions_are_cut_is_not_declared_lost(elsewhere, processes, cleaner):
    with running_behind_a_proxy(processes, elsewhere=elsewhere) as (proxy, worker):
        for _ in range(3):
            seen = Worker.objects.get(pk=worker.pk)
            proxy.reset_all()
            beats_again(worker, seen)


def test_a_frozen_worker_is_not_declared_lost_before_its_lease(processes, cleaner):
    worker = start_worker(processes)
    looks = Worker.objects.filter(pk=worker.pk, lost=True)
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        with pytest.raises(AssertionError):
            helpers.wait_until(looks.exists, seconds=3)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    seen = Worker.objects.get(pk=worker.pk)
    helpers.wait_until(Worker.objects.filter(pk=worker.pk, beat__gt=seen.beat).exists)
    assert not looks.exists()


@pytest.mark.once
@pytest.mark.parametrize(
    ("sign", "now", "pause"),
    [
        (FirstSign.SILENCE, 4.0, 1.0),
        (FirstSign.SILENCE, 6.0, float("inf")),
        (FirstSign.WILL, 4.0, 1.0),
        (FirstSign.WILL, 6.0, 0.001),
    ],
)
def test_a_proven_silence_asks_for_no_more_looks(sign, now, pause):
    """Where several are silent, none is declared lost by it, however often the cleaner looks."""
    one = Suspicion(beat=1, sign=sign, grace=5.0, since=0.0, looked_at=0.0, gone=0.0)
    assert one.pause(now) == pause
