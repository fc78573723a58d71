"""Every order of the protocol's steps is tried: naive protocols fail as they are known to, ours holds.

Each rule of ours is needed: without it something fails, and the shortest way there is printed. The
numbers of steps are what was measured; a change of the model that changes one should be meant.
"""

from dataclasses import fields

import pytest
from model import arrows, batches, lanes, last_chances, protocol
from model.checker import SETTLES, check
from model.rules import BURY, COMPENSATE, RETRY_UNDO, Case, Rules, Scenario
from model.state import DEAD, first

OURS = Rules()
FREEZE = Scenario(freezes=1)
TWO_CLEANERS = Scenario(cleaners=2, crashes=1)
BURIED = Scenario(policy=BURY, freezes=1)
COMPENSATED = Scenario(policy=COMPENSATE, freezes=1)
ATOMIC = Scenario(atomic=True, freezes=1)
HINTED = Scenario(hints=True)


# -- ours --------------------------------------------------------------------------------------------------

SCENARIOS = {
    "idempotent": Scenario(cleaners=2, crashes=1, freezes=1, lost_answers=1),
    "raising": Scenario(raises=True, crashes=1, freezes=1, lost_answers=1),
    "atomic": Scenario(atomic=True, raises=True, crashes=1, freezes=1, lost_answers=1),
    "compensated": Scenario(policy=COMPENSATE, cleaners=2, crashes=1, freezes=1, revives=1),
    "retried, then compensated": Scenario(policy=RETRY_UNDO, crashes=2, freezes=1, revives=1),
    "buried and revived": Scenario(policy=BURY, crashes=1, freezes=1, lost_answers=1, revives=2),
    "poison": Scenario(poison=True, ahead=True, freezes=1, lost_answers=1, max_crashes=3),
    "hinted": Scenario(hints=True, tasks=2, crashes=1, lost_answers=1),
    "claimed ahead": Scenario(ahead=True, crashes=1, freezes=1, releases=1),
    "claimed ahead, with lost answers": Scenario(ahead=True, freezes=1, lost_answers=1, releases=1),
    "stopped": Scenario(crashes=1, freezes=1, stops=2),
    "stopped in an atomic task": Scenario(atomic=True, freezes=1, lost_answers=1, stops=2),
    "stopped in a compensated task": Scenario(policy=COMPENSATE, crashes=1, freezes=1, stops=2),
    "stopped, claimed ahead": Scenario(ahead=True, crashes=1, lost_answers=1, stops=1),
    "cut off": Scenario(crashes=1, lost_answers=1, cuts=1),
    "cut off in a default task": Scenario(policy=BURY, crashes=1, lost_answers=1, cuts=2),
    "cut off in a compensated task": Scenario(policy=COMPENSATE, cleaners=2, crashes=1, cuts=1),
    "cut off at its last crash": Scenario(policy=RETRY_UNDO, crashes=2, cuts=1),
    "cut off, and frozen": Scenario(policy=BURY, freezes=1, cuts=1, lost_answers=1),
    "failed over": Scenario(crashes=1, freezes=1, failovers=1),
    "failed over in an atomic task": Scenario(atomic=True, crashes=1, lost_answers=1, failovers=2),
    "failed over in a default task": Scenario(
        policy=BURY, cleaners=2, crashes=1, freezes=1, lost_answers=1, failovers=1
    ),
    "failed over in a compensated task": Scenario(
        policy=COMPENSATE, cleaners=2, crashes=1, freezes=1, lost_answers=1, failovers=1
    ),
    "hung": Scenario(hangs=True, freezes=1),
    "hung in a default task": Scenario(policy=BURY, hangs=True, crashes=1, cuts=1),
    "hung in an atomic task": Scenario(atomic=True, hangs=True, freezes=1),
    "hung in a compensated task": Scenario(
        policy=COMPENSATE, hangs=True, cleaners=2, crashes=1, freezes=1, revives=1
    ),
    "hung, retried, then compensated": Scenario(
        policy=RETRY_UNDO, hangs=True, freezes=1, revives=1
    ),
    "two tasks": Scenario(tasks=2, freezes=1, lost_answers=1),
    "an id that has run": Scenario(crashes=1, lost_answers=1, releases=1, ahead=True, copies=1),
    "an id that has run, in an atomic task": Scenario(
        atomic=True, freezes=1, lost_answers=1, copies=1, revives=1
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_ours_holds_whatever_the_order(name):
    verdict = protocol.verdict(Case(OURS, SCENARIOS[name]))
    assert not verdict.traces, str(verdict)
    assert verdict.states > 2000


def is_dead(s):
    return any(row and row.status == DEAD for row in s.rows)


REACHED = {
    "idempotent": lambda s: s.past[0].finishes and s.past[0].runs == 2,
    "raising": lambda s: is_dead(s) and s.past[0].runs == 2,
    "atomic": lambda s: s.past[0].effects and s.past[0].runs == 2,
    "compensated": lambda s: is_dead(s) and s.past[0].compensated,
    "retried, then compensated": lambda s: (
        is_dead(s) and s.past[0].compensated and s.past[0].runs == 2
    ),
    "buried and revived": lambda s: s.past[0].finishes and s.past[0].runs == 2,
    "poison": lambda s: is_dead(s) and s.past[0].runs == 3,
    "claimed ahead": lambda s: is_dead(s) and s.past[0].runs == 0,
    "cut off": lambda s: s.past[0].finishes and s.past[0].runs == 2,
    "cut off in a default task": lambda s: is_dead(s) and s.past[0].runs == 1,
    "failed over": lambda s: s.past[0].finishes and s.past[0].runs == 2,
    "failed over in an atomic task": lambda s: s.past[0].effects and s.past[0].runs == 3,
    "failed over in a default task": lambda s: (
        is_dead(s) and s.past[0].runs == 1 and not s.left.failovers
    ),
    "failed over in a compensated task": lambda s: (
        s.past[0].compensated and s.past[0].runs == 1 and not s.left.failovers
    ),
    "an id that has run": lambda s: is_dead(s) and s.past[0].runs == 1,
    "hung": lambda s: is_dead(s) and s.past[0].runs == 2 and s.past[0].abandoned,
    "hung in a default task": lambda s: s.past[0].finishes and s.past[0].runs == 2,
    "hung in an atomic task": lambda s: s.past[0].effects and s.past[0].runs == 2,
    "hung in a compensated task": lambda s: (
        s.past[0].compensated and s.past[0].runs == 1 and s.past[0].abandoned
    ),
    "hung, retried, then compensated": lambda s: (
        s.past[0].compensated and s.past[0].runs == 2 and s.past[0].abandoned
    ),
    "stopped": lambda s: s.past[0].finishes and s.past[0].runs == 3 and not s.rows[0],
    "stopped in an atomic task": lambda s: s.past[0].effects and s.past[0].runs == 3,
    "stopped in a compensated task": lambda s: is_dead(s) and s.past[0].compensated,
}


@pytest.mark.parametrize("name", REACHED)
def test_what_has_to_hold_is_not_held_by_doing_nothing(name):
    happens, case = REACHED[name], Case(OURS, SCENARIOS[name])
    verdict = check(
        first(case.scenario),
        lambda s: protocol.steps(case, s),
        {"never": lambda s: not happens(s)},
        settled=lambda s: True,
        until="never",
    )
    assert verdict.traces


# -- without a rule ------------------------------------------------------------------------------------------

NAIVE = {
    "an id is the hash of the description, and finish a DELETE by id": (
        ("fresh_ids", "finish_is_fenced"),
        Scenario(tasks=2, freezes=1),
        protocol.NO_LOSS,
        18,
    ),
    "finish is a DELETE by id": (("finish_is_fenced",), FREEZE, arrows.MOVED_BY_ANOTHER, 13),
    "a cleaner resets what its old list says": (
        ("recover_is_fenced",),
        TWO_CLEANERS,
        arrows.RESET_UNDER_A_LIVING_WORKER,
        12,
    ),
    "compensation is a function call of the cleaner": (
        ("notice_in_the_transaction",),
        COMPENSATED,
        protocol.NOT_DONE_AND_COMPENSATED,
        13,
    ),
    "a death is reported outside of its transaction": (
        ("notice_in_the_transaction",),
        BURIED,
        protocol.NOT_DONE_AND_DEAD,
        13,
    ),
    "effects are committed with a DELETE by id": (
        ("finish_is_fenced", "row_count_is_looked_at"),
        ATOMIC,
        protocol.EFFECTS_ONCE,
        15,
    ),
    "attempts are counted when they end": (
        ("attempt_counted_in_claim", "crashes_are_counted"),
        Scenario(poison=True),
        SETTLES,
        0,
    ),
    "nobody asks what became of a COMMIT": (("reconciles",), Scenario(lost_answers=1), SETTLES, 3),
    "a cleaner believes its old sight": (
        ("lose_checks_beat",),
        FREEZE,
        arrows.LOST_THOUGH_IT_BEAT,
        6,
    ),
    "a lost worker claims": (
        ("turn_begins_with_beat",),
        Scenario(freezes=1, max_crashes=3),
        protocol.RUNS_BOUNDED,
        18,
    ),
    "recover is one statement, with an old snapshot": (
        ("recovers_in_two_steps",),
        Scenario(),
        arrows.RESET_UNDER_A_LIVING_WORKER,
        5,
    ),
    "hints are all there is": (("scans", "renotifies"), HINTED, SETTLES, 1),
}

OTHERS = {
    "the row count is not looked at": (
        ("row_count_is_looked_at",),
        BURIED,
        protocol.NOT_DONE_AND_DEAD,
        13,
    ),
    "crashes are not counted": (
        ("crashes_are_counted",),
        Scenario(poison=True),
        protocol.RUNS_BOUNDED,
        18,
    ),
    "a worker that stops lets go what runs, and is believed": (
        ("lost_before_it_lets_go",),
        Scenario(stops=1),
        arrows.LET_GO_BY_A_BELIEVED_WORKER,
        5,
    ),
    "what hangs is given back, and that counts as nothing": (
        ("a_hang_is_a_failure",),
        Scenario(hangs=True),
        protocol.RUNS_BOUNDED,
        13,
    ),
    "what hangs at its last attempt is dead like any failure": (
        ("a_last_hang_is_undone",),
        Scenario(policy=RETRY_UNDO, hangs=True),
        protocol.UNDONE,
        9,
    ),
    "a worker lets go what hangs, and is believed": (
        ("lost_before_it_lets_go",),
        Scenario(hangs=True),
        arrows.LET_GO_BY_A_BELIEVED_WORKER,
        5,
    ),
    "a lost worker comes back under its id": (
        ("new_id_when_lost",),
        FREEZE,
        arrows.RESET_UNDER_A_LIVING_WORKER,
        10,
    ),
    "a compensated task is revived": (
        ("compensated_is_final",),
        Scenario(policy=COMPENSATE, crashes=1, revives=1),
        protocol.NOT_DONE_AND_COMPENSATED,
        14,
    ),
    "one that was compensated in the end is revived": (
        ("compensated_is_final",),
        Scenario(policy=RETRY_UNDO, crashes=2, revives=1),
        protocol.NOT_DONE_AND_COMPENSATED,
        21,
    ),
    "both links are cut, and that is the end of a worker": (
        ("final_claims_wait",),
        Scenario(policy=BURY, cuts=1),
        arrows.BURIED_ALIVE,
        8,
    ),
    "its claims are looked at before its beat": (
        ("claims_read_after_beat",),
        Scenario(policy=BURY, cuts=1),
        arrows.BURIED_ALIVE,
        9,
    ),
    "nobody remembers what he has recorded": (
        ("remembers_ends",),
        Scenario(policy=BURY, failovers=1),
        protocol.RUNS_BOUNDED,
        8,
    ),
    "an atomic end is written again": (
        ("repeats_no_atomic_end",),
        Scenario(atomic=True, failovers=1),
        protocol.EFFECTS_ONCE,
        6,
    ),
    "a row runs whose id stands in history": (
        ("history_decides",),
        Scenario(copies=1),
        protocol.RUNS_BOUNDED,
        8,
    ),
    "a person revives what an old page shows": (
        ("revive_checks_status",),
        Scenario(policy=BURY, crashes=1, revives=2),
        arrows.MOVED_BY_ANOTHER,
        14,
    ),
}

TWO_LOCKS = {
    "the attempt and the worker in the fence": (
        ("fence_has_attempt", "fence_has_worker"),
        FREEZE,
        arrows.MOVED_BY_ANOTHER,
        15,
    ),
    "a counted attempt and the worker in the fence": (
        ("attempt_counted_in_claim", "fence_has_worker"),
        FREEZE,
        arrows.MOVED_BY_ANOTHER,
        15,
    ),
    "fresh ids and the fence": NAIVE[
        "an id is the hash of the description, and finish a DELETE by id"
    ],
    "scan and renotify": NAIVE["hints are all there is"],
}
"""Pairs of rules of which either is enough: we follow both."""

FAILING = {**NAIVE, **OTHERS, **TWO_LOCKS}


@pytest.mark.parametrize("name", FAILING)
def test_without_these_rules_it_fails(name):
    left_out, scenario, broken, steps = FAILING[name]
    verdict = protocol.verdict(Case(OURS.without(*left_out), scenario), only=broken)
    assert list(verdict.traces) == [broken], f"{broken}: not broken without {left_out}"
    assert len(verdict.traces[broken]) == steps, str(verdict)


@pytest.mark.parametrize("name", TWO_LOCKS)
def test_of_these_two_rules_either_is_enough(name):
    left_out, scenario, broken, _ = TWO_LOCKS[name]
    for one in left_out:
        verdict = protocol.verdict(Case(OURS.without(one), scenario), only=broken)
        assert not verdict.traces, str(verdict)


def test_each_rule_is_known_to_be_needed():
    needed = {rule for left_out, *_ in FAILING.values() for rule in left_out}
    assert needed == {rule.name for rule in fields(Rules)}


# -- lanes -------------------------------------------------------------------------------------------------

AT_MOST = 2


def lane_verdict(**rules):
    """Two or three turns at once, a lane of which two may run, and ends and crashes in between."""
    return check(
        lanes.first(3, 4, crashes=2, ends=6),
        lambda s: lanes.steps(lanes.LaneRules(**rules), AT_MOST, s),
        {lanes.OVERRUN: lambda s: s.claimed <= AT_MOST},
        settled=lambda s: not s.waiting and not s.claimed,
    )


def test_a_lane_is_never_overrun_and_never_stuck():
    verdict = lane_verdict()
    assert not verdict.traces, str(verdict)
    assert verdict.states > 500


@pytest.mark.parametrize(
    ("without", "broken"),
    [("locks", lanes.OVERRUN), ("counts_anew", lanes.OVERRUN), ("counts_rows", SETTLES)],
)
def test_each_rule_of_a_lane_is_needed(without, broken):
    """Without the lock, and with an old snapshot, too many start; a counter keeps places that a crash took."""
    verdict = lane_verdict(**{without: False})
    assert list(verdict.traces) == [broken], str(verdict)


# -- last chances after a crash ------------------------------------------------------------------------------


def poison_verdict(max_crashes, has_own_process=True, tasks=4, **rules):
    """Two poisoned tasks and two others, which one process may take together."""
    of = last_chances.LastChanceRules(**rules)
    return check(
        last_chances.first(tasks),
        lambda s: last_chances.steps(of, max_crashes, has_own_process, s),
        {
            last_chances.ONE_KIND: lambda s: last_chances.one_kind(of, max_crashes, s),
            last_chances.NO_INNOCENT_DIES: last_chances.no_innocent_dies,
        },
        settled=last_chances.settled,
    )


@pytest.mark.parametrize("has_own_process", [True, False])
@pytest.mark.parametrize("max_crashes", [2, 3])
def test_poisoned_tasks_take_no_others_along(max_crashes, has_own_process):
    verdict = poison_verdict(max_crashes, has_own_process)
    assert not verdict.traces, str(verdict)
    assert verdict.states > 100


def test_if_one_crash_is_allowed_each_task_beside_it_dies_with_it():
    """A first attempt is no last chance: else every such task would run alone."""
    assert last_chances.NO_INNOCENT_DIES in poison_verdict(1).traces


@pytest.mark.parametrize("has_own_process", [True, False])
@pytest.mark.parametrize(
    ("without", "broken"),
    [({"leaves": False, "takes": False}, last_chances.NO_INNOCENT_DIES),
     ({"leaves": False}, last_chances.ONE_KIND), ({"takes": False}, last_chances.ONE_KIND),
     ({"waits": False}, last_chances.NO_INNOCENT_DIES)],
)  # fmt: skip
def test_each_rule_of_the_last_chance_is_needed(without, broken, has_own_process):
    rules = dict.fromkeys(without, False)
    assert broken in poison_verdict(2, has_own_process, **rules).traces


def test_without_a_process_of_its_own_nothing_may_start_beside_a_last_chance():
    """The other poison could come after the last chance of a neighbour has begun."""
    verdict = poison_verdict(2, False, keeps_free=False)
    assert last_chances.NO_INNOCENT_DIES in verdict.traces


# -- batches -----------------------------------------------------------------------------------------------


def batch_verdict(crashes=1, until="", **rules):
    """Members, of which some die, are revived or discarded, or add others, and doors that die before they look."""
    return check(
        batches.BatchState(2, adds=1, revives=1, discards=1, crashes=crashes),
        lambda s: batches.steps(batches.BatchRules(**rules), s),
        {
            batches.TOLD_ONCE: lambda s: s.told <= 1,
            batches.NONE_LEFT: lambda s: batches.NONE_LEFT not in s.broken,
            batches.NO_FALSE_SUCCESS: lambda s: batches.NO_FALSE_SUCCESS not in s.broken,
        },
        settled=batches.settled,
        until=until,
    )


def test_a_batch_ends_once_after_its_last_member():
    verdict = batch_verdict()
    assert not verdict.traces, str(verdict)
    assert verdict.states > 2000


@pytest.mark.parametrize(
    ("without", "broken"),
    [
        ("locks", batches.TOLD_ONCE),
        ("looks_again", batches.NONE_LEFT),
        ("sweeps", SETTLES),
        ("fenced_adds", batches.NONE_LEFT),
        ("locked_adds", batches.NONE_LEFT),
    ],
)
def test_each_rule_of_a_batch_is_needed(without, broken):
    assert broken in batch_verdict(until=broken, **{without: False}).traces


@pytest.mark.parametrize(
    "questions",
    [
        (batches.LIVE, batches.FAILED),
        (batches.FAILED, batches.LIVE),
        (batches.LIVE, batches.FAILED, batches.LIVE),
        (frozenset({"waiting"}), batches.ALL - {"waiting"}),
        (batches.ALL - {"dead"}, frozenset({"dead"})),
    ],
    ids=["live, failed", "failed, live", "live twice", "waiting apart", "dead apart"],
)
def test_a_batch_that_asks_for_its_members_by_several_statements_ends_as_a_false_success(questions):
    verdict = batch_verdict(until=batches.NO_FALSE_SUCCESS, questions=questions)
    assert batches.NO_FALSE_SUCCESS in verdict.traces


def test_who_looks_before_he_commits_may_leave_a_batch_to_the_cleaner():
    assert not batch_verdict(0, sweeps=False).traces
    assert list(batch_verdict(0, commits_first=False, sweeps=False).traces) == [SETTLES]
    assert not batch_verdict(commits_first=False).traces
