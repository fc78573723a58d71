"""The lists of open questions: who sees what, pages, counts that stop, and indexes instead of scans."""

import re
import uuid
from datetime import timedelta

import helpers
import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from probe import asking
from test_lifecycle import clean
from test_people import YES, asked, person  # noqa: F401
from test_people_pages import INBOX

from django_txtasks.contrib import people
from django_txtasks.contrib.people import kinds, lists, showing, sweep, totals
from django_txtasks.contrib.people.models import NEVER, Question
from django_txtasks.models import Task, Wait
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows", "quick")


def write(number, *, is_open=True, kind="probe.approval", due=None, **columns):
    """Write tasks that wait, with their questions; without a body that ran."""
    now, far = timezone.now(), timezone.now() + timedelta(days=36000)
    ids = [uuid.uuid4() for _ in range(number)]
    closed = {} if is_open else {"closed_at": now, "answered_as": "ada"}
    if is_open:
        Task.objects.bulk_create(
            [
                Task(id=one, task_name="probe.asking.approve", args=["k"], run_after=far, attempt=1)
                for one in ids
            ],
            batch_size=500,
        )
        Wait.objects.bulk_create(
            [Wait(task_id=one, name=kind, is_sleep=False) for one in ids], batch_size=500
        )
    Question.objects.bulk_create(
        [
            Question(
                task_id=one, name=kind, kind=kind, title=f"{n}",
                due_at=(due or NEVER) if due is None else due + timedelta(seconds=n),
                **closed, **columns,
            )
            for n, one in enumerate(ids)
        ],
        batch_size=500,
    )  # fmt: skip
    return ids


def titles(page):
    return [one.title for one in page.questions]


def test_each_list_has_its_questions(person):  # noqa: F811
    ada, boss = person("ada"), person("boss", "txtasks_people.assign_question")
    mine, free = asked(asking.approve, "mine"), asked(asking.approve, "free")
    asked(asking.approve, "excluded", not_by=[ada.pk])
    asked(asking.approve_guarded, "guarded")
    late = asked(asking.approve, "late", due=3600)
    Question.objects.filter(pk=late.pk).update(due_at="2020-01-01T00:00Z")
    people.take(mine, ada)
    assert titles(people.inbox(ada)) == ["mine"]
    assert titles(people.inbox(ada, "free")) == ["late", "free"]
    assert titles(people.inbox(ada, people.Box.OVERDUE)) == ["late"]
    assert titles(people.inbox(ada, "all")) == ["late", "mine", "free", "excluded"]
    assert titles(people.inbox(boss, "all")) == ["late", "guarded", "mine", "free", "excluded"]
    assert titles(people.inbox(boss, "free")) == ["late", "free", "excluded"]
    assert people.counts(ada) == {"mine": 1, "free": 2, "overdue": 1, "all": 4}
    assert people.counts(boss, kind="probe.guarded") == {
        "mine": 0,
        "free": 0,
        "overdue": 0,
        "all": 1,
    }
    assert titles(people.inbox(boss, "all", kind="probe.guarded")) == ["guarded"]
    assert titles(people.inbox(ada, "mine", kind="probe.guarded")) == []
    assert free.kind == "probe.approval"


def test_a_search_finds_open_questions_by_a_part_of_the_title(person):  # noqa: F811
    ada = person("ada", "orders.change_order")
    mine, _other = asked(asking.approve, "Order 7 of Miller"), asked(asking.approve, "Order 8")
    asked(asking.approve_guarded, "Order 9 of MILLER 100%")
    done = asked(asking.approve, "Order 10 of Miller")
    people.answer(done, ada, YES)
    people.take(mine, ada)
    assert titles(people.inbox(ada, "all", search="miller")) == [
        "Order 9 of MILLER 100%",
        "Order 7 of Miller",
    ]
    assert titles(people.inbox(ada, "mine", search="miller")) == ["Order 7 of Miller"]
    assert titles(people.inbox(ada, "all", search="0%")) == ["Order 9 of MILLER 100%"]
    guarded = people.inbox(ada, "all", kind="probe.guarded", search="Order")
    assert titles(guarded) == ["Order 9 of MILLER 100%"]
    assert titles(people.inbox(ada, "all", search="x\0y")) == []


def test_a_kind_that_no_code_declares_is_shown_to_managers(person):  # noqa: F811
    ada, boss = person("ada"), person("boss", "txtasks_people.assign_question")
    write(1, kind="gone.kind")
    assert titles(people.inbox(boss, "all")) == ["0"]
    assert titles(people.inbox(ada, "all")) == []


def test_pages_follow_each_other_across_kinds(person, monkeypatch):  # noqa: F811
    monkeypatch.setattr(lists, "ROWS_PER_LOOK", 7)
    monkeypatch.setattr(lists, "MOST_LOOKS", 2)
    ada, start = person("ada", "orders.change_order"), timezone.now()
    write(12, due=start)
    write(9, kind="probe.guarded", due=start)
    gone = write(15, due=start - timedelta(days=1))
    Task.objects.filter(pk__in=gone).delete()
    found, after, pages = [], None, 0
    while pages == 0 or after is not None:
        page = people.inbox(ada, "all", after=after, size=5)
        assert len(page.questions) <= 5
        found, after, pages = found + page.questions, page.next, pages + 1
    assert len(found) == len({one.pk for one in found}) == 21
    assert [one.due_at for one in found] == sorted(one.due_at for one in found)


@pytest.fixture
def declare():
    """Declare kinds of questions for the test, and return their names."""
    made = []

    def make(number, may):
        for _ in range(number):
            name = f"many.{may or 'all'}.{len(made)}"
            made.append(people.question(name, form=asking.ApproveForm, may=may).name)
        return made[-number:]

    yield make
    for name in made:
        del kinds._kinds[name]


def calls(user):
    """Return each list, count and act that goes through kinds, by name."""
    client = Client()
    client.force_login(user)
    page = INBOX
    return {
        **{f"inbox {box}": lambda box=box: people.inbox(user, box) for box in people.Box},
        "counts": lambda: people.counts(user),
        "next": lambda: people.give_back(people.take_next(user), user),
        **{f"page {box}": lambda box=box: client.get(page, {"box": box}) for box in people.Box},
        "admin": lambda: client.get("/admin/"),
    }


def queries(act):
    act()  # what is read once and kept, such as permissions, counts for none
    with CaptureQueriesContext(connection) as seen:
        act()
    return len(seen)


@pytest.mark.parametrize("manages", [False, True], ids=["answers", "manages"])
def test_forty_kinds_need_no_more_queries_than_two(person, declare, manages):  # noqa: F811
    may = ["txtasks_people.assign_question"] if manages else []
    user, start = person("ada", *may, is_staff=True), timezone.now() - timedelta(days=1)
    excluded = {"due": start, "not_by": [str(user.pk)]}
    for name in declare(2, None):
        write(2, kind=name, **excluded)
        write(2, kind=name, due=start)
    few = {name: queries(act) for name, act in calls(user).items()}
    for name in declare(40, None):
        write(2, kind=name, **excluded)
        write(2, kind=name, due=start)
    assert {name: queries(act) for name, act in calls(user).items()} == few


def test_lists_of_many_kinds_have_the_questions_that_a_person_may_see(person, declare):  # noqa: F811
    """More kinds than one statement reads; every second one needs a permission."""
    ada = person("ada", "orders.change_order")
    bob = person("bob")
    for may in (None, "orders.change_order"):
        for n, name in enumerate(declare(lists.KINDS_PER_STATEMENT, may)):
            write(1, kind=name, due=timezone.now() - timedelta(hours=n + 2, minutes=bool(may)))
    guarded = set(Question.objects.filter(kind__contains="order").values_list("pk", flat=True))
    for user, number in ((ada, 2), (bob, 1)):
        for box in ("free", "overdue", "all"):
            found = people.inbox(user, box, size=500).questions
            assert len(found) == number * lists.KINDS_PER_STATEMENT
            assert [one.due_at for one in found] == sorted(one.due_at for one in found)
            assert bool(guarded & {one.pk for one in found}) == (user == ada)
            assert people.counts(user)[box] == len(found)
        assert people.take_next(user).pk == min(found, key=lists.place_of).pk


def test_counts_stop(person, monkeypatch):  # noqa: F811
    monkeypatch.setattr(lists, "MOST_COUNTED", 4)
    ada = person("ada", "orders.change_order")
    write(3)
    write(3, kind="probe.guarded", assignee=ada)
    assert people.counts(ada) == {"mine": 3, "free": 3, "overdue": 0, "all": 4}


def test_the_cleaner_closes_what_needs_no_answer(person, monkeypatch):  # noqa: F811
    monkeypatch.setattr(sweep, "ROWS_PER_LOOK", 2)
    ids, guarded = write(5), write(3, kind="probe.guarded")
    operators.cancel("default", [*ids[:3], guarded[2]], keep=True)
    Wait.objects.filter(task_id=ids[4]).update(ended_at=timezone.now(), value="1")
    clean()
    still_open = set(Question.objects.filter(closed_at=None).values_list("task_id", flat=True))
    assert still_open == {ids[3], *guarded[:2]}


def test_a_sweep_goes_on_where_the_last_one_ended(monkeypatch):
    monkeypatch.setattr(sweep, "ROWS_PER_LOOK", 2)
    write(3)
    write(1, kind="probe.guarded")
    place, looks = None, 0
    while looks == 0 or place is not None:
        closed, place = sweep.sweep("default", place)
        assert closed == 0
        looks += 1
    assert looks == 3
    assert sweep.sweep("default", ("zzz", None)) == (0, None)


ANALYZE = {"mysql": "ANALYZE TABLE", "postgresql": "VACUUM ANALYZE"}
"""Without the dead rows of the tests before, whose pages make an index look expensive."""


def analyze():
    for table in ("txtasks_task", "txtasks_wait", "txtasks_question"):
        command = ANALYZE.get(connection.vendor, "ANALYZE")
        helpers.execute(f"{command} {table}")


def plans(user, act):
    """Return the statements of a call that read questions or tasks, with their plans."""
    seen = []

    def note(execute, sql, params, many, context):
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        act()
    explain = {"postgresql": "EXPLAIN ", "mysql": "EXPLAIN ", "sqlite": "EXPLAIN QUERY PLAN "}
    found = []
    for sql, params in seen:
        if sql.split()[0] in ("SELECT", "WITH") and "txtasks_" in sql:
            with connection.cursor() as cursor:
                assert isinstance(cursor, CursorWrapper)
                cursor.execute(explain[connection.vendor] + sql, params)
                found.append((sql, [" ".join(map(str, row)) for row in cursor.fetchall()]))
    return found


def test_no_list_scans_a_table_or_sorts_its_questions(person, monkeypatch):  # noqa: F811
    monkeypatch.setattr(lists, "ROWS_PER_LOOK", 10)
    ada = person("ada", "txtasks_people.assign_question", "orders.change_order")
    write(1000)
    write(1000, is_open=False)
    write(100, kind="probe.guarded", assignee=ada)
    analyze()
    for box in people.Box:
        check_plans(box, plans(ada, lambda box=box: people.inbox(ada, box, size=5)))


def test_what_was_answered_lately_is_read_by_an_index_and_not_sorted(person, monkeypatch):  # noqa: F811
    monkeypatch.setattr(totals, "MOST_READ", 5)
    ada, bob = person("ada"), person("bob")
    write(1000, is_open=False, answered_by=bob)
    write(200, is_open=False, kind="probe.guarded", answered_by=ada)
    write(1000)
    analyze()
    for call in (
        lambda: people.figures("probe.guarded", timedelta(days=1)),
        lambda: showing.answered_lately(ada),
    ):
        ((sql, lines),) = plans(ada, call)
        text = "\n".join(lines)
        assert "txtasks_question_" in text, (sql, text)
        for word in ("Seq Scan", "Sort", "TEMP B-TREE", "filesort"):
            assert word not in text, (sql, text)


def test_a_search_reads_no_closed_question(person):  # noqa: F811
    """Its cost is that of the open questions, also if no title has the text."""
    ada = person("ada")
    write(20)
    write(5_000, is_open=False)
    analyze()
    for box in people.Box:
        found = plans(ada, lambda box=box: people.inbox(ada, box, search="no such title"))
        searches = [one for one in found if " LIKE " in one[0]]
        assert searches
        check_plans(people.Box.MINE, [*searches, *searches])


def check_plans(box, found):
    assert len(found) >= 2
    for sql, lines in found:
        text = "\n".join(lines)
        # a few pages of waits are read as quickly in a scan
        for table in ("txtasks_task", "txtasks_question"):
            assert f"Seq Scan on {table}" not in text, (sql, text)
            assert not re.search(rf"SCAN {table}(?! USING)", text), (sql, text)
            scans = [line for line in lines if f" {table} ALL " in f" {line} "]
            assert not scans, (sql, text)
        if box is not people.Box.MINE and "ORDER BY" in sql:
            assert "Sort" not in text, (sql, text)
            assert "TEMP B-TREE" not in text, (sql, text)
            assert "filesort" not in text, (sql, text)


def test_an_answered_question_leaves_each_list(person):  # noqa: F811
    ada, question = person("ada"), asked()
    people.take(question, ada)
    people.answer(question, ada, YES)
    assert people.counts(ada) == {"mine": 0, "free": 0, "overdue": 0, "all": 0}
    run_due_tasks()
