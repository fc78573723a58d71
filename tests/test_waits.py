"""Tasks that sleep, or wait for a value from outside: no wake-up is lost, and the first value stays."""

import json
import threading
import uuid
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django.db import DatabaseError, connection, transaction
from django.test import Client
from probe import tasks
from test_lifecycle import claim_one, claimed_twice, clean, ended, new_worker, record

from django_txtasks import InvalidToken, Suspended, WaitTimedOut, aresume, resume, resume_url
from django_txtasks.core.ground.retention import Horizon
from django_txtasks.core.rows import cleaning
from django_txtasks.core.rows.attempts import Arrow
from django_txtasks.core.working.running.verdicts import failed
from django_txtasks.exceptions import ClaimLost, InvalidArguments
from django_txtasks.features.steps import waits
from django_txtasks.features.steps.answering import token_of
from django_txtasks.features.steps.context import Steps
from django_txtasks.insight.explain import explain
from django_txtasks.models import FinishedTask, Status, Step, Task, Wait
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")


def token_for(task_id, name="answer"):
    return token_of("default", task_id, name)


def end_of_time():
    """Let all times have come for which tasks wait."""
    helpers.execute("UPDATE txtasks_wait SET until = '2020-01-01 00:00:00' WHERE until IS NOT NULL")
    helpers.execute(
        "UPDATE txtasks_task SET run_after = '2020-01-01 00:00:00' WHERE status = 'pending'"
    )


def waiting():
    """A task that waits for ever; gives its handle."""
    handle = tasks.ask.enqueue("k")
    (ran,) = run_due_tasks()
    assert (ran.status, type(ran.error)) == ("pending", Suspended)
    return handle


def claimed():
    """An attempt that runs."""
    tasks.ask.enqueue("k")
    return claim_one(new_worker())


def ask(attempt, name="answer", timeout=None):
    """Ask as the attempt does; returns the value, or the outcome that its worker records if it waits."""
    try:
        return Steps("default", attempt).wait_for(name, timeout)
    except Suspended as error:
        return ended(attempt, Arrow.SUSPEND, awaited=error.name)


def is_due(task_id):
    return Task.objects.due().filter(pk=task_id).exists()


# -- sleep ----------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_task_sleeps_without_a_slot_and_goes_on_behind_it():
    handle = tasks.sleep_between.enqueue("k", 86400)
    (first,) = run_due_tasks()
    row = helpers.row(handle.id)
    assert (row.status, row.failures, row.crashes, row.snoozes, row.errors) == (
        *(Status.PENDING, 0, 0, 0),
        [],
    )
    assert abs((row.run_after - row.enqueued_at).total_seconds() - 86400) < 600
    assert not run_due_tasks()
    end_of_time()
    (second,) = run_due_tasks()
    assert (first.status, second.status, second.result) == ("pending", "succeeded", 2)
    assert [helpers.runs(f"k {one}") for one in ("before", "after", "caught")] == [1, 1, 0]


def test_who_is_run_before_its_time_sleeps_on_until_the_first_time_said():
    handle = tasks.sleep_between.enqueue("k", 86400)
    run_due_tasks()
    before = helpers.row(handle.id).run_after
    operators.run_now("default", [handle.id])
    (again,) = run_due_tasks()
    assert again.status == "pending"
    assert helpers.row(handle.id).run_after == before
    assert helpers.runs("k after") == 0


@pytest.mark.parametrize(
    ("when", "sleeps"),
    [
        (datetime(2090, 1, 1, tzinfo=timezone.utc), True),
        (datetime(2090, 1, 1, tzinfo=timezone(timedelta(hours=14))), True),
        (datetime(2020, 1, 1, tzinfo=timezone.utc), False),
        (timedelta(days=36525), True),
        (3600, True),
        (0, False),
        (-5, False),
    ],
    ids=str,
)
def test_a_time_is_a_moment_or_a_while(when, sleeps):
    attempt = claimed()
    try:
        Steps("default", attempt).sleep_until("pause", when)
    except Suspended as error:
        assert sleeps
        record(ended(attempt, Arrow.SUSPEND, awaited=error.name))
        row = helpers.row(attempt.task_id)
        if isinstance(when, datetime):
            assert row.run_after == when
        assert not is_due(attempt.task_id)
    else:
        assert not sleeps


# -- the value ------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_value_wakes_the_task_that_waits_for_it():
    handle = waiting()
    row = helpers.row(handle.id)
    assert (row.status, row.failures, row.snoozes, row.expires_at) == (Status.PENDING, 0, 0, None)
    assert (row.run_after - row.enqueued_at).days > 36000
    assert not run_due_tasks()
    assert resume(token_for(handle.id), {"by": "Ada"}) is True
    (ran,) = run_due_tasks()
    assert ran.result == [{"by": "Ada"}, 2]
    assert (helpers.runs("k"), helpers.runs("k asked")) == (2, 1)


@pytest.mark.smoke
def test_a_real_worker_waits_and_is_woken():
    handle, other = tasks.ask.enqueue("k"), tasks.ask_async.enqueue("k")
    with helpers.working(threads=1):
        helpers.wait_until(lambda: Wait.objects.filter(name="answer").count() == 2)
        for one in (handle, other):
            helpers.wait_until(lambda one=one: helpers.row(one.id).status == Status.PENDING)
            assert resume(token_for(one.id), 7)
        for one in (handle, other):
            done = helpers.wait_until(lambda one=one: helpers.finished(one.id))
            assert done.result == [7, 2]


def test_the_tokens_text_is_the_same_in_each_attempt_and_names_the_wait():
    handle = waiting()
    (step,) = Step.objects.filter(task_id=handle.id)
    assert json.loads(step.value) == token_for(handle.id)
    texts = {token_for(handle.id), token_for(handle.id), token_for(handle.id, "other")}
    assert len(texts | {token_for(uuid.uuid4())}) == 3


def test_what_comes_before_the_task_asks_is_there_when_it_does():
    handle = tasks.ask.enqueue("k")
    assert resume(token_for(handle.id), [1, None]) is True
    assert resume(token_for(handle.id), 2) is False
    (ran,) = run_due_tasks()
    assert ran.result == [[1, None], 1]


def test_the_first_value_stays():
    handle = waiting()
    assert [resume(token_for(handle.id), one) for one in (1, 2)] == [True, False]
    (ran,) = run_due_tasks()
    assert ran.result[0] == 1
    assert resume(token_for(handle.id), 3) is False  # it has ended


def test_a_value_that_is_none_is_one():
    handle = waiting()
    assert resume(token_for(handle.id))
    (ran,) = run_due_tasks()
    assert ran.result == [None, 2]


def test_a_value_that_is_rolled_back_never_came():
    handle = waiting()
    with transaction.atomic():
        resume(token_for(handle.id), 1)
        transaction.set_rollback(True)
    assert not is_due(handle.id)
    assert resume(token_for(handle.id), 2) is True
    (ran,) = run_due_tasks()
    assert ran.result[0] == 2


async def _aresume(token):
    return await aresume(token, "async")


def test_async_code_brings_a_value():
    from asgiref.sync import async_to_sync

    handle = waiting()
    assert async_to_sync(_aresume)(token_for(handle.id)) is True
    assert is_due(handle.id)


def test_a_value_for_what_comes_later_does_not_wake_the_task():
    handle = tasks.ask_twice.enqueue()
    run_due_tasks()
    assert resume(token_for(handle.id, "second"), 2) is True
    assert not is_due(handle.id)
    assert resume(token_for(handle.id, "first"), 1) is True
    (ran,) = run_due_tasks()
    assert ran.result == [1, 2, 2]


@pytest.mark.parametrize(
    "value", [{1, 2}, float("nan"), "x" * 300_000, "\0"], ids=lambda one: str(one)[:9]
)
def test_what_is_no_json_is_refused_and_changes_nothing(value):
    handle = waiting()
    with transaction.atomic(), pytest.raises(InvalidArguments, match="value"):
        resume(token_for(handle.id), value)
    assert Wait.objects.get().value is None
    assert not is_due(handle.id)


@pytest.mark.parametrize("token", ["", "x", "WzFd:x", None, 7, "a:b:c", "\ud800:x", "x:\ud800"])
def test_what_is_no_token_is_refused(token):
    with pytest.raises(InvalidToken, match="given this token out"):
        resume(token, 1)


def test_a_token_that_was_changed_or_is_of_another_key_is_refused(settings):
    handle = waiting()
    token = token_for(handle.id)
    with pytest.raises(InvalidToken):
        resume(token[:-1] + ("A" if token[-1] != "A" else "B"))
    old, settings.SECRET_KEY = settings.SECRET_KEY, "another one"
    with pytest.raises(InvalidToken):
        resume(token)
    settings.SECRET_KEY_FALLBACKS = [old]
    assert resume(token) is True


@pytest.mark.parametrize("state", ["held", "dead"])
def test_what_a_person_has_stopped_gets_its_value_and_goes_on_with_it(state):
    handle = waiting()
    operators.hold("default", [handle.id])
    if state == "dead":
        helpers.execute("UPDATE txtasks_task SET status = 'dead'")
    assert resume(token_for(handle.id), 1) is True
    assert helpers.row(handle.id).status == state
    {"held": operators.resume, "dead": operators.revive}[state]("default", [handle.id])
    (ran,) = run_due_tasks()
    assert ran.result[0] == 1


def test_a_task_that_was_cancelled_takes_no_value():
    handle = waiting()
    assert handle.cancel() == "cancelled"
    assert resume(token_for(handle.id), 1) is False


def test_a_wait_that_was_asked_to_stop_ends_cancelled():
    attempt = claimed()
    outcome = ask(attempt)
    operators.ask_to_stop("default", [attempt.task_id])
    record(outcome)
    clean()
    assert helpers.row(attempt.task_id) is None
    assert helpers.finished(attempt.task_id).outcome == "cancelled"


def test_it_does_not_expire_once_it_has_begun():
    handle = waiting()
    assert Task.objects.get(pk=handle.id).expires_at is None
    clean()
    assert helpers.row(handle.id).status == Status.PENDING


# -- in time --------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_what_comes_too_late_does_not_count():
    handle = tasks.ask.enqueue("k", 3600)
    run_due_tasks()
    row = helpers.row(handle.id)
    assert 3000 < (row.run_after - row.enqueued_at).total_seconds() < 4200
    end_of_time()
    (ran,) = run_due_tasks()
    assert ran.result == ["nobody", 2]
    assert Wait.objects.get().ended_at is not None
    assert resume(token_for(handle.id), 1) is False


def test_who_has_given_up_once_does_so_in_each_attempt():
    attempt = claimed()
    ask(attempt, timeout=3600)
    end_of_time()
    with pytest.raises(WaitTimedOut, match="too late"):
        ask(attempt, timeout=3600)
    assert resume(token_for(attempt.task_id), 1) is False
    record(ended(attempt, Arrow.RELEASE))
    with pytest.raises(WaitTimedOut):
        ask(claim_one(new_worker()), timeout=3600)


def test_nobody_gives_up_before_the_time_has_passed_or_once_a_value_is_there():
    attempt = claimed()
    ask(attempt, timeout=3600)
    assert not waits.give_up("default", attempt, "answer").ended
    end_of_time()
    assert resume(token_for(attempt.task_id), 1) is True
    brought = Wait.objects.get().ended_at
    assert waits.give_up("default", attempt, "answer").value == "1"
    assert Wait.objects.get().ended_at == brought


def test_who_comes_before_it_has_given_up_is_in_time():
    attempt = claimed()
    ask(attempt, timeout=3600)
    end_of_time()
    assert resume(token_for(attempt.task_id), 1) is True
    assert ask(attempt, timeout=3600) == 1


# -- races: each way round ----------------------------------------------------------------------------


def test_a_value_that_comes_between_the_look_and_the_wait_wakes_the_task():
    """T has found nothing, R brings the value and commits, then T's worker gives the row back."""
    attempt = claimed()
    outcome = ask(attempt)
    assert resume(token_for(attempt.task_id), 1) is True
    record(outcome)
    assert is_due(attempt.task_id)
    assert ask(claim_one(new_worker())) == 1


def test_a_value_that_comes_after_the_wait_wakes_the_task():
    attempt = claimed()
    record(ask(attempt))
    assert not is_due(attempt.task_id)
    assert resume(token_for(attempt.task_id), 1) is True
    assert is_due(attempt.task_id)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_a_worker_does_not_give_a_row_back_while_a_value_is_on_its_way():
    """R has written the value and not committed: T's worker cannot see it, and must not give the row back."""
    attempt = claimed()
    outcome = ask(attempt)
    brought, commit = threading.Event(), threading.Event()

    def bring():
        with transaction.atomic():
            assert resume(token_for(attempt.task_id), 1)
            brought.set()
            assert commit.wait(30)

    with helpers.second_session(bring) as thread:
        assert brought.wait(30)
        assert record(outcome).busy == [outcome]
        commit.set()
        thread.join()
    record(outcome)
    assert is_due(attempt.task_id)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_a_value_waits_for_a_worker_that_gives_the_row_back():
    """T's worker has given the row back and not committed: R sees it claimed, and must not leave it at that."""
    attempt = claimed()
    outcome = ask(attempt)
    results = []
    with ExitStack() as thread, transaction.atomic():
        record(outcome)
        thread.enter_context(helpers.second_session(lambda: results.append(_end(attempt))))
        helpers.wait_until(helpers.somebody_waits)
    assert results == [(True, [(attempt.task_id, "default")])]  # workers are told
    assert is_due(attempt.task_id)


def _end(attempt):
    return waits.end("default", attempt.task_id, "answer", "1")


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_nobody_takes_the_row_of_a_task_that_asks_before_its_commit():
    attempt, free = claimed(), []

    def look():
        free.extend(helpers.execute("SELECT id FROM txtasks_task FOR UPDATE SKIP LOCKED"))

    with transaction.atomic():
        waits.begin("default", attempt, "answer", None, is_sleep=False)
        with helpers.second_session(look):
            pass
    assert not free


def _bring(task_id, results):
    try:
        results.append(resume(token_for(task_id), 1))
    finally:
        connection.close()


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_a_worker_with_an_old_snapshot_loses_no_value():
    """At REPEATABLE READ, T's worker sees nothing of R, who has come since its snapshot: it tries again."""
    attempt = claimed()
    outcome = ask(attempt)
    level = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    if connection.vendor == "mysql":
        helpers.execute(level)  # of the next one
    try:
        with transaction.atomic():
            if connection.vendor == "postgresql":
                helpers.execute(level)
            assert Wait.objects.filter(ended_at=None).count() == 1  # the snapshot
            with helpers.second_session(lambda: _bring(attempt.task_id, [])):
                pass
            assert Wait.objects.filter(ended_at=None).count() == 1
            record(outcome)
    except DatabaseError:
        record(outcome)  # the next turn
    assert is_due(attempt.task_id)


@pytest.mark.skipif(connection.vendor != "postgresql", reason="who has the isolation levels")
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("who", ["asks", "brings"])
def test_who_meets_a_conflict_repeats_what_is_its_own(who, level):
    """The row is written between its snapshot and its lock; see ``isolation`` in OPTIONS."""
    attempt = claimed()
    locked, may_commit, did = threading.Event(), threading.Event(), []

    def write():
        with transaction.atomic():
            helpers.execute("UPDATE txtasks_task SET snoozes = snoozes + 1")
            locked.set()
            assert may_commit.wait(helpers.PATIENCE)

    def work():
        helpers.execute(f"SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}")
        did.append(ask(attempt) if who == "asks" else resume(token_for(attempt.task_id), 1))

    with helpers.second_session(write):
        assert locked.wait(helpers.PATIENCE)
        with helpers.second_session(work):
            helpers.wait_until(is_waiting_for_a_lock)
            may_commit.set()
    assert len(did) == 1


def is_waiting_for_a_lock():
    """Return True if a session of this database waits for a lock."""
    sql = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()


def runs_with_answers():
    """Each run of ask_once that has ended: its argument, and the answer that it got."""
    return sorted(FinishedTask.objects.filter(outcome="succeeded").values_list("result", flat=True))


@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("comes", ["before its twin", "behind its twin"])
def test_a_task_that_has_its_value_before_it_begins_is_not_merged(comes, priority):
    if comes == "before its twin":
        first = tasks.ask_once.enqueue("first")
        assert resume(token_for(first.id), "for the first") is True
        twins = [tasks.ask_once.using(priority=priority).enqueue(n) for n in "23"]
    else:
        twins = [tasks.ask_once.using(priority=priority).enqueue(n) for n in "23"]
        first = tasks.ask_once.enqueue("first")
        assert resume(token_for(first.id), "for the first") is True
    run_due_tasks()
    assert runs_with_answers() == [["first", "for the first"]]
    (waits_on,) = Task.objects.all()
    assert waits_on.args == ["3"]  # the other two of the key are one run
    assert resume(token_for(waits_on.pk), "for the others") is True
    run_due_tasks()
    assert runs_with_answers() == [["3", "for the others"], ["first", "for the first"]]
    assert {one.status() for one in twins} == {"succeeded"}


def test_a_held_task_that_has_its_value_is_not_merged_later():
    first = tasks.ask_once.enqueue("first")
    operators.hold("default", [first.id])
    assert resume(token_for(first.id), "for the first") is True
    operators.resume("default", [first.id])
    tasks.ask_once.enqueue("second")
    run_due_tasks()
    assert runs_with_answers() == [["first", "for the first"]]


def test_a_value_that_is_rolled_back_leaves_the_task_with_its_key():
    first = tasks.ask_once.enqueue("first")
    with transaction.atomic():
        assert resume(token_for(first.id), "for the first") is True
        transaction.set_rollback(True)
    tasks.ask_once.enqueue("second")
    run_due_tasks()
    assert Task.objects.count() == 1


def test_a_value_that_does_not_count_leaves_the_key_of_what_has_begun():
    first = tasks.ask_once.enqueue("first")
    run_due_tasks()
    assert resume(token_for(first.id), 1) is True
    assert Task.objects.get().unique_key is not None


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_who_asks_while_a_value_is_on_its_way_gets_it():
    attempt = claimed()
    brought, commit, answers = threading.Event(), threading.Event(), []

    def bring():
        with transaction.atomic():
            assert resume(token_for(attempt.task_id), 1)
            brought.set()
            assert commit.wait(30)

    def asks():
        try:
            answers.append(ask(attempt))
        finally:
            connection.close()

    with helpers.second_session(bring):
        assert brought.wait(30)
        thread = threading.Thread(target=asks)
        thread.start()
        helpers.wait_until(helpers.somebody_waits)
        commit.set()
    thread.join(30)
    assert answers == [1]


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_of_two_values_at_once_the_first_counts():
    handle = waiting()
    brought, commit, results = threading.Event(), threading.Event(), []

    def bring():
        with transaction.atomic():
            results.append(resume(token_for(handle.id), "first"))
            brought.set()
            assert commit.wait(30)

    with helpers.second_session(bring):
        assert brought.wait(30)
        thread = threading.Thread(target=_bring, args=(handle.id, results))
        thread.start()
        helpers.wait_until(helpers.somebody_waits)
        commit.set()
    thread.join(30)
    assert results == [True, False]
    (ran,) = run_due_tasks()
    assert ran.result[0] == "first"


# -- the fence, and what is refused -------------------------------------------------------------------


def test_an_attempt_that_lost_its_claim_neither_waits_nor_gives_the_row_back():
    _, stale, current = claimed_twice()
    with pytest.raises(ClaimLost, match="does not wait"):
        ask(stale)
    with transaction.atomic(), pytest.raises(ClaimLost):  # swallowed: what was written is committed
        waits.begin("default", stale, "answer", None, is_sleep=False)
    assert not Wait.objects.exists()
    ask(current)
    assert record(ended(stale, Arrow.SUSPEND, awaited="answer")).lost
    assert helpers.row(current.task_id).status == Status.CLAIMED


def test_an_attempt_that_lost_its_claim_gets_no_value_and_gives_up_for_nobody():
    _, stale, current = claimed_twice()
    ask(current, timeout=3600)
    end_of_time()
    with pytest.raises(ClaimLost, match="does not wait"):
        ask(stale, timeout=3600)
    with pytest.raises(ClaimLost), transaction.atomic():
        waits.give_up("default", stale, "answer")
    assert resume(token_for(current.task_id), 1) is True
    with pytest.raises(ClaimLost):
        ask(stale, timeout=3600)
    assert ask(current, timeout=3600) == 1


@pytest.mark.parametrize("how", tasks.WRONG_WAITS)
def test_what_cannot_be_a_wait_is_refused(how):
    handle = tasks.wrong_wait.enqueue(how)
    with helpers.working(threads=1):
        dead = helpers.wait_until(
            lambda: Task.objects.filter(pk=handle.id, status=Status.DEAD).first()
        )
    refused = {"in a block", "twice", "without a name", "token"}
    assert dead.errors[-1]["type"] == ("StepRefused" if how in refused else "InvalidOption")
    assert not Wait.objects.exists()


def test_an_atomic_task_does_not_wait():
    handle = tasks.atomic_wait.enqueue()
    run_due_tasks(reraise=False)
    assert "atomic=True" in helpers.row(handle.id).errors[-1]["message"]


def test_it_is_no_failure_whatever_the_limits_say():
    from django_txtasks.conf import get_config

    attempt = claimed()._replace(failures=9, max_attempts=1, crashes=9, snoozes=2_000)
    assert failed(attempt, Suspended("x"), get_config()).arrow is Arrow.SUSPEND


def test_a_task_that_runs_at_once_has_no_row_that_could_wait():
    from probe import framework

    result = framework.waits.using(backend="immediate").enqueue()
    assert "no row that could wait" in result.errors[0].traceback


def test_a_task_of_djangos_api_waits():
    from probe import framework

    handle = framework.waits.enqueue()
    (ran,) = run_due_tasks()
    assert ran.status == "pending"
    assert resume(token_for(uuid.UUID(handle.id)), 1)
    (ran,) = run_due_tasks()
    assert ran.result == 1


# -- what is kept -------------------------------------------------------------------------------------


def test_waits_go_with_their_finished_task():
    handle = waiting()
    clean()
    resume(token_for(handle.id), 1)
    run_due_tasks()
    assert Wait.objects.count() == 1
    FinishedTask.objects.filter(pk=handle.id).update(finished_at="2020-01-01T00:00Z")
    with transaction.atomic():
        cleaning.prune("default", Horizon(timedelta(days=1)))
    assert not Wait.objects.exists()


def test_waits_of_tasks_that_are_not_kept_are_purged_in_time(txtasks):
    txtasks(keep_finished=0)
    kept, gone = waiting(), tasks.ask_twice.enqueue()
    run_due_tasks()
    for name in ("first", "second"):
        resume(token_for(gone.id, name), 1)
    run_due_tasks()
    assert Wait.objects.count() == 3
    clean()
    assert [one.task_id for one in Wait.objects.all()] == [kept.id]


# -- people -------------------------------------------------------------------------------------------


def test_explain_says_what_a_task_waits_for():
    handle = waiting()
    reasons = {one.gate: one for one in explain("default", handle.id)}
    assert "waits for 'answer'" in reasons["waits"].text
    assert "resume(token, value)" in reasons["waits"].lift
    assert "later" not in reasons
    sleeper = tasks.sleep_between.enqueue("k", 86400)
    run_due_tasks()
    reasons = {one.gate: one for one in explain("default", sleeper.id)}
    assert "sleeps until 20" in reasons["sleeps"].text
    resume(token_for(handle.id), 1)
    assert "waits" not in {one.gate for one in explain("default", handle.id)}


@pytest.mark.urls("urls_for_waits")
def test_the_page_of_a_signed_url_asks_first_and_brings_its_value_once():
    handle = waiting()
    url, other = (resume_url(token_for(handle.id), one) for one in ("<b>yes</b>", "no"))
    client = Client(enforce_csrf_checks=True)
    page = client.get(url)
    assert page.status_code == 200
    assert "&lt;b&gt;yes&lt;/b&gt;" in page.content.decode()
    assert page["Referrer-Policy"] == "no-referrer"
    assert client.head(url).status_code == 200
    assert not is_due(handle.id)  # a link that is looked at changes nothing
    assert client.put(url).status_code == 405
    assert client.post(url).status_code == 200
    assert [client.post(one).status_code for one in (url, other)] == [410, 410]
    (ran,) = run_due_tasks()
    assert ran.result[0] == "<b>yes</b>"


@pytest.mark.urls("urls_for_waits")
def test_a_url_that_is_none_of_ours_is_not_found_and_a_token_is_none():
    handle = waiting()
    token = token_for(handle.id)
    url = resume_url(token, 1)
    for one in (url.replace("/resume/", "/resume/x"), f"/tasks/resume/{token}/"):
        assert Client().post(one).status_code == 404
    signed = url.rstrip("/").rpartition("/")[2]
    with pytest.raises(InvalidToken):
        resume(signed)
    with pytest.raises(InvalidArguments, match="URL"):
        resume_url(token, "x" * 600)
    assert not is_due(handle.id)
