"""Text that others have written does not act on an operator's terminal, and forges no line there."""

from __future__ import annotations

import io
import uuid
from contextlib import suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command, load_command_class
from django.test import Client
from django.utils import timezone
from probe import tasks

import django_txtasks
from django_txtasks.models import Cleaner, Lane, PausedQueue, Schedule, Task, Worker
from django_txtasks.operations import pausing

pytestmark = pytest.mark.usefixtures("rows", "quick")

EVIL = "x)\x1b]0;pwned\x07\x1b[2K\ndefault: not paused\r\x9b\u202e"
ERRORS = [{"attempt": 1, "type": EVIL, "message": EVIL, "traceback": EVIL, "at": EVIL}]


@pytest.fixture
def evil(txtasks):
    """Foreign text in every column that a command prints."""
    txtasks(lanes={"api": {"at_most": 2}})
    old = timezone.now() - timedelta(hours=9)
    process = {"host": EVIL, "pid": 1, "lease": 15.0, "seen_at": old}
    lost = {"queues": ["default"], "task_names": [], "threads": 1, "protocol": 0}
    Worker.objects.create(id=uuid.uuid4(), **process, **lost, lost=True)
    Worker.objects.create(id=uuid.uuid4(), **{**process, "seen_at": timezone.now()}, **lost)
    Cleaner.objects.create(id=uuid.uuid4(), **process, error=EVIL)
    PausedQueue.objects.create(queue_name="default", paused_by=EVIL, reason=EVIL)
    Lane.objects.create(name="api", paused_at=old, paused_by=EVIL, reason=EVIL)
    Lane.objects.create(name=EVIL)
    due = {"every": 60.0, "next_at": old, "error": EVIL}
    Schedule.objects.create(name=EVIL, task_name=EVIL, queue_name=EVIL, **due)
    Schedule.objects.create(name="on", task_name=EVIL, tz=EVIL, cron=EVIL, next_at=old, error=EVIL)
    common = {"enqueued_at": old, "run_after": old, "errors": ERRORS}
    held = {"status": "claimed", "worker": uuid.uuid4(), "claimed_at": old, "started_at": old}
    return [
        Task.objects.create(id=uuid.uuid4(), **{**common, "task_name": EVIL, **more}).pk
        for more in (
            {"queue_name": EVIL}, {"lane": EVIL}, {"lane": "api"}, {}, {"status": "dead"}, held,
            {"unique_text": EVIL, "unique_key": uuid.uuid4().hex}, {"args": {EVIL: EVIL}},
        )
    ]  # fmt: skip


def printed(*command):
    out, error = io.StringIO(), io.StringIO()
    said = ""
    try:
        call_command(*command, stdout=out, stderr=error)
    except (CommandError, SystemExit) as end:
        said = str(end)
    return out.getvalue() + error.getvalue() + said


COMMANDS = {
    "queue": [["txtasks_queue", "list"]],
    "lane": [["txtasks_lane", "list"], ["txtasks_lane", "pause", "api"], ["txtasks_lane", "resume", "api"]],
    "schedules": [["txtasks_schedules", "list"], ["txtasks_schedules", "check"]],
    "status": [["txtasks_status"], ["txtasks_status", "--json"]],
    "audit": [["txtasks_audit"], ["txtasks_audit", "--json"]],
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_foreign_text_escaped(evil, name):
    for command in COMMANDS[name]:
        text = printed(*command)
        assert text, command
        for one in "\x1b\x07\r\x9b\u202e":
            assert one not in text, (command, text)
        assert "\ndefault: not paused" not in text, command


def test_why_a_task_does_not_run_is_printed_escaped(evil):
    for task_id in evil:
        text = printed("txtasks_explain", str(task_id))
        assert text
        assert not set(text) & set("\x1b\x07\r\x9b\u202e"), text
        assert "\ndefault: not paused" not in text


def test_a_reason_that_was_typed_in_the_admin_is_one_line(rows):
    user = User.objects.create_user("p", is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="txtasks", codename="add_pausedqueue")
    )
    client = Client()
    client.force_login(user)
    sent = {"queue_name": "default", "reason": EVIL}
    assert client.post("/admin/txtasks/pausedqueue/add/", sent).status_code == 302
    (line,) = printed("txtasks_queue", "list").splitlines()
    assert line.startswith("default: paused since") and "\\x1b[2K\\n" in line
    user.delete()


def test_a_log_line_of_foreign_text_is_one_line(rows, evil, caplog):
    tasks.note.enqueue()
    call_command("runworkers", batch=True)
    call_command("runcleaner", once=True)
    ours = [one.getMessage() for one in caplog.records if one.name == "django_txtasks"]
    assert ours
    for line in ours:
        assert not set(line) & set("\x1b\x07\r\x9b\n"), line


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_letter_that_the_terminal_lacks_is_printed_as_an_escape(txtasks, encoding):
    """An output of another encoding, such as that of a job of cron, ended the command with an error."""
    pausing.pause("default", "default", reason="→ Łódź")
    task = tasks.note.enqueue()
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    for command in (
        *chain(*COMMANDS.values()),
        ["txtasks_explain"],
        ["txtasks_explain", str(task.id)],
    ):
        with suppress(CommandError, SystemExit):
            call_command(*command, stdout=out, stderr=out)
    out.flush()
    assert rb"\u2192 \u0141" in out.buffer.getvalue()


def test_each_command_that_prints_escapes_it():
    """Else foreign text of a new command would be printed as it is."""
    folder = Path(django_txtasks.__file__).parent / "management" / "commands"
    for file in folder.glob("txtasks_*.py"):
        assert ".write(" not in file.read_text(), file.name
        assert hasattr(load_command_class("django_txtasks", file.stem), "show")
