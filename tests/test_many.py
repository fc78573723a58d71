"""Functions of many tasks: one call gets up to n tasks, and each has an outcome of its own."""

import gc
import os
import threading
import time
import uuid
import weakref
from contextlib import contextmanager

import helpers
import pytest
from django.db import connection, transaction
from orders.models import Order
from probe import many, tasks
from probe.many import CALLS, DOOR, PLAYS
from probe.models import Run

from django_txtasks import Reject, Snooze, batch, enqueue_many, signals, task, tasks_of
from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.declaring import declaration_of
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.running.limits import NO_LIMIT
from django_txtasks.core.working.running.slots import Slots
from django_txtasks.core.working.running.verdicts import failed as outcome_of_error
from django_txtasks.exceptions import (
    InvalidArguments,
    InvalidDeclaration,
    MarkRefused,
    TaskCancelled,
    TimedOut,
)
from django_txtasks.fast.prefetch import CLAIM_BYTES, CLAIM_TASKS
from django_txtasks.features.many.call import AttemptEnd, ManyCall
from django_txtasks.features.many.items import set_outcome
from django_txtasks.features.many.room import ManyClaims
from django_txtasks.features.traces import tracing
from django_txtasks.models import FinishedTask, Link, Outcome, Status, Task
from django_txtasks.signals.logs import current
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")


@pytest.fixture(autouse=True)
def of_this_test(txtasks):
    """Each test begins with a closed door and no calls, and no failed task comes again meanwhile."""
    txtasks(retry_base=3600, retry_ceiling=3600, poll_interval=0.1)
    for one in (CALLS, PLAYS):
        one.clear()
    DOOR.clear()
    yield
    DOOR.set()


def enqueue_together(function, values):
    """Enqueue tasks while an earlier one of the function holds the only slot, so that one call gets them."""
    function.enqueue("door")
    helpers.wait_until(lambda: ["door"] in CALLS)
    handles = enqueue_many((function, [value]) for value in values)
    DOOR.set()
    return handles


def played(play, values):
    """Let one call of ``play`` get tasks with these values; return their handles."""
    PLAYS.append(play)
    return enqueue_together(many.play, values)


def ended(*handles):
    """Return the finished rows of these tasks, when there are any."""
    return [helpers.wait_until(lambda one=one: helpers.finished(one.id)) for one in handles]


def failed(handle):
    """Return the row of a task when it has an error."""
    return helpers.wait_until(lambda: (one := helpers.row(handle.id)) and one.errors and one)


# ---- the call


@pytest.mark.smoke
def test_one_call_gets_all_due_tasks_and_each_has_its_own_result():
    with helpers.working(threads=1):
        handles = enqueue_together(many.index, [{"result": number} for number in range(30)])
        rows = ended(*handles)
    assert [one.result for one in rows] == [*range(30)]
    assert [len(one) for one in CALLS] == [1, 30]
    assert [one["result"] for one in CALLS[1]] == [*range(30)]


@pytest.mark.smoke
def test_of_a_hundred_tasks_three_fail_and_each_of_them_in_its_own_way():
    values = [f"{number}" for number in range(100)]
    values[10], values[20], values[30] = (
        {"raise": "ValueError"},
        {"raise": "Reject"},
        {"raise": "Snooze"},
    )
    with helpers.working(threads=1):
        handles = enqueue_together(many.index, values)
        helpers.wait_until(lambda: FinishedTask.objects.count() == 98)
        tried, dead, snoozed = (helpers.row(handles[place].id) for place in (10, 20, 30))
        helpers.wait_until(lambda: helpers.row(handles[30].id).snoozes)
    assert [len(one) for one in CALLS] == [1, 100]
    assert (tried.status, tried.failures) == (Status.PENDING, 1)
    assert "in act" in tried.errors[0]["traceback"]
    assert (dead.status, dead.failures) == (Status.DEAD, 1)
    assert (snoozed.failures, snoozed.errors) == (0, [])
    assert helpers.runs() == 98


def test_a_call_is_never_larger_than_the_function_says():
    with helpers.working(threads=1):
        enqueue_together(many.mail, range(12))
        helpers.wait_until(lambda: FinishedTask.objects.count() == 13)
    assert sorted(len(one) for one in CALLS) == [1, 2, 5, 5]


def test_what_the_function_does_not_mark_has_finished_when_it_returns():
    def play(items):
        items[0].fail(Reject("no"))

    with helpers.working(threads=1):
        first, *others = played(play, range(3))
        ended(*others)
        assert helpers.row(first.id).status == Status.DEAD


def test_an_error_of_the_function_is_one_of_the_unmarked_tasks_alone():
    def play(items):
        items[0].finish("sent")
        items[1].fail(Reject("no such address"))
        raise ConnectionError("the server is away")

    with helpers.working(threads=1):
        sent, rejected, left = played(play, range(3))
        assert ended(sent)[0].result == "sent"
        assert failed(rejected).errors[0]["type"] == "Reject"
        assert failed(left).errors[0]["type"] == "ConnectionError"
        assert (helpers.row(left.id).failures, helpers.row(left.id).status) == (1, Status.PENDING)


@contextmanager
def late_errors():
    """The errors that are raised after each item has an outcome."""
    told = []

    def note(**facts):
        told.append((facts["task"], facts["count"], facts["error"]))

    signals.call_failed_late.connect(note)
    try:
        yield told
    finally:
        signals.call_failed_late.disconnect(note)


def test_an_error_after_all_marks_fails_no_task_and_is_logged():
    def play(items):
        for item in items:
            item.finish()
        raise ConnectionError("the goodbye failed")

    with late_errors() as told, helpers.working(threads=1):
        ended(*played(play, range(3)))
        many.play.enqueue(9)  # alone
        helpers.wait_until(lambda: len(told) == 2)
    error = "ConnectionError: the goodbye failed"
    assert told == [("probe.many.play", count, error) for count in (3, 1)]


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "together"])
def test_an_exit_after_the_mark_fails_no_task(alone):
    """A call with one item did as the error said, and a call with several did not."""

    def play(items):
        for item in items:
            item.finish(item.value)
        raise SystemExit(3)

    PLAYS.append(play)
    with late_errors() as told, helpers.working(threads=1):
        handles = (
            [many.play.using(max_attempts=1).enqueue(7)]
            if alone
            else enqueue_together(many.play, [7, 8])
        )
        assert [one.result for one in ended(*handles)] == ([7] if alone else [7, 8])
        helpers.wait_until(lambda: told)
    assert told == [("probe.many.play", len(handles), "SystemExit: 3")]


def test_an_exit_before_the_mark_fails_the_task():
    def play(items):
        raise SystemExit(3)

    PLAYS.append(play)
    with helpers.working(threads=1):
        assert failed(many.play.using(max_attempts=1).enqueue(7)).errors[0]["type"] == "SystemExit"


def test_a_direct_call_returns_its_result_and_ctrl_c_ends_it():
    def play(items):
        items[0].finish(7)
        raise PLAYS[1]

    PLAYS.extend([play, SystemExit(3)])
    with late_errors() as told:
        assert many.play(1) == 7
        PLAYS[1] = KeyboardInterrupt()
        with pytest.raises(KeyboardInterrupt):
            many.play(1)
    assert told == [("probe.many.play", 1, "SystemExit: 3")]


@pytest.mark.about("guarded")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_the_function_has_forked_ends_by_its_own_error():
    def play(items):
        read, write = os.pipe()
        child = os.fork()
        if not child:
            items[0].finish()
            os.write(write, b"x")
            raise SystemExit(3)
        os.read(read, 1)
        _, status = os.waitpid(child, 0)
        items[0].finish(os.waitstatus_to_exitcode(status))

    PLAYS.append(play)
    with late_errors() as told, helpers.working(threads=1):
        assert ended(many.play.using(max_attempts=1).enqueue(7))[0].result == 3
    assert told == []


# ---- links


@pytest.fixture
def order():
    return Order.objects.create(customer="Ada")


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "together"])
def test_each_item_links_its_own_task(order, alone):
    def play(items):
        for item in items:
            with item:
                for _ in range(2):  # as a second attempt does
                    item.link(order)
            with pytest.raises(MarkRefused):
                item.link(order)

    PLAYS.append(play)
    with helpers.working(threads=1):
        handles = (
            [many.play.using(max_attempts=1).enqueue(7)]
            if alone
            else enqueue_together(many.play, [7, 8])
        )
        ended(*handles)
    assert {one.task_id for one in tasks_of(order)} == {one.id for one in handles}
    assert [one.task_state for one in tasks_of(order)] == ["succeeded"] * len(handles)


def test_an_item_links_only_a_saved_object():
    def play(items):
        for item in items:
            with item:
                item.link(Order(customer="new"))

    PLAYS.append(play)
    with helpers.working(threads=1):
        error = failed(many.play.enqueue(7)).errors[0]
    assert error["type"] == "InvalidOption"
    assert (
        "probe.many.play has called item.link() with an object of orders.order" in error["message"]
    )


def test_a_direct_call_links_nothing(order):
    PLAYS.append(lambda items: items[0].link(order))
    many.play(7)
    assert not Link.objects.exists()


def test_a_generator_of_the_function_that_has_seen_an_error_goes_on():
    """If it ended, the function would return, and tasks that nobody has begun would have finished."""

    def tried(items):
        for item in items:
            try:
                if item.value == 1:
                    raise ValueError("refused")
            except ValueError as error:
                yield item, error
            else:
                yield item, None

    def play(items):
        for item, error in tried(items):
            many.DONE.append(item.value)
            if error is not None:
                item.fail(error)

    many.DONE.clear()
    with helpers.working(threads=1):
        first, second, third = played(play, range(3))
        ended(first, third)
        assert failed(second).errors[0]["message"] == "refused"
    assert many.DONE == [0, 1, 2]


def test_a_call_leaves_no_item_to_the_garbage_collector():
    """The arguments of a call may be large, and Python collects cycles of objects late."""
    kept = weakref.WeakSet()

    def play(items):
        kept.update(items)
        items[0].finish()
        with items[1]:
            many.DONE.append(items[1].value)

    gc.disable()
    try:
        with helpers.working(threads=1):
            ended(*played(play, range(3)))
            helpers.wait_until(lambda: not kept)
    finally:
        gc.enable()


# ---- transactions


@pytest.mark.parametrize("way", ["block", "finish"])
def test_no_task_finishes_in_a_transaction_that_may_still_be_rolled_back(way):
    """Its outcome is recorded at once, and a killed worker would lose its effects."""

    def play(items):
        with transaction.atomic():
            for item in items:
                if way == "finish":
                    item.finish()
                with item:
                    many.DONE.append(item)

    many.DONE.clear()
    with helpers.working(threads=1):
        for one in played(play, range(2)):
            (error,) = failed(one).errors
            assert error["type"] == "MarkRefused"
            assert "in an open transaction of the database 'default'" in error["message"]
    assert not many.DONE


def test_a_task_that_is_called_alone_is_marked_in_no_transaction_either():
    def play(items):
        with transaction.atomic(), items[0]:
            many.DONE.append(items)

    many.DONE.clear()
    PLAYS.append(play)
    many.play.using(max_attempts=1).enqueue("alone")
    (ran,) = run_due_tasks(reraise=False)
    assert (ran.status, type(ran.error)) == ("dead", MarkRefused)
    assert not many.DONE


def test_marks_after_a_transaction_and_transactions_inside_a_block():
    def play(items):
        committed, refused, inside, failing = items
        with transaction.atomic():
            transaction.on_commit(committed.finish)
            refused.fail(Reject("no"))
        with inside, transaction.atomic():
            Run.objects.create(key="inside")
        with failing, transaction.atomic():
            Run.objects.create(key="rolled back")
            raise Reject("no")

    with helpers.working(threads=1):
        committed, refused, inside, failing = played(play, range(4))
        ended(committed, inside)
        assert [failed(one).status for one in (refused, failing)] == [Status.DEAD] * 2
    assert (helpers.runs("inside"), helpers.runs("rolled back")) == (1, 0)


@pytest.mark.once
def test_a_direct_call_in_the_callers_transaction():
    with transaction.atomic():
        assert many.index({"result": 5}) == 5


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no server that ends sessions")
def test_a_session_that_the_database_has_ended_fails_one_task_alone():
    end_session = {
        "postgresql": "SELECT pg_terminate_backend(pg_backend_pid())",
        "mysql": "KILL CONNECTION_ID()",
    }[connection.vendor]

    def play(items):
        for item in items:
            with item:
                if item.value == 1:
                    helpers.execute(end_session)
                Run.objects.create(key=str(item.value))

    with helpers.working(threads=1):
        first, second, third = played(play, range(3))
        ended(first, third)
        assert failed(second).failures == 1


def test_the_first_mark_counts_and_a_second_one_is_an_error():
    def play(items):
        items[0].finish(1)
        with pytest.raises(MarkRefused, match="has an outcome already"):
            items[0].fail(ValueError())
        with pytest.raises(MarkRefused), items[0]:
            many.DONE.append("never")
        with pytest.raises(InvalidArguments):
            items[1].finish(object())
        with pytest.raises(TypeError, match="use an exception"):
            items[1].fail("text")
        items[1].finish(2)
        many.DONE.append(items[0])

    many.DONE.clear()
    with helpers.working(threads=1):
        assert [one.result for one in ended(*played(play, range(2)))] == [1, 2]
    with pytest.raises(MarkRefused):  # the call is over
        many.DONE[0].finish(3)
    assert len(many.DONE) == 1


def test_an_error_in_a_block_whose_item_has_an_outcome_is_not_swallowed():
    def play(items):
        with items[0]:
            items[0].finish()
            raise ValueError("after the mark")

    with helpers.working(threads=1):
        done, left = played(play, range(2))
        ended(done)
        assert failed(left).errors[0]["message"] == "after the mark"


def test_threads_of_the_function_may_mark_items():
    def play(items):
        threads = [threading.Thread(target=one.finish, args=[one.value]) for one in items]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with helpers.working(threads=1):
        assert [one.result for one in ended(*played(play, range(20)))] == [*range(20)]


def test_a_returned_value_such_as_a_generator_is_no_success():
    def play(items):
        items[0].finish()
        return (item for item in items)

    with helpers.working(threads=1):
        first, second = played(play, range(2))
        ended(first)
        assert "returned a generator" in failed(second).errors[0]["message"]


def test_a_mark_is_recorded_while_the_call_goes_on():
    """Otherwise a killed worker would repeat what was done long before."""
    goes_on = threading.Event()

    def play(items):
        items[0].finish()
        goes_on.wait(60)

    with helpers.working(threads=1) as worker:
        first, second = played(play, range(2))
        ended(first)
        assert helpers.row(second.id).status == Status.CLAIMED
        assert worker.slots.running == 1
        goes_on.set()
        ended(second)


# ---- rows that fit no call


def test_a_row_with_other_arguments_waits_and_the_others_of_its_call_run():
    with helpers.working(threads=1):
        many.index.enqueue("door")
        helpers.wait_until(lambda: CALLS)
        odd, unreadable, good = (many.index.enqueue(one) for one in ("a", "b", "c"))
        Task.objects.filter(pk=odd.id).update(args=["a", "more"])
        Task.objects.filter(pk=unreadable.id).update(args={"no": "list"})
        DOOR.set()
        ended(good)
        assert failed(odd).errors[0]["type"] == "ArgumentsDoNotFit"
        assert failed(unreadable).errors[0]["type"] == "InvalidArguments"
    assert (helpers.row(odd.id).failures, helpers.row(unreadable.id).failures) == (0, 1)
    assert CALLS == [["door"], ["c"]]


def test_a_receiver_that_refuses_one_attempt_fails_that_one():
    refused = []

    def refuse(task_id, **facts):
        if task_id in refused:
            raise LookupError("no such tenant")

    signals.attempt_starting.connect(refuse)
    try:
        with helpers.working(threads=1):
            many.index.enqueue("door")
            helpers.wait_until(lambda: CALLS)
            bad, good = many.index.enqueue("bad"), many.index.enqueue("good")
            refused.append(bad.id)
            DOOR.set()
            ended(good)
            assert failed(bad).errors[0]["type"] == "LookupError"
    finally:
        signals.attempt_starting.disconnect(refuse)


def test_enqueue_refuses_other_arguments():
    for args, kwargs in (((), {}), ((1, 2), {}), ((), {"value": 1})):
        with pytest.raises(InvalidArguments, match="cannot be called like that"):
            many.index.enqueue(*args, **kwargs)


# ---- one task must not harm another


def test_a_poison_task_dies_alone_because_a_last_attempt_is_a_call_of_its_own(quick):
    with helpers.working(threads=1):
        *others, poison = enqueue_together(many.mail, [1, 2, 3, 4, "poison"])
        ended(*others)
        helpers.wait_until(lambda: helpers.row(poison.id).status == Status.DEAD)
    assert helpers.row(poison.id).failures == 3
    assert ["poison"] in CALLS
    assert all(one.failures < 3 for one in ended(*others))
    assert [helpers.runs(f"{number}") for number in (1, 2, 3, 4)] == [1] * 4


def test_tasks_of_a_lane_run_alone(txtasks):
    txtasks(lanes={"mail": {"weight": 1}})
    with helpers.working(threads=1):
        enqueue_together(many.index.using(lane="mail"), ["a", "b"])
        helpers.wait_until(lambda: FinishedTask.objects.count() == 3)
    assert CALLS[1:] == [["a"], ["b"]]


def test_tasks_with_another_timeout_are_another_call():
    with helpers.working(threads=1):
        many.index.enqueue("door")
        helpers.wait_until(lambda: CALLS)
        for value, timeout in (("a", 50), ("b", 60), ("c", 50), ("d", 60)):
            many.index.using(timeout=timeout).enqueue(value)
        DOOR.set()
        helpers.wait_until(lambda: FinishedTask.objects.count() == 5)
    assert CALLS[1:] == [["a", "c"], ["b", "d"]]


def test_a_timeout_ends_the_call_for_the_unmarked_tasks():
    def play(items):
        items[0].finish("sent")
        with items[1]:
            while True:
                time.sleep(0.01)

    PLAYS.append(play)
    with helpers.working(threads=1):
        many.play.enqueue("door")
        helpers.wait_until(lambda: CALLS)
        first, second, third = (many.play.using(timeout=0.5).enqueue(one) for one in range(3))
        DOOR.set()
        assert ended(first)[0].result == "sent"
        for one in (second, third):
            assert failed(one).errors[0]["type"] == TimedOut.__name__
            assert "timeout of 0.5 s" in helpers.row(one.id).errors[0]["message"]


@pytest.mark.parametrize("way", ["block", "fail"])
def test_a_timeout_in_one_item_ends_the_call_also_if_the_function_fails_the_item_with_it(way):
    def play(items):
        for item in items:
            many.DONE.append(item.value)
            try:
                while True:
                    time.sleep(0.01)
            except Exception as error:
                if way == "fail":
                    item.fail(error)
                else:
                    with item:
                        raise

    many.DONE.clear()
    PLAYS.append(play)
    with helpers.working(threads=1):
        many.play.enqueue("door")
        helpers.wait_until(lambda: CALLS)
        handles = [many.play.using(timeout=0.5).enqueue(one) for one in range(2)]
        DOOR.set()
        assert [failed(one).errors[0]["type"] for one in handles] == ["TimedOut"] * 2
    assert many.DONE == [0]


def test_a_time_limit_counts_after_the_last_mark():
    """Otherwise a goodbye that hangs would occupy its thread for ever."""

    def play(items):
        for item in items:
            item.finish()
        while True:
            time.sleep(0.01)

    PLAYS.append(play)
    with late_errors() as told, helpers.working(threads=1):
        many.play.enqueue("door")
        helpers.wait_until(lambda: CALLS)
        handles = [many.play.using(timeout=2).enqueue(one) for one in range(2)]
        DOOR.set()
        ended(*handles)
        helpers.wait_until(lambda: told)
        ended(tasks.note.enqueue("after"))
    ((_, count, error),) = told
    assert (count, error.split(":")[0]) == (2, "TimedOut")


def test_a_worker_that_stops_waits_for_a_call_whose_items_all_have_outcomes():
    goes_on = threading.Event()

    def play(items):
        items[0].finish()
        goes_on.wait(60)

    with helpers.working(threads=1) as worker:
        ended(*played(play, range(1)))
        assert (worker.slots.running, worker.slots.held, worker.slots.free) == (1, 1, 0)
        assert not worker.workload.is_empty
        goes_on.set()
        helpers.wait_until(lambda: worker.workload.is_empty)


def test_the_cancel_of_one_task_stops_no_other():
    def play(items):
        helpers.wait_until(lambda: items[1].cancelled)
        many.DONE.extend(item.cancelled for item in items)
        with items[1]:
            raise TaskCancelled

    many.DONE.clear()
    with helpers.working(threads=1):
        handles = played(play, range(3))
        helpers.wait_until(lambda: len(CALLS) == 2)
        handles[1].cancel()
        rows = ended(*handles)
    assert many.DONE == [False, True, False]
    outcomes = [one.outcome for one in rows]
    assert outcomes == [Outcome.SUCCEEDED, Outcome.CANCELLED, Outcome.SUCCEEDED]


def test_a_task_that_does_not_end_after_its_timeout_is_named_with_the_others_of_its_call():
    """Only a new process frees the slot, and each of these tasks gets the failure."""
    goes_on, call_of = threading.Event(), []

    class Call:
        def __init__(self, attempts, limit):
            self.left = self.attempts_left = list(attempts)
            self.limit = limit
            call_of.append(self)

        def run(self):
            with self.limit:
                try:
                    goes_on.wait(60)
                except TimedOut:
                    goes_on.wait(60)

        def collect(self):
            return []

    slots = Slots(1, run=None, wake=bool, patience=0.0, took=None, call_of=Call)
    attempts = [Attempt(uuid.uuid4(), 1, uuid.uuid4(), timeout=0.01) for _ in range(3)]
    slots.start_call(attempts)
    stuck = helpers.wait_until(slots.enforce_limits)
    assert [one.attempt for one in stuck] == attempts
    assert slots.running_since(time.monotonic()) == attempts
    assert (slots.running, slots.held) == (3, 1)
    goes_on.set()
    slots.close()


# ---- what goes with each row


def test_batches_hooks_and_keys_are_those_of_each_row():
    with helpers.working(threads=1):
        many.index.enqueue("door")
        helpers.wait_until(lambda: CALLS)
        with batch(name="products") as members:
            many.index.using(on_success=many.mail.with_result()).enqueue({"result": "r"})
            many.index.enqueue({"raise": "Reject"})
        twins = [many.index.using(unique_key="k").enqueue(f"twin {n}") for n in range(3)]
        DOOR.set()
        helpers.wait_until(lambda: ["r"] in CALLS)
        outcomes = sorted(one.outcome for one in ended(*twins))
    assert outcomes == [Outcome.MERGED, Outcome.MERGED, Outcome.SUCCEEDED]
    assert members.status().failed == 1


def test_log_lines_inside_a_block_belong_to_its_item():
    def play(items):
        many.DONE.append(current.get())
        for item in items:
            with item:
                many.DONE.append(current.get()["task_id"])

    many.DONE.clear()
    with helpers.working(threads=1):
        handles = played(play, range(2))
        ended(*handles)
    of_call, *of_items = many.DONE
    assert of_items == [one.id for one in handles]
    assert (of_call["task_id"], of_call["tasks"]) == (handles[0].id, 2)


def test_each_task_has_a_trace_of_its_own():
    from test_tracing import Noting

    tracing.add_tracer(noting := Noting())
    try:
        with helpers.working(threads=1):
            good, bad = enqueue_together(many.index, ["good", {"raise": "Reject"}])
            ended(good)
            helpers.wait_until(lambda: len(noting.runs) == 3)
    finally:
        tracing.tracers.clear()
    outcomes = {one.task_id: one.outcome for one in noting.runs}
    assert (outcomes[good.id], outcomes[bad.id]) == ("finish", "bury")


@pytest.mark.once
def test_all_attempts_of_a_call_start_before_the_first_begins(rows):
    from test_worker_parts import Handing

    runner = helpers.runner()
    runner.parts.add([part := Handing()])
    call = ManyCall(runner, [attempt() for _ in range(2)], NO_LIMIT)
    call.run()
    assert [what for _, what, *_ in part.notes][:4] == ["starting", "starting", "begin", "begin"]
    assert [ended.arrow for ended, _ in call.collect()] == [Arrow.FINISH] * 2


@pytest.mark.once
def test_the_time_of_a_call_is_divided_among_its_tasks():
    """Otherwise a hundred tasks in one second would count as a hundred seconds of a thread."""
    call = ManyCall(helpers.runner(), [attempt() for _ in range(4)], NO_LIMIT)
    items, began = call.left, call._since
    for item, seconds in ((items[2], 2.0), (items[0], 3.0)):
        set_outcome(item, AttemptEnd(Ended(item._attempt, Arrow.FINISH), began + seconds))
    assert [(one.attempt, seconds) for one, seconds in call.collect()] == [
        (items[0]._attempt, 1.5),
        (items[2]._attempt, 1.5),
    ]
    assert (call.collect(), call.attempts_left) == ([], [items[1]._attempt, items[3]._attempt])
    set_outcome(items[3], AttemptEnd(Ended(items[3]._attempt, Arrow.FINISH), began + 7.0))
    assert [seconds for _, seconds in call.collect()] == [4.0]


@pytest.mark.once
def test_a_direct_call_and_run_due_tasks_call_with_one_item():
    assert many.index({"result": 5}) == 5
    with pytest.raises(Reject):
        many.index({"raise": "Reject"})
    handle = many.index.enqueue({"result": [1]})
    (ran,) = run_due_tasks()
    assert (ran.task_id, ran.status, ran.result) == (handle.id, "succeeded", [1])
    many.index.enqueue({"raise": "ValueError"})
    with pytest.raises(ValueError, match="no such product"):
        run_due_tasks()


# ---- declaring


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"many": 1}, "from 2 to 500"),
        ({"many": 501}, "from 2 to 500"),
        ({"many": True}, "from 2 to 500"),
        ({"idempotent": False}, "no idempotent=True"),
        ({"atomic": True}, "cannot commit for some tasks"),
        ({"takes_context": True}, "each item has its own"),
        ({"interruptible": True}, "item.cancelled"),
        ({"compensate": tasks.note}, "compensate="),
        ({"lane": "mail"}, "lane="),
        ({"max_attempts": 1}, "max_attempts=1"),
        ({"max_crashes": 1}, "max_crashes=1"),
    ],
)
def test_what_a_call_of_many_cannot_keep_is_refused(options, why):
    def function(items): ...

    function.__qualname__, function.__module__ = "function", "probe.nowhere"
    with pytest.raises(InvalidDeclaration, match=why):
        task(**{"many": 10, "idempotent": True, **options})(function)
    assert registry.find("probe.nowhere.function") is None


@pytest.mark.once
def test_the_text_of_an_error_that_many_tasks_share_stays_the_same():
    error, config = Snooze(after=5), get_config()
    texts = {
        outcome_of_error(attempt()._replace(snoozes=10**9), error, config).error["message"]
        for _ in range(3)
    }
    assert texts == {"the task snoozed for 5 s, though it has done so 1,000,000,000 times before"}
    assert str(error) == "the task snoozed for 5 s"


@pytest.mark.once
def test_functions_that_take_no_list_of_items_are_refused():
    def none(): ...
    def two(items, more): ...
    def named(*, items): ...
    def one(items, more=None): ...
    def any_number(*items): ...

    options = {"many": 10, "idempotent": True}
    for function in (none, two, named):
        with pytest.raises(InvalidDeclaration, match="cannot be called with one argument"):
            declaration_of(function, name="probe.nowhere.function", options=options)
    for function in (one, any_number):
        declaration_of(function, name="probe.nowhere.function", options=options)


@pytest.mark.once
def test_async_and_generator_functions_are_refused():
    async def one(items): ...

    def other(items):
        yield

    for function, why in ((one, "is async"), (other, "is a generator function")):
        function.__qualname__, function.__module__ = function.__name__, "probe.nowhere"
        with pytest.raises(InvalidDeclaration, match=why):
            task(many=10, idempotent=True)(function)


# ---- how many are claimed


def attempt(function=many.index, *, args="[1]", may_share=True, failures=0):
    name = getattr(function, "declaration", function)
    name = getattr(name, "name", name)
    return Attempt(
        uuid.uuid4(), 1, uuid.uuid4(), name, args=args, may_share=may_share, failures=failures, max_attempts=5
    )  # fmt: skip


@pytest.mark.once
def test_a_worker_without_such_functions_decides_nothing():
    claims, claimed = ManyClaims(["probe.tasks.note", "no.such"]), [attempt(), attempt()]
    claims.learn(claimed, frozenset())
    assert not claims.are_calls
    runs = claims.of(claimed, lambda attempts: [[one] for one in attempts])
    assert [*runs] == [([one], False) for one in claimed]


@pytest.mark.once
def test_each_free_slot_gets_a_full_call_once_such_tasks_were_claimed():
    claims, room = ManyClaims(["probe.many.index", "probe.many.mail"]), Capacity(4, 7)
    assert claims.widened(room) == room
    claims.learn([attempt()], frozenset())
    names = frozenset({"probe.many.index"})
    assert claims.widened(room) == Capacity(4, 396, short_names=names)
    assert claims.widened(Capacity(0, 7)) == Capacity(0, 7)
    assert claims.widened(Capacity(20)).prefetch == CLAIM_TASKS
    claims.learn([attempt(many.mail)], frozenset())
    assert claims.widened(room).width == 20


@pytest.mark.once
def test_claims_of_large_arguments_are_smaller():
    claims = ManyClaims(["probe.many.index"])
    claims.learn([attempt(args=f'["{"x" * (CLAIM_BYTES // 4)}"]')], frozenset())
    assert claims.widened(Capacity(4)).prefetch == 3


@pytest.mark.once
def test_short_tasks_and_such_calls_take_turns():
    claims, short = ManyClaims(["probe.many.index"]), frozenset({"short"})
    mixed = [attempt("short"), attempt()]
    claims.learn(mixed, short)
    assert claims.are_calls
    claims.learn(mixed, short)
    assert not claims.are_calls
    claims.learn(mixed, short)
    assert claims.are_calls
    claims.learn([attempt(failures=4)], short)  # at its last attempt it is called alone
    assert not claims.are_calls
    for _ in range(2):  # one that was called alone has counted as short since
        claims.learn([attempt()], frozenset({"probe.many.index"}))
        assert claims.are_calls


@pytest.mark.once
def test_calls_are_of_one_function_and_in_the_order_of_the_claim():
    claims = ManyClaims(["probe.many.index", "probe.many.mail"])
    claimed = [
        attempt("short"), attempt(), attempt(many.mail), attempt(may_share=False), attempt(),
        attempt(failures=4), *(attempt(many.mail) for _ in range(5)),
    ]  # fmt: skip
    parts = claims.parts(claimed)
    places = [[claimed.index(one) for one in part.attempts] for part in parts]
    assert places == [[0, 3, 5], [1, 4], [2, 6, 7, 8, 9], [10]]
    assert [part.is_call for part in parts] == [False, True, True, True]
