"""Each accelerator can be left out: the core does its work, more slowly."""

from importlib import import_module

import helpers
import pytest
from django.core.management import call_command
from django.db import connection
from probe import tasks
from test_lifecycle import claim_one, new_worker

from django_txtasks import assembly, enqueue_many
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.core.ground.seams import OF_TURNS, OF_WORKER
from django_txtasks.core.rows import engines
from django_txtasks.core.rows.engines import portable
from django_txtasks.models import FinishedTask, Outcome, Status, Task

pytestmark = pytest.mark.usefixtures("rows", "quick")


ALL = assembly.ACCELERATORS


@pytest.fixture(params=[one.name for one in ALL])
def without(request, monkeypatch):
    """Leave out one accelerator; return its name.

    ``TXTASKS_TEST_WITHOUT`` leaves accelerators and guards out of a whole run, and of the processes that its tests
    start.
    """
    left = tuple(one for one in assembly.ACCELERATORS if one.name != request.param)
    with monkeypatch.context() as patch:
        patch.setattr(assembly, "ACCELERATORS", left)
        assemble()
        yield request.param
    assemble()


def assemble():
    """Assemble the features again, in a process that has used them."""
    assembly.assemble()
    for seam in (OF_TURNS, OF_WORKER):
        vars(seam).pop("modules", None)


def test_a_task_lives_without_it(without, txtasks):
    txtasks(keep_finished=60)
    enqueue_many([(tasks.note, (n,)) for n in range(30)])
    failing = tasks.fail.using(max_attempts=1).enqueue()
    merged = [tasks.note.using(unique_key="one").enqueue("merged") for _ in range(2)]
    helpers.execute("UPDATE txtasks_task SET run_after = enqueued_at")
    atomic = tasks.atomic_note.enqueue("atomic")
    call_command("runworkers", batch=True, threads=2, verbosity=0)
    ended = FinishedTask.objects.filter(outcome=Outcome.SUCCEEDED)
    assert ended.count() == 32
    assert FinishedTask.objects.filter(pk__in=[one.id for one in merged]).count() == 2
    assert ended.filter(pk=atomic.id).exists()
    assert Task.objects.get().pk == failing.id
    assert Task.objects.get().status == Status.DEAD


def test_a_lost_claim_is_recovered_without_it(without):
    tasks.atomic_note.enqueue("again")
    claim_one(new_worker())
    helpers.execute("UPDATE txtasks_worker SET lost = %s", True)
    Cleaner(get_config()).run_once()
    call_command("runworkers", batch=True, threads=1, verbosity=0)
    assert FinishedTask.objects.get().attempt == 2


def test_the_fixture_leaves_one_out(without):
    (one,) = [each for each in ALL if each.name == without]
    modules = {each.__name__ for each in (*OF_TURNS.modules, *OF_WORKER.modules)}
    assert modules
    assert not modules & {one.turns, one.worker}
    if one.turns:
        vendor = import_module(one.turns).VENDOR
        assert (engines._engine("default") is portable) == (connection.vendor in (vendor, "sqlite"))
