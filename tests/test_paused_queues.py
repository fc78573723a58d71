"""Queues that a person has paused: nothing of them is claimed, on whatever way; what runs goes on."""

from datetime import timedelta

import helpers
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.urls import reverse
from probe import tasks

from django_txtasks import enqueue_many, signals
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.renotifier import Renotifier
from django_txtasks.core.rows import workers
from django_txtasks.core.rows.turn import Bucket, Capacity, RecentWindow
from django_txtasks.fast import heads
from django_txtasks.fast.sweep import Sweep
from django_txtasks.insight.audit import audit
from django_txtasks.insight.status import snapshot
from django_txtasks.models import PausedQueue, Status, Task, Worker
from django_txtasks.operations import pausing

pytestmark = pytest.mark.usefixtures("rows", "quick")


def register(*queues):
    lease = get_config().lease
    return workers.register("default", queues=queues, threads=1, listening=None, lease=lease)


def mail_task():
    return tasks.note.using(queue_name="mail").enqueue("mail").id


# -- no way leads around it -------------------------------------------------------------------------


def test_a_worker_runs_what_is_not_paused_and_the_rest_when_it_is_resumed():
    pausing.pause("default", "mail")
    with helpers.working() as worker:
        held = mail_task()
        tasks.note.enqueue("other")
        helpers.wait_until(lambda: helpers.runs("other"))
        turns = worker.turns.schedule
        turns.look_again()
        helpers.wait_until(lambda: turns._scan.at)  # it has scanned since
        assert helpers.row(held).status == Status.PENDING
        assert helpers.row(held).attempt == 0
        assert pausing.resume("default", "mail")
        helpers.wait_until(lambda: helpers.runs("mail"))


def test_what_runs_goes_on():
    tasks.released.clear()
    with helpers.working(threads=1):
        running = tasks.until_released.enqueue("runs")
        helpers.wait_until(lambda: helpers.runs("runs"))
        pausing.pause("default", "default")
        tasks.released.set()
        helpers.wait_until(lambda: helpers.row(running.id) is None)


@pytest.mark.parametrize("recent", [False, True])
def test_a_scan_passes_over_it(recent):
    mail, other = mail_task(), tasks.note.enqueue().id
    pausing.pause("default", "mail")
    look = {}
    if recent:
        look["recent"] = RecentWindow((Bucket(0, "mail"), Bucket(0, "default")), 60.0)
    with transaction.atomic():
        result = helpers.claim(register("default", "mail"), 5, "mail", "default", **look)
    assert [one.task_id for one in result.claimed] == [other]
    assert helpers.row(mail).status == Status.PENDING


def test_a_hint_is_of_no_use_to_it():
    mail = mail_task()
    pausing.pause("default", "mail")
    with transaction.atomic():
        result = helpers.claim(register("mail"), 5, "mail", hinted=[mail])
    assert not result.claimed
    assert result.settled == {mail}


def test_a_sweep_passes_over_it():
    mail, other = mail_task(), tasks.note.enqueue().id
    pausing.pause("default", "mail")
    sweep = Sweep(helpers.subscription("mail", "default"), [], longest=9.0, before={})
    claimed, worker = [], register("default", "mail")
    while not sweep.is_over:
        with transaction.atomic():
            claimed += [one.task_id for one in sweep.claim(worker, Capacity(5)).claimed]
    assert claimed == [other]
    assert helpers.row(mail).status == Status.PENDING


def test_what_looks_for_news_does_not_see_it():
    mail_task()
    other = tasks.note.enqueue().id
    pausing.pause("default", "mail")
    assert heads.due(helpers.subscription("mail", "default")) == ([other], False)


def test_a_backlog_that_is_paused_is_not_read():
    """A scan that walked past it would cost the other queues more, the more of it there is."""
    enqueue_many([(tasks.note.using(queue_name="mail", priority=5), ["x"])] * 3000)
    assert reads_at_claim() < 300


@pytest.mark.skipif("connection.vendor != 'mysql'", reason="it would choose another index")
def test_nor_is_it_behind_a_backlog_that_was_done_a_moment_ago():
    """Rows that are not purged yet count as rows of the queue."""
    snapshot = connection.copy()
    with helpers.statistics_of_empty_tables(), snapshot.cursor() as cursor:
        enqueue_many([(tasks.note, ["done"])] * 3000)
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        Task.objects.all().delete()
        enqueue_many([(tasks.note.using(queue_name="mail", priority=5), ["x"])] * 3000)
        assert reads_at_claim() < 300
    snapshot.close()


def reads_at_claim():
    """Pause one of two queues, and claim what the other has; return how many rows that read."""
    other = tasks.note.enqueue().id
    pausing.pause("default", "mail")
    worker = register("default", "mail")
    with transaction.atomic():
        before = rows_read()
        result = helpers.claim(worker, 5, "mail", "default")
        read = rows_read() - before
    assert [one.task_id for one in result.claimed] == [other]
    return read


def rows_read():
    """Rows and index entries that this session has read, where the database counts them."""
    if connection.vendor == "mysql":
        return sum(int(n) for _, n in helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'"))
    if connection.vendor == "postgresql":
        ((read,),) = helpers.execute(
            "SELECT sum(pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid)) "
            "FROM pg_class WHERE oid = 'txtasks_task'::regclass OR relname LIKE 'txtasks_pending%%'"
        )
        return int(read)
    return 0


def test_a_pause_counts_from_its_commit_on():
    mail = mail_task()
    with transaction.atomic():
        pausing.pause("default", "mail")
        transaction.set_rollback(True)
    with transaction.atomic():
        assert [one.task_id for one in helpers.claim(register("mail"), 5, "mail").claimed] == [mail]


def test_a_batch_ends_although_a_paused_queue_has_tasks(processes):
    mail = mail_task()
    tasks.note.enqueue("other")
    pausing.pause("default", "mail")
    process = processes.start("runworkers", "--batch")
    assert process.wait(helpers.PATIENCE) == 0
    assert helpers.runs("other")
    assert helpers.row(mail).status == Status.PENDING


def test_the_cleaner_tells_nobody_of_it_again(txtasks):
    txtasks(clean_interval=0.01)
    mail, other = mail_task(), tasks.note.enqueue().id
    Task.objects.update(run_after="2020-01-01 00:00:00+00:00")
    register("default", "mail")
    pausing.pause("default", "mail")
    told = []
    list(Renotifier(get_config(), "default", told.extend).pages())
    assert [task_id for task_id, _ in told] == [other]
    assert helpers.row(mail).notified_at is None


def test_its_tasks_expire_all_the_same():
    late = tasks.note.using(queue_name="mail", expires=timedelta(seconds=-1)).enqueue()
    pausing.pause("default", "mail")
    call_command("runcleaner", once=True)
    assert helpers.row(late.id) is None


def test_a_worker_of_new_code_keeps_its_lease_until_the_table_is_there(caplog):
    """New code before ``migrate``: claims fail, beats and outcomes go on."""
    tasks.released.clear()
    with helpers.working(threads=1):
        running = tasks.until_released.enqueue("runs")
        helpers.wait_until(lambda: helpers.runs("runs"))
        helpers.execute("ALTER TABLE txtasks_pausedqueue RENAME TO txtasks_elsewhere")
        try:
            tasks.released.set()
            helpers.wait_until(lambda: helpers.row(running.id) is None)
            handle = tasks.note.enqueue()
            before = Worker.objects.get().beat
            helpers.wait_until(lambda: Worker.objects.get().beat > before + 3)
            assert helpers.row(handle.id).status == Status.PENDING
        finally:
            helpers.execute("ALTER TABLE txtasks_elsewhere RENAME TO txtasks_pausedqueue")
        helpers.wait_until(lambda: helpers.row(handle.id) is None)


# -- what people see --------------------------------------------------------------------------------


def test_it_is_paused_and_resumed_once():
    told = []

    def note(signal, **facts):
        told.append((facts["queue"], facts["by"]))

    signals.queue_paused.connect(note)
    signals.queue_resumed.connect(note)
    try:
        assert pausing.pause("default", "mail", by="ann", reason="x" * 999)
        assert not pausing.pause("default", "mail", by="bob")
        row = PausedQueue.objects.get()
        assert (row.pk, row.paused_by, row.reason) == ("mail", "ann", "x" * 200)
        assert pausing.resume("default", "mail", by="bob")
        assert not pausing.resume("default", "mail", by="bob")
    finally:
        signals.queue_paused.disconnect(note)
        signals.queue_resumed.disconnect(note)
    assert told == [("mail", "ann"), ("mail", "bob")]


def test_the_status_says_so():
    mail_task()
    pausing.pause("default", "mail")
    queues = snapshot("default").queues
    assert queues["mail"].paused
    assert not queues["default"].paused
    assert queues["mail"].due == 1


def test_the_audit_says_that_it_is_paused_and_not_that_workers_are_slow(txtasks):
    txtasks(clean_interval=0.01)
    mail_task()
    Task.objects.update(run_after="2020-01-01 00:00:00+00:00")
    register("mail")
    pausing.pause("default", "mail")
    found = {one.name: one.count for one in audit("default", get_config())}
    assert found.get("overdue_paused") == 1
    assert not found.get("overdue")


def test_workers_of_this_release_say_that_they_know_of_it():
    worker = register("mail")
    assert Worker.objects.get(pk=worker).protocol == workers.PROTOCOL
    assert not workers.workers_that_ignore_pauses("default")
    Worker.objects.update(protocol=0)
    assert len(workers.workers_that_ignore_pauses("default")) == 1


def test_the_command_pauses_lists_and_resumes(capsys):
    call_command("txtasks_queue", "pause", "mail", reason="the server of mail is away")
    call_command("txtasks_queue", "pause", "mail")
    call_command("txtasks_queue", "list")
    call_command("txtasks_queue", "resume", "mail", "default")
    call_command("txtasks_queue", "list")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["mail: paused", "mail: was paused already"]
    assert lines[2].startswith("mail: paused since 20")
    assert lines[2].endswith(" (the server of mail is away)")
    assert lines[3:] == ["mail: resumed", "default: was not paused"]


def test_the_command_tells_of_workers_that_will_not_obey(capsys):
    register("mail")
    Worker.objects.update(protocol=0)
    call_command("txtasks_queue", "pause", "mail")
    assert "Workers of an older release ignore the pause" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pause", "mial"], "has no mial; it has: default, mail"),
        (["pause"], "Say which queues to pause"),
        (["resume"], "Say which queues to resume"),
        (["list", "--database=nowhere"], "'nowhere' is not in DATABASES"),
    ],
)
def test_wrong_options_are_refused(arguments, message):
    with pytest.raises(CommandError, match=message):
        call_command("txtasks_queue", *arguments)
    assert not PausedQueue.objects.exists()


# -- the admin --------------------------------------------------------------------------------------

PAGE = "admin:txtasks_pausedqueue_"


@pytest.fixture
def person(client):
    """A staff user without permissions; tests add some."""
    user = User.objects.create_user("ann", is_staff=True)
    client.force_login(user)

    def may(*names):
        found = Permission.objects.filter(
            content_type__app_label="txtasks",
            codename__in=[f"{name}_pausedqueue" for name in names],
        )
        user.user_permissions.set(found)

    yield may
    LogEntry.objects.all().delete()
    user.delete()


def test_who_may_add_one_pauses_in_the_admin(client, person):
    person("view", "add")
    page = client.get(reverse(f"{PAGE}add"))
    assert b'<option value="mail">mail</option>' in page.content
    client.post(reverse(f"{PAGE}add"), {"queue_name": "mail", "reason": "<b>why</b>"}, follow=True)
    row = PausedQueue.objects.get()
    assert (row.pk, row.paused_by, row.reason) == ("mail", "ann", "<b>why</b>")
    assert LogEntry.objects.get().object_id == "mail"
    page = client.get(reverse(f"{PAGE}changelist"))
    assert b"&lt;b&gt;why" in page.content
    assert b"Resume the selected" not in page.content
    assert b"Delete selected" not in page.content


def test_who_may_delete_one_resumes_in_the_admin(client, person):
    person("view", "delete")
    pausing.pause("default", "mail")
    assert client.get(reverse(f"{PAGE}add")).status_code == 403
    chosen = {"action": "delete_selected", "_selected_action": ["mail"]}
    client.post(reverse(f"{PAGE}changelist"), chosen, follow=True)
    assert not PausedQueue.objects.exists()
    assert LogEntry.objects.get().is_deletion()


def test_an_unknown_queue_cannot_be_paused_in_the_admin(client, person):
    person("add")
    page = client.post(reverse(f"{PAGE}add"), {"queue_name": "mial"})
    assert b"mial is not one of the available choices" in page.content
    assert not PausedQueue.objects.exists()


def test_a_pause_meets_one_of_somebody_else_in_the_admin(client, person):
    person("view", "add")
    pausing.pause("default", "mail", by="bob")
    client.post(reverse(f"{PAGE}add"), {"queue_name": "mail"}, follow=True)
    assert PausedQueue.objects.get().paused_by == "bob"
