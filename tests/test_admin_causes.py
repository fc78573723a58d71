"""The admin's list of live tasks by cause, and the link to it from a task's page."""

import html
import re
import uuid
from datetime import timedelta

import helpers
import pytest
import scene
from django.db import connection, transaction
from django.utils import timezone

from django_txtasks.admin import bounded, causes
from django_txtasks.models import Task, Worker
from django_txtasks.stats import by_cause

pytestmark = pytest.mark.usefixtures("rows")
LIST = "/admin/txtasks/task/"


def add(
    number,
    *,
    cause=None,
    status="dead",
    queue="default",
    name="shop.tasks.pay",
    kind="shop.Declined",
):
    tasks = [
        Task(
            id=uuid.uuid4(), task_name=name, status=status, queue_name=queue, cause=cause,
            errors=[{"class": kind}],
        )
        for _ in range(number)
    ]  # fmt: skip
    Task.objects.bulk_create(tasks)
    return {str(one.pk) for one in tasks}


@pytest.fixture
def listed(person, client):
    """Return the ids in the list of a query, and its text."""
    person("view_task")

    def get(**query):
        answer = client.get(LIST, query)
        assert answer.status_code == 200
        return {str(row.pk) for row in answer.context["cl"].result_list}, answer.text

    return get


def test_retrying_tasks_are_pending_tasks_with_a_cause(listed):
    retrying = add(2, cause=1, status="pending") | add(1, cause=2, status="pending", queue="mail")
    add(2, status="pending")
    add(2, cause=1)
    assert listed(state="retrying")[0] == retrying
    assert len(listed(state="pending")[0]) == 5


def test_a_cause_has_its_tasks_in_each_state_and_their_numbers(listed):
    dead, retrying = add(3, cause=-7), add(2, cause=-7, status="pending")
    held = add(1, cause=-7, status="held", queue="mail")
    add(2, cause=8)
    found, text = listed(cause="-7")
    assert found == dead | retrying | held
    assert "Tasks of this cause: 3 dead, 2 retrying, 1 held." in text
    assert listed(cause="-7", state="dead")[0] == dead
    assert listed(cause="-7", state="retrying")[0] == retrying


@pytest.mark.parametrize("cause", ["", "x", "-", "9" * 19, "1" * 400, "٣", "7\0"])
def test_an_impossible_cause_finds_nothing(cause, listed):
    add(2, cause=7)
    assert listed(cause=cause)[0] == set()


def test_an_exception_finds_the_tasks_of_its_causes(listed):
    declined = add(2, cause=1) | add(1, cause=2, status="pending", queue="mail")
    add(2, cause=3, kind="builtins.KeyError")
    found, text = listed(exception="shop.Declined")
    assert found == declined
    assert "builtins.KeyError" in text  # the other choice
    assert listed(exception="no.Such")[0] == set()


def test_an_exception_of_many_causes_and_queues_has_its_list(listed):
    """SQLite takes 500 parts in one statement."""
    expected = set()
    for number in range(150):
        expected |= add(1, cause=number, queue=f"q{number % 10}")
    assert listed(exception="shop.Declined", all="")[0] == expected


def test_the_ranges_of_a_list_are_bounded(listed, monkeypatch):
    monkeypatch.setattr(by_cause, "MAX_PROBES", 3)
    for number in range(6):
        add(1, cause=number)
    assert 0 < len(listed(exception="shop.Declined")[0]) <= 3


def test_a_list_of_many_queues_says_that_there_are_more(listed, monkeypatch):
    monkeypatch.setattr(by_cause, "MAX_PROBES", 4)
    for number in range(6):
        add(1, cause=5, queue=f"q{number}")
    retrying = add(2, cause=5, status="pending")
    found, text = listed(cause="5", state="dead")
    assert len(found) == 4
    assert "those of the first queues and causes" in text
    found, text = listed(state="retrying")
    assert found == retrying
    assert "those of the first queues and causes" not in text


def test_lists_of_failed_tasks_offer_the_causes(listed):
    add(2, cause=5)
    assert "?cause=5&amp;state=dead" in listed(state="dead")[1]
    assert "cause=5" not in listed()[1]


def test_a_tasks_page_leads_to_the_tasks_of_its_cause(listed, client):
    (one,) = add(1, cause=-7)
    assert f'href="{LIST}?cause=-7"' in client.get(f"{LIST}{one}/change/").text
    (other,) = add(1)
    assert "?cause=" not in client.get(f"{LIST}{other}/change/").text


@pytest.fixture
def asked(person, client):
    """Return the text of the page that asks before all tasks of cause 7 are changed."""
    person("view_task", "revive_task", "discard_task")
    one = min(add(3, cause=7, kind="builtins.KeyError"))
    Task.objects.update(errors=[scene.error("builtins.KeyError", "'rye bread'")])

    def get(action="revive"):
        data = {"action": action, "index": "0", "_selected_action": one, "select_across": "1"}
        return html.unescape(client.post(f"{LIST}?cause=7&state=dead", data).text)

    return get


def test_the_question_names_the_cause_and_that_tasks_may_fail_again(asked):
    text = asked()
    assert "Cause: shop.tasks.pay has failed with KeyError: 'rye bread'." in text
    assert "Unless the cause was repaired, these tasks will fail again." in text
    assert "fail again" not in asked("discard") and "'rye bread'." in asked("discard")


def test_the_question_warns_while_workers_run_the_release_that_fails(asked):
    long_ago = timezone.now() - timedelta(days=1)
    scene.worker("web-1", 1, ["default"], release="b", started_at=long_ago)
    text = asked()
    assert "has failed with KeyError: 'rye bread' since release b." in text
    assert "Workers still run release b." in text and "these tasks will fail again" in text
    scene.worker("web-2", 2, ["default"], release="c")
    assert "since release b." in asked() and "fail again" not in asked()
    Worker.objects.filter(release="c").update(lost=True)
    assert "Workers still run release b." in asked()


def test_buttons_change_all_tasks_of_a_cause_in_states_that_the_list_shows(client, person):
    person("view_task", "revive_task", "discard_task", "hold_task")
    add(1, cause=7)
    add(1, cause=7, status="pending")

    def buttons(**query):
        page = client.get(LIST, {"cause": "7", **query}).text
        return re.findall(r'form="txtasks-all" name="action" value="(\w+)">(.*?)<', page)

    hold = ("hold", "Hold all")
    dead = [("revive", "Revive all"), ("discard", "Discard all")]
    assert buttons() == [dead[0], hold, dead[1]]
    assert (buttons(state="dead"), buttons(state="retrying")) == (dead, [hold])


def rows_read():
    if connection.vendor == "postgresql":
        sql = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'txtasks_task'"
        return int(helpers.execute(sql)[0][0])
    rows = helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
    return sum(int(number) for _, number in rows)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="the plan is tested below")
@pytest.mark.parametrize(
    "chosen", [{"state": "retrying"}, {"cause": "1"}, {"exception": "shop.Declined"}]
)
def test_few_rows_are_read_though_the_statistics_are_of_an_empty_table(chosen, monkeypatch):
    monkeypatch.setattr(bounded, "MAX_ROWS", 50)
    with helpers.statistics_of_empty_tables():
        for queue in ("default", "mail"):
            add(2000, status="pending", queue=queue)
            add(800, cause=1, queue=queue)
            add(800, cause=1, status="pending", queue=queue)
        order = causes.order_of_list(chosen)
        with transaction.atomic(), bounded.following_indexes("default"):
            before = rows_read()
            found = list(bounded.first_rows(Task.objects.all(), order))
            read = rows_read() - before
    assert len(found) == 50
    # The causes of an exception are counted first, to 1,000 each. MariaDB counts each entry of a count twice.
    assert read < (10_000 if chosen.get("exception") else 1000), f"{read} rows were read"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="the others count rows, above")
def test_each_place_is_searched_in_the_index_of_causes():
    add(3, cause=1)
    rows = bounded.first_rows(Task.objects.all(), causes.order_of_list({"cause": "1"}))
    plan = rows.explain()
    assert "USING INDEX txtasks_cause (status=? AND queue_name=? AND cause>? AND cause<?)" in plan
