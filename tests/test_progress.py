"""ctx.progress(): how far a task has come, on its handle and in the admin."""

import helpers
import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from probe import tasks

from django_txtasks import TaskFailed, enqueue_task
from django_txtasks.features.progress.notes import Progress, ProgressNotes, checked, read_progress
from django_txtasks.models import Worker

pytestmark = pytest.mark.usefixtures("rows", "quick")


@pytest.fixture(autouse=True)
def released():
    tasks.released.clear()
    yield
    tasks.released.set()


def page_of(client, handle):
    client.force_login(User.objects.create_superuser("root", password="secret"))
    return client.get(reverse("admin:txtasks_task_change", args=[handle.id])).content.decode()


def test_the_last_word_shows_on_the_handle_and_in_the_admin_while_the_task_runs(client):
    handle = enqueue_task(tasks.tell_progress, "told", [1, 4], [3, 4, "folding\n<paper>"])
    assert handle.progress() is None
    with helpers.working():
        found = helpers.wait_until(handle.progress)
        assert found == Progress(3, 4, "folding<paper>")
        assert found.share == 0.75
        page = page_of(client, handle)
        assert '<progress max="1" value="0.750">' in page
        assert "3 / 4 folding&lt;paper&gt;" in page
        tasks.released.set()
        handle.result(60)
        assert handle.progress() is None
        helpers.wait_until(lambda: Worker.objects.get().progress == {})
    User.objects.all().delete()


def test_the_whole_need_not_be_known(client):
    handle = enqueue_task(tasks.tell_progress, "told", [1234567.5])
    with helpers.working():
        assert helpers.wait_until(handle.progress) == Progress(1234567.5)
        assert Progress(1234567.5).share is None
        page = page_of(client, handle)
        assert "<progress" not in page
        assert "1234567.5" in page
        tasks.released.set()
        handle.result(60)
    User.objects.all().delete()


@pytest.mark.parametrize(
    "said",
    [["1"], [True], [None], [float("nan")], [float("inf"), 2], [1, "2"], [1, True], [1, 2, 3]],
    ids=str,
)
def test_what_is_no_progress_fails_the_task_by_name(said):
    tasks.released.set()
    handle = enqueue_task(tasks.tell_progress_strangely, repr(said))
    with helpers.working(), pytest.raises(TaskFailed, match=r"InvalidArguments: ctx\.progress\("):
        handle.result(60)


def test_tasks_that_say_nothing_cost_no_statement():
    notes = ProgressNotes()
    notes.forget(helpers.uuid.uuid4())
    assert not notes.has_changed


def test_what_somebody_else_has_written_into_the_row_is_left_out():
    for value in (None, 7, "text", {}, [], [1, 2, 3, 4], ["1"], [1, 2, 3]):
        assert read_progress(value) is None
    assert read_progress([1, None, ""]) == checked(1)
    assert checked(5, 0).share is None
    assert checked(5, 4).share == 1
    assert len(checked(1, 2, "x" * 1000).note) == 200


def test_a_row_of_nonsense_shows_nothing():
    handle = enqueue_task(tasks.tell_progress, "told", [1, 4])
    with helpers.working():
        helpers.wait_until(handle.progress)
        Worker.objects.update(progress=["nonsense"])
        assert handle.progress() is None
        tasks.released.set()
        handle.result(60)
