"""How long who sends hints rests."""

import time

import pytest

from django_txtasks import resting
from django_txtasks.resting import Rest

pytestmark = pytest.mark.once
TOOK = 0.001


@pytest.fixture
def clock(monkeypatch):
    """The seconds that ``time.monotonic()`` tells, in a list."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def rest(clock):
    """The rest of who has sent for long."""
    one = Rest()
    one._mean_seconds = TOOK
    return one


def send(rest, clock, ids, since_last):
    """Send so many, so many seconds after the last sending began; return how long it then rests."""
    clock[0] = begin = rest._last_begin + since_last
    clock[0] += TOOK
    rest.begin(begin, ids)
    return rest.seconds_left()


def test_the_first_hint_waits_for_nothing(clock):
    assert Rest().is_over() and Rest().seconds_left() == 0


def test_it_rests_for_a_multiple_of_the_time_that_sending_took(rest, clock):
    assert send(rest, clock, 1, 10) == pytest.approx(resting.REST * TOOK)
    assert not rest.is_over()
    clock[0] += resting.REST * TOOK
    assert rest.is_over()


def test_it_rests_longer_in_proportion_to_what_comes(rest, clock):
    usual = send(rest, clock, 1, 10)
    assert send(rest, clock, 1, usual) == pytest.approx(usual)
    assert send(rest, clock, 2, usual) == pytest.approx(2 * usual)


def test_however_many_come_it_rests_no_longer_than_the_limit(rest, clock):
    send(rest, clock, 1, 10)
    assert send(rest, clock, 1000, 0.0) == pytest.approx(resting.LONGEST_REST_SECONDS)


def test_the_slow_first_sending_hardly_counts(clock):
    rested = send(Rest(), clock, 1, 10)
    assert rested == pytest.approx(
        resting.REST
        * (resting.USUAL_SECONDS + resting.NEWEST_SHARE * (TOOK - resting.USUAL_SECONDS))
    )


def test_a_server_that_was_frozen_is_forgotten_soon(rest, clock):
    usual = send(rest, clock, 1, 10)
    clock[0] += 10
    begin = clock[0]
    clock[0] += 60
    rest.begin(begin, 1)
    assert rest.seconds_left() < 1.5 * usual


def test_one_slow_sending_changes_the_average_little(rest, clock):
    usual = send(rest, clock, 1, 10)
    clock[0] += 10
    begin = clock[0]
    clock[0] += 2 * TOOK
    rest.begin(begin, 1)
    assert rest.seconds_left() == pytest.approx(usual * (1 + resting.NEWEST_SHARE))
