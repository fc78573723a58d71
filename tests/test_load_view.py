"""The migration of the view: PostgreSQL alone, where the router keeps the tables, as text, and back."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction

from django_txtasks import load

BEFORE, AT = "0003_index_of_causes", "0004_beyond_one_machine"
pytestmark = pytest.mark.skipif(
    connection.vendor != "postgresql", reason="only PostgreSQL has the view"
)


class KeepsTasksAway:
    """A router that keeps the tables of tasks away from the second database, and decides by the model alone."""

    def allow_migrate(self, db, app_label, model_name=None, **hints):
        is_ours = app_label == "txtasks" and model_name is not None
        return False if db == "second" and is_ours else None


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


# -- its plan ---------------------------------------------------------------------------------------


@pytest.fixture
def plan(rows):
    """Fill the table, and return the plan of the function's text under the function's settings."""

    def explain():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT prosrc, proconfig FROM pg_proc WHERE oid = to_regproc('txtasks_load_now')"
            )
            text, settings = cursor.fetchone()
            with transaction.atomic():
                for setting in settings:
                    name, _, value = setting.partition("=")
                    if name != "search_path":
                        cursor.execute("SELECT set_config(%s, %s, true)", [name, value])
                cursor.execute(f"EXPLAIN {text}")
                return "\n".join(line for (line,) in cursor.fetchall())

    yield explain
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM txtasks_task")
        cursor.execute("ANALYZE txtasks_task")


def fill(number):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO txtasks_task (id, task_name, queue_name, priority)"
            " SELECT gen_random_uuid(), 'x', 'q' || i %% 3, i %% 5 FROM generate_series(1, %s) i",
            [number],
        )


@pytest.mark.parametrize("analyzed", [0, 20_000], ids=["of the empty table", "of the full table"])
def test_it_reads_the_index_in_its_order_whatever_the_statistics_say(plan, analyzed):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM txtasks_task")
        fill(analyzed)
        cursor.execute("ANALYZE txtasks_task")
    fill(20_000 - analyzed)
    found = plan()
    assert found.count("using txtasks_pending on txtasks_task") == 4, found
    assert "Scan on txtasks_task" not in found.replace("Index Scan", "").replace(
        "Index Only Scan", ""
    )
    # what a worker runs is sorted by the time of its claim; nothing else is
    assert re.findall(r"Sort Key: (.+)", found) == ["t_4.claimed_at"], found
