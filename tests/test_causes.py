"""The cause of a failure: one for failures that one correction ends, set and cleared by the arrows of the row."""

import asyncio
import json
import sys
import textwrap
import uuid
from datetime import timedelta

import helpers
import pytest
from django.conf import settings
from django.db import DataError, transaction
from probe import framework, tasks

from django_txtasks import TimedOut
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.causes import cause_of, cause_of_class
from django_txtasks.core.rows import cleaning, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.working.recording.outcome_buffer import _unrecorded
from django_txtasks.core.working.recording.reconciliation import holder_of
from django_txtasks.core.working.running.limits import NO_LIMIT
from django_txtasks.core.working.running.verdicts import failed
from django_txtasks.exceptions import LoopBlocked, WorkerLost, WorkerStopped
from django_txtasks.models import OnCrash, Status, Task
from django_txtasks.operations import operators

OWN = {"shop"}


def module(source, name="shop.tasks", **names):
    """Run a source as a module of this name, and return its names."""
    space = {"__name__": name, **names}
    exec(textwrap.dedent(source), space)  # noqa: S102 -- modules of a project
    return space


def raised_by(call, *args):
    try:
        call(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def cause(call, *args, task="shop.tasks.pay", own=OWN):
    found = cause_of(task, raised_by(call, *args), own)
    assert -(2**63) <= found < 2**63  # a bigint of each database
    return found


PLAIN = """
    def pay(text):
        raise ValueError(text)
"""

# -- the fingerprint -------------------------------------------------------------------------------


def test_the_text_and_the_line_do_not_matter():
    moved = module("\n" * 57 + textwrap.dedent(PLAIN))["pay"]
    plain = module(PLAIN)["pay"]
    assert cause(plain, "order 1") == cause(plain, "order 2") == cause(moved, "order 1")


def test_another_task_exception_function_or_module_is_another_cause():
    found = [
        cause(module(PLAIN)["pay"], "x"),
        cause(module(PLAIN)["pay"], "x", task="shop.tasks.refund"),
        cause(module(PLAIN.replace("ValueError", "KeyError"))["pay"], "x"),
        cause(module(PLAIN.replace("def pay", "def charge"))["charge"], "x"),
        cause(module(PLAIN, "shop.money")["pay"], "x"),
    ]
    assert len(set(found)) == len(found)


def test_the_place_is_in_the_project_though_a_library_raises():
    library = module("def get(url):\n    raise OSError(url)", "requests.api")["get"]
    newer = module(
        "def get(url):\n    _get(url)\ndef _get(url):\n    raise OSError(url)", "requests.api"
    )
    call = "def {}():\n    get('x')"
    first = cause(module(call.format("pay"), get=library)["pay"])
    assert first == cause(module(call.format("pay"), get=newer["get"])["pay"])
    assert first != cause(module(call.format("refund"), get=library)["refund"])


def test_an_error_with_no_frame_of_the_project_has_a_cause_by_its_class():
    assert cause(json.loads, "{") == cause(json.loads, "[") != cause(int, "x")


CHAINED = """
    def read(key):
        raise {inner}(key)
    def pay(key):
        try:
            read(key)
        except Exception as error:
            raise RuntimeError("not paid") {how}
"""


@pytest.mark.parametrize("how", ["from error", ""])
def test_the_exception_behind_it_counts(how):
    key, value = (
        module(CHAINED.format(inner=inner, how=how))["pay"] for inner in ("KeyError", "ValueError")
    )
    assert cause(key, "a") == cause(key, "b") != cause(value, "a")


def test_an_exception_that_is_hidden_does_not_count():
    key, value = (
        module(CHAINED.format(inner=inner, how="from None"))["pay"]
        for inner in ("KeyError", "ValueError")
    )
    assert cause(key, "a") == cause(value, "a")


def test_a_chain_that_leads_back_ends():
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert cause_of("shop.tasks.pay", first, OWN) == cause_of("shop.tasks.pay", first, OWN)


def test_a_deep_recursion_is_one_cause_however_deep():
    fall = module("def fall(n):\n    return fall(n - 1) if n else [][0]")["fall"]
    assert cause(fall, 3) == cause(fall, 900)
    fall_for_ever = module("def fall():\n    return fall()")["fall"]
    assert cause(fall_for_ever) == cause(fall_for_ever)


def test_the_first_member_of_a_group_counts():
    class Group(Exception):
        def __init__(self, *members):
            self.exceptions = members

    def group(*members):
        raise Group(
            *(raised_by(module(PLAIN.replace("ValueError", one))["pay"], "x") for one in members)
        )

    assert cause(group, "KeyError", "OSError") == cause(group, "KeyError", "TypeError")
    assert cause(group, "KeyError") != cause(group, "OSError")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python has groups from 3.11 on")
def test_groups_of_python_count_by_their_first_member():
    def nested(kind):
        member = raised_by(module(PLAIN.replace("ValueError", kind))["pay"], "x")
        raise ExceptionGroup("a", [ExceptionGroup("b", [member, OSError()])])  # noqa: F821

    assert cause(nested, "KeyError") == cause(nested, "KeyError") != cause(nested, "TypeError")


def test_asyncio_and_lambdas_have_a_place():
    source = """
        async def read(key):
            await asyncio.sleep(0)
            raise KeyError(key)
        async def pay(key):
            await asyncio.gather(read(key))
        anonymous = lambda key: {}[key]
    """
    space = module(source, asyncio=asyncio)

    def run(key):
        asyncio.run(space["pay"](key))

    assert cause(run, "a") == cause(run, "b") != cause(space["anonymous"], "a")
    assert cause(space["anonymous"], "a") == cause(space["anonymous"], "b")


def test_classes_made_at_run_time_are_one_cause_each():
    source = "def pay(name):\n    raise type(name, (Exception,), {})"
    pay = module(source)["pay"]
    assert cause(pay, "Declined") == cause(pay, "Declined") != cause(pay, "Expired")


class _Hostile(type):
    @property
    def __module__(cls):
        raise SystemExit("its name cannot be asked for")


class Nameless(Exception, metaclass=_Hostile):
    """No class path."""


class Mute(Exception):
    """Its text, its size and its members cannot be asked for."""

    def __str__(self):
        raise SystemExit

    __repr__ = __bool__ = __len__ = __str__

    @property
    def exceptions(self):
        raise SystemExit


@pytest.mark.parametrize("kind", [Nameless, Mute])
def test_an_odd_error_has_a_cause_too(kind):
    assert cause_of("shop.tasks.pay", kind(), OWN) == cause_of("shop.tasks.pay", kind(), OWN)


def test_a_frame_whose_module_has_no_name_is_no_place():
    pay = module(PLAIN)["pay"]
    pay.__globals__["__name__"] = 7
    assert cause(pay, "a") == cause(pay, "b")


def test_a_timeout_is_one_cause_wherever_the_task_was():
    source = "def {}():\n    raise TimedOut"
    first, second = (module(source.format(name), TimedOut=TimedOut)[name] for name in ("a", "b"))
    assert cause(first) == cause(second) == cause_of_class("shop.tasks.pay", TimedOut)
    assert cause_of("shop.tasks.pay", LoopBlocked(), OWN) != cause(first)


def test_the_project_is_the_packages_of_its_tasks_and_of_its_settings(monkeypatch):
    own = registry.own_packages()
    assert {"probe", settings.SETTINGS_MODULE.partition(".")[0]} <= own
    assert "django_txtasks" not in own
    monkeypatch.setattr(settings, "SETTINGS_MODULE", None)  # as in a test that changes settings
    assert "probe" in registry.own_packages()


# -- the arrows ------------------------------------------------------------------------------------

EARLIER = 17
"""A cause that the row has from an earlier attempt."""


@pytest.fixture
def held(rows):
    """Claim a task that has a cause already; return its attempt."""
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=timedelta(seconds=15)
    )

    def claim(function=tasks.note, **columns):
        handle = function.enqueue()
        Task.objects.filter(pk=handle.id).update(cause=EARLIER, **columns)
        with transaction.atomic():
            (attempt,) = helpers.claim(worker, hinted=[handle.id]).claimed
        assert Task.objects.get(pk=handle.id).cause == EARLIER  # the claim keeps it
        return attempt

    return claim


def after(attempt, arrow, **more):
    ended = Ended(attempt, arrow, error={"type": "E", "message": ""}, **more)
    with transaction.atomic():
        recorded = outcomes.record("default", [ended], config=get_config())
    assert recorded.done == [ended]
    row = Task.objects.get(pk=attempt.task_id)
    return row.status, row.cause


ARROWS = {
    Arrow.RETRY: (Status.PENDING, -5),
    Arrow.BURY: (Status.DEAD, -5),
    Arrow.RELEASE: (Status.PENDING, EARLIER),
    Arrow.SNOOZE: (Status.PENDING, None),
    Arrow.SUSPEND: (Status.PENDING, None),
}


@pytest.mark.parametrize("arrow", ARROWS)
def test_an_arrow_out_of_claimed_sets_clears_or_keeps_the_cause(arrow, held):
    assert after(held(), arrow, cause=-5, awaited="x") == ARROWS[arrow]


def test_a_person_who_revives_clears_the_cause_and_who_holds_keeps_it(held):
    attempt = held()
    after(attempt, Arrow.BURY, cause=-5)

    def cause_after(arrow):
        assert arrow("default", [attempt.task_id])
        return Task.objects.get(pk=attempt.task_id).cause

    assert cause_after(operators.revive) is None
    Task.objects.update(cause=-5)  # as if it had failed again
    assert [cause_after(one) for one in (operators.hold, operators.resume)] == [-5, -5]
    assert cause_after(operators.run_now) == -5


def orphan(attempt):
    holder = holder_of(attempt.worker)
    (found,) = cleaning.orphans("default", holder, [attempt.task_id])
    return found


def recovered(attempt, **how):
    with transaction.atomic():
        cleaning.recover(
            "default", orphan(attempt), lambda crashes: timedelta(0), get_config(), **how
        )
    row = Task.objects.get(pk=attempt.task_id)
    return row.status, row.cause


def test_a_lost_worker_is_a_cause(held):
    lost = cause_of_class("probe.tasks.note", WorkerLost)
    assert recovered(held(on_crash=OnCrash.RETRY)) == (Status.PENDING, lost)
    assert recovered(held()) == (Status.DEAD, lost)


def test_a_stopped_worker_is_a_cause(held):
    stopped = cause_of_class("probe.tasks.note", WorkerStopped)
    assert recovered(held(on_crash=OnCrash.RETRY), stopped="x") == (Status.PENDING, stopped)
    assert recovered(held(), stopped="x") == (Status.DEAD, stopped)


def test_claims_that_are_retried_together_have_the_cause_of_their_own_task(held):
    attempts = [held(function, on_crash=OnCrash.RETRY) for function in (tasks.note, tasks.fail)]
    with transaction.atomic():
        cleaning.retry_together("default", [orphan(one) for one in attempts], "x")
    causes = dict(Task.objects.values_list("task_name", "cause"))
    assert causes == {name: cause_of_class(name, WorkerStopped) for name in causes}
    assert len(causes) == 2


def test_an_attempt_that_no_exception_ends_has_the_cause_of_a_timeout(held):
    attempt = held(tasks.fail)
    ended = failed(attempt, TimedOut("3 s"), get_config())
    with transaction.atomic():
        cleaning.abandon("default", orphan(attempt), ended, get_config())
    assert Task.objects.get().cause == cause_of_class("probe.tasks.fail", TimedOut)


def test_an_outcome_that_the_database_refuses_has_the_cause_of_the_refusal(held):
    refused = _unrecorded(Ended(held(), Arrow.FINISH, result='"much"'), DataError("no"))
    assert refused.cause == cause_of("probe.tasks.note", DataError("no"), set())


# -- real attempts -----------------------------------------------------------------------------------


def causes_of_runs(function, *args, runs=2):
    """Run a task in a slot this number of times; return the causes."""
    runner, found = helpers.runner(), []
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=timedelta(seconds=15)
    )
    for _ in range(runs):
        handle = function.enqueue(*args)
        with transaction.atomic():
            (attempt,) = helpers.claim(worker, hinted=[uuid.UUID(str(handle.id))]).claimed
        ended = []
        with helpers.second_session(lambda: ended.append(runner.run(attempt, NO_LIMIT))):  # noqa: B023
            pass  # a slot changes the connection object of its thread
        with transaction.atomic():
            outcomes.record("default", ended, config=get_config())
        found.append(Task.objects.get(pk=handle.id).cause)
    return found


@pytest.mark.smoke
def test_a_failed_attempt_leaves_its_cause_in_the_row(rows):
    first, second = causes_of_runs(tasks.fail)
    assert first == second is not None


def test_a_failed_attempt_of_a_task_of_django_has_the_place_in_its_own_function(rows):
    first, second = causes_of_runs(framework.fail)
    assert first == second
    error = raised_by(framework.fail.func)
    assert first == cause_of("probe.framework.fail", error, {"probe"})


def test_a_failed_attempt_on_the_loop_has_the_place_in_its_own_function(rows):
    handle = tasks.fail_async.enqueue()
    with helpers.working(kind="loop", async_tasks=10):
        helpers.wait_until(lambda: Task.objects.get(pk=handle.id).failures, what="a failure")
    fail = module("def fail_async():\n    raise ValueError", "probe.tasks")["fail_async"]
    expected = cause_of("probe.tasks.fail_async", raised_by(fail), {"probe"})
    assert Task.objects.get().cause == expected
