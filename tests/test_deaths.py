"""Processes that die again and again: page, status, audit, metrics and explain say so, and name the function."""

from __future__ import annotations

import html
import io
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import helpers
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags
from probe import deadly
from reads import explained

from django_txtasks import enqueue_many
from django_txtasks import overview as overview_room
from django_txtasks.core.rows import cleaning, workers
from django_txtasks.database import processes as processes_room
from django_txtasks.database.transactions import own_transaction
from django_txtasks.insight.deaths import FEWEST, MOST_FINISHED, MOST_ROWS, deaths
from django_txtasks.metrics import exposition, kept
from django_txtasks.models import EndedWorker, FinishedTask, Outcome, Worker

pytestmark = pytest.mark.usefixtures("rows")
on_server = pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite locks no row")

POISON, NEIGHBOUR = "probe.deadly.poison", "probe.deadly.neighbour"
HOLD = f"manage.py txtasks_task hold --task {POISON}"
ON_HOST = """
import socket, sys
socket.gethostname = (lambda name: lambda: name)(sys.argv.pop(1))
from django.core.management import execute_from_command_line
execute_from_command_line(["django", *sys.argv[1:]])
"""


@pytest.fixture
def short(txtasks):
    """Times that fit a test."""
    txtasks(
        heartbeat_interval=0.2, lease=3, poll_interval=0.1, clean_interval=1, retry_base=1,
        retry_ceiling=1,
    )  # fmt: skip


@pytest.fixture
def ann():
    user = User.objects.create_superuser("ann")
    client = Client()
    client.force_login(user)
    yield client
    user.delete()


def wait_for_deaths(process: Any, processes: Any, how: str, number: int = FEWEST) -> Any:
    """Wait until so many deaths of this kind are told."""

    def look() -> Any:
        found = deaths("default")
        return found if found is not None and found.hows.get(how, 0) >= number else None

    return helpers.wait_until(look, what=lambda: processes.log_of(process))


def printed(*command: str) -> tuple[str, int]:
    """Return what a command prints, and its exit code."""
    out = io.StringIO()
    try:
        call_command(*command, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


def page(client: Client) -> str:
    """Return the text of At a glance."""
    overview_room.overview("default", max_age=0)
    text = client.get("/admin/txtasks/overview/").content.decode()
    return " ".join(html.unescape(strip_tags(text)).split())


def test_a_function_that_kills_its_processes_is_named_beside_neighbours_that_last(
    processes, short, ann
):
    enqueue_many((deadly.neighbour, [0.3]) for _ in range(200))
    supervisor = processes.start("runworkers", "--threads=4", with_cleaner=True)
    helpers.wait_until(FinishedTask.objects.exists)  # so that it is known to do no harm
    handle = deadly.poison.using(priority=1).enqueue()
    wait_for_deaths(supervisor, processes, "signal 9")
    status, _ = printed("txtasks_status")
    shown, (audit, code) = page(ann), printed("txtasks_audit")
    kept.forget()
    metrics = exposition.text(["default"])
    found = deaths("default")
    assert [(one.function, one.ran_in) for one in found.suspects] == [(POISON, found.number)]
    for text in (status, shown, audit):
        assert "worker processes died or were replaced within 5 min (signal 9 (SIGKILL): " in text
        assert f"{POISON} ran in " in text
        assert HOLD in text
        assert "revive none of them" in text
    assert "All is well" not in status + shown
    assert "can wait until the morning" not in audit.partition(POISON)[0]
    assert code == 1
    assert 'txtasks_problems{database="default",problem="dying_workers"} 1' in metrics
    assert 'txtasks_worker_deaths{database="default",how="signal 9"}' in metrics
    assert f'txtasks_suspect_deaths{{database="default",task="{POISON}"}}' in metrics
    explained_text, _ = printed("txtasks_explain", str(handle.id))
    assert f"{POISON} ran in " in explained_text

    supervisor.send_signal(signal.SIGKILL)
    helpers.wait_until(lambda: "No worker is alive" in printed("txtasks_status")[0])
    status, _ = printed("txtasks_status")
    assert "worker processes died" in status.splitlines()[0]  # and they are remembered
    assert f"Before you start one (manage.py runworkers), hold the tasks of {POISON}." in status


@pytest.mark.once
@pytest.mark.parametrize(
    ("end", "how", "options"),
    [
        ("segmentation fault", "signal 11", ()),
        ("exit", "exit code 0", ()),
        ("memory", "memory", (f"--max-rss={deadly.MEGABYTES}",)),
    ],
)
def test_other_ends_are_named(end, how, options, processes, short):
    enqueue_many((deadly.poison, [end]) for _ in range(5))
    process = processes.start("runworkers", "--threads=1", *options, with_cleaner=True)
    found = wait_for_deaths(process, processes, how)
    assert [one.function for one in found.suspects] == [POISON]


@pytest.mark.once
def test_a_loop_process_that_dies_is_told(processes, short):
    deadly.poison_of_loop.enqueue()
    process = processes.start("runworkers", "--threads=1", "--async-tasks=10", with_cleaner=True)
    found = wait_for_deaths(process, processes, "signal 9")
    assert [one.function for one in found.suspects] == ["probe.deadly.poison_of_loop"]


@pytest.mark.once
def test_a_process_replaced_for_stuck_threads_counts(processes, short):
    enqueue_many((deadly.stick, []) for _ in range(FEWEST))
    process = processes.start("runworkers", "--threads=1", with_cleaner=True)
    found = wait_for_deaths(process, processes, "stuck")
    assert [one.function for one in found.suspects] == ["probe.deadly.stick"]


@pytest.mark.once
def test_deaths_on_two_hosts_and_of_their_supervisors_are_added_up(processes, short):
    processes.start("runcleaner")
    program = Path(processes.directory.name) / "on_host.py"
    program.write_text(ON_HOST)
    for number, host in enumerate(("web-1", "web-2", "web-1")):
        deadly.poison.enqueue("all")
        with (program.with_name(f"{number}.out")).open("wb") as out:
            command = [sys.executable, program, host, "runworkers", "--no-cleaner"]
            supervisor = subprocess.Popen(
                command,
                env=processes._environment(),
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            supervisor.wait(helpers.PATIENCE)
        helpers.wait_until(lambda n=number: EndedWorker.objects.count() > n, what=out.name)
    found = helpers.wait_until(lambda: deaths("default"))
    assert (found.hows, found.suspects[0].function) == ({"unknown": 3}, POISON)


def ended(number: int, *, ago: float = 60, age: float = 60, **columns: Any) -> None:
    """Write rows of ended workers."""
    at = timezone.now() - timedelta(seconds=ago)
    usual = {"host": "web-1", "pid": 7, "ended_at": at, "started_at": at - timedelta(seconds=age)}
    EndedWorker.objects.bulk_create(
        EndedWorker(id=uuid.uuid4(), **usual | columns) for _ in range(number)
    )


@pytest.mark.once
def test_no_deploy_lost_host_single_crash_or_hourly_replacement_is_a_problem():
    ended(200)  # a deploy
    ended(8, how="unknown")  # a host with eight processes is gone
    ended(3, how="unknown", host="web-3", ago=66)  # and another one on the same machine
    ended(1, how="signal 9")
    ended(9, how="memory", age=3600)
    ended(9, how="signal 9", ago=301)
    assert deaths("default") is None
    ended(1, how="unknown", host="web-2", ago=30)  # the third death
    found = deaths("default")
    assert (found.number, found.hows) == (13, {"unknown": 12, "signal 9": 1})


@pytest.mark.once
def test_deaths_are_found_behind_many_ends_in_good_order():
    """As with a small --max-tasks."""
    ended(MOST_ROWS + 100, ago=30)
    ended(30, how="signal 11", ago=60)
    assert deaths("default").number == 30


@pytest.mark.once
def test_a_replacement_for_memory_is_no_evidence_against_a_function_that_was_alone():
    ended(5, how="signal 11", held={"shop.poison": "default", "shop.ok": "default"})
    ended(1, how="memory", held={"shop.ok": "default"})
    ended(1, how="signal 11", held={"shop.poison": "default"})
    assert [one.function for one in deaths("default").suspects] == ["shop.poison"]


@pytest.mark.once
def test_a_function_that_ran_alone_in_a_dead_process_is_the_suspect():
    both = {"shop.poison": "default", "shop.neighbour": "default"}
    ended(4, how="signal 9", held=both)
    ended(1, how="signal 9", held={"shop.poison": "default"})
    ended(1, how="exit code 3", held={"shop.neighbour": "mail"})
    ended(1, how="signal 9", held=["written", "by", "hand"])
    found = deaths("default")
    assert [one.function for one in found.suspects] == ["shop.neighbour", "shop.poison"]
    ended(1, how="signal 9", held=both | {"shop.other": "default"})
    EndedWorker.objects.filter(how="exit code 3").delete()
    found = deaths("default")
    assert [(one.function, one.ran_in) for one in found.suspects] == [("shop.poison", 6)]
    assert [(one.function, one.ran_in) for one in found.others] == [("shop.neighbour", 5)]


@pytest.mark.once
def test_deaths_without_a_common_function_point_at_the_machine():
    for number in range(4):
        ended(1, how="signal 9", held={f"shop.task{number}": "default"})
    text = str(deaths("default"))
    assert "No task function ran in several of them. Look at the machines first" in text
    assert "txtasks_task hold" not in text


@pytest.mark.once
def test_the_reads_are_bounded():
    ended(3000, how="signal 9", held={"shop.poison": "default", "shop.neighbour": "default"})
    FinishedTask.objects.bulk_create(
        FinishedTask(id=uuid.uuid4(), task_name=POISON, outcome=Outcome.SUCCEEDED)
        for _ in range(3000)
    )
    with explained() as reads:
        assert deaths("default").number == MOST_ROWS
    assert sum(number for number, _ in reads) <= MOST_ROWS + MOST_FINISHED, reads


def test_the_end_of_a_process_is_not_noted_at_a_living_one_or_in_another_container():
    mine = workers.register(
        "default", queues=[], threads=1, listening=None, lease=timedelta(seconds=3)
    )
    elsewhere, pid = uuid.uuid4(), ended_process()
    mark = f"{processes_room.PREFIX}1 another namespace"
    Worker.objects.create(
        id=elsewhere, host=workers.host_name(), pid=pid, sessions=["", mark], queues=[], threads=1,
        lease=3.0,
    )  # fmt: skip
    workers.note_ends("default", {os.getpid(): "signal 9", pid: "signal 9"})
    assert set(Worker.objects.filter(pk__in=[mine, elsewhere]).values_list("how", flat=True)) == {
        ""
    }
    Worker.objects.filter(pk=elsewhere).update(sessions=[])
    workers.note_ends("default", {pid: "signal 9"})
    assert Worker.objects.get(pk=elsewhere).how == "signal 9"


@on_server
def test_a_worker_that_leaves_while_a_cleaner_declares_it_lost_waits_for_it():
    lease = timedelta(seconds=3)
    worker = workers.register("default", queues=[], threads=1, listening=None, lease=lease)
    (living,) = cleaning.living_workers("default")
    lost, waits = threading.Event(), threading.Event()

    def lose() -> None:
        with transaction.atomic():
            assert cleaning.lose("default", living)
            lost.set()
            waits.wait(helpers.PATIENCE)

    def leave() -> None:
        with own_transaction("default", limit=timedelta(seconds=60), in_order=True):
            workers.unregister("default", worker)

    with helpers.second_session(lose), helpers.second_session(leave_after(lost, leave)):
        helpers.wait_until(helpers.somebody_waits)
        waits.set()
    assert EndedWorker.objects.get().how == "unknown"
    assert not Worker.objects.exists()


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def leave_after(lost: threading.Event, leave: Callable[[], None]) -> Callable[[], None]:
    def work() -> None:
        assert lost.wait(helpers.PATIENCE)
        leave()

    return work
