"""Lanes: limits at once and per time, fair turns, and no state that a crash could leave behind."""

import threading
import time
from collections import Counter
from datetime import timedelta

import helpers
import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from probe import tasks
from probe.models import Run

from django_txtasks import cancel_tasks, enqueue_many, task
from django_txtasks.conf import get_config
from django_txtasks.core.cleaning.cleaner import Cleaner
from django_txtasks.core.rows import outcomes, workers
from django_txtasks.core.rows.attempts import Arrow, Ended
from django_txtasks.core.rows.turn import Capacity, TurnResult
from django_txtasks.core.working.schedule import TurnSchedule
from django_txtasks.database.transactions import own_transaction
from django_txtasks.exceptions import ConfigError, InvalidDeclaration, InvalidOption, UnknownLane
from django_txtasks.features.lanes import buckets as lane_buckets
from django_txtasks.features.lanes import claiming as lanes
from django_txtasks.features.lanes.book import LaneBook
from django_txtasks.features.lanes.rules import NO_LANES, LaneRule, parse_rules
from django_txtasks.models import DatabaseNow, FinishedTask, Lane, Outcome, Status, Task
from django_txtasks.operations import operators
from django_txtasks.testing import run_due_tasks

pytestmark = pytest.mark.usefixtures("rows")

EVERYTHING = {
    "api": {"at_most": 3},
    "slow": {"rate": "100/m"},
    "tenant:*": {"weight": 1},
    "heavy": {"weight": 4},
}


@pytest.fixture(autouse=True)
def rules(txtasks):
    tasks.released.clear()
    txtasks(lanes=EVERYTHING, poll_interval=0.05)
    yield
    tasks.released.set()


def a_worker():
    return workers.register(
        "default", queues=["default"], threads=1, listening=None, lease=timedelta(seconds=15)
    )


def served(names, room=100, *, worker=None, served=0.0, queues=("default", "mail"), **more):
    """Claim in these lanes as a worker's turn does; return the attempts and the new facts about the lanes."""
    request = lanes.LanesRequest(list(names), room, get_config().lanes, served, **more)
    lanes.create("default", names)
    with own_transaction("default", read_committed=True):
        return lanes.claim(helpers.subscription(*queues), worker or a_worker(), request)


def ended(attempts, arrow=Arrow.FINISH):
    with transaction.atomic():
        done = outcomes.record(
            "default", [Ended(one, arrow) for one in attempts], config=get_config()
        )
    assert len(done.done) == len(attempts)


def keys_of(attempts):
    return [one.args for one in attempts]


def most_at_once(key):
    """The greatest number of runs at one time, from what each has written at its start and its end."""
    found = Run.objects.filter(key__startswith=key).order_by("id").values_list("key", flat=True)
    moves = [-1 if one.endswith("ended") else 1 for one in found]
    now = most = 0
    for one in moves:
        now += one
        most = max(most, now)
    return most


# -- so many at once ------------------------------------------------------------------------------


@pytest.mark.smoke
def test_no_more_than_at_most_are_claimed():
    for n in range(5):
        tasks.call_api.enqueue(f"{n}")
    first, _ = served(["api"])
    assert keys_of(first) == ['["0"]', '["1"]', '["2"]']
    more, learned = served(["api"])
    assert not more
    assert learned.states["api"].wait == lanes.FULL
    ended(first[:1])
    assert len(served(["api"])[0]) == 1
    assert Task.objects.filter(status=Status.CLAIMED, lane="api").count() == 3


def test_over_all_queues_together():
    for queue in ("default", "mail"):
        for n in range(3):
            tasks.call_api.using(queue_name=queue).enqueue(f"{queue} {n}")
    first, _ = served(["api"], queues=["mail"])
    assert len(first) == 3
    assert not served(["api"], queues=["default"])[0]


@pytest.mark.parametrize(
    "arrow", [Arrow.RELEASE, Arrow.RETRY, Arrow.BURY, Arrow.SNOOZE, Arrow.CANCEL]
)
def test_every_arrow_gives_the_place_back(arrow):
    for n in range(4):
        tasks.call_api.enqueue(f"{n}")
    first, _ = served(["api"])
    ended(first[:1], arrow)
    assert len(served(["api"])[0]) == 1


def test_a_crash_gives_the_place_back_with_its_row():
    for n in range(4):
        tasks.call_api.enqueue(f"{n}")
    served(["api"])
    assert not served(["api"])[0]
    helpers.execute("UPDATE txtasks_worker SET lost = TRUE")
    Cleaner(get_config()).run_once()
    assert len(served(["api"])[0]) == 3


@pytest.mark.parametrize("how", ["committed", "rolled back"])
def test_whoever_holds_the_lane_is_the_only_one_who_adds_to_it(how):
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    for n in range(6):
        tasks.call_api.enqueue(f"{n}")
    lanes.create("default", ["api"])
    taken, others = [], []
    inside, looked = threading.Event(), threading.Event()
    worker = a_worker()

    def first():
        with own_transaction("default", read_committed=True):
            request = lanes.LanesRequest(["api"], 2, get_config().lanes, 0.0)
            taken.extend(lanes.claim(helpers.subscription(), worker, request)[0])
            inside.set()
            looked.wait(10)
            transaction.set_rollback(how == "rolled back")

    with helpers.second_session(first):
        inside.wait(10)
        others.append(served(["api"]))
        looked.set()
    attempts, known = others[0]
    assert not attempts
    assert "api" not in known.states
    assert len(taken) == 2
    assert len(served(["api"])[0]) == (1 if how == "committed" else 3)


def test_a_turn_sees_what_others_commit_whatever_the_isolation_level():
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    level = "TRANSACTION ISOLATION LEVEL REPEATABLE READ"
    of_session = "CHARACTERISTICS AS " if connection.vendor == "postgresql" else ""
    helpers.execute(f"SET SESSION {of_session}{level}")
    seen = []
    with own_transaction("default", read_committed=True):
        seen.append(Task.objects.count())
        with helpers.second_session(lambda: tasks.call_api.enqueue("x")):
            pass
        seen.append(Task.objects.count())
    connection.close()
    assert seen == [0, 1]


def test_a_lane_s_tasks_are_not_claimed_with_the_others():
    laned = tasks.call_api.enqueue("laned")
    tasks.note.enqueue("other")
    worker = a_worker()
    with transaction.atomic():
        result = helpers.claim(worker, 10)
    assert keys_of(result.claimed) == ['["other"]']
    with transaction.atomic():
        result = helpers.claim(worker, 10, hinted=[laned.id])
    assert not result.claimed
    assert result.in_lanes == {laned.id: "api"}
    assert not result.later
    assert not result.not_ours


def test_priorities_come_first_and_what_is_not_due_waits():
    tasks.call_api.enqueue("low")
    tasks.call_api.using(priority=5).enqueue("high")
    tasks.call_api.using(priority=9, run_after=timedelta(hours=1)).enqueue("later")
    first, learned = served(["api"], room=1)
    assert keys_of(first) == ['["high"]']
    second, learned = served(["api"], room=9)
    assert keys_of(second) == ['["low"]']
    assert 3500 < learned.states["api"].wait < 3700


def test_a_paused_queue_keeps_its_part_of_a_lane():
    tasks.call_api.using(queue_name="mail").enqueue("mail")
    tasks.call_api.enqueue("default")
    helpers.execute("INSERT INTO txtasks_pausedqueue (queue_name) VALUES ('mail')")
    assert keys_of(served(["api"])[0]) == ['["default"]']


# -- so many in a while ---------------------------------------------------------------------------


def shift(seconds):
    """Let this many seconds pass for the lanes."""
    row = Lane.objects.get(name="slow")
    Lane.objects.filter(name="slow").update(served_at=row.served_at - timedelta(seconds=seconds))


def test_a_rate_lets_one_start_then_the_next_in_its_time():
    for n in range(5):
        tasks.note.using(lane="slow").enqueue(f"{n}")
    first, learned = served(["slow"])
    assert keys_of(first) == ['["0"]']
    assert 0 < learned.states["slow"].wait <= 0.6
    assert not served(["slow"])[0]
    shift(0.6)
    assert keys_of(served(["slow"])[0]) == ['["1"]']


def test_what_a_lane_saves_up_has_a_limit():
    for n in range(9):
        tasks.note.using(lane="slow").enqueue(f"{n}")
    served(["slow"])
    shift(3600)
    assert len(served(["slow"])[0]) == 1


def test_a_burst_may_start_together(txtasks):
    txtasks(lanes={"slow": {"rate": "1/m", "burst": 4}})
    for n in range(9):
        tasks.note.using(lane="slow").enqueue(f"{n}")
    assert len(served(["slow"])[0]) == 4
    shift(61)
    assert len(served(["slow"])[0]) == 1


def test_a_clock_that_was_set_back_gives_nothing():
    for n in range(3):
        tasks.note.using(lane="slow").enqueue(f"{n}")
    served(["slow"])
    shift(-3600)
    attempts, known = served(["slow"])
    assert not attempts
    assert known.states["slow"].wait <= 0.6
    shift(0.6)  # it counts from then on
    assert len(served(["slow"])[0]) == 1


def test_a_turn_that_rolls_back_spends_nothing():
    for n in range(3):
        tasks.note.using(lane="slow").enqueue(f"{n}")
    lanes.create("default", ["slow"])
    worker = a_worker()
    with own_transaction("default", read_committed=True):
        request = lanes.LanesRequest(["slow"], 9, get_config().lanes, 0.0)
        assert lanes.claim(helpers.subscription(), worker, request)[0]
        transaction.set_rollback(True)
    assert len(served(["slow"])[0]) == 1


# -- in fair turns --------------------------------------------------------------------------------


def test_lanes_take_turns_whoever_came_first():
    for n in range(20):
        tasks.serve_tenant.enqueue(f"a{n}", tenant="a")
    for n in range(3):
        tasks.serve_tenant.enqueue(f"b{n}", tenant="b")
    order, known = [], 0.0
    for _ in range(6):
        attempts, learned = served(["tenant:a", "tenant:b"], room=1, served=known)
        known = learned.served
        order += [one.lane[-1] for one in attempts]
    assert Counter(order) == {"a": 3, "b": 3}


def test_a_weight_is_a_share(txtasks):
    txtasks(lanes={"heavy": {"weight": 4}, "light": {"weight": 1}})
    for n in range(30):
        tasks.note.using(lane="heavy").enqueue(f"h{n}")
        tasks.note.using(lane="light").enqueue(f"l{n}")
    order, known = [], 0.0
    for _ in range(20):
        attempts, learned = served(["heavy", "light"], room=1, served=known)
        known = learned.served
        order += [one.lane for one in attempts]
    assert Counter(order) == {"heavy": 16, "light": 4}


def test_one_turn_is_as_fair_as_many():
    for tenant in "abcd":
        for n in range(9):
            tasks.serve_tenant.enqueue(f"{tenant}{n}", tenant=tenant)
    attempts, _ = served([f"tenant:{one}" for one in "abcd"], room=8)
    assert Counter(one.lane[-1] for one in attempts) == dict.fromkeys("abcd", 2)


def test_who_was_idle_does_not_catch_up():
    for n in range(40):
        tasks.serve_tenant.enqueue(f"a{n}", tenant="a")
    _, learned = served(["tenant:a"], room=20)
    for n in range(20):
        tasks.serve_tenant.enqueue(f"b{n}", tenant="b")
    attempts, _ = served(["tenant:a", "tenant:b"], room=10, served=learned.served)
    counts = Counter(one.lane[-1] for one in attempts)
    assert 4 <= counts["a"] <= 6


def test_a_worker_that_knows_nothing_begins_where_the_others_are():
    for n in range(30):
        tasks.serve_tenant.enqueue(f"a{n}", tenant="a")
    served(["tenant:a"], room=20)
    for n in range(20):
        tasks.serve_tenant.enqueue(f"b{n}", tenant="b")
    attempts, _ = served(["tenant:a", "tenant:b"], room=10, served=None)
    assert 4 <= Counter(one.lane[-1] for one in attempts)["a"] <= 6


def test_higher_priorities_come_before_the_turn():
    for n in range(5):
        tasks.serve_tenant.enqueue(f"b{n}", tenant="b")
    tasks.serve_tenant.using(priority=3).enqueue("a", tenant="a")
    helpers.execute("DELETE FROM txtasks_lane")
    lanes.create("default", ["tenant:a"])
    Lane.objects.update(tag=100)
    attempts, _ = served(["tenant:a", "tenant:b"], room=1)
    assert keys_of(attempts) == ['["a"]']


# -- found by looking -----------------------------------------------------------------------------


def test_looking_finds_each_bucket_once():
    enqueue_many([(tasks.serve_tenant, [f"{n}"], {"tenant": f"{n % 300}"}) for n in range(900)])
    tasks.serve_tenant.using(priority=4, run_after=60).enqueue("more", tenant="7")
    tasks.call_api.using(queue_name="mail").enqueue("mail")
    tasks.note.enqueue("in none")
    behind, found = "", []
    while True:
        some, behind = lane_buckets.look("default", behind)
        found += some
        if not behind:
            break
    assert len({(one.lane, one.queue_name, one.priority) for one in found}) == 302
    assert len(found) == 302
    assert {type(one.wait) for one in found} == {float}
    later = [one for one in found if one.wait > 0]
    assert [(one.lane, one.priority) for one in later] == [("tenant:7", 4)]


def test_the_buckets_of_one_lane_are_read_together():
    for n in range(3):
        tasks.note.using(priority=n).enqueue("in none")
    tasks.note.using(queue_name="mail", run_after=60).enqueue("in none")
    tasks.call_api.enqueue("in a lane")
    with CaptureQueriesContext(connection) as statements:
        found = lane_buckets.buckets_of("default", "")
    assert [(one.lane, one.queue_name, one.priority) for one in found] == [
        *(("", "default", n) for n in range(3)),
        ("", "mail", 0),
    ]
    assert [one.wait > 0 for one in found] == [False, False, False, True]
    assert len(statements) == (5 if connection.vendor == "sqlite" else 1)
    assert [one.lane for one in lane_buckets.buckets_of("default", "api")] == ["api"]
    assert lane_buckets.buckets_of("default", "other") == []
    assert [one.priority for one in lane_buckets.buckets_of("default", "", 2)] == [0, 1]


def test_looking_goes_on_where_it_ended(monkeypatch):
    monkeypatch.setattr(lane_buckets, "PAGE_BUCKETS", 2)
    for n in range(5):
        tasks.serve_tenant.enqueue("x", tenant=f"{n}")
    seen, behind, looks = set(), "", 0
    while looks == 0 or behind:
        some, behind = lane_buckets.look("default", behind, 0)
        seen |= {one.lane for one in some}
        looks += 1
        assert looks < 20
    assert len(seen) == 5
    assert looks > 2


# -- as people see it -----------------------------------------------------------------------------


@pytest.mark.smoke
def test_a_worker_keeps_the_limit_and_is_never_idle_without_need():
    for n in range(12):
        tasks.call_api.enqueue(f"{n}", 0.05)
    with helpers.working(threads=8):
        helpers.wait_until(lambda: not Task.objects.exists())
    assert most_at_once("") == 3


def test_what_is_due_in_a_moment_starts_then(txtasks):
    txtasks(poll_interval=3600)
    tasks.call_api.using(run_after=1.5).enqueue("soon")
    tasks.call_api.using(run_after=3600).enqueue("later")
    with helpers.working(threads=1):
        helpers.wait_until(lambda: helpers.runs("soon ended"))


def test_a_place_that_is_free_again_is_taken_at_once(txtasks):
    txtasks(lanes={"api": {"at_most": 1}}, poll_interval=3600)
    for n in range(3):
        tasks.call_api.enqueue(f"{n}")
    with helpers.working(threads=2):
        helpers.wait_until(lambda: not Task.objects.exists())


def test_lanes_and_the_others_do_not_starve_each_other():
    calls = [(tasks.note, [f"plain {n}"]) for n in range(400)]
    enqueue_many([*calls, *[(tasks.call_api, [f"laned {n}"]) for n in range(40)]])
    with helpers.working(threads=1):
        helpers.wait_until(lambda: not Task.objects.exists())
    keys = list(Run.objects.order_by("id").values_list("key", flat=True))
    first_laned = next(n for n, key in enumerate(keys) if key.startswith("laned"))
    last_laned = max(n for n, key in enumerate(keys) if key.startswith("laned"))
    last_plain = max(n for n, key in enumerate(keys) if key.startswith("plain"))
    assert first_laned < len(keys) / 2  # a busy machine may claim hundreds before it looks at lanes
    assert last_laned < last_plain


def test_a_backlog_in_lanes_does_not_starve_the_others():
    calls = [(tasks.serve_tenant, [f"laned {n}"]) for n in range(300)]
    enqueue_many([*calls, *[(tasks.note, [f"plain {n}"]) for n in range(10)]])
    with helpers.working(threads=1):
        helpers.wait_until(lambda: not Task.objects.exists())
    keys = list(Run.objects.order_by("id").values_list("key", flat=True))
    last_plain = max(n for n, key in enumerate(keys) if key.startswith("plain"))
    assert last_plain < 200


def test_without_a_rule_in_the_settings_what_waits_goes_on_waiting(txtasks):
    left = tasks.call_api.enqueue("left")
    txtasks(lanes={"other": {"at_most": 1}})
    with helpers.working(threads=1):
        tasks.note.using(lane="other").enqueue("served")
        helpers.wait_until(lambda: helpers.runs("served"))
        time.sleep(0.3)
    assert helpers.row(left.id).status == Status.PENDING
    run_due_tasks()  # in a project's tests limits do not matter
    assert helpers.runs("left") == 1


def test_a_lane_whose_row_is_gone_gets_a_new_one():
    with helpers.working(threads=1):
        tasks.call_api.enqueue("one")
        helpers.wait_until(lambda: not Task.objects.exists())
        Lane.objects.all().delete()
        tasks.call_api.enqueue("two")
        helpers.wait_until(lambda: not Task.objects.exists())
        assert Lane.objects.count() == 1


def test_a_backlog_of_short_tasks_leaves_slots_to_lanes():
    enqueue_many([(tasks.nap, [0.02])] * 500)
    with helpers.working(threads=2):
        helpers.wait_until(lambda: Task.objects.count() < 400)
        tasks.call_api.enqueue("laned")
        helpers.wait_until(lambda: helpers.runs("laned"))
        assert Task.objects.filter(lane="").exists()
        Task.objects.filter(status=Status.PENDING).delete()


def test_a_key_in_other_hands_is_not_asked_for_without_a_pause():
    if connection.vendor == "sqlite":
        pytest.skip("one writer at a time")
    ids = [tasks.call_api_once.enqueue(f"{n}").id for n in range(6)]
    first = ids[0] if connection.vendor == "postgresql" else ids[0].hex
    with helpers.locked("SELECT id FROM txtasks_task WHERE id = %s FOR UPDATE", first):
        attempts, learned = served(["api"])
    assert not attempts
    assert learned.states["api"].wait >= 0.05


def test_a_lane_of_higher_priority_does_not_make_its_neighbours_unequal():
    for n in range(20):
        tasks.serve_tenant.enqueue(f"a{n}", tenant="a")
        tasks.serve_tenant.enqueue(f"b{n}", tenant="b")
        tasks.serve_tenant.using(priority=10).enqueue(f"vip{n}", tenant="vip")
    lanes.create("default", ["tenant:vip"])
    Lane.objects.update(at_most=1)
    got, known, worker = Counter(), 0.0, a_worker()
    for _ in range(12):
        Task.objects.filter(status=Status.CLAIMED).delete()
        names = [f"tenant:{one}" for one in ("vip", "a", "b")]
        attempts, learned = served(names, 2, worker=worker, served=known)
        known = learned.served
        got.update(one.lane.removeprefix("tenant:") for one in attempts)
    assert got == {"vip": 12, "a": 6, "b": 6}


def test_a_higher_priority_comes_first_of_many_lanes():
    for n in range(30):
        enqueue_many([(tasks.serve_tenant, [f"plain {n}"], {"tenant": f"{n}"})] * 10)
    with helpers.working(threads=1):
        helpers.wait_until(lambda: helpers.runs() > 30)
        vip = tasks.serve_tenant.using(priority=10)
        enqueue_many([(vip, ["vip"], {"tenant": "vip"})] * 10)
        before = helpers.runs()
        helpers.wait_until(lambda: helpers.runs("vip") == 10)
        assert helpers.runs() - before < 100
        Task.objects.filter(status=Status.PENDING).delete()


def test_of_many_priorities_the_highest_comes_first():
    for n in range(-30, 31):
        tasks.call_api.using(priority=n).enqueue(f"{n}")
    assert keys_of(served(["api"], 2)[0]) == ['["30"]', '["29"]']


def test_a_batch_ends_when_lanes_are_done(processes):
    tasks.note.using(on_success=tasks.hook_in_a_lane).enqueue("x")
    enqueue_many([(tasks.serve_tenant, ["t"], {"tenant": f"{n}"}) for n in range(300)])
    process = processes.start("runworkers", "--batch")
    assert process.wait(helpers.PATIENCE) == 0
    assert not Task.objects.exists()
    assert helpers.runs("success in a lane") == 1


def test_the_last_attempt_holds_the_lane_as_well():
    tasks.asked_to_wait.using(max_attempts=1).enqueue("last", 3600)
    with helpers.working(threads=1):
        helpers.wait_until(lambda: Task.objects.filter(status=Status.DEAD).exists())
        lane = lanes_held()
    assert lane > 3000


def lanes_held():
    (held,) = lane_rows("held_until")
    (now,) = Lane.objects.annotate(now=DatabaseNow()).values_list("now", flat=True)
    return (held - now).total_seconds()


def lane_rows(column):
    return list(Lane.objects.values_list(column, flat=True))


def test_numbers_that_are_none_are_read_as_if_there_were_none():
    if connection.vendor == "mysql":
        pytest.skip("its columns take no such value")
    text = "nonsense" if connection.vendor == "sqlite" else "NaN"
    tasks.note.using(lane="slow").enqueue("x")
    lanes.create("default", ["slow"])
    helpers.execute(f"UPDATE txtasks_lane SET tokens = '{text}', tag = '{text}'")
    assert len(served(["slow"], served=None)[0]) == 1


# -- what a worker remembers ----------------------------------------------------------------------


def a_book():
    return LaneBook(get_config(), helpers.subscription("default"))


def asks(book, now=0.0, room=1, *, found=(), until="", **looks):
    """Have it ask, and learn this."""
    request = book.request(room, now)
    has_looked = request.look_behind is not None
    known = {name.replace("_", ":"): lanes.LaneState(*look) for name, look in looks.items()}
    result = lanes.LanesResult(known, 0.0, list(found), until, has_looked)
    book.learn(TurnResult(Capacity(1), apart=result), now)
    return request


def bucket(lane, priority=0, wait=0.0):
    return lanes.LaneBucket(lane, "default", priority, None, wait)


def test_it_looks_first_and_then_asks_for_what_it_found():
    book = a_book()
    assert asks(book, found=[bucket("api"), bucket("tenant:1", 5)]).look_behind == ""
    assert book.request(9, 0.01).names == ["tenant:1", "api"]


def test_a_lane_that_is_full_is_left_alone_for_longer_and_longer():
    book, asked = a_book(), []
    for n in range(200):
        now = n / 10
        names = asks(book, now, found=[bucket("api")], api=(0.0, lanes.FULL)).names
        asked += [now] * bool(names)
    assert len(asked) < 20
    book.ended(["api"])
    assert book.next == 0


def test_one_wait_for_each_lane():
    book = a_book()
    asks(book)
    for n in range(50):
        book.ended(["api"])
        asks(book, 0.001 * n, api=(0.0, 30.0))
    assert len(book._later) == 1
    book.ended(["api"])
    asks(book, 1.0, api=(0.0, 5 * 86400.0))
    assert len(book._later) == 1


def test_after_a_turn_that_took_too_long_lanes_are_asked_one_by_one():
    book = a_book()
    asks(book, found=[bucket("api"), bucket("slow"), bucket("heavy")])
    assert len(book.request(1, 0.01).names) == 3
    book.failed(0.01)
    asked = []
    for _ in range(3):
        names = list(book.request(1, 0.02).names)
        asked += names
        if names == ["slow"]:
            book.failed(0.02)
        else:
            book.learn(
                TurnResult(
                    Capacity(1), apart=lanes.LanesResult({names[0]: lanes.LaneState(0.0, None)})
                ),
                0.02,
            )
    assert sorted(asked) == ["api", "heavy", "slow"]
    assert not book.request(1, 0.03).names
    assert book.request(1, 31).look_behind == ""
    asks(book, 31)
    assert book.request(1, 31.01).names == ["slow"]


def test_a_lane_that_is_closed_for_a_while_is_not_asked_before():
    book = a_book()
    asks(book, found=[bucket("slow")])
    asks(book, 0.01, slow=(0.0, 0.5, None, False, True))
    book.learn(TurnResult(Capacity(1), in_lanes={None: "slow"}), 0.02)
    assert book.next > 0
    request = asks(book, 0.06, found=[bucket("slow")])
    assert request.look_behind == ""
    assert not book.request(1, 0.07).names
    assert book.request(1, 0.52).look_behind is not None
    asks(book, 0.52)
    assert book.request(1, 0.53).names == ["slow"]


def test_while_looking_fails_lanes_that_are_known_are_served():
    book = a_book()
    book.ended(["api"])
    assert book.request(1, 0.0).look_behind == ""
    book.failed(0.0)
    assert book.request(1, 0.01).names == ["api"]


def test_known_lanes_are_not_crowded_out_by_new_ones():
    book = a_book()
    asks(book, found=[bucket("api", 9)])
    book.ended([f"tenant:{n}" for n in range(100)])
    assert "api" in book.request(1, 0.01).names


def test_what_it_keeps_in_mind_has_a_limit():
    book = a_book()
    for n in range(40):
        found = [bucket(f"tenant:{n}:{m}") for m in range(1000)]
        asks(book, float(n), found=found, until="x")
    assert len(book._ready) <= 5_000


def test_a_worker_that_may_claim_no_more_does_not_turn_for_lanes(quick):
    config = get_config()
    schedule = TurnSchedule(config)
    assert (
        schedule.next_turn(Capacity(2, limit=0), hinted=False, unrecorded=False, apart_at=0.0) == 0
    )
    schedule.written(TurnResult(Capacity(2, limit=0)), 100.0, busy=False)
    due = schedule.next_turn(Capacity(2, limit=0), hinted=False, unrecorded=False, apart_at=0.0)
    assert due > 100
    assert schedule.next_turn(Capacity(2), hinted=False, unrecorded=False, apart_at=0.0) == 0


def test_a_batch_is_not_over_before_a_whole_look():
    book = a_book()
    assert not book.is_idle(0.0)
    asks(book, found=[], until="m")
    assert not book.is_idle(0.0)
    asks(book, 0.1)
    assert book.is_idle(0.1)
    book.look_again()
    assert not book.is_idle(0.1)


def test_a_task_asks_its_lane_to_wait():
    tasks.asked_to_wait.enqueue("first", 3600)
    tasks.call_api.enqueue("second")
    with helpers.working(threads=1):
        helpers.wait_until(lambda: helpers.runs("first"))
        helpers.wait_until(lambda: Lane.objects.filter(held_until__isnull=False).exists())
        time.sleep(0.3)
        assert not helpers.runs("second")
        Lane.objects.update(held_until=None)
        helpers.wait_until(lambda: helpers.runs("second"))


def test_a_hold_is_never_shortened():
    lanes.create("default", ["api"])
    lanes.hold("default", "api", timedelta(hours=1))
    before = Lane.objects.get().held_until
    lanes.hold("default", "api", timedelta(seconds=1))
    assert Lane.objects.get().held_until == before


def test_merging_goes_on_in_a_lane():
    for n in range(4):
        tasks.call_api_once.enqueue(f"{n}")
    attempts, _ = served(["api"])
    assert keys_of(attempts) == ['["3"]']
    assert FinishedTask.objects.filter(outcome=Outcome.MERGED).count() == 3


def test_a_key_is_another_one_in_another_lane(txtasks):
    txtasks(lanes={"*": {"weight": 1}})
    for lane in "ab":
        tasks.note.using(lane=lane, unique_key="k").enqueue(lane)
    run_due_tasks()
    assert helpers.runs() == 2
    tasks.note.using(lane="a", unique_key="k").enqueue("again")
    assert not cancel_tasks(tasks.note.using(lane="b"), unique_key="k")
    assert cancel_tasks(tasks.note.using(lane="a"), unique_key="k")


def test_in_enqueue_many_and_through_hooks():
    enqueue_many([(tasks.serve_tenant, [f"{n}"], {"tenant": "ab"[n % 2]}) for n in range(60)])
    assert Counter(Task.objects.values_list("lane", flat=True)) == {"tenant:a": 30, "tenant:b": 30}
    Task.objects.all().delete()
    tasks.note.using(on_success=tasks.hook_in_a_lane).enqueue("x")
    run_due_tasks(limit=9)
    assert helpers.runs("success in a lane") == 1


def test_what_a_person_holds_keeps_its_lane():
    handle = tasks.call_api.enqueue("held")
    operators.hold("default", [handle.id])
    assert not served(["api"])[0]
    operators.resume("default", [handle.id])
    assert len(served(["api"])[0]) == 1


def test_rows_of_lanes_that_nobody_uses_are_deleted():
    lanes.create("default", ["a", "b", "c"])
    Lane.objects.update(served_at="2020-01-01T00:00Z")
    lanes.create("default", ["fresh"])
    Lane.objects.filter(name="b").update(at_most=1)
    Lane.objects.filter(name="c").update(paused_at="2020-01-01T00:00Z")
    assert lanes.forget("default", timedelta(days=1), NO_LANES) == (1, "")
    assert sorted(lane_rows("name")) == ["b", "c", "fresh"]


def test_a_lanes_row_stays_until_its_bucket_is_full_again(txtasks, monkeypatch):
    """Or the lane would start a whole burst again: 1,000 starts a month are full after 30 days."""
    monkeypatch.setattr("django_txtasks.features.lanes.claiming.LANES_PER_LOOK", 2)
    rule = {"rate": "33/d", "burst": 1000}
    txtasks(
        lanes={"api": rule, "empty": rule, "quick": {"rate": "10/s"}, "unlimited": {"at_most": 3}}
    )
    names = ["api", "empty", "half", "quick", "unlimited"]
    lanes.create("default", names)
    ages = dict(zip(names, (29, 31, 8, 8, 8), strict=True))
    for name, days in ages.items():
        Lane.objects.filter(name=name).update(
            tokens=0.0, served_at=timezone.now() - timedelta(days=days)
        )
    cleaner = Cleaner(get_config())
    cleaner.run_once()
    assert lane_rows("name") == ["api"]
    Lane.objects.update(tokens=100.0)
    cleaner.run_once()
    assert lane_rows("name") == []


# -- what people write ----------------------------------------------------------------------------


def test_capitals_are_other_lanes():
    tasks.serve_tenant.enqueue("1", tenant="A")
    tasks.serve_tenant.enqueue("2", tenant="a")
    first, _ = served(["tenant:a"])
    assert keys_of(first) == ['["2"]']


def test_the_longest_pattern_counts():
    found = parse_rules({"*": {"at_most": 1}, "a:*": {"at_most": 2}, "a:b": {"at_most": 3}}).find
    assert [found(one).at_most for one in ("a:b", "a:c", "z")] == [3, 2, 1]
    assert NO_LANES.find("a") is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "must be a dict"),
        ({"a": {}}, "must be a dict with 'at_most', 'rate', 'burst' or 'weight'"),
        ({"a": {"limit": 3}}, "unknown key 'limit'"),
        ({"a": {"at_most": 0}}, "a whole number, 1 or more"),
        ({"a": {"at_most": True}}, "a whole number, 1 or more"),
        ({"a": {"rate": 5}}, "'100/m'"),
        ({"a": {"rate": "5/week"}}, "'100/m'"),
        ({"a": {"rate": "0/s"}}, "'100/m'"),
        ({"a": {"weight": 0}}, "from 0.001 to 1000"),
        ({"a": {"burst": 1.5}}, "a whole number, 1 or more"),
        ({"": {"at_most": 1}}, "1 to 200 characters"),
        ({"a*b": {"at_most": 1}}, "at the end of a pattern"),
        ({" a": {"at_most": 1}}, "without spaces around it"),
        ({3: {"at_most": 1}}, "printable text"),
    ],
)
def test_wrong_rules_are_refused(value, said):
    with pytest.raises(ConfigError) as caught:
        parse_rules(value)
    assert said in str(caught.value)


def test_a_lane_without_a_rule_is_refused():
    with pytest.raises(UnknownLane) as caught:
        tasks.note.using(lane="apu").enqueue("x")
    assert "has no rule; it has 'api', 'slow', 'tenant:*', 'heavy'" in str(caught.value)
    with pytest.raises(UnknownLane):
        enqueue_many([(tasks.note.using(lane="apu"), ["x"])])
    assert not Task.objects.exists()


@pytest.mark.parametrize("lane", ["", "x" * 201, "a\n", " a", 7, "a*"])
def test_what_is_no_lane_is_refused(lane):
    with pytest.raises(InvalidOption):
        tasks.note.using(lane=lane).enqueue("x")
    with pytest.raises(InvalidOption):
        tasks.note.using(lane=lambda key: lane or 7).enqueue("x")
    assert not Task.objects.exists()


def test_a_function_that_fails_or_returns_none():
    with pytest.raises(InvalidOption) as caught:
        tasks.note.using(lane=lambda key: 1 / 0).enqueue("x")
    assert "makes the lane of probe.tasks.note has failed: ZeroDivisionError" in str(caught.value)
    tasks.serve_tenant.enqueue("x", tenant="")
    assert Task.objects.get().lane == ""


def test_a_declaration_is_checked():
    with pytest.raises(InvalidDeclaration):
        task(lane=" x")(tasks.plain)
    with pytest.raises(InvalidDeclaration) as caught:
        task(on_success=tasks.serve_tenant)(tasks.plain)
    assert "a hook's lane is text" in str(caught.value)


def test_a_person_s_limit_takes_the_place_of_the_settings():
    for n in range(5):
        tasks.call_api.enqueue(f"{n}")
    lanes.create("default", ["api"])
    Lane.objects.update(at_most=1, rate="nonsense")
    assert len(served(["api"])[0]) == 1
    Lane.objects.update(paused_at="2020-01-01T00:00Z", at_most=4)
    assert not served(["api"])[0]
    Lane.objects.update(paused_at=None)
    assert len(served(["api"])[0]) == 3


def test_a_rule_in_numbers():
    assert LaneRule(rate=100 / 60).most_permits == pytest.approx(1 + 100 / 60 * 0.25)
    assert LaneRule(rate=40.0).most_permits == pytest.approx(10.5)
    assert LaneRule(rate=1.0, burst=5).most_permits == pytest.approx(5.25)
