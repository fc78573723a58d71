"""Calls of a target that never return: all other rows go, and the process ends before it is full of such calls."""

import threading
from collections import Counter

import handing
import helpers
import pytest
from probe import relay
from test_hand_over_crash import Relay, ends

from django_txtasks import enqueue_many, enqueue_task, external
from django_txtasks.features.hand_over.targets import calling
from django_txtasks.models import Task

pytestmark = pytest.mark.usefixtures("rows", "quick_target")
good = external("good", queue_name="events")
bad = external("bad", queue_name="events")


@pytest.fixture
def over(monkeypatch):
    """The end of the test, for which calls wait that never return."""
    monkeypatch.setattr(calling, "CALL_SECONDS", 1.5)
    monkeypatch.setattr(calling, "GIVE_UP_SECONDS", 2.0)
    found = threading.Event()
    yield found
    found.set()


def test_a_call_that_never_returns_keeps_no_other_row_back(over, monkeypatch):
    """The rows behind the bad one arrive once; those in front of it, in the same call, once more at most."""
    got = Counter()

    def send(rows):
        for row in rows:
            if row.task_name == "bad":
                over.wait(helpers.PATIENCE)
            got[row.args[0]] += 1

    monkeypatch.setattr(relay, "send", send)
    enqueue_many([(bad if number == 3 else good, (number,)) for number in range(10)])
    with handing.handing_over() as drain:
        helpers.wait_until(lambda: drain.handed == 9)
    (left,) = Task.objects.all()
    assert left.args == [3] and left.snoozes >= 1
    assert "has not returned" in left.errors[-1]["message"]
    assert got == {**dict.fromkeys([0, 1, 2], 2), **dict.fromkeys(range(4, 10), 1)}


def test_the_answer_of_a_call_that_was_given_up_is_nobodys(over, monkeypatch):
    """The first try says at last that it has taken the row, while the second try says that it has not."""
    threads = []

    def send(rows):
        threads.append(threading.current_thread())
        if len(threads) == 1:
            monkeypatch.setattr(calling, "CALL_SECONDS", helpers.PATIENCE)  # for the second call
            over.wait(helpers.PATIENCE)
            return None
        over.set()
        threads[0].join(helpers.PATIENCE)
        return {row.id: "full" for row in rows}

    monkeypatch.setattr(relay, "send", send)
    first = enqueue_task(good, 1)
    with handing.handing_over() as drain:
        helpers.wait_until(lambda: helpers.row(first.id).snoozes >= 2)
        assert drain.handed == 0
    assert helpers.row(first.id).errors[-1]["message"] == "full"
    assert threads[0] is not threads[1] and not threads[0].is_alive()


def test_an_ordered_queue_waits_for_a_row_whose_call_hangs(over, txtasks, monkeypatch):
    txtasks(hand_over={"events": {"to": "probe.relay.send", "ordered": True}})
    asked, got = [], []

    def send(rows):
        asked.append(rows[0].args[0])
        if asked.count(1) == 1 and asked[-1] == 1:
            over.wait(helpers.PATIENCE)
            return
        got.append(rows[0].args[0])

    monkeypatch.setattr(relay, "send", send)
    enqueue_many([(good, (number,)) for number in range(3)])
    with handing.handing_over():
        helpers.wait_until(lambda: not Task.objects.exists())
    assert (asked, got) == ([0, 1, 1, 2], [0, 1, 2])


def test_a_target_that_hangs_while_it_connects_is_made_anew(over, txtasks, monkeypatch):
    """An object of the project may hang in each of its methods."""

    class Hangs:
        def __init__(self, queue):
            self._number = len(made)
            made.append(self)

        def look_after(self):
            if self._number == 0:
                over.wait(helpers.PATIENCE)

        def send(self, rows, until):
            return relay_target.send(rows, until)

        def close(self):
            closed.append(self._number)

    class App:
        def txtasks_target(self, queue, *, ordered):
            return Hangs(queue)

    from django_txtasks.features.hand_over.targets.functions import FunctionTarget

    made, closed, relay_target = [], [], FunctionTarget(relay.send)
    monkeypatch.setattr(relay, "app", App(), raising=False)
    txtasks(hand_over={"events": "probe.relay.app"})
    enqueue_many([(good, (number,)) for number in range(3)])
    with handing.handing_over() as drain:
        helpers.wait_until(lambda: drain.handed == 3)
    assert len(made) == 2 and closed == [1]


@pytest.mark.once
def test_a_process_full_of_hanging_calls_ends_and_the_next_one_goes_on(
    processes, txtasks, tmp_path, monkeypatch
):
    """The call waits for a thread that would keep Python from ending."""
    monkeypatch.setenv("TXTASKS_TEST_QUICK_CALLS", "1")
    txtasks(hand_over={"mail": "probe.relay.hang"}, queues=["default", "mail"])
    drains = Relay(processes, tmp_path / "arrived")
    enqueue_task(external("bad", queue_name="mail"))
    enqueue_many([(external("good", queue_name="mail"), (number,)) for number in range(20)])
    first = drains.start()
    assert ends(first, drains) == 1
    assert "2 calls of the target of queue 'mail' have not returned" in drains.log_of(first)
    enqueue_many([(external("good", queue_name="mail"), (number,)) for number in range(20, 40)])
    drains.start()
    helpers.wait_until(lambda: not Task.objects.exclude(task_name="bad").exists())
    assert {number for number, _ in drains.lines()} == set(range(40))
