"""Tasks on an event loop that hold all its shared threads while others wait for one: what people read about it."""

import helpers
import pytest
from probe import on_loop
from probe.models import Run
from test_deaths import ann, page, printed  # noqa: F401 (a fixture)

from django_txtasks import enqueue_many
from django_txtasks.metrics import exposition, kept
from django_txtasks.models import FinishedTask, Outcome

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("rows", "quick")]
HOLDS, WAITS = "probe.on_loop.hold_thread", "probe.on_loop.ask_with_semaphore"
ASKS = 20
STOP = f"manage.py txtasks_task stop --task {HOLDS}"


def outcomes(name):
    return list(FinishedTask.objects.filter(task_name=name).values_list("outcome", flat=True))


def test_who_holds_the_threads_and_who_waits_is_read_everywhere(processes, ann):  # noqa: F811
    """Two tasks with an open iterator wait for a semaphore, and the tasks that have it wait for a thread."""
    Run.objects.bulk_create(Run(key="seed") for _ in range(20))
    supervisor = processes.start(
        "runworkers", "--threads=2", "--async-tasks=200", with_cleaner=True
    )
    enqueue_many(
        [
            *((on_loop.hold_thread, [f"holds {number}"]) for number in range(2)),
            *((on_loop.ask_with_semaphore, [f"asks {number}"]) for number in range(ASKS)),
        ]
    )
    helpers.wait_until(lambda: HOLDS in printed("txtasks_status")[0], what="the problem")
    status, _ = printed("txtasks_status")
    shown, (audit, code) = page(ann), printed("txtasks_audit")
    for text in (status, shown):
        assert f"no thread is free: {HOLDS} (2) have them all." in text
        assert STOP in text
        assert "All is well" not in text
    assert f"{HOLDS} (2) have the threads" in audit and code == 1
    for text in (status, shown, audit):
        assert f"{WAITS} (2)" in text
    kept.forget()
    assert 'txtasks_problems{database="default",problem="held_threads"} 1' in exposition.text(
        ["default"]
    )
    log = helpers.wait_until(
        lambda: (said := processes.log_of(supervisor)) and "have a thread" in said and said
    )
    assert f"Functions whose tasks have a thread: {HOLDS} (2)" in log
    assert f"Functions whose tasks wait: {WAITS} (2)" in log

    printed("txtasks_task", "stop", "--task", HOLDS, "--yes")  # as the texts advise
    helpers.wait_until(lambda: len(outcomes(WAITS)) == ASKS, what="the tasks that waited")
    assert outcomes(HOLDS) == [Outcome.CANCELLED] * 2
    helpers.wait_until(lambda: HOLDS not in printed("txtasks_status")[0], what="the end")
