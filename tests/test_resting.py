"""How long who sends hints rests."""

import time

import pytest

from django_txtasks.hints.sending import rest as resting
from django_txtasks.hints.sending.rest import Rest

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


@pytest.fixture
def busy(monkeypatch):
    """However few tasks a process commits, it counts as busy."""
    monkeypatch.setattr(resting, "BUSY_PER_SECOND", 0.001)


def send(rest, clock, ids, since_last):
    """Send a number of messages some seconds after the last sending began; return the length of the rest."""
    clock[0] = begin = rest._last_begin + since_last
    clock[0] += TOOK
    rest.begin(begin, ids)
    return rest.seconds_left()


def test_the_first_hint_waits_for_nothing(clock):
    assert Rest().is_over() and Rest().seconds_left() == 0


@pytest.mark.usefixtures("busy")
def test_it_rests_for_a_multiple_of_the_time_that_sending_took(rest, clock):
    assert send(rest, clock, 1, 10) == pytest.approx(resting.REST * TOOK)
    assert not rest.is_over()
    clock[0] += resting.REST * TOOK
    assert rest.is_over()


@pytest.mark.usefixtures("busy")
def test_it_rests_longer_in_proportion_to_what_comes(rest, clock):
    usual = send(rest, clock, 1, 10)
    assert send(rest, clock, 1, usual) == pytest.approx(usual)
    assert send(rest, clock, 2, usual) == pytest.approx(2 * usual)


@pytest.mark.usefixtures("busy")
def test_however_many_come_it_rests_no_longer_than_the_limit(rest, clock):
    send(rest, clock, 1, 10)
    assert send(rest, clock, 1000, 0.0) == pytest.approx(resting.LONGEST_REST_SECONDS)


@pytest.mark.usefixtures("busy")
def test_the_slow_first_sending_hardly_counts(clock):
    rested = send(Rest(), clock, 1, 10)
    assert rested == pytest.approx(
        resting.REST
        * (resting.USUAL_SECONDS + resting.NEWEST_SHARE * (TOOK - resting.USUAL_SECONDS))
    )


@pytest.mark.usefixtures("busy")
def test_a_server_that_was_frozen_is_forgotten_soon(rest, clock):
    usual = send(rest, clock, 1, 10)
    clock[0] += 10
    begin = clock[0]
    clock[0] += 60
    rest.begin(begin, 1)
    assert rest.seconds_left() < 1.5 * usual


@pytest.mark.usefixtures("busy")
def test_one_slow_sending_changes_the_average_little(rest, clock):
    usual = send(rest, clock, 1, 10)
    clock[0] += 10
    begin = clock[0]
    clock[0] += 2 * TOOK
    rest.begin(begin, 1)
    assert rest.seconds_left() == pytest.approx(usual * (1 + resting.NEWEST_SHARE))


def test_where_few_come_they_hardly_wait_however_slow_the_answers_are(rest, clock):
    """Else more come in each rest, which makes the next one longer, up to the limit."""
    rests = [send(rest, clock, 1, 0.01) for _ in range(100)]
    assert max(rests[50:]) < 0.01


def test_who_commits_all_the_time_rests_for_long(rest, clock):
    rests = [send(rest, clock, 10, 0.02) for _ in range(20)]
    assert rests[-1] == pytest.approx(resting.LONGEST_REST_SECONDS)


def test_a_pause_makes_nobody_less_busy(rest, clock):
    for _ in range(20):
        send(rest, clock, 10, 0.02)
    send(rest, clock, 1, 60)
    assert send(rest, clock, 10, 0.02) == pytest.approx(resting.LONGEST_REST_SECONDS)
