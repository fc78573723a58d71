"""Which worker may claim a task: threads, an event loop, or the process that runs last chances."""

import itertools
import uuid
from dataclasses import replace
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from probe import on_loop, tasks

from django_txtasks.conf import get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.rows import engines, statements, workers
from django_txtasks.core.rows.engines import portable
from django_txtasks.core.rows.turn import Capacity, Scan, TurnRequest
from django_txtasks.core.working import last_chances
from django_txtasks.fast import postgresql
from django_txtasks.features.lanes import claiming
from django_txtasks.features.lanes.claiming import LanesRequest
from django_txtasks.insight.explain import explain
from django_txtasks.models import Task

pytestmark = pytest.mark.usefixtures("rows")


def registered(kind):
    wanted = helpers.subscription(kind=kind)
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=timedelta(seconds=15),
        task_names=wanted.declared,
    )  # fmt: skip


def claimable(kind, ids=(), *, with_keys=False):
    """Return what a worker of this kind claims, by a scan or by ids, and give it back."""
    wanted, worker = helpers.subscription(kind=kind), registered(kind)
    scan = None if ids else Scan(wanted.queues)
    request = TurnRequest(Capacity(100), ids, scan)
    with transaction.atomic():
        result = engines.claim(wanted, worker, request, with_keys=with_keys)
        transaction.set_rollback(True)
    return {one.task_id for one in result.claimed}


def claimable_in_lane(kind, task_id):
    wanted, worker = helpers.subscription(kind=kind), registered(kind)
    Task.objects.filter(pk=task_id).update(lane="x")
    claiming.create("default", ["x"])
    request = LanesRequest(["x"], 100, get_config().lanes)
    with transaction.atomic():
        claimed, _ = claiming.claim(wanted, worker, request)
        transaction.set_rollback(True)
    return {one.task_id for one in claimed}


def claimable_by_age(kind, task_id):
    wanted, worker = helpers.subscription(kind=kind), registered(kind)
    request = TurnRequest(Capacity(100), (), Scan(wanted.queues, ageing=60.0))
    with transaction.atomic():
        result = portable.claim(wanted, worker, request)
        transaction.set_rollback(True)
    return {one.task_id for one in result.claimed}


WAYS = {
    "scan": lambda kind, task_id: claimable(kind),
    "hint": lambda kind, task_id: claimable(kind, [task_id]),
    "portable": lambda kind, task_id: claimable(kind, with_keys=True),
    "by age": claimable_by_age,
    "in a lane": claimable_in_lane,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_row_is_claimable_by_exactly_one_kind_at_each_crash_count(way):
    for name, max_crashes in itertools.product((on_loop.nap, tasks.note), (1, 2, 3)):
        for crashes in range(max_crashes):
            handle = name.enqueue()
            Task.objects.filter(pk=handle.id).update(max_crashes=max_crashes, crashes=crashes)
            kinds = [one for one in ("threads", "loop", "alone") if WAYS[way](one, handle.id)]
            is_last = crashes and crashes >= max_crashes - 1
            expected = "alone" if is_last else "threads" if name is tasks.note else "loop"
            assert kinds == [expected], (name, crashes, max_crashes)
            assert bool(WAYS[way]("beside", handle.id)) is not bool(is_last)
            assert WAYS[way]("every", handle.id) == {handle.id}
            found = last_chances.due(helpers.subscription())
            assert [one.task_id for one in found] == [handle.id] * bool(is_last)
            Task.objects.all().delete()


@pytest.mark.parametrize("was", [on_loop.nap, tasks.note], ids=["was async", "was sync"])
def test_a_function_that_changes_its_kind_strands_no_row(was, monkeypatch):
    """Workers of both releases run: each release alone has exactly one kind of worker for each waiting row."""
    declaration, handle = was.declaration, was.enqueue()
    for crashes, is_async in itertools.product((0, 1, 2), (False, True)):
        Task.objects.update(max_crashes=3, crashes=crashes)
        changed = replace(declaration, is_async=is_async)
        monkeypatch.setitem(registry._declarations, changed.name, changed)
        kinds = [one for one in ("threads", "loop", "alone") if claimable(one)]
        assert kinds == ["alone" if crashes == 2 else "loop" if is_async else "threads"]
        assert claimable("every") == {handle.id}, "a release without event loops takes it, too"


@pytest.mark.once
def test_without_the_option_the_statements_have_the_same_bytes():
    """The text of each statement that claims, as of the release before event loops."""
    texts = [
        statements.CHOOSE_DUE, statements.CHOOSE_IN_LANE, statements.PEEK_DUE, statements.CHOOSE_BY_ID,
        postgresql.statement_of_turn(finish=True, keep=True, scan=True),
        postgresql.statement_of_turn(hints=True), claiming.CHOOSE_IN_LANE,
    ]  # fmt: skip
    wanted = helpers.subscription()
    assert [wanted.claiming(one) for one in texts] == texts
    assert "crashes = 0 OR" not in "".join(texts)
    assert wanted.claimable == {"names": wanted.names}
    assert wanted.declared == sorted(wanted.names)


@pytest.mark.once
def test_each_statement_that_claims_has_the_place_of_the_condition():
    for sql in (statements.CHOOSE_DUE, statements.CHOOSE_IN_LANE, statements.CHOOSE_BY_ID):
        for kind in ("loop", "beside", "alone"):
            text = helpers.subscription(kind=kind).claiming(sql)
            assert "{max_crashes} - 1" in text


def test_explain_names_a_last_chance_and_what_it_waits_for():
    handle = on_loop.nap.enqueue()
    Task.objects.filter(pk=handle.id).update(max_crashes=2, crashes=1)
    registered("loop")
    (reason,) = explain("default", handle.id)
    assert reason.gate == "last chance"
    assert "starts a process for it" in reason.text
    every = registered("every")
    assert [one.gate for one in explain("default", handle.id)] == ["next"]
    helpers.execute("UPDATE txtasks_worker SET running = 1 WHERE id = %s", id_of(every))
    (reason,) = explain("default", handle.id)
    assert "when a worker has no other task" in reason.text
    alone = registered("alone")
    assert [one.gate for one in explain("default", handle.id)] == ["next"]
    helpers.execute("UPDATE txtasks_worker SET running = 1 WHERE id = %s", id_of(alone))
    (reason,) = explain("default", handle.id)
    assert "process for such tasks runs another one" in reason.text


def id_of(worker: uuid.UUID):
    return worker if connection.vendor == "postgresql" else worker.hex


@pytest.mark.once
def test_hints_of_async_functions_have_a_queue_of_their_own():
    assert registry.hint_queue("probe.on_loop.nap", "mail") == "@async.mail"
    assert registry.hint_queue("probe.tasks.note", "mail") == "mail"
    assert registry.hint_queue("unknown", "mail") == "mail"
    queues = {
        kind: helpers.subscription("mail", kind=kind).hint_queues
        for kind in ("every", "threads", "loop")
    }
    assert queues == {
        "every": ["mail", "@async.mail"],
        "threads": ["mail"],
        "loop": ["@async.mail"],
    }
    assert helpers.subscription("mail", names=["probe.tasks.note"]).hint_queues == ["mail"]
