"""The migration of the view: PostgreSQL alone, where the router keeps the tables, as text, and back."""

import re
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from reads import rows_read

from django_txtasks.insight import load

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
    migrate("zero")
    assert views() == (False, False)


def test_a_router_keeps_it_away(second_database, settings):
    settings.DATABASE_ROUTERS = [KeepsTasksAway()]
    migrate()
    assert views() == (False, False)
    migrate("zero")


@pytest.mark.usefixtures("second_database")
def test_it_is_shown_as_text(capsys):
    call_command("sqlmigrate", "txtasks", "0001")
    assert "VIEW txtasks_load AS" in capsys.readouterr().out


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
def asked(rows):
    """Return the answer of the function's text, changed or explained, under the function's settings."""

    def ask(change=str):
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
                cursor.execute(change(text))
                return cursor.fetchall()

    yield ask
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM txtasks_task")
        cursor.execute("ANALYZE txtasks_task")


def fill(number, hours=0):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO txtasks_task (id, task_name, queue_name, priority, run_after)"
            " SELECT gen_random_uuid(), 'x', 'q' || i %% 3, i %% 5, now() + %s * interval '1 hour'"
            " FROM generate_series(1, %s) i",
            [hours, number],
        )


@pytest.mark.parametrize("analyzed", [0, 20_000], ids=["of the empty table", "of the full table"])
def test_it_reads_the_index_in_its_order_whatever_the_statistics_say(asked, analyzed):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM txtasks_task")
        fill(analyzed)
        cursor.execute("ANALYZE txtasks_task")
    fill(20_000 - analyzed)
    found = "\n".join(line for (line,) in asked("EXPLAIN {}".format))
    assert found.count("using txtasks_pending on txtasks_task") == 4, found
    assert "Scan on txtasks_task" not in found.replace("Index Scan", "").replace(
        "Index Only Scan", ""
    )
    # what a worker runs is sorted by the time of its claim; nothing else is
    assert re.findall(r"Sort Key: (.+)", found) == ["t_4.claimed_at"], found


@pytest.mark.parametrize("analyzed", [0, 20_000], ids=["of the empty table", "of the full table"])
def test_it_reads_only_due_rows_of_each_queue_and_priority(asked, analyzed):
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM txtasks_task")
        fill(analyzed, hours=1)
        cursor.execute("VACUUM ANALYZE txtasks_task")
    fill(20_000 - analyzed, hours=1)
    fill(60)
    ((plan,),) = asked("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {}".format)
    top = plan[0]["Plan"]
    assert rows_read(top) < 500, plan
    # entries of an index that it skips are no rows: 180 blocks, and 3,000 if it walks through the whole index
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] < 1000, plan


def test_many_queues_and_priorities_read_40_000_rows_together(asked):
    """Here 60 rows, and 3 of each at least: of 15 there are 4, of 30 there are 3."""
    few = ("40000", "60"), ("GREATEST(100,", "GREATEST(3,")

    def with_few(text):
        for old, new in few:
            assert text.count(old) == 1
            text = text.replace(old, new)
        return text

    fill(600)
    assert {row[0]: row[1] for row in asked(with_few)} == {"q0": 20, "q1": 20, "q2": 20}
    with connection.cursor() as cursor:
        cursor.execute("UPDATE txtasks_task SET priority = priority + 5 WHERE random() < 0.5")
    assert {row[0]: row[1] for row in asked(with_few)} == {"q0": 30, "q1": 30, "q2": 30}
