"""txtasks_status, JSON logs and probes: what monitors and people at night look at."""

import io
import json
import logging
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from probe import tasks
from servers import free_port

from django_txtasks import enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.core.rows import cleaners, workers
from django_txtasks.insight.status import snapshot
from django_txtasks.models import Task, Worker
from django_txtasks.operations import pausing
from django_txtasks.overview import counting
from django_txtasks.processes.probes import Liveness, Probes
from django_txtasks.signals import logs

# ---- txtasks_status


def status(**options):
    """Return what the command prints."""
    output = io.StringIO()
    call_command("txtasks_status", stdout=output, **options)
    return output.getvalue()


@pytest.fixture
def some_of_each(rows):
    tasks.note.enqueue("due")
    tasks.note.enqueue("due, too")
    tasks.note.using(run_after=timedelta(hours=1)).enqueue("later")
    held, dead = tasks.mail.enqueue("held"), tasks.mail.enqueue("dead")
    helpers.execute("UPDATE txtasks_task SET status = 'held' WHERE id = %s", stored(held.id))
    helpers.execute("UPDATE txtasks_task SET status = 'dead' WHERE id = %s", stored(dead.id))
    for seconds, lost in [(0, False), (100, False), (100, True)]:
        Worker.objects.create(
            id=uuid.uuid4(), host="h", pid=1, queues=["default"], threads=4, running=1,
            listening=True, lease=15, lost=lost,
        )  # fmt: skip
        worker = Worker.objects.order_by("-started_at").first()
        Worker.objects.filter(pk=worker.pk).update(
            seen_at=worker.seen_at - timedelta(seconds=seconds)
        )


def stored(task_id):
    """Return an id as this database takes it."""
    return task_id if connection.vendor == "postgresql" else task_id.hex


def test_the_status_of_each_queue_and_of_workers(some_of_each):
    now = json.loads(status(json=True))
    default, mail = now["queues"]["default"], now["queues"]["mail"]
    assert (default["due"], default["later"], default["dead"]) == (2, 1, 0)
    assert (mail["due"], mail["held"], mail["dead"]) == (0, 1, 1)
    assert default["oldest_due"] > 0 and mail["oldest_due"] == 0
    assert (now["dead"], now["oldest_due"]) == (1, default["oldest_due"])
    assert now["workers"] == {
        "alive": 1, "silent": 1, "lost": 1, "listening": 1, "threads": 4, "running": 1,
        "loops": 0, "async_slots": 0, "async_running": 0, "lag": 0.0, "drains": 0, "alone": 0,
    }  # fmt: skip
    assert now["finished"] == 0
    text = status()
    assert re.search(r"^default +2 +1 +0 +0 +0 +\d", text, re.MULTILINE)
    assert (
        "Workers: 1 alive (1 listening for hints), 1 silent, 1 lost. Slots in use: 1 of 4." in text
    )


def test_lost_workers_are_counted_by_host_and_named_on_demand(some_of_each):
    lost = Worker.objects.get(lost=True)
    assert f"Lost workers by host: {lost.host} 1." in status()
    assert f"(pid {lost.pid})" not in status()
    assert f"{lost.host} (pid {lost.pid}), last seen {lost.seen_at:%Y-%m-%d}" in status(lost=True)
    assert "by host" not in status(json=True)


def test_what_is_finished_is_counted_while_it_is_kept(rows, quick, txtasks):
    tasks.note.enqueue()
    call_command("runworkers", batch=True)
    assert snapshot("default").finished == 1
    txtasks(keep_finished=0)
    assert snapshot("default").finished is None
    assert "Succeeded" not in status()


def test_an_empty_table_has_all_queues(rows):
    now = snapshot("default")
    assert set(now.queues) == {"default", "mail"}
    assert (now.dead, now.oldest_due, now.workers.alive) == (0, 0.0, 0)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"max_dead": 0}, "Dead tasks: 1, more than 0"),
        ({"max_age": 0.0}, "A task has been due for"),
        ({"min_workers": 2}, "Living workers: 1, fewer than 2"),
    ],
)
def test_beyond_a_limit_the_exit_code_is_1(some_of_each, limits, says):
    with pytest.raises(CommandError, match=says) as error:
        status(**limits)
    assert error.value.returncode == 1


@pytest.mark.parametrize("seconds", ["inf", "nan", "-1", "1e300"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("txtasks_status", "--max-age"),
        ("txtasks_status", "--watch"),
        ("txtasks_audit", "--long-running-after"),
        ("runcleaner", "--interval"),
    ],
)
def test_odd_seconds_are_named(rows, command, option, seconds):
    with pytest.raises(CommandError, match=rf"{option} is .* it must be a number of seconds"):
        call_command(command, f"{option}={seconds}", stdout=io.StringIO())


def test_ten_late_queues_are_named_and_the_others_counted(rows):
    for number in range(13):
        Task.objects.create(
            id=uuid.uuid4(), task_name="a.b.c", queue_name=f"q{number}",
            run_after=datetime.now(timezone.utc) - timedelta(hours=5),
        )  # fmt: skip
    with pytest.raises(CommandError) as error:
        status(max_age=60.0)
    assert str(error.value).count("A task has been due for") == 10
    assert "More queues have such a task: 3." in str(error.value)
    assert quietly(max_age=60.0).count("Also: A task has been due for") <= 10


def test_a_capped_number_of_dead_tasks_has_its_plus(rows, monkeypatch):
    monkeypatch.setattr(counting, "MOST", 2)
    for _ in range(3):
        Task.objects.create(id=uuid.uuid4(), task_name="a.b.c", status="dead")
    assert "Dead tasks: 2+. Read why, then revive or discard them." in status()


def test_within_the_limits_the_exit_code_is_0(some_of_each):
    status(max_dead=1, max_age=3600.0, min_workers=1)


def test_the_verdict_comes_first(rows):
    assert status().startswith("No worker is alive")
    worker, lease = a_worker(), get_config().lease
    cleaner = cleaners.register("default", interval=timedelta(seconds=9), lease=lease)
    cleaners.passed("default", cleaner)
    assert status().startswith("All is well.")
    assert json.loads(status(json=True))["verdict"] == "All is well."
    dead = tasks.mail.enqueue("dead")
    helpers.execute("UPDATE txtasks_task SET status = 'dead' WHERE id = %s", stored(dead.id))
    old = now_utc() - timedelta(hours=1)
    tasks.note.using(run_after=old).enqueue()
    Worker.objects.filter(pk=worker).update(queues=["mail"])
    lines = status().splitlines()
    assert "serves queue default" in lines[0]
    assert "Also: Dead tasks: 1. Read why, then revive or discard them." in lines
    found = json.loads(status(json=True))
    assert found["verdict"] == found["problems"][0] == lines[0]


def test_the_verdict_of_a_backlog_names_the_queue_and_its_slots(rows):
    worker = a_worker()
    old = now_utc() - timedelta(hours=1)
    handle = tasks.note.using(run_after=old).enqueue()
    Worker.objects.filter(pk=worker).update(running=1)
    said = status()
    assert "Queue default is behind: 1 task waits, the oldest for 1 h." in said
    assert "Its workers use 1 of 1 slots" in said and "A task has been due" not in said
    Task.objects.filter(pk=handle.id).update(
        attempt=2**31 - 1
    )  # the row is the reason, not the slots
    assert "A task has been due for 360" in status()


def a_worker(queues=("default", "mail"), names=("probe.tasks.note", "probe.tasks.mail")):
    return workers.register(
        "default", queues=list(queues), task_names=names, threads=1, listening=None,
        lease=get_config().lease,
    )  # fmt: skip


def now_utc():
    return datetime.now(timezone.utc)


@pytest.mark.parametrize("exact", [False, True])
def test_the_columns_of_a_queue(rows, exact, txtasks):
    txtasks(lanes={"few": {"at_most": 1}})
    a_worker(["default"])
    tasks.note.enqueue()
    tasks.note.using(lane="few").enqueue()
    tasks.note.using(lane="few", run_after=timedelta(hours=1)).enqueue()
    failed = tasks.note.using(run_after=timedelta(hours=1)).enqueue()
    Task.objects.filter(pk=failed.id).update(cause=7)
    found = json.loads(status(json=True, exact=exact))["queues"]
    default = found["default"]
    assert [default[name] for name in ("due", "later", "served_by", "in_lanes", "retrying")] == [
        2, 2, 1, 2, 1,
    ]  # fmt: skip
    assert (found["mail"]["served_by"], default["capped"]) == (0, [])


def test_counts_are_capped(rows, monkeypatch):
    monkeypatch.setattr(counting, "MOST", 2)
    enqueue_many([(tasks.note, ("later",))] * 4)
    enqueue_many([(tasks.mail, ("dead",))] * 5)
    Task.objects.filter(queue_name="mail").update(status="dead")
    text = status()
    assert re.search(r"^default +2\+ +0 ", text, re.MULTILINE)
    assert json.loads(status(json=True))["queues"]["mail"]["capped"] == ["dead"]
    assert re.search(r"^default +4 +0 ", status(exact=True), re.MULTILINE)
    status(max_dead=5)
    with pytest.raises(CommandError, match="Dead tasks: 5, more than 4"):
        status(max_dead=4)


def test_a_task_that_is_too_old_is_named_with_the_reason(rows):
    handle = tasks.mail.using(run_after=now_utc() - timedelta(minutes=2)).enqueue()
    with pytest.raises(CommandError) as error:
        status(max_age=60.0)
    said = f"longer than 60.0: {handle.id} (probe.tasks.mail) in queue mail: No worker is alive."
    assert said in str(error.value)
    (found,) = json.loads(quietly(max_age=60.0, json=True))["beyond_max_age"]
    assert (found["task_id"], found["reasons"][0]["gate"]) == (str(handle.id), "workers")


def quietly(**options):
    """Return what the command prints before it ends with 1."""
    output = io.StringIO()
    with pytest.raises(CommandError):
        call_command("txtasks_status", stdout=output, **options)
    return output.getvalue()


def test_paused_queues_and_full_lanes_are_not_too_old(rows, txtasks):
    txtasks(lanes={"few": {"at_most": 1}})
    old = now_utc() - timedelta(minutes=2)
    tasks.mail.using(run_after=old).enqueue()
    pausing.pause("default", "mail", by="ann", reason="")
    waits, runs = (tasks.note.using(run_after=old, lane="few").enqueue() for _ in range(2))
    Task.objects.filter(pk=runs.id).update(
        status="claimed", worker=uuid.uuid4(), claimed_at=old, attempt=1
    )
    status(max_age=60.0)
    with pytest.raises(CommandError) as error:
        status(max_age=60.0, everything=True)
    assert "paused by ann" in str(error.value) and "Lane few is full" in str(error.value)
    Task.objects.filter(pk=waits.id).update(lane="")
    with pytest.raises(CommandError, match=str(waits.id)):
        status(max_age=60.0)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="a file has no server that is away")
def test_without_the_database_the_exit_code_is_2(processes):
    url = os.environ["TXTASKS_DATABASE_URL"]
    away = re.sub(r":\d+/", ":1/", url)
    asking = processes.start("txtasks_status", env={"TXTASKS_DATABASE_URL": away})
    assert asking.wait(60) == 2
    assert "cannot be queried" in processes.log_of(asking)


@pytest.mark.once
def test_watching_goes_on(processes, rows):
    watching = processes.start("txtasks_status", "--watch=0.1", "--json")
    helpers.wait_until(lambda: len(json_lines(processes.log_of(watching))) > 3)


@pytest.mark.parametrize("options", [{"database": "other"}, {"watch": 0.0}])
def test_wrong_options_are_refused(rows, options):
    with pytest.raises(CommandError):
        status(**options)


def json_lines(text):
    """Return the lines of a log that are JSON; Django's checks print others as it starts."""
    return [
        json.loads(line)
        for line in text.splitlines(keepends=True)
        if line[:1] == "{" and line[-1:] == "\n"
    ]


# ---- logs


@pytest.mark.once
def test_every_line_of_a_task_carries_its_id(processes, rows, quick):
    handle = tasks.log_something.enqueue("a line\nof two")
    workers = processes.start("runworkers", "--batch", "--log-json", "--threads=1")
    assert workers.wait(60) == 0
    lines = json_lines(processes.log_of(workers))
    [own] = [line for line in lines if line["logger"] == "probe.tasks"]
    assert own["message"] == "a line\nof two" and own["level"] == "WARNING"
    assert (own["task_id"], own["task"], own["attempt"]) == (
        str(handle.id),
        "probe.tasks.log_something",
        1,
    )
    assert own["shelf"] == 3
    assert "ZeroDivisionError" in own["error"]
    [done] = [line for line in lines if "finished at attempt" in line["message"]]
    assert done["task_id"] == str(handle.id)
    assert all(
        "task_id" not in line for line in lines if "started worker process" in line["message"]
    )


def test_the_filter_serves_formats_of_ones_own():
    record = logging.makeLogRecord({"msg": "hello"})
    token = logs.current.set({"task_id": "1", "task": "shop.tasks.send", "attempt": 2})
    try:
        assert logs.TaskFilter().filter(record)
    finally:
        logs.current.reset(token)
    assert logging.Formatter("%(task_id)s %(task)s %(attempt)s %(message)s").format(record) == (
        "1 shop.tasks.send 2 hello"
    )
    outside = logging.makeLogRecord({"msg": "hello"})
    logs.TaskFilter().filter(outside)
    assert logging.Formatter("%(task_id)s|%(message)s").format(outside) == "|hello"
    assert "task_id" not in json.loads(logs.JsonFormatter().format(outside))


def test_a_value_that_is_no_json_is_written_as_text():
    record = logging.makeLogRecord({"msg": "%s", "args": (1,), "when": timedelta(1)})
    line = json.loads(logs.JsonFormatter().format(record))
    assert (line["message"], line["when"]) == ("1", "1 day, 0:00:00")


class NoTruth:
    """As an array of numpy, which is neither true nor false."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise ValueError("neither")

    __hash__ = None


def test_no_line_is_lost_whatever_extra_says():
    record = logging.makeLogRecord(
        {"msg": "m", "odd": {(1, 2): 3}, "nan": float("nan"), "array": NoTruth(), "level": "mine"}
    )
    line = json.loads(logs.JsonFormatter().format(record), parse_constant=pytest.fail)
    assert (line["message"], line["odd"], line["nan"]) == ("m", "{(1, 2): 3}", "nan")
    assert line["level"] != "mine" and "NoTruth" in line["array"]


@pytest.mark.once
def test_handlers_of_named_loggers_print_no_line_twice_and_lose_none(tmp_path):
    script = """
import logging, sys
named = logging.getLogger("shop")
named.addHandler(logging.StreamHandler())
named.addHandler(logging.FileHandler(sys.argv[1]))
from django_txtasks.signals import logs
logs.write_json()
named.warning("once")
"""
    file = tmp_path / "shop.log"
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    for text in (done.stderr, file.read_text()):
        assert [json.loads(line)["message"] for line in text.splitlines()] == ["once"]


# ---- probes


@contextmanager
def probed(liveness):
    """Ask for the answers of these probes."""
    probes = Probes(liveness, 0)

    def ask(path):
        return answer(probes.port, path)

    try:
        yield ask
    finally:
        probes.close()


def answer(port, path):
    """Return code and text; None if there is no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as got:
            return got.status, got.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()
    except OSError:
        return None


def test_what_is_live_and_what_is_ready(monkeypatch):
    liveness = Liveness(timedelta(seconds=15))
    with probed(liveness) as ask:
        assert ask("/live") == (200, "ok")  # it has just begun
        monkeypatch.setattr(
            "django_txtasks.processes.probes.TURN_TIMEOUT", timedelta(seconds=-1000)
        )
        monkeypatch.setattr(liveness, "_lease", -1.0)
        assert ask("/live")[0] == 503
        monkeypatch.undo()
        liveness.turned()
        assert ask("/live") == (200, "ok")
        assert ask("/ready") == (503, "no beat was written for a lease")
        liveness.wrote()
        assert ask("/ready?verbose") == (200, "ok")
        assert ask("/")[0] == 404


def test_a_beat_counts_for_a_lease():
    liveness = Liveness(timedelta(0))
    liveness.turned()
    liveness.wrote()
    assert liveness.is_live() and not liveness.is_ready()


def test_a_file_that_cannot_be_written_is_said_at_once(tmp_path, rows):
    with pytest.raises(CommandError, match="--liveness-file"):
        call_command("runworkers", batch=True, liveness_file=str(tmp_path / "no" / "file"))


def test_a_file_that_cannot_be_written_any_more_ends_no_worker(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    liveness = Liveness(timedelta(seconds=15), str(place / "alive"))
    (place / "alive").unlink()
    place.rmdir()
    liveness.turned()
    assert liveness.is_live()


def test_a_port_that_is_taken_is_said_at_once(rows):
    taken = Probes(Liveness(timedelta(1)), 0)
    with pytest.raises(CommandError, match="--probe-port"):
        call_command("runworkers", batch=True, probe_port=taken.port)
    taken.close()


def test_signs_of_life_are_of_one_process(rows):
    with pytest.raises(CommandError, match="this command would start 2"):
        call_command("runworkers", processes=2, probe_port=1)


@pytest.mark.once
@pytest.mark.usefixtures("rows")
def test_a_worker_without_its_broker_is_live_and_ready(processes, tmp_path, txtasks):
    txtasks(broker_url="amqp://127.0.0.1:1")
    port, file = free_port(), tmp_path / "alive"
    processes.start("runworkers", "--threads=1", f"--probe-port={port}", f"--liveness-file={file}")
    helpers.wait_until(lambda: answer(port, "/ready") == (200, "ok"))
    assert answer(port, "/live") == (200, "ok")
    first = file.stat().st_mtime_ns
    helpers.wait_until(lambda: file.stat().st_mtime_ns > first)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="a file has no server that is away")
def test_a_worker_without_its_database_is_live_and_not_ready(processes, txtasks):
    from urllib.parse import urlsplit

    from proxy import Proxy

    txtasks(lease=3)
    url = urlsplit(os.environ["TXTASKS_DATABASE_URL"])
    port = free_port()
    with Proxy("127.0.0.1", int(connection.settings_dict["PORT"])) as proxy:
        through = url._replace(netloc=url.netloc.replace(f":{url.port}", f":{proxy.port}")).geturl()
        processes.start(
            "runworkers", "--threads=1", f"--probe-port={port}",
            env={"TXTASKS_DATABASE_URL": through},
        )  # fmt: skip
        helpers.wait_until(lambda: answer(port, "/ready") == (200, "ok"))
    helpers.wait_until(lambda: answer(port, "/ready")[0] == 503)
    assert answer(port, "/live") == (200, "ok")
