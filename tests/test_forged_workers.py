"""Forged rows of workers, by a role that may write nothing else: they neither mislead nor stop a cleaner."""

import json
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.db import connection, connections, transaction
from test_two_signals import register

from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.cleaning.failure_detector import FailureDetector
from django_txtasks.core.rows import workers
from django_txtasks.database import sessions
from django_txtasks.models import Worker

pytestmark = pytest.mark.usefixtures("rows")

on_server = pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no sessions")
ROLE, PASSWORD = "txtasks_stranger", "secret"


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@contextmanager
def stranger(**settings):
    """A session of another role, as the text that its worker would write."""
    with helpers.second_alias(**settings):
        yield sessions.session_of_thread("second"), connections["second"]


def forge(*texts):
    """A worker on another machine that has not beaten for its lease, with these sessions."""
    worker = register()
    signs = json.dumps([*texts])
    helpers.execute("UPDATE txtasks_worker SET sessions = %s", signs)
    return worker


def after_its_lease():
    clock = Clock()
    cleaner = Cleaner(get_config(), clock=clock)
    for _ in range(17):
        cleaner.find_lost()
        clock.now += 1
    assert Worker.objects.get().lost


@pytest.fixture
def role():
    """A role of the database that may connect."""
    drop = {"postgresql": f"DROP ROLE IF EXISTS {ROLE}", "mysql": f"DROP USER IF EXISTS {ROLE}"}
    make = {
        "postgresql": f"CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'",
        "mysql": f"CREATE USER {ROLE} IDENTIFIED BY '{PASSWORD}'",
    }
    helpers.execute(drop[connection.vendor])
    helpers.execute(make[connection.vendor])
    if connection.vendor == "mysql":
        helpers.execute(f"GRANT SELECT ON {connection.settings_dict['NAME']}.* TO {ROLE}")
    yield {"USER": ROLE, "PASSWORD": PASSWORD}
    helpers.execute(drop[connection.vendor])


def ours_of(text):
    """Its server, as ours: on MariaDB the forger writes the cleaner's user there."""
    server = sessions.session_of_thread("default").split(" ", 2)[2]
    number, started, _ = text.split(" ", 2)
    return f"{number} {started} {server}"


@on_server
def test_a_session_of_another_role_is_not_ended(role):
    with stranger(**role) as (text, wrapper):
        forge(ours_of(text))
        after_its_lease()
        assert wrapper.is_usable()


@on_server
def test_a_session_of_another_database_is_not_ended(second_database):
    forge(ours_of(sessions.session_of_thread("second")))
    after_its_lease()
    assert connections["second"].is_usable()


@on_server
def test_a_session_of_this_role_and_database_is_ended():
    with stranger() as (text, wrapper):
        forge(text)
        after_its_lease()
        helpers.wait_until(lambda: not wrapper.is_usable())


@pytest.mark.parametrize(
    "written",
    [
        "7",
        '"text"',
        '{"a": 1}',
        "[null, 5, [1]]",
        '["x y z"]',
        '["1 y z"]',
        '["", "1 2"]',
        '["² 1 z"]',
    ],
)
def test_what_nobody_can_read_stops_no_cleaner(written):
    register()
    helpers.execute("UPDATE txtasks_worker SET sessions = %s", written)
    after_its_lease()


@on_server
def test_a_server_that_shows_a_worker_no_session_ends_no_worker(monkeypatch):
    """As a fork of PostgreSQL, or a proxy that speaks for it: then nothing is known of the session."""
    name = {"postgresql": "POSTGRES_OWN_SESSION", "mysql": "MYSQL_UPTIME"}[connection.vendor]
    nothing = {
        "postgresql": "SELECT 1, '', '' WHERE 1 = 0",
        "mysql": "SHOW GLOBAL STATUS LIKE 'txtasks has none'",
    }
    monkeypatch.setattr(f"django_txtasks.database.sessions.{name}", nothing[connection.vendor])
    connection.close()
    worker = workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=timedelta(seconds=15)
    )
    with transaction.atomic():
        assert workers.beat("default", worker, running=0, listening=None)
    assert Worker.objects.get().sessions[0] == ""
    assert not list(FailureDetector(get_config(), "default", None, Clock()).lost())
