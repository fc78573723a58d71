"""The parts of a worker: each driver calls them in the same order, and no part harms a task."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import helpers
import pytest
from django.db import connection, transaction
from probe import many, on_loop, tasks
from probe.models import Run

from django_txtasks import enqueue_many, signals
from django_txtasks.core.ground.seams import OF_WORKER
from django_txtasks.core.rows.attempts import Arrow
from django_txtasks.core.working.parts import Part, Parts
from django_txtasks.models import Status

pytestmark = pytest.mark.usefixtures("rows", "quick")


class Noting(Part):
    """Notes each call. ``breaks`` names the methods that raise."""

    def __init__(self, name="noting", notes=None, breaks=()):
        self.name, self.notes, self.breaks = name, [] if notes is None else notes, breaks
        self.threads = []

    def _note(self, what, attempt, *facts):
        self.notes.append((self.name, what, attempt.task_id, *facts))
        if what in self.breaks:
            raise ValueError(f"{self.name} breaks at {what}")

    def begin(self, run):
        run.keep(self, threading.get_ident())
        self._note("begin", run.attempt)

    def raised(self, run, error):
        self._note("raised", run.attempt, str(error))
        return self._write

    def _write(self):
        self.threads.append(threading.get_ident())
        with transaction.atomic():
            Run.objects.create(key="raised")

    def end(self, run, ended):
        begun_here = (run.kept or {}).get(self) == threading.get_ident()
        self._note("end", run.attempt, ended and ended.arrow, begun_here)

    def recorded(self, ended):
        for one in ended:
            self._note("recorded", one.attempt, one.arrow)

    def of(self, handle):
        """Return what was noted of a task, without its id."""
        return [(what, *facts) for _, what, task_id, *facts in self.notes if task_id == handle.id]


@pytest.fixture
def added(monkeypatch):
    """Add parts to each worker of this process, behind those of the features."""

    def add(*parts):
        module = SimpleNamespace(parts=lambda context: parts)
        monkeypatch.setattr(OF_WORKER, "modules", [*OF_WORKER.modules, module])

    return add


def enqueued(driver, *, fails=False):
    """Return the handle of a task that this driver runs."""
    if driver == "many":
        first, _ = enqueue_many(
            [(many.index, ({"raise": "Reject"} if fails else 1,)), (many.index, (2,))]
        )
        return first
    function = {
        ("slots", False): tasks.note,
        ("slots", True): tasks.fail.using(max_attempts=1),
        ("loop", False): tasks.note_async,
        ("loop", True): tasks.fail_async,
    }[driver, fails]
    return function.enqueue()


def worked(driver, handle):
    """Run a worker until a task has ended; return its row, finished or dead."""
    kinds = {"kind": "loop", "async_tasks": 2} if driver == "loop" else {"threads": 1}

    def ended():
        row = helpers.row(handle.id)
        return helpers.finished(handle.id) or (
            row is not None and row.status == Status.DEAD and row
        )

    with helpers.working(**kinds):
        return helpers.wait_until(ended, what="the end of the task")


DRIVERS = pytest.mark.parametrize("driver", ["slots", "loop", "many"])


@DRIVERS
def test_a_part_learns_of_each_attempt_that_succeeds(driver, added):
    added(part := Noting())
    handle = enqueued(driver)
    worked(driver, handle)
    assert part.of(handle) == [
        ("begin",),
        ("end", Arrow.FINISH, True),
        ("recorded", Arrow.FINISH),
    ]


@DRIVERS
def test_a_part_learns_of_an_error_and_its_call_writes(driver, added):
    added(part := Noting())
    handle = enqueued(driver, fails=True)
    assert worked(driver, handle).status == Status.DEAD
    begin, raised, *ends = part.of(handle)
    assert (begin, raised[0]) == (("begin",), "raised")
    assert sorted(ends, key=str) == [("end", Arrow.BURY, True), ("recorded", Arrow.BURY)]
    assert helpers.runs("raised") == 1
    assert len(part.threads) == 1


class Handing(Noting):
    """Notes the lists of claims, too."""

    def handed(self, attempts):
        for one in attempts:
            self._note("handed", one)

    def starting(self, attempts):
        for one in attempts:
            self._note("starting", one)


@DRIVERS
def test_a_part_learns_of_a_claim_before_a_slot_has_it_and_first_in_the_slot(driver, added):
    added(part := Handing())
    handle = enqueued(driver)
    worked(driver, handle)
    assert [what for what, *_ in part.of(handle)][:3] == ["handed", "starting", "begin"]


@DRIVERS
def test_an_attempt_whose_start_cannot_be_noted_is_not_run(driver, added):
    added(part := Handing(breaks=["starting"]))
    handle = enqueued(driver, fails=True)
    row = worked(driver, handle)
    assert row.errors[-1]["message"] == "noting breaks at starting"
    assert "begin" not in [what for what, *_ in part.of(handle)]


@pytest.mark.once
def test_the_call_of_a_part_on_a_loop_is_made_in_another_thread(added):
    added(part := Noting())
    loops = []
    part.begin = lambda run: loops.append(threading.get_ident())
    worked("loop", enqueued("loop", fails=True))
    assert loops[0] not in part.threads


@DRIVERS
def test_parts_end_in_reverse_order(driver, added):
    notes = []
    added(Noting("outer", notes), Noting("inner", notes))
    handle = enqueued(driver)
    worked(driver, handle)
    order = [(name, what) for name, what, task_id, *_ in notes if task_id == handle.id]
    assert order[:4] == [("outer", "begin"), ("inner", "begin"), ("inner", "end"), ("outer", "end")]


@DRIVERS
def test_an_error_at_the_begin_is_an_error_of_the_attempt(driver, added):
    """Its function is not called, and the end comes for all parts."""
    notes = []
    added(Noting("outer", notes), Noting("inner", notes, breaks=["begin"]))
    handle = enqueued(driver, fails=True)
    row = worked(driver, handle)
    assert row.errors[-1]["message"] == "inner breaks at begin"
    ends = [name for name, what, task_id, *_ in notes if (what, task_id) == ("end", handle.id)]
    assert ends[:2] == ["inner", "outer"]
    assert helpers.runs("fail") == 0


@DRIVERS
@pytest.mark.parametrize("method", ["end", "raised"])
def test_a_later_error_of_a_part_changes_nothing(driver, method, added):
    notes, told = [], []
    added(Noting("outer", notes), Noting("inner", notes, breaks=[method]))

    def note(signal, **facts):
        told.append((facts["task_id"], facts["error"]))

    signals.attempt_end_failed.connect(note)
    try:
        handle = enqueued(driver, fails=True)
        row = worked(driver, handle)
    finally:
        signals.attempt_end_failed.disconnect(note)
    assert "breaks" not in row.errors[-1]["message"]
    assert (handle.id, f"ValueError: inner breaks at {method}") in told
    assert ("outer", "end") in [
        (name, what) for name, what, task_id, *_ in notes if task_id == handle.id
    ]


@DRIVERS
def test_a_part_may_change_the_attempt_before_its_function_is_called(driver, added):
    class Changing(Part):
        def begin(self, run):
            run.attempt = run.attempt._replace(headers='{"changed": {}}')

    added(Changing(), part := Noting())
    seen = []
    part.recorded = lambda ended: seen.extend(one.attempt for one in ended)
    handle = enqueued(driver)
    worked(driver, handle)
    assert [one.headers for one in seen if one.task_id == handle.id] == ['{"changed": {}}']


@pytest.mark.once
def test_an_attempt_that_its_worker_cuts_short_ends_without_an_outcome(added):
    added(part := Noting())
    handle = on_loop.note_and_nap.enqueue("cut")
    with helpers.working(kind="loop", async_tasks=2) as worker:
        helpers.wait_until(lambda: "cut" in on_loop.entered)
        worker.slots.interrupt(30.0)
    assert ("end", None, True) in part.of(handle)


@pytest.mark.once
@pytest.mark.once
def test_a_worker_starts_and_stops_its_parts(added):
    notes = []

    class Living(Part):
        def started(self, slots):
            notes.append("started")

        def leaving(self):
            with connection.cursor() as cursor:  # it may use the database
                cursor.execute("SELECT 1")
            notes.append("leaving")

        def stopped(self):
            notes.append("stopped")

    added(Living())
    with helpers.working():
        assert notes == ["started"]
    assert notes == ["started", "leaving", "stopped"]


@pytest.mark.once
def test_a_worker_calls_only_what_a_part_overrides():
    parts = Parts()
    parts.add([Part(), part := Noting()])
    assert parts._begin == (part.begin,)
    assert parts._turned == parts._collected == ()
