"""A project's own database backend may ask somebody else for a password, and raise what it likes."""

import json

import helpers
import pytest
from django.db import connections
from probe import tasks

pytestmark = [pytest.mark.usefixtures("rows", "quick"), pytest.mark.once]


@pytest.fixture
def no_password(monkeypatch):
    """Nobody can connect any more; gives the attempts, and what ends this."""
    wrapper, attempts = type(connections["default"]), []

    def refuse(self):
        attempts.append(self.alias)
        raise RuntimeError("no token to be had")

    with monkeypatch.context() as patch:
        patch.setattr(wrapper, "get_connection_params", refuse)
        yield attempts, patch.undo


def test_a_worker_whose_backend_has_no_password_waits_for_it(request):
    with helpers.working():
        ((sessions,),) = helpers.execute("SELECT CAST(sessions AS text) FROM txtasks_worker")
        attempts, undo = request.getfixturevalue("no_password")
        helpers.execute("SELECT pg_terminate_backend(%s)", int(json.loads(sessions)[0].split()[0]))
        helpers.wait_until(lambda: len(attempts) > 2)
        undo()
        handle = tasks.note.enqueue()
        helpers.wait_until(lambda: helpers.finished(handle.id))
