"""Rows of a queue in TXTASKS["hand_over"] go to a target, and become history, or what its answer says."""

import datetime
import json
import uuid
from io import StringIO

import handing
import helpers
import pytest
from django.core.management import call_command
from django.db import connection, transaction
from probe import relay, tasks

from django_txtasks import (
    HandedOver,
    Refused,
    cancel_task,
    enqueue_many,
    enqueue_task,
    external,
    publish,
    stats,
    subscribe,
)
from django_txtasks.database.execute import fetch_value
from django_txtasks.exceptions import Away
from django_txtasks.features.hand_over import choosing
from django_txtasks.features.results.cancelling import CancelResult
from django_txtasks.models import FinishedTask, PausedQueue, Task
from django_txtasks.operations import operators
from django_txtasks.overview import overview

pytestmark = pytest.mark.usefixtures("rows", "target")
paid = external("billing.paid", queue_name="events")
lost = external("billing.lost", queue_name="events")


def test_rows_go_in_their_order_and_become_history():
    handle = enqueue_task(paid, 7, note="süß")
    enqueue_many([(lost, (number,)) for number in range(30)])
    enqueue_task(paid.using(priority=5), 8)
    drain = handing.hand_over()
    assert drain.handed == 32 and not Task.objects.exists()
    first, second, *others = [row for rows in relay.got for row in rows]
    assert (first.args, second.args, second.kwargs) == ([8], [7], {"note": "süß"})
    assert [row.args for row in others] == [[number] for number in range(30)]
    done = helpers.finished(handle.id)
    assert (done.outcome, done.attempt, done.worker) == ("handed", 0, None)
    assert handle.status() == "handed"
    with pytest.raises(HandedOver, match="another system"):
        handle.result(timeout=1)


def test_the_body_has_what_the_other_system_needs():
    handle = enqueue_task(paid, 7, to="you")
    handing.hand_over()
    ((row,),) = relay.got
    body = json.loads(row.body)
    at = datetime.datetime.fromisoformat(body.pop("enqueued_at"))
    assert body == {
        "id": str(handle.id),
        "task": "billing.paid",
        "args": [7],
        "kwargs": {"to": "you"},
    }
    assert at == helpers.finished(handle.id).enqueued_at


def test_rows_that_may_not_go_stay():
    now = enqueue_task(paid, 1)
    enqueue_task(lost.using(run_after=datetime.timedelta(hours=1)), 2)
    expired = enqueue_task(lost.using(expires=datetime.timedelta(hours=1)), 3)
    Task.objects.filter(pk=expired.id).update(expires_at="2020-01-01 00:00Z")
    held = enqueue_task(lost, 4)
    Task.objects.filter(pk=held.id).update(status="held")
    enqueue_task(tasks.note, "for a worker")
    handing.hand_over()
    assert [row.id for rows in relay.got for row in rows] == [now.id]
    assert Task.objects.count() == 4


def test_a_paused_queue_hands_nothing_over():
    PausedQueue.objects.create(queue_name="events")
    enqueue_task(paid, 1)
    handing.hand_over()
    assert not relay.got and Task.objects.count() == 1


def test_what_was_rolled_back_never_goes():
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        enqueue_task(paid, 1)
        raise ZeroDivisionError
    handing.hand_over()
    assert not relay.got


def test_a_task_function_of_this_project_goes_too():
    enqueue_task(tasks.note.using(queue_name="events"), "x")
    handing.hand_over()
    assert relay.names() == ["probe.tasks.note"]


def test_a_row_that_was_not_taken_waits_longer_each_time_with_the_reason():
    relay.answers["billing.lost"] = "the shop is closed"
    handle = enqueue_task(lost, 1)
    good = enqueue_task(paid, 1)
    handing.hand_over()
    waiting = helpers.row(handle.id)
    assert (waiting.status, waiting.snoozes) == ("pending", 1)
    assert [(one["type"], one["message"]) for one in waiting.errors] == [
        ("Postponed", "the shop is closed")
    ]
    assert helpers.finished(good.id).outcome == "handed"
    delays = []
    for _ in range(8):
        Task.objects.update(run_after="2020-01-01 00:00Z")
        handing.hand_over()
        waiting = helpers.row(handle.id)
        wait = fetch_value("default", "SELECT {wait} FROM txtasks_task")
        delays.append(round(float(wait)))
    assert delays[0] <= 2 and delays[-1] in range(50, 61) and delays == sorted(delays)
    assert len(waiting.errors) == 1 and waiting.snoozes == 9


def test_a_row_that_is_refused_each_time_is_told_with_its_error_and_its_tries():
    relay.answers["billing.lost"] = "the shop is closed"
    handle = enqueue_task(lost, 1)
    for _ in range(3):
        Task.objects.update(run_after="2020-01-01 00:00Z")
        handing.hand_over()
    (queue,) = [one for one in overview(max_age=0).queues if one.name == "events"]
    assert (queue.retrying.number, queue.dead.number) == (1, 0)
    (cause,) = stats.causes().causes
    assert (cause.task, cause.retrying, cause.last_line) == (
        "billing.lost",
        1,
        "the shop is closed",
    )
    out = StringIO()
    call_command("txtasks_explain", str(handle.id), stdout=out)
    tries = helpers.row(handle.id).snoozes
    said = f"has not taken it in {tries} tries (Postponed: the shop is closed)."
    assert tries >= 3 and said in out.getvalue()
    relay.reset()
    Task.objects.update(run_after="2020-01-01 00:00Z")
    handing.hand_over()
    assert not stats.causes().causes


def test_a_row_that_can_never_be_taken_is_dead_at_once(told):
    relay.answers["billing.lost"] = Refused("no such customer")
    handle, good = enqueue_task(lost, 1), enqueue_task(paid, 1)
    handing.hand_over()
    dead = helpers.row(handle.id)
    assert (dead.status, dead.cause is not None, dead.attempt) == ("dead", True, 0)
    assert dead.errors[-1]["message"] == "no such customer"
    assert helpers.finished(good.id).outcome == "handed"
    relay.reset()
    operators.revive("default", [handle.id])
    handing.hand_over()
    assert helpers.finished(handle.id).outcome == "handed"


def test_one_row_that_breaks_the_call_keeps_no_other_row_back():
    relay.answers["billing.lost"] = KeyError("odd")
    good = [enqueue_task(paid, number) for number in range(5)]
    bad = enqueue_task(lost, 1)
    good += [enqueue_task(paid, number) for number in range(5)]
    handing.hand_over()
    assert FinishedTask.objects.filter(pk__in=[one.id for one in good]).count() == 10
    waiting = helpers.row(bad.id)
    assert waiting.status == "pending" and "odd" in waiting.errors[-1]["message"]


def test_a_row_that_broke_a_call_before_breaks_none_with_other_rows():
    relay.answers["billing.lost"] = KeyError("odd")
    bad = enqueue_task(lost, 1)
    handing.hand_over()
    relay.got.clear()
    Task.objects.filter(pk=bad.id).update(run_after=Task.objects.get().enqueued_at)
    good = {enqueue_task(paid, number).id for number in range(5)}
    handing.hand_over()
    assert [{row.id for row in rows} for rows in relay.got] == [good, {bad.id}]


@pytest.mark.parametrize("error", [Away("closed"), ConnectionRefusedError("closed")])
def test_while_the_target_is_away_the_rows_stay_untouched(error):
    relay.answers["billing.paid"] = error
    handle = enqueue_task(paid, 1)
    before = helpers.row(handle.id)
    drain = handing.new_drain()
    drain._turn()
    drain._turn()
    assert len(relay.got) == drain._away_count == 2
    after = helpers.row(handle.id)
    assert (after.run_after, after.errors, after.snoozes) == (before.run_after, [], 0)
    relay.answers.clear()
    handing.hand_over()
    assert not Task.objects.exists()


def test_a_wrong_return_value_postpones_the_row(monkeypatch):
    handle = enqueue_task(paid, 1)
    monkeypatch.setattr(relay, "send", lambda rows: {uuid.uuid4(): "?"})
    handing.hand_over()
    assert "the id of no row" in helpers.row(handle.id).errors[-1]["message"]


def test_a_row_whose_id_has_ended_is_not_sent_again():
    handle = enqueue_task(paid, 1)
    handing.hand_over()
    again = Task(id=handle.id, task_name="billing.paid", queue_name="events")
    again.save(force_insert=True)
    good = enqueue_task(paid, 2)
    handing.hand_over()
    assert len(relay.names()) == 2
    assert helpers.row(handle.id).status == "dead" and helpers.finished(good.id)


def test_big_rows_go_in_several_passes(monkeypatch):
    monkeypatch.setattr("django_txtasks.features.hand_over.choosing.MOST_BYTES", 3000)
    enqueue_many([(paid, ("x" * 1000,)) for _ in range(5)] + [(paid, ("x" * 9000,))])
    handing.hand_over()
    assert [len(rows) for rows in relay.got] == [2, 2, 1, 1]


def test_an_event_has_an_external_task_as_subscriber(monkeypatch):
    monkeypatch.setattr("django_txtasks.features.events.api._subscribers", {})
    subscribe("order.paid")(paid)
    publish("order.paid", 7)
    handing.hand_over()
    ((row,),) = relay.got
    assert (row.task_name, row.args) == ("billing.paid", [7])


def test_history_is_kept_as_the_settings_say(txtasks):
    txtasks(keep_finished=0)
    handle = enqueue_task(paid, 1)
    handing.hand_over()
    assert not FinishedTask.objects.exists() and handle.status() == "gone"


def test_a_cancel_during_a_pass_is_too_late(monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no locks of rows")
    relay.may_go_on.clear()
    handle = enqueue_task(paid, 1)
    results = []
    with handing.handing_over():
        helpers.wait_until(lambda: relay.got)

        def cancel():
            results.append(cancel_task(handle.id))

        with helpers.second_session(cancel) as thread:
            helpers.wait_until(helpers.somebody_waits)
            relay.may_go_on.set()
            thread.join(60)
    assert results == [CancelResult.TOO_LATE]
    assert helpers.finished(handle.id).outcome == "handed"


def test_on_sqlite_a_row_that_is_cancelled_meanwhile_shows_cancelled():
    if connection.vendor != "sqlite":
        pytest.skip("other databases lock the row")
    relay.may_go_on.clear()
    handle, good = enqueue_task(paid, 1), enqueue_task(paid, 2)
    with handing.handing_over():
        helpers.wait_until(lambda: relay.got)
        assert cancel_task(handle.id) is CancelResult.CANCELLED
        relay.may_go_on.set()
        helpers.wait_until(lambda: not Task.objects.exists())
    assert helpers.finished(handle.id).outcome == "cancelled"
    assert helpers.finished(good.id).outcome == "handed"


def test_two_drains_share_the_rows(monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite there is one drain")
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 10)
    enqueue_many([(paid, (number,)) for number in range(30)])
    relay.may_go_on.clear()
    with handing.handing_over(), handing.handing_over():
        helpers.wait_until(lambda: len(relay.got) == 2)
        relay.may_go_on.set()
        helpers.wait_until(lambda: not Task.objects.exists())
    numbers = [row.args[0] for rows in relay.got for row in rows]
    assert sorted(numbers) == list(range(30))


def test_an_ordered_queue_stops_at_the_first_row_that_does_not_go(txtasks, monkeypatch):
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.FIRST_DELAY_SECONDS", 0.01)
    txtasks(hand_over={"events": {"to": "probe.relay.send", "ordered": True}})
    relay.answers["billing.lost"] = "closed"
    first, bad, last = [enqueue_task(one, 1) for one in (paid, lost, paid)]
    with handing.handing_over():
        helpers.wait_until(lambda: helpers.finished(first.id))
        helpers.wait_until(lambda: len(relay.got) >= 3)
        assert helpers.finished(first.id).outcome == "handed"
        assert [len(rows) for rows in relay.got] == [1] * len(relay.got)
        waiting = helpers.row(bad.id)
        assert (waiting.snoozes, waiting.errors) == (0, []) and helpers.row(last.id)
        relay.answers.clear()
        helpers.wait_until(lambda: not Task.objects.exists())


def test_in_an_ordered_queue_nothing_is_sent_after_a_row_that_breaks_the_call(txtasks, monkeypatch):
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.FIRST_DELAY_SECONDS", 0.01)
    txtasks(hand_over={"events": {"to": "probe.relay.send", "ordered": True}})
    relay.answers["billing.lost"] = KeyError("odd")
    _, bad, last = [enqueue_task(one, 1) for one in (paid, lost, paid)]
    with handing.handing_over():
        helpers.wait_until(lambda: len(relay.got) >= 5)
        alone = [rows[0].id for rows in relay.got if len(rows) == 1]
        assert last.id not in alone
        assert (helpers.row(bad.id).snoozes, helpers.row(last.id).status) == (0, "pending")
        relay.answers.clear()
        helpers.wait_until(lambda: not Task.objects.exists())


def test_one_drain_of_an_ordered_queue_is_active_and_the_other_waits(txtasks, monkeypatch):
    if connection.vendor == "sqlite":
        pytest.skip("on SQLite there is one drain")
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 10)
    txtasks(hand_over={"events": {"to": "probe.relay.send", "ordered": True}})
    enqueue_many([(paid, (number,)) for number in range(50)])
    relay.may_go_on.clear()
    with handing.handing_over(), handing.handing_over():
        helpers.wait_until(lambda: relay.got)
        helpers.wait_until(helpers.somebody_waits)
        assert len(relay.got) == 1
        relay.may_go_on.set()
        helpers.wait_until(lambda: not Task.objects.exists())
    assert [row.args[0] for rows in relay.got for row in rows] == list(range(50))


def test_a_call_that_does_not_return_keeps_the_drain_from_calling_again(monkeypatch):
    monkeypatch.setattr("django_txtasks.features.hand_over.targets.calling.CALL_SECONDS", 0.1)
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.FIRST_DELAY_SECONDS", 0.01)
    relay.may_go_on.clear()
    enqueue_task(paid, 1)
    with handing.handing_over() as drain:
        helpers.wait_until(lambda: drain._away_count >= 3)
        assert len(relay.got) == 1
        relay.may_go_on.set()
        helpers.wait_until(lambda: not Task.objects.exists())
    assert len(relay.got) == 2


def test_a_dead_notice_is_enqueued_for_a_refused_row(txtasks):
    txtasks(dead_notices={"mail": ["me@example.com"]})
    relay.answers["billing.lost"] = Refused("never")
    enqueue_task(lost, 1)
    handing.hand_over()
    notice = Task.objects.get(status="pending")
    assert (notice.task_name, notice.queue_name) == (
        "django_txtasks.notices.mail_dead_notice",
        "default",
    )


@pytest.fixture
def begins(monkeypatch):
    """For each search: it begins behind the rows of an earlier one."""
    found, fetch = [], choosing.fetch

    def note(alias, sql, **params):
        if "limit" in params:
            found.append("mark_id" in params)
        return fetch(alias, sql, **params)

    monkeypatch.setattr(choosing, "fetch", note)
    return found


def test_a_slow_search_from_the_head_is_not_repeated_for_each_row(monkeypatch, txtasks, begins):
    """An old snapshot keeps all rows that were handed over: with a million of them a search takes seconds."""
    txtasks(poll_interval=60)
    monkeypatch.setattr(choosing, "SLOW_SEARCH_SECONDS", -1)
    with handing.handing_over() as drain:
        for number in range(3):
            enqueue_task(paid, number)
            drain.inbox.wake()
            helpers.wait_until(lambda count=number + 1: len(relay.names()) == count)
        helpers.wait_until(lambda: not Task.objects.exists())
        place = drain._passes._place
        assert begins[0] is False and all(begins[1:]) and len(begins) >= 3
        place._next_head = 0.0  # rows that were written later with an older time
        drain.inbox.wake()
        helpers.wait_until(lambda: place._next_head)
        enqueue_task(paid, 3)
        drain.inbox.wake()
        helpers.wait_until(lambda: len(relay.names()) == 4)
        assert begins[-1] is True


def test_a_pass_begins_behind_the_last_one(monkeypatch, txtasks, begins):
    """Otherwise each pass would walk past the rows that were handed over, which an old snapshot keeps."""
    txtasks(poll_interval=60)
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.MOST_ROWS", 10)
    enqueue_many([(paid, (number,)) for number in range(25)])
    handing.hand_over()
    assert relay.got and begins[:3] == [False, True, True]
    assert FinishedTask.objects.count() == 25
