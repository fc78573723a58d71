"""txtasks_verify: its plan and its account, and real storms on a scratch database of each kind."""

import itertools
import json
import os
import random
import signal
import socket
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path

import django
import helpers
import pika
import pytest
from django.db import connection, connections

from django_txtasks.conf import DeadNotices, parse
from django_txtasks.contrib.verify import crew, journal, plan, project, report
from django_txtasks.contrib.verify.account import judge, second_starts
from django_txtasks.contrib.verify.crew import Kill
from django_txtasks.contrib.verify.evidence import End, Evidence, Row
from django_txtasks.contrib.verify.journal import Promises, Runs, Start
from django_txtasks.contrib.verify.keys import Keys
from django_txtasks.contrib.verify.plan import Kind
from django_txtasks.contrib.verify.project import Scene
from django_txtasks.contrib.verify.proxy import Proxy
from django_txtasks.contrib.verify.scratch import Scratch
from django_txtasks.contrib.verify.storm import Log
from django_txtasks.exceptions import ScratchRefused

# ---- the plan


def sent(seed=1, producer="s0", tasks=2000, **shares):
    return list(plan.transactions(seed, producer, tasks, **shares))


def test_the_plan_is_a_function_of_the_seed():
    random.seed(1)
    first = sent(), plan.schedule(1, KINDS, 60)
    random.seed(2)
    assert (sent(), plan.schedule(1, KINDS, 60)) == first
    assert sent(seed=2) != first[0]
    assert sent(producer="s1") != first[0]
    assert plan.schedule(2, KINDS, 60) != first[1]


def test_a_sender_sends_so_many_tasks_under_keys_of_their_own():
    keys = [task.key for planned in sent(tasks=1234) for task in planned.tasks]
    assert len(keys) == len(set(keys)) == 1234


def test_a_tenth_of_the_transactions_is_rolled_back_and_half_of_the_tasks_is_atomic():
    planned = sent(tasks=20_000)
    rolled_back = sum(not one.commit for one in planned) / len(planned)
    kinds = Counter(task.kind for one in planned for task in one.tasks)
    assert 0.08 < rolled_back < 0.12
    assert 0.47 < (kinds["atomic"] + kinds["increment"]) / 20_000 < 0.53
    assert set(kinds) == set(plan.KINDS)
    assert not any(one.commit for one in sent(rolled_back=1.0))


def test_slow_tasks_keep_half_of_the_slots_busy():
    share = plan.slow_share(20_000, 100, 16)
    seconds = sum(task.seconds for one in sent(tasks=20_000, slow=share) for task in one.tasks)
    assert 0.3 * 16 * 100 < seconds < 0.55 * 16 * 100


KINDS = [Kind("often", 0.2, 1.0), Kind("rarely", 50.0, 70.0), Kind("evenly", 3.0, 3.0)]


def test_each_kind_of_fault_comes_at_its_pace_and_at_least_once():
    faults = plan.schedule(1, KINDS, 30)
    assert faults == sorted(faults, key=lambda fault: fault.at)
    count = Counter(fault.name for fault in faults)
    assert (count["rarely"], count["evenly"]) == (1, 10)
    often = [fault.at for fault in faults if fault.name == "often"]
    pauses = [later - at for at, later in itertools.pairwise(often)]
    assert 0.19 < min(pauses) < max(pauses) < 1.01
    assert max(fault.at for fault in faults) < 30


# ---- the account


def at(second):
    return datetime(2026, 11, 1, 12, 0, second, tzinfo=timezone.utc)


def calm() -> Evidence:
    """A storm in which all went well: each kind of end is there."""
    return Evidence(
        promises=Promises(
            committed=[
                ["plain"],
                ["atomic", "add"],
                ["again"],
                ["flaky"],
                ["gone"],
                ["one", "same"],
                ["stepped", "asleep", "asked"],
                ["good", "good-end"],
                ["bad", "doomed", "bad-end"],
            ],
            refused=[["never"], ["member", "member-end"]],
            unknown=[["there-1", "there-2"], ["absent-1", "absent-end"]],
            brought=["asked"],
            first_tick=100,
        ),
        runs=Runs(
            starts=[
                Start("plain", "plain", 1, 11, 1.0),
                Start("atomic", "atomic", 1, 11, 1.1),
                Start("add", "increment", 1, 11, 1.2),
                Start("again", "idempotent", 1, 66, 2.0),
                Start("gone", "plain", 1, 66, 2.1),
                Start("flaky", "flaky", 1, 11, 2.2),
                Start("flaky", "flaky", 2, 11, 2.5),
                Start("there-1", "plain", 1, 11, 2.6),
                Start("there-2", "plain", 1, 11, 2.7),
                Start("one", "unique", 1, 11, 2.8),
                Start("stepped", "stepped", 1, 11, 2.9),
                Start("stepped", "stepped", 2, 11, 3.0),
                Start("asleep", "sleeping", 1, 11, 3.1),
                Start("asleep", "sleeping", 2, 11, 3.6),
                Start("asked", "waiting", 1, 11, 3.7),
                Start("asked", "waiting", 2, 11, 3.8),
                Start("again", "idempotent", 2, 11, 6.0),
            ],
            ended={
                (key, 1) for key in ("plain", "atomic", "add", "flaky", "there-1", "there-2", "one")
            }
            | {("flaky", 2), ("again", 2)},
        ),
        effects=[
            ("plain", "plain"),
            ("atomic", "atomic"),
            ("add", "increment"),
            ("again", "idempotent"),
            ("flaky", "flaky"),
            ("there-1", "plain"),
            ("there-2", "plain"),
            ("one", "unique"),
            *(("stepped", step) for step in plan.STEPS),
            ("asleep", "sleeping"),
            ("asked", "waiting"),
            *((key, "plain") for key in ("good", "bad")),
            *((key, "ended") for key in ("good-end", "bad-end")),
            *((f"tick-{second}", "tick") for second in (100, 101, 113)),
        ],
        answers=[("asked", "for asked")],
        naps=[("asleep", 0.5)],
        finished={
            "plain": [Row("plain", 1, 0, 0)],
            "atomic": [Row("atomic", 1, 0, 0)],
            "add": [Row("increment", 1, 0, 0)],
            "again": [Row("idempotent", 2, 0, 1)],
            "flaky": [Row("flaky", 2, 1, 0)],
            "there-1": [Row("plain", 1, 0, 0)],
            "there-2": [Row("plain", 1, 0, 0)],
            "one": [Row("unique", 1, 0, 0)],
            "stepped": [Row("stepped", 2, 1, 0)],
            "asleep": [Row("sleeping", 2, 0, 0)],
            "asked": [Row("waiting", 2, 0, 0)],
            **{key: [Row("plain", 1, 0, 0)] for key in ("good", "bad")},
            **{key: [Row("ended", 1, 0, 0)] for key in ("good-end", "bad-end")},
            **{f"tick-{second}": [Row("tick", 1, 0, 0)] for second in (100, 101, 113)},
        },
        merged={"same": "one"},
        dead={
            "gone": [Row("plain", 1, 0, 1, "WorkerLost: worker lost in mid-task")],
            "doomed": [Row("doomed", 1, 1, 0, "RuntimeError: planned")],
        },
        ends=[
            End("good-end", failed=False, told_at=at(7), last_at=at(6)),
            End("bad-end", failed=True, told_at=at(6), last_at=at(6)),
        ],
        next_tick=114,
        tick_begun={
            100: 100.0,
            101: 112.5,
            113: 113.0,
        },  # so that 102 to 112 were passed on purpose
        counter=1,
        kills=[Kill(66, 3.0)],
    )


def test_a_storm_in_which_all_went_well_is_passed_and_counted():
    verdict = judge(calm())
    assert verdict.ok, [check for check in verdict.checks if not check.holds]
    expected = {"committed": 19, "refused": 3, "unknown": 4, "finished": 19, "dead": 2, "left": 0}
    expected |= {"merged": 1, "ticks": 3, "passed ticks": 11, "step effects": 3}
    expected |= {"slept": 1, "waited": 1, "ended batches": 2, "failed batches": 1}
    jepsen = {"lost": 0, "unexpected": 0, "duplicated": 0, "recovered": 2}
    assert expected.items() | jepsen.items() <= verdict.figures.items()
    assert verdict.dead == {"WorkerLost: worker lost in mid-task": 1, "RuntimeError: planned": 1}


def test_the_time_from_a_kill_to_the_second_start_is_told():
    assert second_starts(calm()) == [3.0]


def lose_a_key(evidence):
    del evidence.finished["plain"]


def leave_one_pending(evidence):
    evidence.left.append(("plain", "pending"))
    del evidence.finished["plain"]


def lose_an_effect(evidence):
    evidence.effects.remove(("plain", "plain"))


def tear_a_transaction(evidence):
    del evidence.finished["there-1"]
    evidence.effects.remove(("there-1", "plain"))
    evidence.runs.starts = [one for one in evidence.runs.starts if one.key != "there-1"]


def run_a_rolled_back_one(evidence):
    evidence.runs.starts.append(Start("never", "plain", 1, 11, 9.0))


def keep_the_row_of_a_rolled_back_one(evidence):
    evidence.dead["never"] = [Row("plain", 1, 0, 0, "why")]


def run_what_nobody_enqueued(evidence):
    evidence.effects.append(("from nowhere", "plain"))


def start_a_default_task_again_after_a_crash(evidence):
    evidence.runs.starts.append(Start("gone", "plain", 2, 11, 9.0))


def start_an_idempotent_task_more_often_than_it_crashed(evidence):
    evidence.runs.starts.append(Start("again", "idempotent", 3, 11, 9.0))


def start_an_attempt_twice(evidence):
    evidence.finished["flaky"] = [Row("flaky", 3, 2, 0)]
    evidence.runs.starts.append(Start("flaky", "flaky", 2, 11, 9.0))


def do_an_atomic_effect_twice(evidence):
    evidence.effects.append(("atomic", "atomic"))


def keep_the_effect_of_an_atomic_task_that_died(evidence):
    evidence.dead["atomic"] = evidence.finished.pop("atomic")
    evidence.dead["atomic"] = [Row("atomic", 1, 0, 1, "why")]


def count_wrongly(evidence):
    evidence.counter = 2


def finish_twice(evidence):
    evidence.finished["plain"] *= 2


def finish_and_die(evidence):
    evidence.dead["plain"] = [Row("plain", 1, 0, 0, "why")]


def finish_and_stay(evidence):
    evidence.left.append(("plain", "claimed"))


def forget_what_a_killed_worker_did(evidence):
    evidence.left.append(("gone", "claimed"))
    del evidence.dead["gone"]


def give_no_reason(evidence):
    evidence.dead["gone"] = [Row("plain", 1, 0, 1, "")]


def merge_into_nothing(evidence):
    evidence.merged["same"] = "?"


def run_what_was_merged(evidence):
    evidence.effects.append(("same", "unique"))


def merge_and_finish(evidence):
    evidence.finished["same"] = [Row("unique", 1, 0, 0)]


def overrun_a_lane(evidence):
    evidence.overruns.append("3 instead of 2")


def forget(evidence, key):
    """Let there be no trace of a task."""
    for rows in (evidence.finished, evidence.dead):
        rows.pop(key, None)
    evidence.effects = [effect for effect in evidence.effects if effect[0] != key]
    evidence.ends = [end for end in evidence.ends if end.key != key]


def leave_out_a_tick(evidence):
    forget(evidence, "tick-101")
    del evidence.tick_begun[101]


def leave_out_a_tick_that_nothing_kept_waiting(evidence):
    evidence.tick_begun[101] = 110.0  # less than ten seconds late


def leave_out_the_last_tick(evidence):
    evidence.next_tick = 115


def double_a_tick(evidence):
    evidence.finished["tick-100"] *= 2


def write_a_tick_of_no_schedule(evidence):
    evidence.finished["tick-99"] = [Row("tick", 1, 0, 0)]


def wake_up_a_sleeper_at_once(evidence):
    evidence.naps = [("asleep", 0.01)]


def leave_a_task_waiting_for_what_was_brought(evidence):
    evidence.left.append(("asked", "pending"))
    forget(evidence, "asked")


def bring_what_was_rolled_back(evidence):
    evidence.answers = [("asked", "what was rolled back")]


def tell_nobody_of_the_end_of_a_batch(evidence):
    forget(evidence, "good-end")


def tell_twice_of_the_end_of_a_batch(evidence):
    evidence.finished["good-end"] *= 2


def end_a_batch_before_its_last_member(evidence):
    evidence.ends[0] = End("good-end", failed=False, told_at=at(6), last_at=at(7))


def end_a_batch_as_successful_in_spite_of_a_dead_member(evidence):
    evidence.ends[1] = End("bad-end", failed=False, told_at=at(6), last_at=at(6))


def end_a_batch_as_failed_without_a_dead_member(evidence):
    evidence.ends[0] = End("good-end", failed=True, told_at=at(7), last_at=at(6))


def tell_of_the_end_of_a_batch_that_was_rolled_back(evidence):
    evidence.finished["member-end"] = [Row("ended", 1, 0, 0)]


def do_a_step_twice(evidence):
    evidence.effects.append(("stepped", "first"))


def leave_out_a_step(evidence):
    evidence.effects.remove(("stepped", "third"))


def do_a_step_of_a_dead_task_twice(evidence):
    evidence.effects += [("gone", "first")] * 2


def suspend_a_task_again_and_again(evidence):
    evidence.runs.starts.append(Start("asked", "waiting", 3, 11, 9.0))


def leave_a_session(evidence):
    evidence.sessions = 1


def end_by_itself(evidence):
    evidence.surprises.append("worker-0 ended by itself with 1")


def find_something(evidence):
    evidence.audit.append("overdue tasks")


BROKEN = {
    lose_a_key: "every committed task has finished",
    leave_one_pending: "nothing waits any more",
    lose_an_effect: "every finished task has left its effect",
    tear_a_transaction: "a commit whose answer was lost",
    run_a_rolled_back_one: "no rolled-back task has run",
    keep_the_row_of_a_rolled_back_one: "no rolled-back task has run",
    run_what_nobody_enqueued: "no task ran that was never enqueued",
    start_a_default_task_again_after_a_crash: "no task started more often",
    start_an_idempotent_task_more_often_than_it_crashed: "no task started more often",
    start_an_attempt_twice: "no attempt started twice",
    do_an_atomic_effect_twice: "the effects of an atomic task",
    keep_the_effect_of_an_atomic_task_that_died: "the effects of an atomic task",
    count_wrongly: "the counter is the sum",
    finish_twice: "no task is recorded twice",
    finish_and_die: "no task is recorded twice",
    finish_and_stay: "no task is recorded twice",
    forget_what_a_killed_worker_did: "every task of a killed worker",
    give_no_reason: "every dead task says why",
    merge_into_nothing: "every merged task names the task",
    run_what_was_merged: "no merged task has run by itself",
    merge_and_finish: "no task is recorded twice",
    overrun_a_lane: "no more tasks of a lane",
    leave_out_a_tick: "every tick of the schedule",
    leave_out_a_tick_that_nothing_kept_waiting: "every tick of the schedule",
    leave_out_the_last_tick: "every tick of the schedule",
    double_a_tick: "every tick of the schedule",
    write_a_tick_of_no_schedule: "no task ran that was never enqueued",
    wake_up_a_sleeper_at_once: "no sleeping task",
    leave_a_task_waiting_for_what_was_brought: "every task that waited",
    bring_what_was_rolled_back: "every task that waited",
    tell_nobody_of_the_end_of_a_batch: "every batch reported",
    tell_twice_of_the_end_of_a_batch: "every batch reported",
    end_a_batch_before_its_last_member: "every batch reported",
    end_a_batch_as_successful_in_spite_of_a_dead_member: "every batch reported",
    end_a_batch_as_failed_without_a_dead_member: "every batch reported",
    tell_of_the_end_of_a_batch_that_was_rolled_back: "no rolled-back task has run",
    do_a_step_twice: "every step has left",
    leave_out_a_step: "every step has left",
    do_a_step_of_a_dead_task_twice: "every step has left",
    suspend_a_task_again_and_again: "no task started more often",
    leave_a_session: "no session",
    end_by_itself: "no process ended",
    find_something: "txtasks_audit",
}


@pytest.mark.parametrize(
    ("damage", "sentence"), BROKEN.items(), ids=lambda one: getattr(one, "__name__", "")
)
def test_the_account_finds(damage, sentence):
    evidence = calm()
    damage(evidence)
    verdict = judge(evidence)
    assert not verdict.ok
    assert any(check.sentence.startswith(sentence) for check in verdict.checks if not check.holds)


def test_every_check_is_shown_to_fail():
    sentences = [check.sentence for check in judge(Evidence()).checks]
    assert all(any(one.startswith(begin) for begin in BROKEN.values()) for one in sentences)


def test_lost_unexpected_and_duplicated_are_counted_as_jepsen_does():
    evidence = calm()
    for damage in (lose_a_key, run_what_nobody_enqueued, run_a_rolled_back_one,
                   start_an_idempotent_task_more_often_than_it_crashed):  # fmt: skip
        damage(evidence)
    figures = judge(evidence).figures
    assert (figures["lost"], figures["unexpected"], figures["duplicated"]) == (1, 2, 1)


# ---- the report


def told(evidence, log):
    return "\n".join(report.lines(judge(evidence), log))


def test_a_broken_promise_is_told_with_the_keys_that_show_it():
    evidence = calm()
    lose_a_key(evidence)
    assert "Every promise was kept." in told(calm(), Log(drained=True))
    text = told(evidence, Log(drained=True, done=Counter({"purge the hints": 2})))
    assert (
        "FAIL  every committed task has finished, or is dead with a reason (else it is lost): plain"
        in text
    )
    assert (
        "FAIL  0 x cut off the broker, 0 x delete the queue of hints, 2 x purge the hints" in text
    )
    assert "A PROMISE WAS BROKEN" in text
    assert not report.as_dict(judge(evidence), Log(drained=True))["ok"]


def test_a_storm_that_did_not_calm_down_is_not_passed():
    assert "A PROMISE WAS BROKEN" in told(calm(), Log(drained=False))


def test_what_was_not_tried_is_not_claimed():
    assert "not tried: no hint was purged" in told(calm(), Log(drained=True))


# ---- journals, proxy, settings


def test_an_intent_without_an_outcome_is_a_commit_whose_answer_was_lost(tmp_path):
    for number, outcome in ((1, "committed"), (2, "refused"), (3, "unknown"), (4, None)):
        journal.note(str(tmp_path), journal.SENT, "intent", number, f"a{number},b{number}")
        if outcome:
            journal.note(str(tmp_path), journal.SENT, outcome, number)
    found = journal.promises(tmp_path)
    assert (found.committed, found.refused) == ([["a1", "b1"]], [["a2", "b2"]])
    assert found.unknown == [["a3", "b3"], ["a4", "b4"]]


def test_what_was_brought_and_the_first_tick_are_read_beside_the_transactions(tmp_path):
    journal.note(str(tmp_path), journal.SENT, "ticks", 1_790_000_000)
    for key in ("a", "b"):
        journal.note(str(tmp_path), journal.SENT, "brought", key)
    found = journal.promises(tmp_path)
    assert (found.first_tick, found.brought, found.unknown) == (1_790_000_000, ["a", "b"], [])


def test_a_line_cut_short_by_a_kill_is_not_read(tmp_path):
    (tmp_path / "ran.7").write_text("start k plain 1 1.5\nend k plain 1 1.6\nstart l pl")
    found = journal.runs(tmp_path)
    assert found.starts == [Start("k", "plain", 1, 7, 1.5)]
    assert found.ended == {("k", 1)}
    assert journal.has_ended_one(tmp_path, 7)
    assert not journal.has_ended_one(tmp_path, 8)


@pytest.mark.once
def test_a_cut_connection_is_reset_on_both_sides_and_the_proxy_goes_on():
    with socket.create_server(("127.0.0.1", 0)) as server, Proxy(*server.getsockname()) as proxy:
        client = socket.create_connection(("127.0.0.1", proxy.port))
        there, _ = server.accept()
        client.sendall(b"hint")
        assert there.recv(4) == b"hint"
        assert proxy.cut() == 1
        for one in (client, there):
            with one, pytest.raises(ConnectionResetError):
                one.recv(1)
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            there, _ = server.accept()
            there.sendall(b"back")
            assert client.recv(4) == b"back"
            there.close()


def scene(**changes):
    facts = {"settings": "settings", "alias": "default", "database": "scratch", "prefix": "p"}
    return Scene(**{**facts, "broker": True, "proxy": 1234, "journals": "/tmp", **changes})


def user_settings(**changes):
    database = {"ENGINE": "django.db.backends.sqlite3", "NAME": "real", "PASSWORD": "sesame"}
    txtasks = {"broker_url": "amqp://me:sesame@mq:5672/v%2Fh", "queues": ["mail"], "lease": 60}
    return {
        "DATABASES": {"default": database, "other": {**database, "NAME": "other"}},
        "INSTALLED_APPS": ["django_txtasks"],
        "LOGGING": {"handlers": {"mail_admins": {}}},
        "TXTASKS": txtasks,
        **changes,
    }


def test_a_storms_processes_know_no_database_but_the_scratch_one():
    changed = project.scratch_settings(user_settings(), scene())
    assert changed["DATABASES"]["default"]["NAME"] == "scratch"
    assert changed["DATABASES"]["other"] == {"ENGINE": "django.db.backends.dummy"}
    assert changed["LOGGING"] == {}


def test_a_storms_processes_reach_the_broker_through_the_proxy_under_a_prefix_of_their_own():
    txtasks = project.scratch_settings(user_settings(), scene())["TXTASKS"]
    assert txtasks["broker_url"] == "amqp://me:sesame@127.0.0.1:1234/v%2Fh"
    assert (txtasks["queue_prefix"], txtasks["queues"], txtasks["lease"]) == (
        "p",
        ["mail", "default"],
        60,
    )
    direct = project.scratch_settings(user_settings(), scene(proxy=None))["TXTASKS"]
    assert direct["broker_url"] == "amqp://me:sesame@mq:5672/v%2Fh"
    none = project.scratch_settings(user_settings(), scene(broker=False))["TXTASKS"]
    assert none["broker_url"] is None


@pytest.mark.parametrize(
    "mail", [{}, {"EMAIL_HOST": "mail"}, {"MAILERS": {"news": {"BACKEND": "smtp"}}}]
)
def test_a_storms_processes_mail_nowhere_in_the_old_way_or_in_the_new_one(mail):
    changed = project.scratch_settings(user_settings(**mail), scene())
    new = django.VERSION >= (6, 1) and "EMAIL_HOST" not in mail
    used = changed["MAILERS"]["default"]["BACKEND"] if new else changed["EMAIL_BACKEND"]
    assert used == "django.core.mail.backends.dummy.EmailBackend"
    assert not (new and "EMAIL_BACKEND" in changed)  # Django refuses both together
    assert "smtp" not in str(changed.get("MAILERS") if new else "")


def test_a_storms_dead_tasks_are_told_to_nobody():
    notices = {"mail": ["a@example.com"], "exchange": "ops", "task": "shop.tasks.page_me"}
    user = user_settings()
    user["TXTASKS"] = {**user["TXTASKS"], "dead_notices": notices}
    for broker in (True, False):
        changed = project.scratch_settings(user, scene(broker=broker))["TXTASKS"]
        assert parse(changed).dead_notices == DeadNotices()


def test_a_short_lease_shortens_the_timeout_of_sqlite():
    changed = project.scratch_settings(user_settings(), scene(txtasks={"lease": 3}))
    assert changed["DATABASES"]["default"]["OPTIONS"]["timeout"] == 1


# ---- the scratch database


@pytest.fixture
def databases(processes):
    """The names of all databases on the server, or of the directories of SQLite's scratch files."""

    def names():
        if connection.vendor == "sqlite":
            return set(map(str, Path(processes.directory.name).glob("txtasks-verify-*/*.sqlite3")))
        sql = {"postgresql": "SELECT datname FROM pg_database", "mysql": "SHOW DATABASES"}
        return {name for (name,) in helpers.execute(sql[connection.vendor])}

    return names


@pytest.mark.skipif(connection.vendor == "sqlite", reason="anybody may create a file")
def test_a_user_who_may_create_no_database_is_told_so_and_nothing_changes(databases):
    postgres = connection.vendor == "postgresql"
    name = f"poor_{os.getpid()}"
    user, login = (name, "LOGIN PASSWORD") if postgres else (f"{name}@'%%'", "IDENTIFIED BY")
    helpers.execute(f"CREATE USER {user} {login} 'poor'")
    if not postgres:
        helpers.execute(f"GRANT SELECT ON {connection.settings_dict['NAME']}.* TO {user}")
    connections.settings["poor"] = {**connection.settings_dict, "USER": name, "PASSWORD": "poor"}
    try:
        with pytest.raises(ScratchRefused, match=r"Let an administrator run: (ALTER|GRANT)"):
            Scratch("poor", "0123456789ab").__enter__()
        assert "txtasks_verify_0123456789ab" not in databases()
    finally:
        connections["poor"].close()
        del connections["poor"], connections.settings["poor"]
        helpers.execute(f"DROP USER {user}")


def test_no_other_database_than_a_scratch_one_can_be_named():
    with pytest.raises(ValueError, match="not the name of a scratch database"):
        Scratch("default", 'x"; DROP DATABASE production; --')


# ---- storms


def storm_of(processes, *arguments, env=None):
    """Start a storm of two or three leases; its seed is fixed, so that a failure can be replayed."""
    env = {"TMPDIR": processes.directory.name, **(env or {})}
    short = ["--every=0.8", "--lease=3", "--seed=7", "--workers=3", "--json"]
    return processes.start("txtasks_verify", *short, *arguments, env=env)


def report_of(processes, process, code):
    assert process.wait(300) == code, processes.log_of(process)
    return json.loads(processes.log_of(process).splitlines()[-1])


def test_a_storm_keeps_every_promise_and_leaves_nothing_behind(databases, processes, broker):
    for seconds in (
        6,
        30,
        90,
    ):  # a worker is killed once it has ended a task: a busy machine may need longer
        process = storm_of(processes, "--tasks=200", "--workers=2", f"--seconds={seconds}")
        told = report_of(processes, process, 0)
        assert told["ok"]
        if told["kills"]:
            break
    figures = told["figures"]
    assert figures["committed"] > 100
    assert figures["lost"] == figures["unexpected"] == figures["duplicated"] == figures["left"] == 0
    assert figures["counter"] == figures["increments"] > 0
    for tried in ("ticks", "step effects", "slept", "waited", "ended batches"):
        assert figures[tried] > 0, tried
    assert told["kills"] > 0
    log = processes.log_of(process)
    assert scratch_of(log) not in databases()
    prefix = log.split("RabbitMQ queues: ")[1].split(".*")[0]
    for queue in ("default", "@async.default", "@lost"):
        assert not queue_exists(broker, f"{prefix}.{queue}"), queue
    tables = connection.introspection.table_names()
    assert not [name for name in tables if "verify" in name]
    assert helpers.counts() == {"pending": 0, "claimed": 0, "dead": 0, "held": 0, "finished": 0}


def scratch_of(log):
    """Return the name of the scratch database that a storm told."""
    return log.split("Scratch database: ")[1].split(" (")[0]


def queue_exists(url, name):
    with pika.BlockingConnection(pika.URLParameters(url)) as amqp:
        try:
            amqp.channel().queue_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker:
            return False
    return True


BROKEN_PROJECT = """
from django.apps import AppConfig
from settings_for_tests import *


class Breaking(AppConfig):
    name = "broken_project"

    def ready(self):
        from django_txtasks.features.batches import statements as batch_statements
        from django_txtasks.core.rows import statements
        from django_txtasks.features.steps import statements as of_steps

        statements.RETRY = "DELETE FROM txtasks_task WHERE id = %(id)s AND status = 'claimed'"
        batch_statements.STATE_OF_BATCH = "SELECT NULL, 1, 1"
        for name in ("END_WAIT", "END_WAIT_AHEAD"):
            setattr(of_steps, name, getattr(of_steps, name).replace("%(value)s", "'7'"))


INSTALLED_APPS = [*INSTALLED_APPS, "broken_project.Breaking"]
"""


DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)"


@pytest.mark.once
def test_what_does_not_stop_shows_where_it_hangs(monkeypatch, tmp_path):
    monkeypatch.setattr(crew, "STOP_TIMEOUT_SECONDS", 1.0)
    log = tmp_path / "cleaner-0.log"
    sleep = ["timeit", "--number=1", "--repeat=1", "--setup", DEAF, "__import__('time').sleep(600)"]
    ship = crew.Crew(scene(), tmp_path, cleaners=[crew.Member(sleep, scene(), log)])
    helpers.wait_until(lambda: "deaf" in log.read_text(), 30, log.read_text)
    ship.end()
    (surprise,) = ship.surprises
    assert surprise.startswith("cleaner-0 did not stop within 1 s")
    assert "timeit.py" in surprise
    assert ship.cleaners[0].ended


@pytest.mark.once
def test_a_storm_finds_a_worker_that_loses_tasks(processes, tmp_path):
    """A task that fails is deleted instead of tried again, each batch has failed, and 7 is what any task gets."""
    (tmp_path / "broken_project.py").write_text(BROKEN_PROJECT)
    path = os.pathsep.join([str(tmp_path), processes._environment()["PYTHONPATH"]])
    env = {"DJANGO_SETTINGS_MODULE": "broken_project", "PYTHONPATH": path}
    few = ["--tasks=100", "--seconds=1", "--workers=1", "--no-broker"]
    told = report_of(processes, storm_of(processes, *few, env=env), 1)
    assert told["figures"]["lost"] > 0
    broken = [check["sentence"] for check in told["checks"] if not check["holds"]]
    for found in ("every committed task", "every task that waited", "every batch reported"):
        assert any(sentence.startswith(found) for sentence in broken), broken


@pytest.mark.once
def test_a_storm_that_is_stopped_leaves_nothing_behind(databases, processes):
    process = storm_of(processes, "--tasks=1000", "--seconds=60", "--workers=1", "--no-broker")
    helpers.wait_until(
        lambda: "The storm begins" in processes.log_of(process),
        what=lambda: processes.log_of(process),
    )
    name = scratch_of(processes.log_of(process))
    assert name in databases()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert name not in databases()


def test_a_tick_needs_no_task_while_one_after_the_other_has_waited_for_long():
    """No task waits for ten seconds, but at each moment there is one that waits."""
    evidence = calm()
    evidence.next_tick = 113
    evidence.tick_begun = {tick: tick + 6.0 for tick in range(100, 109)}
    keys = Keys(evidence)
    assert (keys.passed_ticks, "tick-108" in keys.ticks, "tick-109" in keys.ticks) == (
        4,
        True,
        False,
    )
    evidence.tick_begun = {tick: tick + 0.9 for tick in range(100, 109)}
    assert Keys(evidence).passed_ticks == 0
