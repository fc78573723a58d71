"""The event on which every loop waits: a wait returns in time, and no call is forgotten."""

import threading

import pytest

from django_txtasks.core.ground.wakeup import WakeUp

PATIENCE = 60.0


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "rung before"])
@pytest.mark.parametrize("seconds", [-1.0, -0.0000001, 0.0, 0.0000001, 0.000001, 0.00001])
def test_a_deadline_that_passes_during_the_call_ends_the_wait(seconds, is_new):
    # A worker that sleeps on through its lease is declared lost, and its tasks run again.
    def wait_often():
        inbox = WakeUp()
        for _ in range(5_000):
            if is_new:
                inbox = WakeUp()
            else:
                inbox.wake()
                inbox.wait(PATIENCE)
            inbox.wait(seconds)

    waiting = threading.Thread(target=wait_often, daemon=True)
    waiting.start()
    waiting.join(PATIENCE)
    assert not waiting.is_alive()


def test_a_ring_is_heard_by_the_next_wait_and_once():
    inbox = WakeUp()
    inbox.wake()
    inbox.wake()
    heard = []

    def hear():
        inbox.wait(PATIENCE * 2)
        heard.append(1)
        inbox.wait(PATIENCE * 2)
        heard.append(2)

    hearing = threading.Thread(target=hear, daemon=True)
    hearing.start()
    while not heard:
        hearing.join(0.01)
    hearing.join(0.1)
    assert heard == [1]
    inbox.wake()
    hearing.join(PATIENCE)
    assert heard == [1, 2]


def test_nothing_that_comes_while_others_are_read_is_overlooked():
    inbox, came, read = WakeUp(), [], []

    def bring():
        for number in range(20_000):
            came.append(number)
            inbox.wake()

    bringing = threading.Thread(target=bring)
    bringing.start()
    while len(read) < 20_000:
        inbox.wait(PATIENCE)
        assert came or read, "woken by nothing"
        while came:
            read.append(came.pop(0))
    bringing.join()
    assert read == list(range(20_000))
