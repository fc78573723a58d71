"""Waits in every order of their steps: see test_model.py. Ours hold, and do not without any of their rules.

The numbers of steps are what was measured; a change of the model that changes one should be meant.
"""

import pytest
from model import waits
from model.checker import SETTLES, check


def wait_verdict(crashes=2, values=2, has_limit=False, twins=0, **rules):
    """One task that waits, some who bring values, a frozen worker, crashes and a cancel."""
    names = [f"value {number}" for number in range(1, values + 1)]
    bringers = tuple(waits.Bringer(name) for name in names)
    faults = {"crashes": crashes, "freezes": 1, "cancels": 1}
    return check(
        waits.WaitState(
            bringers=bringers, has_limit=has_limit, has_key=twins > 0, twins=twins, **faults
        ),
        lambda s: waits.steps(waits.WaitRules(**rules), s),
        waits.PROPERTIES,
        settled=waits.settled,
    )


@pytest.mark.parametrize("twins", [0, 2])
@pytest.mark.parametrize("has_limit", [False, True])
def test_nobody_waits_whose_value_is_there(has_limit, twins):
    verdict = wait_verdict(has_limit=has_limit, twins=twins)
    assert not verdict.traces, str(verdict)
    assert verdict.states > 2000


WAITS_REACH = {
    "a value that comes first": lambda s: s.answers and s.number == 1,
    "a value that comes while it waits": lambda s: s.answers and s.number == 2 and s.crashes,
    "an answer for a second attempt": lambda s: s.answers and s.number == 3,
    "a time that passes": lambda s: waits.TOO_LATE in s.answers,
    "a value in time, though it was over": lambda s: s.is_over and s.counted & s.answers,
    "a stop": lambda s: s.asked and s.status == waits.ENDED,
    "a merge before the value": lambda s: not s.twins and s.number == 2 and s.answers,
    "a value before a merge": lambda s: s.twins and not s.has_key and s.answers,
}


@pytest.mark.parametrize("name", WAITS_REACH)
def test_waits_do_not_hold_by_doing_nothing(name):
    start = waits.WaitState(
        bringers=(waits.Bringer("value"),),
        has_limit=True,
        has_key=True,
        twins=1,
        cancels=1,
        crashes=1,
    )
    verdict = check(
        start,
        lambda s: waits.steps(waits.WaitRules(), s),
        {"never": lambda s: not WAITS_REACH[name](s)},
        settled=lambda s: True,
        until="never",
    )
    assert verdict.traces


WAITS_FAIL = {
    "R looks for T, and then commits": ({"locks": False}, SETTLES, 6),
    "T looks, and then commits": ({"looks_again": False}, SETTLES, 6),
    "a crash between R's commit and his look": ({"at_once": False}, SETTLES, 8),
    "nobody gives back what a lost worker had": ({"recovers": False}, SETTLES, 2),
    "what was asked to stop has no end": ({"ends_asked": False}, SETTLES, 4),
    "an early value is dropped": ({"keeps_early": False}, waits.FIRST_COUNTS, 2),
    "a later value is taken": ({"first_stays": False}, waits.WHAT_COUNTS, 4),
    "who gave up may be answered": (
        {"gives_up_for_good": False, "has_limit": True},
        waits.WHAT_COUNTS,
        6,
    ),
    "a task with an early value keeps its key": (
        {"alone_with_value": False, "twins": 1},
        waits.FOR_THIS_TASK,
        3,
    ),
    "a frozen worker gives the row back": ({"is_fenced": False}, waits.OTHERS_ROW, 4),
    "a frozen worker's attempt gets the value": (
        {"asks_fenced": False},
        waits.FOR_ITS_HOLDER,
        5,
    ),
}


@pytest.mark.parametrize("name", WAITS_FAIL)
def test_each_rule_of_a_wait_is_needed(name):
    changes, broken, steps = WAITS_FAIL[name]
    verdict = wait_verdict(**changes)
    assert broken in verdict.traces, str(verdict)
    assert len(verdict.traces[broken]) == steps, str(verdict)


def test_each_rule_of_a_wait_is_known_to_be_needed():
    left_out = {rule for changes, *_ in WAITS_FAIL.values() for rule in changes}
    assert left_out - {"has_limit", "twins"} == {*waits.WaitRules._fields} - {"sweeps"}


def test_who_commits_first_and_then_looks_needs_a_sweep_once_there_are_crashes():
    assert not wait_verdict(0, at_once=False).traces
    assert not wait_verdict(at_once=False, sweeps=True).traces


def test_where_value_and_wake_up_are_one_transaction_a_sweep_finds_nothing():
    verdict = wait_verdict(sweeps=True)
    assert verdict.states == wait_verdict().states


def test_a_time_limit_ends_a_wait_whose_wake_up_was_lost():
    assert not wait_verdict(has_limit=True, locks=False).traces
