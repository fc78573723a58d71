"""The migration of the view: PostgreSQL alone, where the router keeps the tables, as text, and back."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, connections

from django_txtasks import load

BEFORE, AT = "0003_index_of_causes", "0004_beyond_one_machine"
pytestmark = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="only PostgreSQL has the view"
)


class KeepsTasksAway:
    """A router that keeps tasks away from the second database."""

    def allow_migrate(self, db, app_label, model_name=None, **hints):
        return None if app_label != "txtasks" or db != "second" else False


def views():
    with connections["second"].cursor() as cursor:
        cursor.execute(
            "SELECT to_regclass('txtasks_load') IS NOT NULL, to_regproc('txtasks_load_now') IS NOT NULL"
        )
        return cursor.fetchone()


def migrate(to=""):
    call_command("migrate", "txtasks", *filter(None, [to]), database="second", verbosity=0)


def test_it_comes_and_goes(second_database):
    migrate()
    assert views() == (True, True)
    assert load.look("second").queues == ()
    migrate(BEFORE)
    assert views() == (False, False)


def test_a_router_keeps_it_away(second_database, settings):
    settings.DATABASE_ROUTERS = [KeepsTasksAway()]
    migrate()
    assert views() == (False, False)
    migrate(BEFORE)


@pytest.mark.usefixtures("second_database")
def test_it_is_shown_as_text(capsys):
    call_command("sqlmigrate", "txtasks", AT)
    assert "CREATE VIEW txtasks_load" in capsys.readouterr().out


def test_a_role_with_another_search_path_reads_it(second_database):
    migrate()
    with connections["second"].cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        schema = cursor.fetchone()[0]
        cursor.execute("SET search_path = pg_catalog")
        cursor.execute(f'SELECT * FROM "{schema}".txtasks_load')
        assert cursor.fetchall() == []
    connections["second"].close()


def test_the_query_of_keda_returns_a_number_of_processes(second_database):
    migrate()
    file = Path(__file__).parent.parent / "deploy/kubernetes/keda.yaml"
    query = re.search(r"query: >-\n +(SELECT .+)", file.read_text())[1]
    with connections["second"].cursor() as cursor:
        cursor.execute(query)
        assert cursor.fetchall() == [(0,)]
        cursor.execute("INSERT INTO txtasks_task (id, task_name) VALUES (gen_random_uuid(), 'x')")
        cursor.execute(query)
        assert cursor.fetchall() == [(Decimal("0.25"),)]
