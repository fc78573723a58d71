"""The row of a Celery task, the message that it becomes, and the answers of RabbitMQ; without a worker."""

import json
import socket
import time
from datetime import datetime, timedelta, timezone

import handing
import helpers
import pika
import pytest
from django.core.checks import run_checks
from django.db import transaction

pytest.importorskip("celery", reason="celery is not installed")
import celery_site
from celery import _state, group, signals
from celery.backends.base import DisabledBackend
from kombu import Queue
from probe import on_celery, tasks
from probe.models import Run
from proxy import Alarm, SilentProxy, Withholding, before

from django_txtasks import external
from django_txtasks.exceptions import Away, InvalidArguments, InvalidOption
from django_txtasks.features.hand_over.choosing import Place, choose
from django_txtasks.features.hand_over.target import OVERTAKEN
from django_txtasks.models import Task

app, run, add = on_celery.app, on_celery.run, on_celery.add
UTC = timezone.utc
HOUR = timedelta(hours=1)


@pytest.fixture
def site(rows, txtasks, tmp_path):
    txtasks(**celery_site.SETTINGS)
    with celery_site.here("rabbitmq", tmp_path) as found:
        yield found


@pytest.fixture
def amqp(site):
    with pika.BlockingConnection(pika.URLParameters(helpers.url_of("AMQP"))) as connection:
        yield connection.channel()


def hand_over():
    return handing.hand_over("celery").handed


def dead():
    return {row.args[0]: row.errors[-1]["message"] for row in Task.objects.filter(status="dead")}


# -- the message ------------------------------------------------------------------------------------


def got(amqp, queue):
    """Return the properties and the body of the next message of a queue."""
    found = []

    def is_there():
        found[:] = amqp.basic_get(queue, auto_ack=True)
        return found[0] is not None

    helpers.wait_until(is_there)
    return found[1], found[2]


OPTIONS = {
    "plain": {},
    "routed": {
        "queue": "{queue}", "priority": 3, "headers": {"who": "ü"}, "expires": datetime.now(UTC) + HOUR,
    },
    "linked": {"link": add.s(1), "link_error": run.si("x"), "ignore_result": True, "time_limit": 7},
    "compressed": {"compression": "gzip", "shadow": "other", "delivery_mode": 1},
}  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_the_message_is_the_one_that_celery_sends_itself(options, site, amqp):
    options = {key: site.queue if value == "{queue}" else value for key, value in options.items()}
    run.apply_async(("ü", {"b": 1, "a": 1e16}), task_id="one", **options)
    with transaction.atomic():
        run.apply_async(("ü", {"b": 1, "a": 1e16}), task_id="one", **options)
    assert hand_over() == 1
    (plain, body), (ours, our_body) = got(amqp, site.queue), got(amqp, site.queue)
    if "compression" in options:
        assert ours.headers["compression"] == plain.headers["compression"]
        body, our_body = map(celery_site.uncompressed, (body, our_body))
    assert json.loads(our_body) == json.loads(body)
    assert ours.headers == plain.headers
    assert (ours.expiration is None) == (plain.expiration is None)
    of_ours = {**vars(ours), "expiration": plain.expiration, "headers": None, "message_id": None}
    assert of_ours == {**vars(plain), "headers": None}


def test_the_signals_of_celery_change_the_message_of_a_row(site, amqp):
    def trace(headers, **_):
        headers["trace"] = "7"

    signals.before_task_publish.connect(trace)
    try:
        with transaction.atomic():
            run.delay("a")
    finally:
        signals.before_task_publish.disconnect(trace)
    hand_over()
    assert got(amqp, site.queue)[0].headers["trace"] == "7"


def test_a_receiver_of_a_signal_leaves_the_session_of_the_drain_alone(site, amqp):
    """A row without a message gets one in the drain. A failed statement would end the drain's transaction."""

    def fail(**_):
        helpers.execute("SELECT no_such_column FROM txtasks_task")

    with transaction.atomic():
        run.delay("a")
    external(run.name, queue_name="celery").enqueue("b")
    signals.before_task_publish.connect(fail)
    try:
        assert hand_over() == 2
    finally:
        signals.before_task_publish.disconnect(fail)


def test_the_event_of_a_task_comes_with_its_message(site, amqp):
    app.conf.task_send_sent_event = True
    try:
        amqp.exchange_declare("celeryev", "topic", durable=True)
        queue = amqp.queue_declare("", exclusive=True).method.queue
        amqp.queue_bind(queue, "celeryev", "task.sent")
        with transaction.atomic():
            result = run.delay("a")
        assert amqp.basic_get(queue)[0] is None
        hand_over()
        event = json.loads(got(amqp, queue)[1])
        assert (event["type"], event["uuid"]) == ("task-sent", result.id)
    finally:
        app.conf.task_send_sent_event = False


def test_an_exchange_of_events_that_is_refused_sends_no_task_twice(site, amqp):
    app.conf.task_send_sent_event = True
    app.conf.event_exchange = f"{site.queue}-events"
    amqp.exchange_declare(app.conf.event_exchange, "direct")
    try:
        with transaction.atomic():
            run.delay("a")
            run.delay("b")
        hand_over()
        assert len([got(amqp, site.queue) for _ in range(2)]) == 2
        assert not Task.objects.exists()
        assert amqp.basic_get(site.queue)[0] is None
    finally:
        app.conf.task_send_sent_event = False
        app.conf.event_exchange = "celeryev"
        amqp.exchange_delete(f"{site.queue}-events")


def test_celerys_id_is_the_rows_id_unless_the_caller_gave_one(site):
    with transaction.atomic():
        result = run.delay("a")
        assert str(Task.objects.get().pk) == result.id
        run.apply_async(("b",), task_id=result.id)  # as a retry repeats it
    assert Task.objects.count() == 2


def test_countdown_and_eta_wait_in_the_table(site):
    at = datetime(2099, 5, 1, 12, tzinfo=UTC)
    with transaction.atomic():
        run.apply_async(("countdown",), countdown=3600)
        run.apply_async(("eta",), eta=at)
        run.apply_async(("naive",), eta=at.replace(tzinfo=None))
        run.apply_async(("text",), eta=at.isoformat())
    found = {row.args[0]: row for row in Task.objects.all()}
    assert found["countdown"].run_after - found["countdown"].enqueued_at == HOUR
    assert {found[name].run_after for name in ("eta", "naive", "text")} == {at}
    assert hand_over() == 0


def test_a_task_that_has_waited_goes_without_its_eta(site, amqp):
    with transaction.atomic():
        run.apply_async(("a",), countdown=3600)
    Task.objects.update(run_after=datetime(2020, 1, 1, tzinfo=UTC))
    hand_over()
    assert got(amqp, site.queue)[0].headers["eta"] is None


def test_a_row_without_a_message_follows_the_options_of_its_task(site, amqp, tmp_path, monkeypatch):
    (tmp_path / "late_tasks.py").write_text(
        "from celery import shared_task\n@shared_task(time_limit=7)\ndef late(): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    app.conf.include = ["late_tasks"]  # no module of the site imports it
    app.loader.__dict__.pop("default_modules", None)
    try:
        external("late_tasks.late", queue_name="celery").enqueue()
        hand_over()
        headers = got(amqp, site.queue)[0].headers
        assert (headers["task"], headers["timelimit"]) == ("late_tasks.late", [7, None])
    finally:
        app.conf.include = []
        app.loader.__dict__.pop("default_modules", None)


# -- inside a transaction nothing waits for the network -------------------------------------------------


def test_a_broker_that_is_down_delays_no_transaction_and_loses_nothing(site):
    with socket.create_server(("127.0.0.1", 0)) as server:  # it never answers
        server.setblocking(False)
        celery_site.point(app, {"broker_url": f"pyamqp://127.0.0.1:{server.getsockname()[1]}//"})
        with transaction.atomic():
            Run.objects.create(key="order")
            run.delay("a")
            group(add.s(1), add.s(2)).apply_async()
        with pytest.raises(BlockingIOError):
            server.accept()  # nobody has called
    target = app.txtasks_target("celery", ordered=False)
    with pytest.raises(Away):
        target.look_after()
    celery_site.point(app, site.configuration)
    assert hand_over() == 3


class Listening(DisabledBackend):
    """Hears of each task that is sent, as Redis and RPC do."""

    heard = ()

    def on_task_call(self, producer, task_id):
        self.heard = [*self.heard, task_id]


def test_the_result_backend_hears_of_no_task_inside_a_transaction(site):
    app._backend_cache = backend = Listening(app)
    joins = []
    watch = lambda **_: joins.append(_state.task_join_will_block())  # noqa: E731
    signals.before_task_publish.connect(watch)
    try:
        with transaction.atomic():
            result = run.delay("a")
        assert backend.heard == ()
        assert joins == [False]  # other threads may wait for their results
        assert result.backend is backend
        assert backend.heard == () and run.delay("b").id in backend.heard
    finally:
        signals.before_task_publish.disconnect(watch)


# -- transactions -----------------------------------------------------------------------------------------


def test_on_commit_calls_are_rows_of_the_transaction(site):
    with transaction.atomic():
        run.delay_on_commit("a")
        run.apply_async_on_commit(("b",), countdown=3600)
        assert Task.objects.count() == 2
        with pytest.raises(on_celery.Unlucky), transaction.atomic():
            run.delay_on_commit("gone")
            raise on_celery.Unlucky
    assert sorted(row.args[0] for row in Task.objects.all()) == ["a", "b"]


def test_on_commit_calls_outside_a_transaction_go_at_once(site, amqp):
    run.delay_on_commit("a")
    assert not Task.objects.exists()
    assert got(amqp, site.queue)[0].headers["task"] == run.name


def test_a_transaction_without_autocommit_counts(site):
    transaction.set_autocommit(False)
    try:
        run.delay("a")
        assert Task.objects.count() == 1
        transaction.rollback()
        assert not Task.objects.exists()
        transaction.rollback()
    finally:
        transaction.set_autocommit(True)


@pytest.mark.parametrize("options", [{"retries": 1}, {"replaced_task_nesting": 1}], ids=str)
def test_a_retry_and_a_replacement_go_straight_to_the_broker(options, site, amqp):
    with transaction.atomic():
        app.send_task(run.name, ("a",), **options)
        assert not Task.objects.exists()
        transaction.set_rollback(True)
    assert got(amqp, site.queue)[0].headers["task"] == run.name


# -- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("serializer", ["pickle", "yaml"])
def test_a_message_that_is_not_json_is_refused(serializer, site):
    with transaction.atomic():
        with pytest.raises(InvalidOption, match="a row keeps JSON only"):
            run.apply_async(("a",), serializer=serializer)
        assert not Task.objects.exists()  # the transaction goes on


def test_a_queue_that_only_this_process_knows_is_refused(site):
    with transaction.atomic(), pytest.raises(InvalidOption, match="only this process knows"):
        run.apply_async(("a",), queue=Queue("elsewhere"))


def test_a_message_that_is_too_large_is_refused(site):
    with transaction.atomic(), pytest.raises(InvalidArguments, match="more than 262,144"):
        run.delay("a" * 300_000)


def test_an_impossible_time_is_refused(site):
    with transaction.atomic(), pytest.raises(InvalidOption, match="countdown"):
        run.apply_async(("a",), countdown=1e12)


def test_without_a_queue_that_is_handed_over_a_call_in_a_transaction_is_refused(site, txtasks):
    txtasks(hand_over={})
    with transaction.atomic(), pytest.raises(InvalidOption, match="no queue is handed over"):
        run.delay("a")


def findings():
    return [one.id for one in run_checks(tags=["txtasks"]) if "Celery app 'probe'" in one.msg]


def test_the_target_of_another_queue_need_not_be_importable_here(site, txtasks):
    elsewhere = {"search": "shop.only_on_the_host_of_drains.send"}
    txtasks(queues=["default", "search", "celery"],
            hand_over={**elsewhere, "celery": "probe.on_celery.app"})  # fmt: skip
    assert findings() == []
    with transaction.atomic():
        run.delay("x")
    assert Task.objects.get().queue_name == "celery"
    txtasks(hand_over=elsewhere)
    assert findings() == ["txtasks.E040"]


@pytest.mark.once
def test_the_checks_find_what_cannot_work(site, txtasks):
    assert findings() == []
    app.conf.update(task_serializer="pickle", result_backend="rpc://")
    try:
        assert findings() == ["txtasks.E041", "txtasks.W040"]
        [found] = [one for one in run_checks(tags=["txtasks"]) if one.id == "txtasks.E041"]
        assert "has task_serializer = 'pickle'. A row" in found.msg
        assert found.hint == "Set task_serializer = 'json'."
    finally:
        app.conf.update(task_serializer="json", result_backend=None)
    txtasks(hand_over={})
    assert findings() == ["txtasks.E040"]
    txtasks(queues=["default", "celery", "mail"],
            hand_over={"celery": "probe.on_celery.app", "mail": "probe.on_celery.app"})  # fmt: skip
    assert findings() == ["txtasks.E040"]


@pytest.mark.once
def test_wrong_settings_are_told_by_their_own_check(site, txtasks):
    txtasks(hand_over={"nowhere": "probe.on_celery.app"})
    assert findings() == []
    assert "txtasks.E001" in [one.id for one in run_checks(tags=["txtasks"])]


# -- what RabbitMQ answers ------------------------------------------------------------------------------


def send_with_good_ones(bad, most_turns=1):
    """Send a bad row between good ones, and hand over what goes. Return the number of rows that went."""
    with transaction.atomic():
        run.delay("good")
        bad()
        run.delay("good")
    drain = handing.new_drain("celery", until_idle=False)
    for _ in range(most_turns):
        if drain.handed < 2:
            drain._turn()
    drain._target.close()
    return drain.handed


def test_a_message_for_which_amqp_has_no_form_is_dead_and_the_others_go(site):
    assert send_with_good_ones(lambda: run.apply_async(("bad",), priority=999)) == 2
    assert "0 <= number <= 255" in dead()["bad"]


@pytest.fixture
def site_of_files(rows, txtasks, tmp_path):
    txtasks(**celery_site.SETTINGS)
    with celery_site.here("filesystem", tmp_path) as found:
        yield found


def reasons():
    """The reasons of rows that are postponed; fails if a row has another state."""
    rows = Task.objects.all()
    assert {row.status for row in rows} == {"pending"}
    return [row.errors[-1]["message"] for row in rows]


def test_a_function_that_has_moved_to_task_does_not_reach_celery(site, amqp):
    with transaction.atomic():
        tasks.note.using(queue_name="celery").enqueue(
            "a"
        )  # as a schedule does that was written before
        external("elsewhere.note", queue_name="celery").enqueue("b")
    assert hand_over() == 1
    assert "declared by @task, and Celery does not know it" in dead()["a"]
    assert got(amqp, site.queue)[0].headers["task"] == "elsewhere.note"


def test_a_wrong_route_makes_no_row_dead_that_has_no_message_yet(site):
    celery_site.point(app, {"task_routes": {run.name: {"priority": 999}}})
    external(run.name, queue_name="celery").enqueue("a")
    with transaction.atomic():
        add.delay(1)
    assert hand_over() == 1
    assert "0 <= number <= 255" in reasons()[0]
    celery_site.point(app, {"task_routes": None})
    Task.objects.update(run_after=datetime(2020, 1, 1, tzinfo=UTC))
    assert hand_over() == 1


def test_a_wrong_setting_of_the_app_makes_no_row_dead(site):
    external(run.name, queue_name="celery").enqueue("a")
    celery_site.point(app, {"task_protocol": 1})
    try:
        assert hand_over() == 0
    finally:
        celery_site.point(app, {"task_protocol": 2})
    assert "protocol 1" in reasons()[0]


def test_a_compression_that_this_process_lacks_makes_no_row_dead(site):
    with transaction.atomic():
        row = run.delay("a")
    message = {**helpers.row(row.id).headers["message"], "compression": "none-such"}
    Task.objects.filter(pk=row.id).update(headers={"message": message})
    assert hand_over() == 0
    assert "none-such" in reasons()[0]


def test_a_wrong_setting_of_a_transport_makes_no_row_dead(site_of_files):
    options = {**site_of_files.configuration["broker_transport_options"], "data_folder_out": 7}
    celery_site.point(app, {**site_of_files.configuration, "broker_transport_options": options})
    with transaction.atomic():
        run.delay("a")
    assert hand_over() == 0
    assert "TypeError" in reasons()[0]
    celery_site.point(app, site_of_files.configuration)
    Task.objects.update(run_after=datetime(2020, 1, 1, tzinfo=UTC))
    assert hand_over() == 1


def test_an_event_that_fails_sends_no_task_twice(site_of_files, monkeypatch):
    app.conf.task_send_sent_event = True
    try:
        with transaction.atomic():
            run.delay("a")
    finally:
        app.conf.task_send_sent_event = False
    celery_site.point(app, {"event_exchange": "../no name for a file"})
    try:
        assert hand_over() == 1
    finally:
        celery_site.point(app, {"event_exchange": "celeryev"})
    sent = list((site_of_files.directory / "messages").iterdir())
    assert len(sent) == 1 and not Task.objects.exists()


def test_an_integer_of_70_bits_in_a_header_is_dead_and_the_others_go(site):
    assert send_with_good_ones(lambda: run.apply_async(("bad",), headers={"n": 2**70})) == 2
    assert list(dead()) == ["bad"]


@pytest.mark.parametrize(
    "message", [7, {"id": "x"}, {"id": "x", "headers": [], "properties": {}}], ids=str
)
def test_a_row_that_is_no_message_is_dead_and_the_others_go(message, site):
    def bad():
        row = run.delay("bad")
        Task.objects.filter(pk=row.id).update(headers={"message": message})

    assert send_with_good_ones(bad) == 2
    assert list(dead()) == ["bad"]


def test_headers_beyond_a_frame_end_the_connection_for_no_other_row(site):
    big = {"headers": {"blob": "x" * 200_000}}
    # RabbitMQ may end the connection before its reason is read: then the rows go in later turns
    assert send_with_good_ones(lambda: run.apply_async(("bad",), **big), most_turns=10) == 2
    (left,) = Task.objects.all()
    assert (left.args, left.status) == (["bad"], "pending")


def test_a_queue_that_this_process_does_not_know_stops_no_other_row(site):
    def bad():
        row = run.delay("bad")
        message = {**helpers.row(row.id).headers["message"], "queues": ["elsewhere"]}
        Task.objects.filter(pk=row.id).update(headers={"message": message})

    queues = app.amqp.queues
    queues.create_missing = False
    try:
        assert send_with_good_ones(bad) == 2
    finally:
        queues.create_missing = True
    (left,) = Task.objects.all()
    assert left.args == ["bad"] and "elsewhere" in left.errors[-1]["message"]


def test_an_alarm_of_the_broker_gets_a_row_once_more_at_most(site):
    run.delay("first")  # declares the queue
    with before(app.conf.broker_url, Alarm) as (proxy, url):
        celery_site.point(app, {**site.configuration, "broker_url": url})
        with transaction.atomic():
            run.delay("a")
        target = app.txtasks_target("celery", ordered=False)
        target.look_after()
        rows, _ = choose("default", "celery", 10, Place(0.0))
        proxy.is_on = True
        assert "no messages" in target.send(rows, time.monotonic() + 5).away
        with pytest.raises(Away, match="no messages"):
            target.look_after()
        assert len(proxy.held) == 1
        proxy.end()
        helpers.wait_until(lambda: _is_reached(target))
        assert target.send(rows, time.monotonic() + 5).taken == {rows[0].id}
        target.close()
    assert celery_site.messages_in(site.queue) == 3


def test_a_broker_that_does_not_answer_to_a_declaration_is_away(site, monkeypatch):
    monkeypatch.setattr("django_txtasks.contrib.celery.target.CONFIRM_SECONDS", 0.2)
    with before(app.conf.broker_url, SilentProxy) as (proxy, url):
        celery_site.point(app, {**site.configuration, "broker_url": url})
        with transaction.atomic():
            run.delay("a")
        target = app.txtasks_target("celery", ordered=False)
        target.look_after()
        rows, _ = choose("default", "celery", 10, Place(0.0))
        proxy.is_silent = True
        answers = target.send(rows, time.monotonic() + 5)
        assert "does not answer" in answers.away and not answers.known
        proxy.is_silent = False
        target.look_after()  # on a new connection
        assert target.send(rows, time.monotonic() + 5).taken == {rows[0].id}
        target.close()


def test_a_message_that_is_never_confirmed_is_postponed_and_the_others_go(site, monkeypatch):
    monkeypatch.setattr("django_txtasks.contrib.celery.target.CONFIRM_SECONDS", 0.5)
    run.delay("first")  # declares the queue
    with before(app.conf.broker_url, Withholding) as (_, url):
        celery_site.point(app, {**site.configuration, "broker_url": url})
        with transaction.atomic():
            for name in ("a", "b", "c"):
                run.delay(name)
        target = app.txtasks_target("celery", ordered=False)
        target.look_after()
        rows, _ = choose("default", "celery", 10, Place(0.0))
        answers = target.send(rows, time.monotonic() + 5)
        assert (answers.postponed, answers.away) == ({rows[0].id: OVERTAKEN}, "")
        assert answers.taken == {rows[1].id, rows[2].id}
        assert target.send(rows[:1], time.monotonic() + 5).taken == {rows[0].id}
        target.close()


def test_a_broker_that_does_not_answer_when_a_channel_is_opened_is_away(site, monkeypatch):
    monkeypatch.setattr("django_txtasks.contrib.celery.amqp.OPEN_SECONDS", 0.2)
    with before(app.conf.broker_url, SilentProxy) as (proxy, url):
        celery_site.point(app, {**site.configuration, "broker_url": url})
        target = app.txtasks_target("celery", ordered=False)
        sender = target._open()
        proxy.is_silent = True
        with pytest.raises(Away):
            target.look_after()
        assert target._sender is not sender
        proxy.is_silent = False
        target.look_after()
        target.close()


def _is_reached(target):
    try:
        target.look_after()
    except Away:
        return False
    return True


def test_an_exchange_that_does_not_exist_postpones_its_row_alone(site):
    with_exchange = {
        "exchange": f"{app.conf.task_default_queue}-nowhere",
        "routing_key": "x",
        "queue": None,
    }
    assert send_with_good_ones(lambda: run.apply_async(("bad",), **with_exchange)) == 2
    (left,) = Task.objects.all()
    assert (left.args, left.status) == (["bad"], "pending")
    assert "NOT_FOUND" in left.errors[-1]["message"] and left.run_after > left.enqueued_at


def test_a_row_that_no_queue_takes_is_postponed(site, amqp):
    unbound = f"{site.queue}-unbound"
    amqp.exchange_declare(unbound, "direct", auto_delete=True)
    with_exchange = {"exchange": unbound, "routing_key": "x"}
    try:
        assert send_with_good_ones(lambda: run.apply_async(("bad",), **with_exchange)) == 2
    finally:
        amqp.exchange_delete(unbound)
    (left,) = Task.objects.all()
    assert "NO_ROUTE" in left.errors[-1]["message"]


def test_a_queue_that_was_deleted_meanwhile_is_declared_again(site, amqp):
    with transaction.atomic():
        run.delay("a")
    drain = handing.new_drain("celery")
    drain._turn()
    amqp.queue_delete(site.queue)
    with transaction.atomic():
        run.delay("b")
    drain._turn()
    (left,) = Task.objects.all()
    assert "NO_ROUTE" in left.errors[-1]["message"]
    Task.objects.update(run_after=datetime(2020, 1, 1, tzinfo=UTC))
    drain._turn()
    drain._target.close()
    assert json.loads(got(amqp, site.queue)[1])[0] == ["b"]


def test_what_a_full_queue_refuses_is_postponed(site, amqp):
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    full = Queue(f"{site.queue}-full", queue_arguments=arguments, routing_key=f"{site.queue}-full")
    app.amqp.queues.add(full)
    try:
        with transaction.atomic():
            for number in range(10):
                run.apply_async((number,), queue=full.name)
        drain = handing.new_drain("celery")
        drain._turn()
        drain._target.close()
        assert drain.handed + Task.objects.count() == 10
        assert 2 <= drain.handed < 10
        assert all("full queue" in row.errors[-1]["message"] for row in Task.objects.all())
    finally:
        amqp.queue_delete(full.name)


def test_a_queue_that_others_have_declared_otherwise_postpones_its_rows_alone(site, amqp):
    name = f"{site.queue}-other"
    amqp.queue_declare(name, durable=False)
    with transaction.atomic():
        run.delay("good")
        bad = run.apply_async(("bad",), queue=name)
        run.delay("good")
    target = app.txtasks_target("celery", ordered=False)
    try:
        answers = target.send(choose("default", "celery", 10, Place(0.0))[0], time.monotonic() + 5)
    finally:
        target.close()
        amqp.queue_delete(name)
    assert len(answers.taken) == 2 and not answers.broken  # no row has to be sent alone
    (reason,) = answers.postponed.values()
    assert "PRECONDITION_FAILED" in reason and str(*answers.postponed) == bad.id


def test_an_ordered_queue_waits_for_each_answer(site, amqp, txtasks):
    txtasks(hand_over={"celery": {"to": "probe.on_celery.app", "ordered": True}})
    with transaction.atomic():
        run.delay("a")
    with transaction.atomic():
        run.apply_async(("b",), exchange="amq.direct", routing_key="nowhere")
    with transaction.atomic():
        run.delay("c")
    drain = handing.new_drain("celery")
    drain._turn()
    drain._target.close()
    assert drain.handed == 1
    assert celery_site.messages_in(site.queue) == 1  # c is not sent before b is taken
    assert [row.args for row in Task.objects.order_by("pk")] == [["b"], ["c"]]


def test_a_broker_that_goes_away_in_a_pass_leaves_the_rows(site):
    target = app.txtasks_target("celery", ordered=False)
    target.look_after()
    target._connection.connection.sock.shutdown(socket.SHUT_RDWR)
    with transaction.atomic():
        run.delay("a")
    rows, _ = choose("default", "celery", 10, Place(0.0))
    answers = target.send(rows, time.monotonic() + 5)
    assert answers.away and not answers.known
    target.look_after()
    assert target.send(rows, time.monotonic() + 5).taken == {rows[0].id}
    target.close()
