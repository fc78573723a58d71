"""Pickle, copy and deepcopy of all that users get from this package: a name that is new is covered by itself."""

import copy
import inspect
import multiprocessing
import pickle
import uuid
from datetime import timedelta

import helpers
import pytest
from probe import framework, tasks

import django_txtasks
from django_txtasks import BatchStatus, Item, TaskContext, TaskFailed, batch, exceptions, task
from django_txtasks.backends import running
from django_txtasks.backends.tasks import Task as DjangoTask
from django_txtasks.core.ground.cancel_requests import CancelRequests
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.features.progress.notes import Progress
from django_txtasks.functions import TaskFunction

pytestmark = pytest.mark.once


def _unpickled(data):
    return pickle.loads(data)  # noqa: S301 -- it was made here


WAYS = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {number}": lambda one, number=number: _unpickled(pickle.dumps(one, number))
        for number in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)

ERRORS = {
    "AlreadyRun": lambda kind: kind(),
    "Retry": lambda kind: kind("busy", after=5, lane=True),
    "Snooze": lambda kind: kind(after=timedelta(minutes=1)),
    "TaskFailed": lambda kind: kind("Task 1 is dead", state="dead", errors=[{"type": "KeyError"}]),
}
"""How to make the errors that take more than one text."""


def _own(kind):
    return kind.__module__.startswith("django_txtasks.")


def _below(kind):
    return {one for sub in kind.__subclasses__() for one in (sub, *_below(sub)) if _own(one)}


def _kinds():
    """Return all public classes of errors, of whatever module."""
    found = {exceptions.Suspended, exceptions.TxTasksError, *_below(exceptions.TxTasksError)}
    named = {getattr(django_txtasks, name) for name in django_txtasks.__all__}
    found |= {one for one in named if isinstance(one, type) and issubclass(one, BaseException)}
    return sorted(found, key=lambda kind: kind.__name__)


def _attempt():
    return Attempt(uuid.uuid4(), 1, uuid.uuid4())


def _context():
    return TaskContext(
        uuid.uuid4(),
        2,
        "probe.tasks.note",
        "default",
        1,
        5,
        0,
        _attempt(),
        "default",
        CancelRequests(),
    )


@each_way
@pytest.mark.parametrize("kind", _kinds(), ids=lambda kind: kind.__name__)
def test_an_error_stays_what_it_is(kind, way):
    error = ERRORS.get(kind.__name__, lambda kind: kind("said"))(kind)
    error.more = ["seen"]
    same = way(way(error))
    assert type(same) is kind
    assert (str(same), same.args, same.__dict__) == (str(error), error.args, error.__dict__)


@each_way
def test_an_error_of_a_site_stays_what_it_is(way):
    same = way(OfSite("acme", retries=3))
    assert (type(same), str(same), same.tenant, same.retries) == (
        OfSite,
        "acme has failed",
        "acme",
        3,
    )


class OfSite(django_txtasks.Reject):
    def __init__(self, tenant, *, retries):
        super().__init__(f"{tenant} has failed")
        self.tenant, self.retries = tenant, retries


OBJECTS = {
    "BatchStatus": lambda: BatchStatus(1, 2, None, 3, None, None),
    "Progress": lambda: Progress(1, 2, "a note"),
    "TaskContext": _context,
    "TaskFunction": lambda: tasks.note,
    "WithResult": tasks.note.with_result,
    "CancelResult": lambda: django_txtasks.CancelResult.ASKED,
    "a Task of Django's": lambda: framework.mail,
    "a changed Task of Django's": lambda: framework.mail.using(
        priority=3, run_after=5, unique_key="a"
    ),
}


def _handle():
    return tasks.note.enqueue("a")


def _batch():
    with batch(name="a") as handle:
        return handle


WRITTEN = {
    "TaskHandle": _handle,
    "BatchHandle": _batch,
    "a TaskResult of Django's": lambda: framework.add.enqueue(1, b=2),
}


@each_way
@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_an_object_equals_its_copy(make, way):
    made = make()
    same = way(way(made))
    assert type(same) is type(made)
    assert same == made


@each_way
@pytest.mark.parametrize("make", WRITTEN.values(), ids=WRITTEN)
def test_a_written_object_equals_its_copy(rows, make, way):
    made = make()
    same = way(way(made))
    assert type(same) is type(made)
    assert same == made


def test_every_public_name_is_tried():
    tried = {*OBJECTS, *WRITTEN, *LEFT_HERE, *(kind.__name__ for kind in _kinds())}
    for name in django_txtasks.__all__:
        one = getattr(django_txtasks, name)
        if getattr(getattr(one, "_meta", None), "abstract", False):
            continue  # no object of an abstract model exists
        if isinstance(one, type):
            assert name in tried, f"tests/test_pickling.py does not know how to make a {name}"
        else:
            assert inspect.isfunction(one)
            assert all(way(one) is one for way in WAYS.values())


LEFT_HERE = {"Item": lambda: Item([1], _attempt())}
"""Objects of a running call: a copy is the object itself, and another process gets none."""


@pytest.mark.parametrize("make", LEFT_HERE.values(), ids=LEFT_HERE)
def test_an_object_of_a_call_does_not_leave_its_process(make):
    made = make()
    assert copy.copy(made) is copy.deepcopy(made) is made
    with pytest.raises(TypeError, match=r"give item\.value to the other process"):
        pickle.dumps(made)


@each_way
def test_a_task_function_is_found_by_its_name(way):
    assert way(tasks.note) is tasks.note
    assert way(renamed).declaration is renamed.declaration


@each_way
def test_a_task_function_keeps_its_options(way):
    changed = tasks.note.using(
        queue_name="mail",
        run_after=timedelta(seconds=5),
        on_success=tasks.give.with_result(),
        unique_key="k",
    )
    same = way(changed)
    assert type(same) is TaskFunction
    assert same.options == changed.options
    assert same.declaration is changed.declaration


@each_way
def test_a_changed_function_as_hook_keeps_its_options(way):
    hook = tasks.note.using(queue_name="mail").with_result()
    same = way(hook)
    assert same.options == hook.options
    assert same.declaration is hook.declaration
    assert same.gets_result


@each_way
def test_a_copied_function_can_be_enqueued(rows, way):
    handle = way(tasks.note.using(queue_name="mail")).enqueue("a")
    assert helpers.row(handle.id).queue_name == "mail"
    result = way(framework.add.using(queue_name="mail")).enqueue(1)
    assert helpers.row(uuid.UUID(result.id)).queue_name == "mail"
    assert way(framework.add).call(1, b=2) == 3
    assert type(way(framework.add)) is DjangoTask


def test_a_name_that_is_not_declared_here_is_said():
    text = pickle.dumps(tasks.note, 0).replace(b"probe.tasks.note", b"probe.tasks.nott")
    with pytest.raises(exceptions.UnknownTask, match=r"probe\.tasks\.nott"):
        _unpickled(text)


def test_a_copied_context_is_that_of_the_attempt():
    context = _context()
    context._requests.update([(context.task_id, 2)], [])
    assert copy.copy(context) is copy.deepcopy(context) is context
    elsewhere = _unpickled(pickle.dumps(context))
    assert elsewhere == context
    assert elsewhere._claim == context._claim
    elsewhere.progress(1)


@each_way
def test_the_context_of_a_task_of_django(way, rows):
    result = framework.add.enqueue(1)
    context = running.TaskContext(task_result=result)
    assert way(context).task_result == result


def raise_failed(number):
    raise TaskFailed(f"Task {number} is dead", state="dead", errors=[{"type": "KeyError"}])


def test_a_pool_that_meets_an_error_goes_on():
    with multiprocessing.get_context("fork").Pool(1) as pool:
        with pytest.raises(TaskFailed, match="Task 7 is dead") as caught:
            pool.apply_async(raise_failed, [7]).get(60)
        assert (caught.value.state, caught.value.errors) == ("dead", [{"type": "KeyError"}])


@pytest.mark.parametrize(
    "function", [tasks.give.using(priority=3), framework.give], ids=["ours", "Django's"]
)
def test_a_pool_takes_a_task_function(function):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_call, [function]).get(60) == "a"


def _call(function):
    return getattr(function, "call", function)("a")


def _under_another_name():
    return None


_under_another_name.__name__ = _under_another_name.__qualname__ = "renamed_within"
renamed = task(_under_another_name)
