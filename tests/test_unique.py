"""Unique keys: due tasks of one key that have not begun are merged into one run; no request is lost."""

import contextlib
import itertools
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone

import helpers
import pytest
from django.db import connection, transaction
from probe import framework, tasks
from probe.models import Run

from django_txtasks import cancel_tasks, enqueue_many, status_of, task
from django_txtasks.backends import compat
from django_txtasks.conf import get_config
from django_txtasks.core.ground.retention import Horizon
from django_txtasks.core.rows import cleaning, engines, outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.enqueueing import Edge
from django_txtasks.core.rows.turn import Capacity, Scan, TurnRequest
from django_txtasks.exceptions import InvalidArguments, InvalidDeclaration, InvalidOption
from django_txtasks.features.unique import merging
from django_txtasks.models import DatabaseNow, FinishedTask, Outcome, Status, Task
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")


@pytest.fixture(autouse=True)
def open_door():
    tasks.released.clear()
    yield
    tasks.released.set()


def a_claim(room=10, hinted=(), queues=("default",)):
    """A worker registers and claims in a turn that merges; give its id and the result."""
    worker = workers.register(
        "default", queues=list(queues), threads=1, listening=None, lease=timedelta(seconds=15)
    )
    wanted = helpers.subscription(*queues)
    with transaction.atomic():
        request = TurnRequest(Capacity(room), hinted, None if hinted else Scan(wanted.queues))
        return worker, engines.claim(wanted, worker, request, with_keys=True)


def recorded(ended):
    with transaction.atomic():
        done = outcomes.record("default", [ended], config=get_config()).done
    assert done == [ended]


def keys_run():
    return list(Run.objects.order_by("id").values_list("key", flat=True))


def merged():
    return FinishedTask.objects.filter(outcome=Outcome.MERGED)


# -- merging --------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_what_waits_under_one_key_is_one_run():
    handles = [tasks.tidy.enqueue(f"{n}") for n in range(5)]
    run_due_tasks()
    assert keys_run() == ["4"]  # with the newest arguments
    assert {one.status() for one in handles} == {"succeeded"}
    winner = FinishedTask.objects.get(outcome=Outcome.SUCCEEDED)
    assert winner.pk == handles[0].id
    assert winner.result == "4"
    assert set(merged().values_list("merged_into", flat=True)) == {winner.pk}
    assert merged().count() == 4


def test_the_oldest_arguments_where_that_is_said():
    for n in range(3):
        tasks.tidy_oldest.enqueue(f"{n}")
    run_due_tasks()
    assert keys_run() == ["0"]


def database_now(handle):
    return Task.objects.annotate(now=DatabaseNow()).get(pk=handle.id).now


def enqueued(function, key, ago):
    """Enqueue at a time this long ago, by the database's clock; negative = before that clock was set back."""
    handle = function.enqueue(key)
    moment = database_now(handle) - ago
    Task.objects.filter(pk=handle.id).update(enqueued_at=moment, run_after=moment)
    return handle


@pytest.mark.parametrize("hinted", [False, True])
def test_the_newest_arguments_are_those_of_the_last_request_where_the_clock_was_set_back(hinted):
    """The time of the first request is later than now. It neither wins nor runs alone when that time has come."""
    first = enqueued(tasks.tidy, "first", -timedelta(hours=1))
    second = enqueued(tasks.tidy, "second", timedelta(seconds=2))
    third = enqueued(tasks.tidy, "third", timedelta(seconds=1))
    _, result = a_claim(hinted=[third.id] if hinted else ())
    assert [(one.task_id, one.args) for one in result.claimed] == [(second.id, '["third"]')]
    assert set(merged().values_list("pk", flat=True)) == {first.id, third.id}


def test_what_is_for_later_waits_also_where_the_clock_was_set_back():
    """It was to run an hour after its request, whatever the clock said then."""
    later = enqueued(tasks.tidy, "later", -timedelta(hours=1))
    Task.objects.update(run_after=database_now(later) + timedelta(hours=2))
    now = enqueued(tasks.tidy, "now", timedelta(seconds=1))
    _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [now.id]
    assert helpers.row(later.id).status == Status.PENDING


def test_the_oldest_request_runs_by_itself_where_the_clock_was_set_back():
    """Its arguments would be lost if a newer one stood for it."""
    oldest = enqueued(tasks.tidy_oldest, "oldest", -timedelta(hours=1))
    newer = enqueued(tasks.tidy_oldest, "newer", timedelta(seconds=1))
    _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [newer.id]
    assert helpers.row(oldest.id).status == Status.PENDING


def test_other_keys_queues_and_functions_are_others():
    tasks.tidy.enqueue("a")
    tasks.tidy.enqueue("b", shelf="b")
    tasks.tidy.using(queue_name="mail").enqueue("mail")
    tasks.tidy.using(unique_key="shelf A").enqueue("capital")
    tasks.tidy.using(unique_key="shelf a").enqueue("the same")
    tasks.note.using(unique_key="shelf a").enqueue("note")
    tasks.tidy.enqueue("none", shelf="")
    tasks.tidy.enqueue("none too", shelf="")
    run_due_tasks()
    assert sorted(keys_run()) == ["b", "capital", "mail", "none", "none too", "note", "the same"]


def test_in_enqueue_many():
    calls = [(tasks.tidy, [f"{n}"], {"shelf": "b" if n % 2 else "a"}) for n in range(60)]
    handles = enqueue_many([*calls, (tasks.note, ["other"])])
    run_due_tasks()
    assert sorted(keys_run()) == ["58", "59", "other"]
    assert {one.status() for one in handles} == {"succeeded"}


@pytest.mark.smoke
def test_through_django_s_tasks():
    same = framework.keyed
    results = [same.enqueue(n) for n in range(3)]
    run_due_tasks()
    assert merged().count() == 2
    backend = same.get_backend()
    for one in results:
        found = backend.get_result(one.id)
        assert (found.id, found.status.name) == (one.id, "SUCCESSFUL")
        assert found.return_value == 2


def test_a_rolled_back_request_is_none():
    tasks.tidy.enqueue("kept")
    with transaction.atomic():
        tasks.tidy.enqueue("rolled back")
        transaction.set_rollback(True)
    run_due_tasks()
    assert keys_run() == ["kept"]


def test_a_running_one_swallows_nothing():
    first = tasks.tidy.enqueue("first")
    _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [first.id]
    later = tasks.tidy.enqueue("later")
    _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [later.id]
    assert not merged().exists()


def test_a_task_that_has_begun_runs_by_itself():
    """Its failures would be forgotten otherwise, and it would stand for requests that came after it began."""
    failed = tasks.tidy_told.enqueue("failed", fails=True)
    _, result = a_claim()
    (attempt,) = result.claimed
    recorded(Ended(attempt=attempt, arrow=Arrow.RETRY, error={"type": "E"}))
    fresh = tasks.tidy_told.enqueue("fresh")
    _, result = a_claim()
    assert {one.task_id for one in result.claimed} == {failed.id, fresh.id}
    assert not merged().exists()
    assert helpers.row(failed.id).failures == 1


def test_only_what_is_due_is_merged():
    later = tasks.tidy.using(run_after=3600).enqueue("later")
    expired = tasks.tidy.using(expires=0.01).enqueue("expired")
    held = tasks.tidy.enqueue("held")
    operators.hold("default", [held.id])
    time.sleep(0.05)
    now = tasks.tidy.enqueue("now")
    _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [now.id]
    assert not merged().exists()
    assert {helpers.row(one.id).status for one in (later, expired, held)} == {"pending", "held"}


def test_the_highest_priority_comes_first_and_takes_the_others_along():
    low = tasks.tidy.enqueue("low")
    high = tasks.tidy.using(priority=50).enqueue("high")
    _, result = a_claim(hinted=[low.id])  # a hint for one is a ticket for the first
    assert [one.task_id for one in result.claimed] == [high.id]
    assert merged().get().pk == low.id


def test_what_would_outlive_the_winner_is_not_merged():
    tasks.tidy.using(expires=5).enqueue("until then")
    never = tasks.tidy.enqueue("for ever")
    sooner = tasks.tidy.using(expires=3).enqueue("sooner")
    _, result = a_claim(room=1)
    assert [one.args for one in result.claimed] == ['["sooner"]']
    assert merged().get().pk == sooner.id
    assert helpers.row(never.id).status == Status.PENDING
    assert [one.task_id for one in a_claim()[1].claimed] == [never.id]


@pytest.mark.parametrize(
    "other",
    [
        {"max_attempts": 1},
        {"max_crashes": 1},
        {"timeout": 9},
        {"on_success": tasks.notice},
    ],
    ids=str,
)
def test_other_limits_or_hooks_run_by_themselves(other):
    tasks.tidy.enqueue("usual")
    tasks.tidy.using(**other).enqueue("other")
    run_due_tasks()
    assert {"usual", "other"} <= set(keys_run())
    assert not merged().exists()


def test_equal_hooks_fire_once():
    for n in range(4):
        tasks.tidy_told.enqueue(f"{n}")
    run_due_tasks()
    assert keys_run() == ["3", "success tidy_told"]


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_claim_absorbs_a_bounded_number_and_the_last_run_is_the_newest(monkeypatch, count):
    monkeypatch.setattr(merging, "MOST_MERGED", 2)
    for n in range(count):
        tasks.tidy.enqueue(f"{n}")
    run_due_tasks()
    runs = keys_run()
    assert runs[-1] == f"{count - 1}"
    assert len(runs) == -(-count // 3)
    assert merged().count() == count - len(runs)


def test_a_queue_that_is_not_served_keeps_nobody_back():
    tasks.tidy.using(queue_name="mail").enqueue("mail")
    here = tasks.tidy.enqueue("here")
    _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [here.id]


def test_the_room_counts_runs_and_others_go_on():
    for n in range(3):
        tasks.tidy.enqueue(f"a{n}")
    other = tasks.note.enqueue("other")
    b = tasks.tidy.enqueue("b", shelf="b")
    _, result = a_claim(room=2)  # two rows were looked at, and are one run
    assert len(result.claimed) == result.rest.width == 1
    assert result.has_more
    _, result = a_claim(room=2)
    assert [one.task_id for one in result.claimed] == [other.id, b.id]


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="one writer at a time")
def test_a_key_whose_first_is_locked_waits_for_that_alone():
    first = tasks.tidy.enqueue("first")
    second = tasks.tidy.enqueue("second")
    other = tasks.note.enqueue("other")
    sql = "SELECT id FROM txtasks_task WHERE id = %s FOR UPDATE"
    with helpers.locked(sql, first.id.hex):
        _, result = a_claim()
        assert [one.task_id for one in result.claimed] == [other.id]
        _, result = a_claim(hinted=[second.id])
        assert result.claimed == []
        assert 0 < result.later[second.id] < 1
    _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [first.id]


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="one writer at a time")
def test_a_locked_key_keeps_no_worker_from_what_is_behind_it(txtasks):
    """Though more of it wait than a worker has slots, and nobody scans again for an hour."""
    txtasks(poll_interval=3600, database_hints=False)
    with helpers.working(threads=1):
        note = tasks.note.using(run_after=-60).enqueue("at work")
        first, *_ = [tasks.tidy.using(run_after=-9).enqueue(f"{n}") for n in range(6)]
        other = tasks.note.enqueue("behind")
    sql = "SELECT id FROM txtasks_task WHERE id = %s FOR UPDATE"
    with helpers.locked(sql, first.id.hex), helpers.working(threads=1):
        helpers.wait_until(lambda: other.status() == "succeeded")
        assert first.status() == "pending"
        assert note.status() == "succeeded"


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="one writer at a time")
def test_a_key_that_is_let_go_is_taken_soon(txtasks):
    """And not when the next scan is due, an hour later."""
    txtasks(poll_interval=3600, database_hints=False)
    first, second = tasks.tidy.enqueue("first"), tasks.tidy.enqueue("second")
    sql = "SELECT id FROM txtasks_task WHERE id = %s FOR UPDATE"
    with contextlib.ExitStack() as lock:
        lock.enter_context(helpers.locked(sql, first.id.hex))
        with helpers.working(threads=2):
            time.sleep(0.5)
            assert second.status() == "pending"
            lock.close()
            helpers.wait_until(lambda: first.status() == second.status() == "succeeded")


def test_many_keys_are_taken_in_several_goes(monkeypatch):
    monkeypatch.setattr(merging, "MOST_KEYS", 2)
    for n in range(10):
        tasks.tidy.enqueue(f"{n}", shelf=f"{n % 5}")
    _, result = a_claim(room=20)
    assert len(result.claimed) == 2
    assert result.has_more
    run_due_tasks()
    assert Task.objects.filter(status=Status.PENDING).count() == 0


def test_a_row_whose_id_has_finished_before_is_left_alone():
    """Somebody has written it by hand: it stops nobody else, and is not lost."""
    first, odd = tasks.tidy.enqueue("first"), tasks.tidy.enqueue("odd")
    FinishedTask.objects.create(id=odd.id, task_name="probe.tasks.tidy", outcome=Outcome.SUCCEEDED)
    _, result = a_claim(room=1)
    assert [one.task_id for one in result.claimed] == [first.id]
    assert helpers.row(odd.id).status == Status.PENDING


def test_a_key_that_was_written_by_hand_merges_no_other_function():
    one, other = tasks.tidy.enqueue("one"), tasks.quick.enqueue("other")
    Task.objects.filter(pk=other.id).update(unique_key=helpers.row(one.id).unique_key)
    run_due_tasks()
    assert sorted(keys_run()) == ["one", "other"]


@pytest.mark.parametrize(
    "changes", [{"keep": "oldest"}, {"max_snoozes": 3}, {"interruptible": True}], ids=str
)
def test_what_workers_read_from_the_declaration_is_not_changed_for_one_request(changes):
    with pytest.raises(compat.InvalidTask, match="as it was declared"):
        framework.keyed.using(**changes)


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="one writer at a time")
def test_a_locked_twin_runs_by_itself():
    first, twin = tasks.tidy.enqueue("first"), tasks.tidy.enqueue("twin")
    with helpers.locked("SELECT id FROM txtasks_task WHERE id = %s FOR UPDATE", twin.id.hex):
        _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [first.id]
    _, result = a_claim()
    assert [one.task_id for one in result.claimed] == [twin.id]


def test_merged_rows_are_kept_where_no_history_is_and_pruned(txtasks):
    txtasks(keep_finished=0)
    handles = [tasks.tidy.enqueue(f"{n}") for n in range(2)]
    _, result = a_claim()
    (attempt,) = result.claimed
    cleaning.prune("default", Horizon(timedelta(0)))
    assert [one.status() for one in handles] == ["claimed", "claimed"]
    recorded(Ended(attempt=attempt, arrow=Arrow.FINISH))
    assert merged().count() == 1
    cleaning.prune("default", Horizon(timedelta(0)))
    assert not merged().exists()
    assert handles[1].status() == "gone"


# -- whoever was merged hears of the end --------------------------------------------------------------


def absorbed_and_failed():
    winner = tasks.tidy_told.enqueue("winner")
    tasks.tidy_told.enqueue("merged")
    _, result = a_claim()
    (attempt,) = result.claimed
    assert helpers.row(winner.id).absorbed == 1
    recorded(Ended(attempt=attempt, arrow=Arrow.RETRY, error={"type": "E"}))
    return winner, attempt


def is_told():
    hooks = Task.objects.filter(task_name=tasks.tell.declaration.name)
    (event,) = [one.args[0] for one in hooks]
    return event["event"], event["error"]["type"], event["args"]


def test_of_a_cancel_by_a_person():
    winner, _ = absorbed_and_failed()
    operators.cancel("default", [winner.id], keep=True)
    assert is_told() == ("failure", "cancelled", ["merged"])


def test_of_a_cancel_in_python():
    winner, _ = absorbed_and_failed()
    winner.cancel()
    assert is_told() == ("failure", "cancelled", ["merged"])


def test_of_its_expiry():
    winner, _ = absorbed_and_failed()
    helpers.execute("UPDATE txtasks_task SET expires_at = enqueued_at")
    cleaning.expire("default", keeps=bool)
    assert is_told() == ("failure", "expired", ["merged"])
    assert winner.status() == "expired"


def test_of_its_death_once():
    winner, _ = absorbed_and_failed()
    _, result = a_claim()
    (attempt,) = result.claimed
    recorded(Ended(attempt=attempt, arrow=Arrow.BURY, error={"type": "E"}))
    assert is_told() == ("failure", "E", ["merged"])
    operators.discard("default", [winner.id], keep=True)
    assert is_told() == ("failure", "E", ["merged"])


def test_who_stands_for_nobody_tells_nobody():
    handle = tasks.tidy_told.enqueue("alone")
    handle.cancel()
    assert not Task.objects.exists()


# -- cancelling by key ------------------------------------------------------------------------------


def test_all_of_a_key_are_cancelled_in_the_transaction():
    running = tasks.tidy.enqueue("running")
    a_claim()
    retried = tasks.tidy.enqueue("retried")
    _, result = a_claim()
    (attempt,) = result.claimed
    recorded(Ended(attempt=attempt, arrow=Arrow.RETRY, error={"type": "E"}))
    waiting = tasks.tidy.using(run_after=60).enqueue("waiting")
    others = [tasks.tidy.enqueue("b", shelf="b"), tasks.note.enqueue("note")]
    others.append(tasks.tidy.using(queue_name="mail").enqueue("mail"))
    with transaction.atomic():
        assert len(cancel_tasks(tasks.tidy, unique_key="shelf a")) == 3
        transaction.set_rollback(True)
    results = cancel_tasks(tasks.tidy, unique_key="shelf a")
    assert {one: result.value for one, result in results.items()} == {
        running.id: "asked",
        retried.id: "cancelled",
        waiting.id: "cancelled",
    }
    assert {one.status() for one in others} == {"pending"}
    assert cancel_tasks(tasks.tidy, unique_key="nothing") == {}
    with pytest.raises(InvalidOption, match="no text"):
        cancel_tasks(tasks.tidy, unique_key=None)


# -- debounce -------------------------------------------------------------------------------------


def test_what_comes_within_the_span_runs_together(quick):
    handles = enqueue_many([(tasks.tidy_later, [f"{n}"]) for n in range(4)])
    rows = [helpers.row(one.id) for one in handles]
    assert len({one.run_after for one in rows}) <= 2  # an edge may lie between two of them
    waits = [one.run_after - one.enqueued_at for one in rows]  # an edge may be just a moment away
    assert all(timedelta(seconds=-1) < one < timedelta(seconds=2) for one in waits)
    with helpers.working(threads=1):
        helpers.wait_until(lambda: all(one.status() == "succeeded" for one in handles))
    assert len(keys_run()) <= 2


def test_edges_are_the_same_for_all_of_a_span():
    width, now = timedelta(seconds=10), datetime(2026, 1, 1, tzinfo=timezone.utc)
    grid = Edge(width // timedelta(microseconds=1), 3_500_000)
    edges = {grid.after(now + timedelta(seconds=n / 10)) for n in range(100)}
    assert sorted(one - now for one in edges) == [timedelta(seconds=3.5), timedelta(seconds=13.5)]
    assert grid.after(now + timedelta(seconds=3.5)) - now == timedelta(seconds=13.5)


ON_A_WRONG_CLOCK = """
import datetime, os, sys
real, shift = datetime.datetime, int(sys.argv[1])
class Type(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, real)
class Shifted(real, metaclass=Type):
    @classmethod
    def now(cls, tz=None):
        return real.now(tz) + datetime.timedelta(seconds=shift)
datetime.datetime = Shifted
import django
django.setup()
from probe import tasks
from django.db import connection
from django_txtasks import enqueue_many
for width in map(float, sys.argv[2:]):
    def settled(way):
        return tasks.tidy_later.using(unique_key=f"{way} {width}", settle=datetime.timedelta(seconds=width))
    for _ in range(2):
        settled("alone").enqueue("key")
    enqueue_many([(settled("copied"), ["key"])] * 30)
    other = [(tasks.note, []), (tasks.note.using(run_after=5), [])]
    enqueue_many([(settled("beside others"), ["key"])] + other)
"""
MS = timedelta(milliseconds=1)


def test_tasks_settle_by_the_databases_clock_and_by_no_hosts(processes):
    """A host whose clock is an hour fast, or slow, has its tasks wait no longer than others do."""
    widths = {"0.01", "7.0", "86400.0", "3153600000.0"}
    for shift in ("-3600", "3600"):
        command = [sys.executable, "-c", ON_A_WRONG_CLOCK, shift, *widths]
        subprocess.run(command, check=True, timeout=120, env=processes._environment())
    rows = list(Task.objects.exclude(unique_text=None).order_by("run_after"))
    assert len(rows) == 2 * 33 * len(widths)
    for text in {one.unique_text for one in rows}:
        span = timedelta(seconds=float(text.split()[-1]))
        some = [one for one in rows if one.unique_text == text]
        waits = [one.run_after - one.enqueued_at for one in some]
        # PostgreSQL's COPY takes the time that was read a moment before it
        least = timedelta(minutes=-2) if text.startswith("copied") else timedelta(0)
        assert all(least < wait <= span + MS for wait in waits), text
        due = sorted({one.run_after for one in some})
        for one, other in itertools.pairwise(due):
            rest = (other - one) % span  # whole spans apart; SQLite keeps milliseconds
            assert min(rest, span - rest) <= MS, text
        asked = [one.enqueued_at for one in some]
        assert len(due) <= (max(asked) - min(asked)) // span + 2, text


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["", "x" * 201, 7, "a\nb", b"x", ["x"]], ids=str)
def test_wrong_keys_are_refused(wrong):
    with pytest.raises(InvalidDeclaration, match="unique_key"):
        task(unique_key=wrong)(tasks.plain)
    with transaction.atomic():
        with pytest.raises(InvalidOption, match="unique_key"):
            tasks.note.using(unique_key=wrong).enqueue()
        with pytest.raises(InvalidOption, match="unique_key"):
            tasks.note.using(unique_key=lambda *_: wrong).enqueue()
        tasks.note.enqueue("stays usable")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"keep": "newest", "settle": 5}, "without unique_key="),
        ({"keep": "oldest"}, "without unique_key="),
        ({"unique_key": "a", "keep": "both"}, "'newest' or 'oldest'"),
        ({"unique_key": "a", "settle": -1}, "more than zero"),
        ({"unique_key": "a", "compensate": tasks.undo}, "Say keep='oldest'"),
    ],
    ids=str,
)
def test_contradictions_are_refused(options, says):
    with pytest.raises(InvalidDeclaration, match=says):
        task(**options)(tasks.plain)


def test_settle_says_when():
    with pytest.raises(InvalidOption, match="Leave one of them out"):
        tasks.tidy_later.using(run_after=5).enqueue("x")
    with pytest.raises(InvalidOption, match="without unique_key="):
        tasks.note.using(settle=5).enqueue("x")


def test_a_key_function_that_fails_is_named():
    with pytest.raises(InvalidOption, match="has failed: ZeroDivisionError"):
        tasks.note.using(unique_key=lambda *_: 1 / 0).enqueue()
    with pytest.raises(InvalidArguments, match="no parameter 'shelve'"):
        tasks.tidy.enqueue("x", shelve="b")


def test_whose_status_is_asked_has_to_be_a_task():
    with pytest.raises(InvalidArguments, match="pass the id of a TaskHandle"):
        status_of("nothing")
    assert status_of(helpers.uuid.uuid4()) == "gone"


# -- workers --------------------------------------------------------------------------------------


def test_a_hundred_transactions_of_which_half_roll_back_are_one_run(quick):
    handles, rolled_back = [], []
    barrier = threading.Barrier(10)

    def request(number):
        barrier.wait(helpers.PATIENCE)
        for n in range(10):
            with transaction.atomic():
                handle = helpers.patiently(lambda n=n: tasks.tidy.enqueue(f"{number} {n}"))
                transaction.set_rollback(n % 2 == 1)
            (rolled_back if n % 2 else handles).append(handle)

    threads = [threading.Thread(target=closing(request), args=(number,)) for number in range(10)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(helpers.PATIENCE)
    assert len(handles) == len(rolled_back) == 50
    with helpers.working(threads=4):
        helpers.wait_until(lambda: all(one.status() == "succeeded" for one in handles))
    assert helpers.runs() == 1
    assert {one.status() for one in rolled_back} == {"gone"}


def test_a_worker_that_is_at_work_merges_too(quick):
    """Its usual turn leaves such tasks to the next one."""
    with helpers.working(threads=2):
        for n in range(4):
            other = tasks.note.enqueue(f"before {n}")
            helpers.wait_until(lambda one=other: one.status() == "succeeded")
        handles = enqueue_many([(tasks.tidy, [f"{n}"]) for n in range(30)])
        helpers.wait_until(lambda: all(one.status() == "succeeded" for one in handles))
    assert [key for key in keys_run() if "before" not in key] == ["29"]


def closing(work):
    def run(number):
        try:
            work(number)
        finally:
            connection.close()

    return run


@pytest.mark.parametrize("hints", [False, True])
def test_workers_merge_and_each_request_is_served_by_a_later_run(quick, txtasks, hints):
    txtasks(database_hints=hints)
    handles = []
    with helpers.working(threads=2), helpers.working(threads=2):
        for n in range(60):
            handles.append((helpers.patiently(lambda n=n: tasks.tidy.enqueue(f"{n}")), n))
            helpers.patiently(lambda n=n: tasks.note.enqueue(f"note {n}"))
        helpers.wait_until(lambda: not Task.objects.exists())
    ran = {key for key in keys_run() if not key.startswith("note")}
    assert "59" in ran
    for handle, n in handles:
        row = FinishedTask.objects.get(pk=handle.id)
        winner = row if row.merged_into is None else FinishedTask.objects.get(pk=row.merged_into)
        assert winner.started_at >= row.enqueued_at
        assert int(winner.result) >= n
