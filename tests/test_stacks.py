"""The stack of a running task: asked in the database, answered by its worker's look, shown to people."""

import json
import uuid

import helpers
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.urls import reverse
from probe import on_loop, tasks

from django_txtasks.exceptions import NotRunning
from django_txtasks.features.results.cancelling import Key
from django_txtasks.features.stacks import answers, frames, requests
from django_txtasks.features.stacks import of_attempt as attempt_stack
from django_txtasks.features.stacks.requests import request_stack, stack_of
from django_txtasks.models import StackRequest, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows", "quick")
LOADS_AGAIN = '<noscript><meta http-equiv="refresh" content="2"></noscript>'


@pytest.fixture(autouse=True)
def released():
    tasks.released.clear()
    on_loop.entered.clear()
    on_loop.seen.clear()
    on_loop.doors.clear()
    yield
    tasks.released.set()


def claimed(handle):
    """Wait until a worker has claimed the task; return its row."""
    return helpers.wait_until(
        lambda: Task.objects.filter(pk=handle.id, status=Status.CLAIMED).first()
    )


def answered(handle):
    """Ask until an answer shows the task's own code: it may just begin or end at first."""

    def look():
        answer = stack_of(handle.id)
        if answer is None or answer.text in (attempt_stack.NOT_CALLED, attempt_stack.NOT_BEGUN):
            request_stack(handle.id, by="ann")
            return None
        return answer if answer.text else None

    claimed(handle)
    return helpers.wait_until(look, what=lambda: repr(stack_of(handle.id)))


def test_the_worker_answers_with_the_frames_of_the_task():
    handle = tasks.until_released.enqueue("seen")
    with helpers.working():
        answer = answered(handle)
        assert (answer.attempt, answer.asked_by, answer.trouble) == (1, "ann", "")
        assert not answer.is_awaited
        title, first, source, *_ = answer.text.splitlines()
        assert title == "thread of the slot:"
        assert first.endswith("in until_released")
        assert source.strip() == "released.wait(60)"
        assert "slot_threads" not in answer.text
        tasks.released.set()
        handle.result(60)


def test_a_task_that_sleeps_in_c_is_shown_at_its_line():
    handle = tasks.sleep_in_c.enqueue("c")
    with helpers.working():
        assert answered(handle).text.splitlines()[-1].strip() == "time.sleep(5)"
        helpers.wait_until(lambda: helpers.finished(handle.id))


def test_a_deep_stack_is_cut_and_shows_no_value():
    handle = tasks.wait_deep.enqueue(700, secret="hunter2")
    with helpers.working():
        text = answered(handle).text
        assert "hunter2" not in text
        assert "in wait_deep" in text and "in _deeper" in text
        assert "frames are left out" in text
        assert "[Previous line repeated" in text
        assert len(text.encode()) <= frames.MAX_BYTES
        tasks.released.set()


def test_the_threads_that_a_task_has_started_are_shown():
    handle = tasks.wait_for_threads.enqueue()
    with helpers.working():
        helpers.wait_until(lambda: helpers.runs("pool"))
        text = answered(handle).text
        assert "thread helper_0:\n" in text
        assert "in until_released" in text.split("thread helper_0:\n")[1]
        tasks.released.set()


def test_an_async_task_in_a_slot_is_shown_by_its_awaits():
    handle = on_loop.wait_in_parts.enqueue()
    with helpers.working():
        helpers.wait_until(lambda: "stack" in on_loop.entered)
        text = helpers.wait_until(lambda: _with("asyncio task <child>", handle))
        assert "in wait_in_parts" in text
        assert "in _wait_inside" in text
        on_loop.open_door()
        helpers.wait_until(lambda: helpers.finished(handle.id))


def _with(part, handle):
    """Ask again until the answer has this part, because the task may just begin."""
    text = answered(handle).text
    if part in text:
        return text
    request_stack(handle.id)
    return None


def test_a_task_on_a_loop_is_shown_with_its_children_and_threads():
    others = [on_loop.nap.enqueue(60) for _ in range(3)]
    handle = on_loop.wait_in_parts.enqueue()
    with helpers.working(kind="loop", async_tasks=10) as worker:
        helpers.wait_until(lambda: "stack" in on_loop.entered)
        text = helpers.wait_until(lambda: _with("in _wait_in_shared_thread", handle))
        main, *rest = text.split("asyncio task ")[1:]
        assert "in wait_in_parts" in main and "in _wait_inside" in main
        assert any(one.startswith("<child>:\n") and "in _wait_inside" in one for one in rest)
        assert "thread txtasks-default_0:\n" in text and "in _wait_in_thread\n" in text
        assert "in nap" not in text
        assert "django_txtasks" not in text.replace("/django_txtasks/tests", "")
        on_loop.open_door()
        helpers.wait_until(lambda: helpers.finished(handle.id))
        assert not attempt_stack.text_of(worker.slots, (handle.id, 1))
        worker.slots.interrupt(0)
        from django_txtasks import cancel_task

        for one in others:
            cancel_task(one.id)
        helpers.wait_until(lambda: not Task.objects.exists())


def test_a_task_that_blocks_its_loop_is_shown_at_its_line():
    handle = on_loop.wait_in_parts.enqueue(spins=8.0)
    with helpers.working(kind="loop", async_tasks=10):
        helpers.wait_until(lambda: "stack" in on_loop.entered)
        text = answered(handle).text
        assert text.splitlines()[-1].strip() == "time.sleep(spins)"
        helpers.wait_until(lambda: helpers.finished(handle.id))


def test_hostile_names_control_no_page_and_no_terminal(person, client, capsys):
    person("view_task", "look_into_task")
    handle = tasks.wait_with_odd_name.enqueue()
    with helpers.working():
        text = answered(handle).text
        assert r"in <script>\x1b[2J" in text
        assert "\x1b" not in text
        page = client.get(reverse("admin:txtasks_task_change", args=[handle.id])).content.decode()
        assert r"&lt;script&gt;\x1b[2J" in page
        assert r"<script>\x1b" not in page
        tasks.released.set()
        handle.result(60)


def test_a_look_without_a_question_writes_nothing_and_sends_one_statement():
    handle = tasks.until_released.enqueue("quiet")
    with helpers.working() as worker:
        row = claimed(handle)
        sent = []

        def note(execute, sql, params, many, context):
            sent.append(sql)
            return execute(sql, params, many, context)

        with connection.execute_wrapper(note):
            found = answers.stops_and_questions("default", row.worker, [handle.id])
            every = answers.stops_and_questions("default", row.worker, None)
        assert found == every == (set(), set())
        assert len(sent) == 2
        assert attempt_stack.text_of(worker.slots, (handle.id, 2)) == ""
        tasks.released.set()


# -- the questions ------------------------------------------------------------------------------------


def held_by(worker, attempt=1):
    """A claimed task of a worker that does not exist in this process."""
    handle = tasks.note.enqueue()
    Task.objects.filter(pk=handle.id).update(
        status=Status.CLAIMED, worker=worker, attempt=attempt, claimed_at=requests.DatabaseNow()
    )
    return handle


@pytest.fixture
def process(txtasks):
    """The row of a living worker that answers nothing."""
    from django_txtasks.conf import get_config
    from django_txtasks.core.rows import workers

    txtasks(lease=600)
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=get_config().lease
    )


def key_of(handle, attempt=1) -> Key:
    return handle.id, attempt


def test_without_a_request_there_is_no_answer(process):
    assert stack_of(held_by(process).id) is None


def test_a_task_that_does_not_run_has_no_stack():
    handle = tasks.note.enqueue()
    with pytest.raises(NotRunning, match=f"Task {handle.id} does not run now"):
        request_stack(handle.id)
    with pytest.raises(NotRunning, match="does not run now"):
        request_stack(uuid.uuid4())
    assert not StackRequest.objects.exists()


def test_a_lost_worker_cannot_answer(process):
    handle = held_by(process)
    request_stack(handle.id)
    Worker.objects.update(lost=True)
    with pytest.raises(NotRunning, match="lost or silent"):
        request_stack(handle.id)
    assert "lost or silent" in stack_of(handle.id).trouble
    Worker.objects.all().delete()
    with pytest.raises(NotRunning, match="is gone, so no process can answer"):
        request_stack(handle.id)


def test_a_later_question_replaces_the_earlier_one(process):
    handle = held_by(process)
    request_stack(handle.id, by="ann")
    answers.answer("default", process, key_of(handle), "the first")
    assert stack_of(handle.id).text == "the first"
    request_stack(handle.id, by="b" * 200)
    again = stack_of(handle.id)
    assert (again.text, again.answered_at, again.asked_by) == ("", None, "b" * 150)
    assert again.is_awaited


def test_only_its_own_worker_answers_a_question(process):
    handle = held_by(process)
    request_stack(handle.id)
    assert answers.stops_and_questions("default", process, [handle.id])[1] == {key_of(handle)}
    assert answers.stops_and_questions("default", uuid.uuid4(), None)[1] == set()
    answers.answer("default", uuid.uuid4(), key_of(handle), "of another worker")
    answers.answer("default", process, key_of(handle, 2), "of another attempt")
    assert stack_of(handle.id).text == ""
    answers.answer("default", process, key_of(handle), "its own")
    answers.answer("default", process, key_of(handle), "too late")
    assert stack_of(handle.id).text == "its own"
    assert answers.stops_and_questions("default", process, None)[1] == set()


def test_an_answer_about_another_attempt_is_called_so(process):
    handle = held_by(process)
    request_stack(handle.id)
    Task.objects.update(attempt=2)
    answer = stack_of(handle.id)
    assert "about attempt 1, and attempt 2 runs now" in answer.trouble
    assert not answer.is_awaited
    Task.objects.update(status=Status.PENDING, worker=None, claimed_at=None)
    assert "does not run now" in stack_of(handle.id).trouble


def test_the_attempt_of_a_slot_that_has_ended_has_no_stack():
    handle = tasks.note.enqueue()
    with helpers.working() as worker:
        helpers.wait_until(lambda: helpers.finished(handle.id))
        assert attempt_stack.text_of(worker.slots, (handle.id, 1)) == ""


def test_a_thread_that_runs_no_task_has_no_frames():
    assert frames.of_thread(0) == []


def test_without_an_answer_the_way_by_hand_is_told(process, monkeypatch):
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 0.0)
    handle = held_by(process)
    request_stack(handle.id)
    host, pid = Worker.objects.values_list("host", "pid").get()
    trouble = stack_of(handle.id).trouble
    assert trouble.startswith(f"Process {pid} on host {host} has not answered within 0 s.")
    assert f"py-spy dump --pid {pid}." in trouble
    assert trouble.endswith("0 other running tasks end with it.")
    other = held_by(process)
    one = stack_of(handle.id).trouble
    assert one.endswith(f"1 other running task ends with it: {other.id} (probe.tasks.note).")
    for _ in range(6):
        held_by(process)
    assert "7 other running tasks end with it: " in stack_of(handle.id).trouble
    assert stack_of(handle.id).trouble.endswith(", ….")


def test_old_requests_are_removed(process):
    old, new = held_by(process), held_by(process)
    for one in (old, new):
        request_stack(one.id)
    past = "strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-61 minutes')"
    if connection.vendor == "postgresql":
        past = "now() - interval '61 minutes'"
    if connection.vendor == "mysql":
        past = "UTC_TIMESTAMP(6) - INTERVAL 61 MINUTE"
    asked = old.id if connection.vendor == "postgresql" else old.id.hex
    helpers.execute(f"UPDATE txtasks_stackrequest SET asked_at = {past} WHERE task_id = %s", asked)
    call_command("runcleaner", once=True)
    assert list(StackRequest.objects.values_list("pk", flat=True)) == [new.id]


# -- for people ---------------------------------------------------------------------------------------


def page_of(client, handle):
    return client.get(reverse("admin:txtasks_task_change", args=[handle.id]))


def url_of(handle):
    return reverse("admin:txtasks_task_stack", args=[handle.id])


def test_a_button_asks_and_the_page_shows_the_answer(person, client):
    from django.contrib.admin.models import LogEntry

    person("view_task", "look_into_task")
    handle = tasks.until_released.enqueue("page")
    with helpers.working():
        claimed(handle)
        page = page_of(client, handle)
        assert f'action="{url_of(handle)}"' in page.content.decode()
        assert LOADS_AGAIN not in page.content.decode()
        response = client.post(url_of(handle))
        assert response.status_code == 302
        assert LogEntry.objects.get().change_message == "Asked for its stack."
        helpers.wait_until(lambda: not stack_of(handle.id).is_awaited)
        page = page_of(client, handle)
        assert "Asked by ann, attempt 1:" in page.content.decode()
        assert LOADS_AGAIN not in page.content.decode()
        tasks.released.set()
        handle.result(60)


def test_while_an_answer_is_awaited_the_page_loads_itself_again(person, client, process):
    person("view_task", "look_into_task")
    handle = held_by(process)
    client.post(url_of(handle))
    page = page_of(client, handle)
    assert LOADS_AGAIN in page.content.decode()
    assert "there is no answer yet" in page.content.decode()
    answers.answer("default", process, key_of(handle), "<b>")
    page = page_of(client, handle)
    assert LOADS_AGAIN not in page.content.decode()
    assert "<pre>&lt;b&gt;</pre>" in page.content.decode()


def test_without_the_permission_nothing_is_asked_or_shown(person, client, process):
    handle = held_by(process)
    request_stack(handle.id)
    answers.answer("default", process, key_of(handle), "the secret stack")
    person("view_task")
    page = page_of(client, handle).content.decode()
    assert "the secret stack" not in page
    assert url_of(handle) not in page
    assert client.post(url_of(handle)).status_code == 403
    person("look_into_task")
    assert client.post(url_of(handle)).status_code == 403
    assert stack_of(handle.id).text == "the secret stack"
    client.logout()
    assert client.post(url_of(handle)).status_code == 302
    assert stack_of(handle.id).text == "the secret stack"


def test_a_page_that_only_reads_asks_nothing(person, client, process):
    person("view_task", "look_into_task")
    handle = held_by(process)
    assert client.get(url_of(handle)).status_code == 405
    assert not StackRequest.objects.exists()
    for wrong in (uuid.uuid4(), "no-id"):
        url = reverse("admin:txtasks_task_stack", args=[wrong])
        assert client.post(url).status_code == 302


def test_a_task_that_waits_has_no_button_and_is_told_so(person, client):
    person("view_task", "look_into_task")
    handle = tasks.note.enqueue()
    assert url_of(handle) not in page_of(client, handle).content.decode()
    page = client.post(url_of(handle), follow=True).content.decode()
    assert "does not run now" in page


def test_the_command_prints_the_stack(capsys):
    handle = tasks.until_released.enqueue("command")
    with helpers.working():
        answered(handle)
        call_command("txtasks_explain", str(handle.id), "--stack")
        said = capsys.readouterr().out
        assert "claimed: It runs, for" in said
        assert "stack: Stack of attempt 1\n    thread of the slot:\n" in said
        call_command("txtasks_explain", str(handle.id), "--stack", "--json")
        *_, last = capsys.readouterr().out.splitlines()
        assert "in until_released" in json.loads(last)["text"]
        tasks.released.set()
        handle.result(60)
    call_command("txtasks_explain", str(handle.id), "--stack")
    assert "stack: Task" in capsys.readouterr().out


def test_the_command_tells_how_to_go_on_without_an_answer(process, monkeypatch, capsys):
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 0.5)
    handle = held_by(process)
    call_command("txtasks_explain", str(handle.id), "--stack")
    assert "py-spy dump --pid" in capsys.readouterr().out


def test_the_command_needs_an_id_for_a_stack():
    with pytest.raises(CommandError, match="--stack needs the id"):
        call_command("txtasks_explain", "--stack")
