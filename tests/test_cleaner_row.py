"""Rows show which workers and cleaners run, what each worker can run, and whether a cleaner finishes passes."""

import io
import json
import signal
import urllib.error
import urllib.request
import uuid
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from servers import free_port

from django_txtasks import signals
from django_txtasks.conf import get_config
from django_txtasks.core import cleaning as cleaner_room
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows import cleaners, statements
from django_txtasks.insight.audit import audit
from django_txtasks.models import Cleaner, Worker

pytestmark = pytest.mark.usefixtures("rows")


def row(*, interval=30.0, seen=0, started=3600, passed=None, **columns):
    """Write a cleaner; times are seconds ago."""
    now = timezone.now()
    return Cleaner.objects.create(
        id=uuid.uuid4(), host="web1", pid=7, interval=interval, lease=15.0,
        seen_at=now - timedelta(seconds=seen), started_at=now - timedelta(seconds=started),
        passed_at=None if passed is None else now - timedelta(seconds=passed), **columns,
    )  # fmt: skip


def status(**options):
    """Return what the command prints."""
    output = io.StringIO()
    call_command("txtasks_status", stdout=output, **options)
    return output.getvalue()


def trouble():
    return cleaners.trouble(cleaners.seen("default"))


def clean_for(turns, **options):
    """Let a cleaner run this number of turns; return its row after each, the last one after its end.

    Turns in the middle of a pass, which continue at once, are not counted.
    """
    seen = []

    def wait(seconds):
        if seconds:
            seen.append(Cleaner.objects.first())
        return len(seen) == turns

    cleaner_room.Cleaner(get_config(), **options).run(wait, lambda counts: None)
    return [*seen, Cleaner.objects.first()]


def test_a_worker_says_which_task_functions_it_declares(monkeypatch):
    monkeypatch.setattr("django_txtasks.core.rows.workers.unregister", lambda *_: None)
    call_command("runworkers", batch=True, verbosity=0)
    assert Worker.objects.get().task_names == sorted(registry.names())


# -- the row -------------------------------------------------------------------------------------


def test_a_cleaner_has_a_row_while_it_runs_and_says_when_it_has_passed():
    *there, after = clean_for(2)
    assert {one.pk for one in there} == {there[0].pk}
    assert there[0].interval == 30
    assert there[-1].passed_at is not None
    assert after is None


def test_a_cleaner_beats_three_times_a_lease():
    class Clock:
        now = 0.0

        def __call__(self):
            return self.now

    clock, beats = Clock(), []

    def wait(seconds):
        clock.now += 1
        beats.append(Cleaner.objects.get().seen_at)
        return clock.now >= 31

    cleaner_room.Cleaner(get_config(), clock=clock).run(wait, lambda counts: None)
    assert 6 <= len(set(beats)) <= 8  # and once at the end of each pass


def test_a_row_that_somebody_removed_is_written_anew(txtasks):
    txtasks(lease=0.3, heartbeat_interval=0.1)
    pks = []

    def wait(seconds):
        pks.extend(Cleaner.objects.values_list("pk", flat=True))
        Cleaner.objects.all().delete()
        return len(set(pks)) >= 2

    cleaner_room.Cleaner(get_config()).run(wait, lambda counts: None)


def test_what_fails_stands_in_the_row_until_a_pass_succeeds(monkeypatch, txtasks):
    txtasks(lease=0.3, heartbeat_interval=0.1)
    with monkeypatch.context() as broken:
        broken.setattr(statements, "EXPIRED", "SELECT 1 FROM nowhere WHERE 1 = 1 {since}")
        failing = clean_for(5)[-2]
    assert failing.error.startswith("remove: ") and "nowhere" in failing.error
    assert failing.passed_at is None
    good = clean_for(3)[-2]
    assert (good.error, good.passed_at is None) == ("", False)


def test_what_fails_before_a_pass_stands_in_the_row_too(monkeypatch, txtasks):
    txtasks(lease=0.3, heartbeat_interval=0.1)
    monkeypatch.setattr(statements, "LIVING_WORKERS", "SELECT 1 FROM nowhere")
    failing = clean_for(3)[-2]
    assert "nowhere" in failing.error and failing.passed_at is None


def test_a_killed_cleaners_row_is_removed_by_another_after_a_while():
    gone = row(seen=cleaners.KEEP_KILLED.total_seconds() + 60)
    silent = row(seen=60)
    clean_for(2)
    assert not Cleaner.objects.filter(pk=gone.pk).exists()
    assert Cleaner.objects.filter(pk=silent.pk).exists()


class SteppedClock:
    """Monotonic seconds that a test moves."""

    now = 0.0

    def __call__(self):
        return self.now


def passes_of(*, minutes, start=lambda: None, **options):
    """Let a cleaner run by a clock that jumps a minute after each turn; return the times of its passes."""
    clock, passes = SteppedClock(), []

    def wait(seconds):
        if seconds:
            clock.now += 60
            start()
        return clock.now >= 60 * minutes

    cleaner = cleaner_room.Cleaner(get_config(), clock=clock, **options)
    passed = cleaner.record.passed
    cleaner.record.passed = lambda: (passes.append(clock.now), passed())
    cleaner.run(wait, lambda counts: None)
    return passes


@pytest.mark.parametrize(
    ("ago", "count"),
    [(10, 0), (40, 1), (-3600, 1)],
    ids=["just now", "an interval ago", "in the future"],
)
def test_a_pass_is_left_out_if_another_cleaner_has_just_made_one(ago, count):
    """The interval is 30 s. A time in the future comes from a clock that was set back."""
    other = row(passed=ago)
    assert len(passes_of(minutes=1)) == count
    other.refresh_from_db()
    assert other.error == ""


def test_a_cleaner_whose_passes_are_always_left_out_still_makes_some():
    """The other one has a shorter interval, and may have other settings: it may not do all that this one would."""
    other = row(passed=10)

    def pass_again():
        Cleaner.objects.filter(pk=other.pk).update(passed_at=timezone.now())

    first, *others = passes_of(minutes=40, start=pass_again)  # intervals of 30 s
    assert 10 * 60 <= first <= 11 * 60
    assert 2 <= len(others) <= 3


def test_a_cleaner_that_leaves_passes_out_is_at_work_and_ready():
    class Ready:
        passes = 0

        def turned(self): ...
        def ended(self, *, refused, connected): ...
        def wrote(self):
            self.passes += 1

    other, ready = row(passed=10), Ready()
    seen = []

    def look():
        seen.append(Cleaner.objects.exclude(pk=other.pk).get())

    assert passes_of(minutes=1, start=look, liveness=ready) == []
    assert ready.passes == 1
    assert seen[0].passed_at == other.passed_at


def test_the_cleaner_of_the_last_pass_makes_the_next_one():
    """Others have noted its pass in their rows."""
    follower = row(passed=7200)

    def follow():
        last = Cleaner.objects.exclude(pk=follower.pk).get().passed_at
        Cleaner.objects.filter(pk=follower.pk).update(passed_at=last)

    assert len(passes_of(minutes=3, start=follow)) == 3


def test_cron_leaves_one_record_of_its_last_pass():
    for _ in range(2):
        call_command("runcleaner", once=True, stdout=io.StringIO())
    one = Cleaner.objects.get()
    assert (one.interval, one.passed_at is None) == (None, False)
    assert trouble() == ""


def test_a_dry_run_and_a_failed_one_leave_no_record(monkeypatch):
    call_command("runcleaner", dry_run=True, stdout=io.StringIO())
    monkeypatch.setattr(statements, "EXPIRED", "SELECT 1 FROM nowhere WHERE 1 = 1 {since}")
    with pytest.raises(CommandError, match="was not cleaned"):
        call_command("runcleaner", once=True, stdout=io.StringIO())
    assert not Cleaner.objects.exists()


# -- who is told ------------------------------------------------------------------------------------

HOUR = cleaners.ONCE_COUNTS.total_seconds()
AT_WORK = [
    {"passed": 20},
    {"passed": 100},
    {"started": 60},
    {"interval": None, "seen": HOUR - 60, "passed": HOUR - 60},
]
NOT = [
    ({"seen": 180, "passed": 180}, "No cleaner is running: the last one, on web1 (pid 7), was seen 3 min ago."),
    ({"seen": 7200, "passed": 7200}, "was seen 2 h ago."),
    ({"passed": 300}, "Cleaner on web1 (pid 7) beats, but has finished no pass for 5 min; its log says why"),
    ({"started": 300, "error": "remove: no"}, "beats, but has finished no pass for 5 min: remove: no"),
    ({"interval": None, "seen": HOUR + 60, "passed": HOUR + 60}, "No cleaner is running"),
]  # fmt: skip


@pytest.mark.parametrize("facts", AT_WORK, ids=str)
def test_a_cleaner_that_passes_is_at_work(facts):
    row(**facts)
    row(seen=7200)  # an old one that was killed
    assert trouble() == ""
    assert json.loads(status(json=True, min_cleaners=1))["cleaners"]["at_work"] == 1
    by_once = "interval" in facts and facts["interval"] is None
    text = (
        "none keeps running; last pass by --once: " if by_once else "1 at work; last whole pass: "
    )
    assert f"Cleaners: {text}" in status()
    assert audit("default", get_config()) == []


@pytest.mark.parametrize(("facts", "text"), NOT, ids=lambda one: str(one)[:40])
def test_a_cleaner_that_is_gone_or_achieves_nothing_is_told_of(facts, text):
    row(**facts)
    assert text in trouble()
    assert text in status()
    with pytest.raises(CommandError, match="Cleaners at work: 0, fewer than 1"):
        status(min_cleaners=1)
    (finding,) = audit("default", get_config())
    assert (finding.name, finding.is_problem) == ("no_cleaner", True)
    assert text in finding.examples[0]


def test_without_any_cleaner_it_says_what_to_start():
    assert status().splitlines()[1].removeprefix("Also: ") == (
        "No cleaner is running. Tasks of crashed workers stay claimed. "
        "Keep manage.py runcleaner running, or start runworkers without --no-cleaner."
    )


@pytest.mark.parametrize("there", [False, True])
def test_a_worker_says_once_after_a_lease_that_nobody_cleans(txtasks, there):
    txtasks(lease=0.5, heartbeat_interval=0.1, poll_interval=0.05)
    told = []

    def listen(**facts):
        told.append(facts["trouble"])

    if there:
        row(passed=1)
    signals.nobody_cleans.connect(listen)
    try:
        with helpers.working() as worker:
            check = worker.writer._cleaner_check
            helpers.wait_until(lambda: check._due == float("inf"))
            first = worker.writer.reconciliation._next
            helpers.wait_until(lambda: worker.writer.reconciliation._next > first)
    finally:
        signals.nobody_cleans.disconnect(listen)
    assert [text[:22] for text in told] == ([] if there else ["No cleaner is running."])


@contextmanager
def hidden(table):
    """Let statements on a table fail."""
    helpers.execute(f"ALTER TABLE {table} RENAME TO txtasks_hidden")
    try:
        yield
    finally:
        helpers.execute(f"ALTER TABLE txtasks_hidden RENAME TO {table}")


# -- probes -----------------------------------------------------------------------------------------


def answer(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()
    except OSError:
        return None


def test_a_cleaner_answers_probes(processes, tmp_path, txtasks):
    port, file = free_port(), tmp_path / "alive"
    cleaner = processes.start("runcleaner", f"--probe-port={port}", f"--liveness-file={file}")
    helpers.wait_until(lambda: answer(port, "/ready") == (200, "ok"))
    assert answer(port, "/live") == (200, "ok")
    assert file.exists()
    file.unlink()
    helpers.wait_until(file.exists)
    assert Cleaner.objects.get().pid == cleaner.pid
    cleaner.send_signal(signal.SIGTERM)
    assert cleaner.wait(30) == 0
    assert not Cleaner.objects.exists()


def test_a_cleaner_that_achieves_nothing_is_live_and_not_ready(processes, txtasks):
    txtasks(clean_interval=0.1, lease=15)  # SQLite takes no shorter one
    port = free_port()
    with hidden("txtasks_finishedtask"):
        processes.start("runcleaner", f"--probe-port={port}")
        helpers.wait_until(lambda: answer(port, "/live") == (200, "ok"))
        helpers.wait_until(lambda: "finishedtask" in getattr(Cleaner.objects.first(), "error", ""))
        assert answer(port, "/ready") == (
            503,
            "no pass has ended for three intervals; the log says why",
        )
    helpers.wait_until(lambda: answer(port, "/ready") == (200, "ok"))


@pytest.mark.once
@pytest.mark.parametrize("option", ["probe_port", "liveness_file"])
def test_a_cleaner_that_cleans_once_answers_no_probes(option):
    with pytest.raises(CommandError, match="leave them out"):
        call_command("runcleaner", once=True, **{option: 1})


def test_the_admin_shows_cleaners(admin_client):
    row(passed=20)
    row(passed=300, error="<b>broken</b>")
    row(seen=60)
    row(interval=None, passed=60)
    html = admin_client.get("/admin/txtasks/cleaner/").content.decode()
    for text in ("at work", "finishes no pass", "gone", "once", "30 s", "&lt;b&gt;broken"):
        assert text in html
    one = Cleaner.objects.first()
    page = admin_client.get(f"/admin/txtasks/cleaner/{one.pk}/change/").content.decode()
    assert "web1 pid 7" in page and "Save" not in page
    assert admin_client.get("/admin/txtasks/cleaner/add/").status_code == 403
