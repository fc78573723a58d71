"""A cleaner with many rows: it reads few, keeps up, skips what it has removed, and always watches workers."""

import json
import statistics
import time
from contextlib import contextmanager
from datetime import timedelta

import helpers
import pytest
from django.db import DatabaseError, connection, transaction
from probe import tasks

from django_txtasks.conf import get_config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.cleaning.removal import REST_SECONDS, SLOW_LOOK_SECONDS, Removal
from django_txtasks.core.rows import cleaning, overdue, workers
from django_txtasks.core.rows.cleaning import Removed
from django_txtasks.database.errors import TookTooLong
from django_txtasks.database.execute import execute
from django_txtasks.database.transactions import own_transaction
from django_txtasks.models import FinishedTask, Lane, Status, Task, Worker

pytestmark = pytest.mark.usefixtures("rows")

IS_POSTGRES = connection.vendor == "postgresql"
counts_rows = pytest.mark.skipif(
    connection.vendor == "sqlite",
    reason="an index that is named is followed, or the statement fails",
)


class Clock:
    """Monotonic seconds that a test moves."""

    now = 1000.0

    def __call__(self):
        return self.now


def worker(names=(), queues=("default",), lease=15):
    return workers.register(
        "default", queues=list(queues), threads=1, listening=None,
        lease=timedelta(seconds=lease), task_names=list(names),
    )  # fmt: skip


def claim(worker_id, room=1):
    with transaction.atomic():
        return helpers.claim(worker_id, room).claimed


def write(count, table="txtasks_task", name="x", **columns):
    """Write many rows as a person would by hand; columns are SQL."""
    new = {
        "postgresql": "gen_random_uuid()",
        "mysql": "UUID()",
        "sqlite": "lower(hex(randomblob(16)))",
    }
    columns = {"id": new[connection.vendor], "task_name": f"'{name}'", **columns}
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %s)"
    into = f"INSERT INTO {table} ({', '.join(columns)})"
    select = f"SELECT {', '.join(columns.values())} FROM n"
    if connection.vendor == "mysql":
        helpers.execute(f"SET max_recursive_iterations = {count + 1}")
        helpers.execute(f"{into} {numbers} {select}", count)
    else:
        helpers.execute(f"{numbers} {into} {select}", count)


def ago(seconds):
    """Return SQL for a time this long ago."""
    return {
        "postgresql": f"now() - interval '{seconds} seconds'",
        "mysql": f"UTC_TIMESTAMP(6) - INTERVAL {seconds} SECOND",
        "sqlite": f"strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-{seconds} seconds')",
    }[connection.vendor]


# -- statistics -----------------------------------------------------------------------------------

BACKLOG = 20_000


def rows_read():
    """Return how many rows of our tables this transaction, or on MariaDB this session, has read."""
    if IS_POSTGRES:
        sql = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_xact_user_tables WHERE relname LIKE %s"
        return int(helpers.execute(sql, "txtasks%")[0][0])
    rows = helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read%%'")
    return sum(int(number) for name, number in rows if name != "Handler_read_rnd_next")


def scanned():
    """Return how many rows MariaDB has read by walking a table, or a temporary one."""
    return int(helpers.execute("SHOW SESSION STATUS LIKE 'Handler_read_rnd_next'")[0][1])


@counts_rows
def test_a_pass_reads_few_rows_though_statistics_are_of_empty_tables(txtasks):
    txtasks(
        long_running_after=60, stats=False
    )  # the count of due tasks for figures has a limit of its own
    with helpers.statistics_of_empty_tables():
        living, lost, gone, old = worker(), worker(), worker(), worker()
        for holder in (living, lost, gone):
            tasks.note.enqueue("held")
            claim(holder)
        helpers.execute("UPDATE txtasks_task SET started_at = '2001-01-01 00:00:00'")
        helpers.execute(
            "UPDATE txtasks_worker SET lost = TRUE WHERE id IN (%s, %s)", lost.hex, old.hex
        )
        helpers.execute(
            "UPDATE txtasks_worker SET seen_at = '2001-01-01 00:00:00' WHERE id = %s", old.hex
        )
        helpers.execute("DELETE FROM txtasks_worker WHERE id = %s", gone.hex)
        write(BACKLOG, run_after=ago(0))
        write(5, expires_at=ago(1))
        write(BACKLOG, "txtasks_finishedtask", outcome="'succeeded'")
        write(5, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(8 * 86400))
        with transaction.atomic():
            before = rows_read()
            walked = 0 if IS_POSTGRES else scanned()
            counts = Cleaner(get_config()).run_once()
            workers.unregister("default", living)
            read = rows_read() - before + (0 if IS_POSTGRES else scanned() - walked)
        assert (counts["buried"], counts["expired"], counts["pruned"]) == (2, 5, 5)
        assert {one.pk for one in Worker.objects.all()} == {living, lost}
        assert read < 1000, f"{read} rows were read"


@counts_rows
def test_a_batch_reads_few_more_rows_than_it_takes(monkeypatch):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 50)
    write(2000, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(8 * 86400))
    write(2000, expires_at=ago(1), run_after=ago(1000))
    steps = Cleaner(get_config()).old_rows.remove()
    with own_transaction("default", limit=timedelta(seconds=60), in_order=True):
        before = rows_read()
        walked = 0 if IS_POSTGRES else scanned()
        done = [next(steps), next(steps)]
        page = overdue.page("default", "default", 0, timedelta(seconds=60), behind=None, limit=50)
        read = rows_read() - before + (0 if IS_POSTGRES else scanned() - walked)
    assert ([dict(one) for one in done], len(page)) == ([{"expired": 50}, {"pruned": 50}], 50)
    assert read < 700, f"{read} rows were read"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="the others count rows, above")
def test_a_cleaner_follows_the_indexes_it_names():
    """Or SQLite would refuse: each statement runs, and says which index it reads."""
    plans = []

    def explain(execute, sql, params, many, context):
        if " INDEXED BY " in sql:
            execute("EXPLAIN QUERY PLAN " + sql, params, many, context)
            plans.append(context["cursor"].fetchall())
        return execute(sql, params, many, context)

    tasks.note.enqueue()
    worker()
    with connection.execute_wrapper(explain):
        Cleaner(get_config(), notify=list).run_once()
    assert len(plans) >= 4
    for plan in plans:
        assert any("SEARCH" in str(row) for row in plan), plan


# -- keeping up -----------------------------------------------------------------------------------


def test_a_pass_goes_on_while_there_is_more_to_remove(monkeypatch):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 5)
    write(600, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(8 * 86400))
    write(600, expires_at=ago(1))
    counts = Cleaner(get_config(), clock=Clock()).run_once()  # a pass has an interval, and no more
    assert (counts["pruned"], counts["expired"]) == (600, 600)


def test_a_pass_ends_after_an_interval_and_the_next_one_goes_on(monkeypatch):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 5)
    clock, passes = Clock(), []
    write(100, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(8 * 86400))
    cleaner = Cleaner(get_config(), clock=clock)
    monkeypatch.setattr("django_txtasks.core.cleaning.cleaner.PIECE_SECONDS", 0)

    def wait(seconds):
        clock.now += 10
        passes.append(cleaner.passes._pieces)
        return not FinishedTask.objects.exists()

    cleaner.run(wait, lambda counts: None)
    assert len({id(one) for one in passes if one is not None}) > 1


def test_workers_are_watched_while_a_long_prune_goes_on(monkeypatch, txtasks):
    txtasks(clean_interval=1000)
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 5)
    monkeypatch.setattr("django_txtasks.core.cleaning.cleaner.PIECE_SECONDS", 0)
    write(500, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(8 * 86400))
    worker(lease=15)
    clock = Clock()
    cleaner = Cleaner(get_config(), clock=clock)

    def wait(seconds):
        clock.now += 1
        return Worker.objects.get().lost

    cleaner.run(wait, lambda counts: None)
    assert 0 < FinishedTask.objects.count() < 500


def test_neither_expiring_nor_pruning_waits_for_the_other(monkeypatch):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 5)
    write(50, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(8 * 86400))
    write(50, expires_at=ago(1))
    steps = Cleaner(get_config()).old_rows.remove()
    done = [next(steps), next(steps)]
    assert [dict(one) for one in done] == [{"expired": 5}, {"pruned": 5}]


@pytest.mark.skipif(not IS_POSTGRES, reason="its dead rows stay in the index")
def test_a_prune_under_an_old_snapshot_does_not_walk_what_it_removed(monkeypatch, txtasks):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 20)
    txtasks(
        clean_interval=300
    )  # a pass removes for as long as that: all rows, on a slow machine too
    write(4000, "txtasks_finishedtask", outcome="'succeeded'",
          finished_at="now() - interval '9 days' + i * interval '1 second'")  # fmt: skip
    looks = []

    def explain(execute, sql, params, many, context):
        if "FROM txtasks_finishedtask" in sql and "finished_at <" in sql:
            execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + sql, params, many, context)
            found = context["cursor"].fetchone()[0]
            found = found if isinstance(found, list) else json.loads(found)
            looks.append(
                found[0]["Plan"]["Shared Hit Blocks"] + found[0]["Plan"]["Shared Read Blocks"]
            )
        return execute(sql, params, many, context)

    with old_snapshot(), connection.execute_wrapper(explain):
        assert Cleaner(get_config()).run_once()["pruned"] == 4000
    assert len(looks) >= 20
    # If a look walked past removed rows, each look would read more blocks than the one before. One look alone may.
    assert statistics.median(looks[-20:]) < looks[0] + 10, looks


@contextmanager
def old_snapshot():
    """A transaction in another session that may still see all rows."""
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT count(*) FROM txtasks_worker")
        yield
    other.close()


def test_the_oldest_rows_are_left_alone_for_a_while_once_they_are_dear():
    clock, asked = Clock(), []
    dear = [True]

    def remove(since):
        asked.append(since)
        if since is None and dear[0]:
            clock.now += 2 * SLOW_LOOK_SECONDS
        return Removed([], 0, None)

    removal = Removal(remove, lambda: "recent", clock, lambda error: None)
    for _ in range(3):
        removal.begin()
        assert removal.chunk() == ([], False)
    dear[0] = False
    clock.now += REST_SECONDS
    for _ in range(2):
        removal.begin()
        removal.chunk()
    assert asked == [None, "recent", "recent", None, None]


def test_if_the_oldest_rows_cannot_be_looked_at_in_time_the_recent_ones_are():
    asked = []

    def remove(since):
        asked.append(since)
        if since is None:
            raise TookTooLong("canceling statement due to statement timeout")
        return Removed([(1,)], 1, "later")

    told = []
    removal = Removal(remove, lambda: "recent", Clock(), told.append)
    removal.begin()
    assert [removal.chunk(), removal.chunk(), removal.chunk()] == [
        ((), True),
        ([(1,)], False),
        ([(1,)], False),
    ]
    assert asked == [None, "recent", "later"]
    assert "statement timeout" in str(*told)


WAYS_TO_STAY = {
    "merged into a task that is dead": {"outcome": "'merged'", "merged_into": "winner"},
    "failed members of an open batch": {"outcome": "'expired'", "batch": "batch"},
    "of a queue that is kept for ever": {"outcome": "'succeeded'", "queue_name": "'kept'"},
}


@pytest.mark.parametrize("why", WAYS_TO_STAY)
def test_finished_rows_that_have_to_stay_keep_no_others_from_being_pruned(
    why, monkeypatch, txtasks
):
    """However many stand before the others, all of one instant: each look reads as many rows as any other."""
    txtasks(queues=["default", "kept"], keep_finished={"kept": None, "*": 3600})
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 20)
    monkeypatch.setattr(
        "django_txtasks.features.batches.rows.live_member", lambda alias, batch: batch
    )
    winner = tasks.note.enqueue()
    helpers.execute("UPDATE txtasks_task SET status = 'dead'")
    helpers.execute(
        "INSERT INTO txtasks_batch (id, name, hooks) VALUES (%s, '', '{}')", winner.id.hex
    )
    columns = {
        name: value if value.startswith("'") else f"'{winner.id.hex}'"
        for name, value in WAYS_TO_STAY[why].items()
    }
    write(1000, "txtasks_finishedtask", finished_at="'2001-01-01 00:00:00'", **columns)
    write(30, "txtasks_finishedtask", outcome="'succeeded'", finished_at="'2001-01-01 00:00:00'")
    write(30, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(4000))
    removed = []
    monkeypatch.setattr(
        "django_txtasks.core.cleaning.upkeep.cleaning.prune",
        lambda *args, prune=cleaning.prune, **more: (
            removed.append(prune(*args, **more)) or removed[-1]
        ),
    )
    assert Cleaner(get_config(), clock=Clock()).run_once()["pruned"] == 60
    assert FinishedTask.objects.count() == 1000
    assert max(one.looked for one in removed) == 20


def test_tasks_with_an_expiry_that_do_not_wait_keep_no_others_from_expiring(monkeypatch):
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 20)
    write(500, status="'dead'", expires_at="'2001-01-01 00:00:00'")
    write(30, expires_at=ago(4000))
    looks = []
    monkeypatch.setattr(
        "django_txtasks.core.cleaning.upkeep.cleaning.expire",
        lambda *args, expire=cleaning.expire, **more: (
            looks.append(expire(*args, **more)) or looks[-1]
        ),
    )
    assert Cleaner(get_config(), clock=Clock()).run_once()["expired"] == 30
    assert max(one.looked for one in looks) == 20


@pytest.mark.skipif(connection.vendor == "sqlite", reason="one writer at a time")
def test_what_a_person_holds_since_a_cleaner_looked_does_not_expire():
    write(2, expires_at=ago(10))
    held = []

    def hold_first(execute, sql, params, many, context):
        if "cancel_asked_at IS NOT NULL FROM txtasks_task" in sql and not held:
            held.append(True)
            with helpers.second_session(
                lambda: helpers.execute("UPDATE txtasks_task SET status = 'held'")
            ):
                pass
        return execute(sql, params, many, context)

    with connection.execute_wrapper(hold_first):
        assert Cleaner(get_config()).run_once()["expired"] == 0
    assert Task.objects.filter(status=Status.HELD).count() == 2


def test_tasks_that_cannot_expire_keep_no_others_from_expiring(monkeypatch):
    """Their ids stand in history already."""
    monkeypatch.setattr(cleaning, "ROWS_PER_LOOK", 5)
    write(25, expires_at="'2001-01-01 00:00:00'")
    helpers.execute(
        "INSERT INTO txtasks_finishedtask (id, task_name, outcome) "
        "SELECT id, task_name, 'succeeded' FROM txtasks_task"
    )
    write(30, expires_at="'2001-01-01 00:00:00'")
    assert Cleaner(get_config(), clock=Clock()).run_once()["expired"] == 30
    assert Task.objects.count() == 25


def test_a_walk_past_many_rows_that_have_to_stay_goes_on_in_the_next_pass_and_then_rests():
    clock, asked = Clock(), []

    def remove(since):
        asked.append(since)
        clock.now += SLOW_LOOK_SECONDS / 2
        number = (since or 0) + 1
        return Removed(
            [], cleaning.ROWS_PER_LOOK if number < 6 else 0, number if number < 6 else None
        )

    removal = Removal(remove, lambda: "recent", clock, lambda error: None)
    removal.begin()
    assert [removal.chunk(), removal.chunk()] == [([], True), ([], True)]
    removal.begin()  # the interval was over
    while removal.chunk()[1]:
        pass
    assert asked == [None, 1, 2, 3, 4, 5]
    removal.begin()
    removal.chunk()
    assert asked[6:] == [5]
    clock.now += REST_SECONDS
    removal.begin()
    removal.chunk()
    assert asked[7:] == [None]


def test_a_failure_elsewhere_than_among_the_oldest_is_one():
    def remove(since):
        if since is None:
            return Removed([(1,)], 1, "later")
        raise DatabaseError("no")

    removal = Removal(remove, lambda: "recent", Clock(), lambda error: None)
    removal.chunk()
    with pytest.raises(DatabaseError):
        removal.chunk()


def test_a_step_that_fails_does_not_stop_the_others(monkeypatch):
    monkeypatch.setattr(
        "django_txtasks.core.rows.overdue.OVERDUE",
        "SELECT nothing FROM nowhere WHERE 1 = 1 {after}",
    )
    worker()
    tasks.note.enqueue()
    write(3, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(8 * 86400))
    with pytest.raises(DatabaseError, match="renotify"):
        Cleaner(get_config(), notify=list).run_once()
    assert not FinishedTask.objects.exists()


CONFLICTS = {
    "renotify": ("UPDATE", "txtasks_task"),
    "expire": ("DELETE", "txtasks_task"),
    "prune": ("DELETE", "txtasks_finishedtask"),
    "forget lanes": ("DELETE", "txtasks_lane"),
    "recover a claim": ("UPDATE", "txtasks_task"),
    "declare lost": ("UPDATE", "txtasks_worker"),
    "write its own row": ("INSERT", "txtasks_cleaner"),
}
ERRORS_OF = {"postgresql": ["40001", "40P01"], "mysql": ["1213"], "sqlite": []}


@contextmanager
def refusing(event, table, code, times, only="1 = 1"):
    """Make the server refuse the first statements of this kind, as in a conflict with another transaction."""
    helpers.execute("CREATE SEQUENCE refusals")
    if IS_POSTGRES:
        helpers.execute(
            f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {only} THEN"
            f" IF nextval('refusals') <= {times} THEN"
            f" RAISE EXCEPTION 'a conflict' USING ERRCODE = '{code}'; END IF;"
            " END IF; RETURN COALESCE(NEW, OLD); END $$"
        )
        helpers.execute(
            f"CREATE TRIGGER refuse BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
    else:
        helpers.execute(
            f"CREATE TRIGGER refuse BEFORE {event} ON {table} FOR EACH ROW BEGIN IF {only} THEN"
            f" IF NEXT VALUE FOR refusals <= {times} THEN"
            f" SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = {code}, MESSAGE_TEXT = 'a conflict'; END IF; END IF; END"
        )
    try:
        yield
    finally:
        helpers.execute("DROP FUNCTION refuse() CASCADE" if IS_POSTGRES else "DROP TRIGGER refuse")
        helpers.execute("DROP SEQUENCE refusals")


def give_each_step_something_to_do():
    lost = worker(["probe.tasks.atomic_note"], lease=0.01)
    tasks.atomic_note.enqueue("x")
    claim(lost)
    worker(["probe.tasks.note"])
    overdue_task(seconds=1000)
    write(1, expires_at=ago(1))
    write(1, "txtasks_finishedtask", outcome="'succeeded'", finished_at=ago(8 * 86400))
    helpers.execute(f"INSERT INTO txtasks_lane (name, served_at) VALUES ('old', {ago(9 * 86400)})")


def clean_until(done):
    cleaner = Cleaner(get_config(), notify=list)
    counts = {}

    def report(some):
        for name, number in some.items():
            counts[name] = counts.get(name, 0) + number

    end = time.monotonic() + 20
    cleaner.run(lambda seconds: done(counts) or time.monotonic() > end, report)
    return counts


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has one writer, and no such errors")
@pytest.mark.parametrize("code", ERRORS_OF[connection.vendor])
@pytest.mark.parametrize("step", CONFLICTS)
def test_a_conflict_with_another_transaction_is_repeated_and_is_no_error(
    step, code, txtasks, caplog
):
    txtasks(clean_interval=60)
    give_each_step_something_to_do()
    only = "OLD.status <> NEW.status" if step == "recover a claim" else "1 = 1"
    with refusing(*CONFLICTS[step], code, times=2, only=only):
        clean_until(lambda counts: counts.get("pruned") and counts.get("retried"))
    told = [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]
    texts = " ".join(one.getMessage() for one in told if "is lost" not in one.getMessage())
    assert "conflict" not in texts, texts
    assert not Lane.objects.exists()
    assert not FinishedTask.objects.filter(outcome="succeeded").exists()


@pytest.mark.skipif(connection.vendor == "sqlite", reason="it has one writer, and no such errors")
@pytest.mark.parametrize("code", ERRORS_OF[connection.vendor])
@pytest.mark.parametrize("step", ["renotify", "expire", "prune", "forget lanes"])
def test_conflicts_that_do_not_end_put_a_step_off(step, code, caplog):
    give_each_step_something_to_do()
    Worker.objects.all().update(lease=600)
    with refusing(*CONFLICTS[step], code, times=1000):
        Cleaner(get_config(), notify=list).run_once()
    levels = {one.levelname for one in caplog.records if "conflict" in one.getMessage()}
    assert levels == {"WARNING"}


# -- renotifying ------------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setattr("django_txtasks.core.cleaning.renotifier.MAX_RENOTIFIED_TASKS", 2)
    monkeypatch.setattr("django_txtasks.core.cleaning.renotifier.ROWS_PER_PAGE", 2)
    return []


def overdue_task(name="probe.tasks.note", seconds=100, **options):
    handle = tasks.note.using(**options).enqueue()
    helpers.execute(
        f"UPDATE txtasks_task SET run_after = {ago(seconds)}, task_name = %s WHERE id = %s",
        name,
        handle.id.hex,
    )
    return handle.id


def test_names_that_nobody_knows_hide_no_others_and_are_never_written(told):
    worker(names=["probe.tasks.note"])
    unknown = [overdue_task("no.longer.there", 200) for _ in range(5)]
    known = overdue_task()
    cleaner = Cleaner(get_config(), notify=told.extend)
    assert cleaner.run_once()["renotified"] == 1
    assert told == [(known, "default")]
    assert not Task.objects.filter(pk__in=unknown, notified_at__isnull=False).exists()


def test_a_queue_that_nobody_serves_is_not_told_of(told):
    worker(names=["probe.tasks.note"], queues=["mail"])
    overdue_task()
    assert Cleaner(get_config(), notify=told.extend).run_once()["renotified"] == 0


def test_a_worker_that_says_no_names_may_know_all(told):
    """It is of a release that did not write them down."""
    worker(names=["probe.tasks.slow"])
    worker()
    known = overdue_task()
    Cleaner(get_config(), notify=told.extend).run_once()
    assert told == [(known, "default")]


def test_a_pass_looks_at_a_part_of_a_backlog_and_the_next_one_goes_on(told, monkeypatch):
    monkeypatch.setattr("django_txtasks.core.cleaning.renotifier.MAX_SEEN_TASKS", 4)
    worker(names=["probe.tasks.note"])
    for _ in range(6):
        overdue_task("no.longer.there", 200)
    first, low = overdue_task(), overdue_task(priority=-1)
    cleaner = Cleaner(get_config(), notify=told.extend)
    assert [cleaner.run_once()["renotified"] for _ in range(3)] == [0, 2, 0]
    assert told == [(first, "default"), (low, "default")]


def test_each_of_a_backlog_is_told_of_once_in_two_intervals(told):
    worker(names=["probe.tasks.note"])
    waiting = {overdue_task(priority=priority) for priority in (0, 0, 0, 5, 5)}
    cleaner = Cleaner(get_config(), notify=told.extend)
    assert [cleaner.run_once()["renotified"] for _ in range(4)] == [2, 2, 1, 0]
    assert {task_id for task_id, _ in told} == waiting


def test_a_row_that_can_never_be_claimed_is_not_told_of(told):
    worker(names=["probe.tasks.note"])
    overdue_task()
    helpers.execute("UPDATE txtasks_task SET attempt = 2147483647")
    assert Cleaner(get_config(), notify=told.extend).run_once()["renotified"] == 0


# -- claims without a worker ------------------------------------------------------------------------


def test_claims_without_a_workers_row_are_found_between_those_of_others():
    tasks_of = {}
    for _ in range(5):
        holder = worker()
        tasks.slow_once.enqueue("x")
        tasks_of[holder] = claim(holder)[0].task_id
    gone = sorted(tasks_of)[::2]
    for holder in gone:
        helpers.execute("DELETE FROM txtasks_worker WHERE id = %s", holder.hex)
    assert Cleaner(get_config()).run_once()["retried"] == 3
    pending = Task.objects.filter(status=Status.PENDING).values_list("pk", flat=True)
    assert set(pending) == {tasks_of[holder] for holder in gone}


def test_a_worker_that_registers_while_a_cleaner_looks_keeps_its_claims(monkeypatch):
    """Its row was not there when the workers were read, and its claim is there now."""
    real = cleaning.fetch_column

    def register_late(alias, sql, **params):
        found = real(alias, sql, **params)
        if "ORDER BY id" in sql and "txtasks_worker" in sql and not Worker.objects.exists():
            tasks.slow_once.enqueue("x")
            claim(worker())
        return found

    monkeypatch.setattr(cleaning, "fetch_column", register_late)
    assert cleaning.holders_without_row("default") == []
    assert Task.objects.get().status == Status.CLAIMED


def test_a_lost_workers_claims_are_looked_for_again_in_the_next_pass():
    lost = worker()
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    cleaner = Cleaner(get_config())
    cleaner.run_once()
    handle = tasks.slow_once.enqueue("x")
    execute("default",
        "UPDATE txtasks_task SET status = 'claimed', worker = %(worker)s, claimed_at = {now}, started_at = {now}",
        worker=lost)  # fmt: skip
    assert cleaner.run_once()["retried"] == 1
    assert helpers.row(handle.id).status == Status.PENDING
