"""Who works and who cleans stands in rows: what each can run, and whether it achieves anything."""

import pytest
from django.core.management import call_command

from django_txtasks import registry
from django_txtasks.models import Worker

pytestmark = pytest.mark.usefixtures("rows")


def test_a_worker_says_which_task_functions_it_declares(monkeypatch):
    monkeypatch.setattr("django_txtasks.lifecycle.workers.unregister", lambda *_: None)
    call_command("runworkers", batch=True, verbosity=0)
    assert Worker.objects.get().task_names == sorted(registry.names())
