"""Log texts for a person at 3 a.m.: the finding, the place and the remedy, without secrets."""

import gc
import logging
import re
import socket
import weakref
from collections import Counter
from ssl import SSLError
from urllib.parse import urlsplit

import helpers
import pika
import pytest
from django.core.management import call_command
from django.test import override_settings
from django.utils.log import AdminEmailHandler
from pika.exceptions import (
    AMQPConnectionError,
    ConnectionClosedByBroker,
    IncompatibleProtocolError,
    StreamLostError,
)
from probe import framework, tasks

from django_txtasks import signals
from django_txtasks.conf import Config, get_config, parse
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.worker import Exit, Worker
from django_txtasks.exceptions import ConfigError
from django_txtasks.hints.broker import failures, quiet
from django_txtasks.hints.broker.consumer import HintConsumer
from django_txtasks.hints.broker.link import Link
from django_txtasks.management.commands import runcleaner
from django_txtasks.processes.shutdown import Shutdown
from django_txtasks.signals import tracebacks

pytestmark = pytest.mark.once


LOG = logging.getLogger("django_txtasks")
DEAD = {"task_id": "t", "task": "x", "queue": "default", "attempt": 1}
"""Facts of every ``task_died``: receivers of this package need the queue, too."""


@pytest.fixture
def log(caplog):
    """All records of this package, from DEBUG up."""
    caplog.set_level(logging.DEBUG, logger="django_txtasks")
    return caplog


def run():
    call_command("runworkers", batch=True)


# ---- what a task raised


def test_each_failed_attempt_has_its_traceback_in_the_log(rows, quick, log):
    handle = tasks.fail.enqueue("out of paper")
    while helpers.row(handle.id).status == "pending":  # a batch may end before a retry is due
        run()
    records = [one for one in log.records if one.exc_info]
    assert [one.levelname for one in records] == ["WARNING", "WARNING", "ERROR"]
    for record in records:
        kind, error, tb = record.exc_info
        assert kind is ValueError and str(error) == "out of paper"
        assert tb.tb_frame.f_code.co_name == "fail"  # the first frame is the task's
        assert tb.tb_next is None
    assert "raise ValueError(text)" in log.text


def test_the_stored_traceback_begins_in_the_task(rows, quick):
    handle = tasks.fail.enqueue()
    run()
    text = helpers.row(handle.id).errors[0]["traceback"]
    assert text.splitlines()[0] == "Traceback (most recent call last):"
    assert text.splitlines()[1].endswith("in fail") and "django_txtasks" not in text


@pytest.mark.parametrize(
    "task",
    [tasks.atomic_fail, tasks.fail_async, framework.fail_once_for_all, framework.fail_async],
    ids=["atomic", "async", "django", "django async"],
)
def test_no_traceback_shows_what_runs_tasks(rows, quick, log, task):
    task.enqueue()
    run()
    logged = [one.exc_info[2] for one in log.records if one.exc_info and one.name == LOG.name]
    assert logged
    for tb in logged:
        assert tb.tb_frame.f_globals["__name__"].startswith("probe.")


def test_a_task_that_asks_for_another_attempt_is_no_error(rows, quick, log):
    tasks.retry_once.enqueue(0)
    run()
    assert any("Retry: later" in one.getMessage() for one in log.records)
    assert not any(one.exc_info for one in log.records)


def test_an_error_that_waits_for_its_log_line_holds_no_variable_of_its_task():
    class Big:
        """A value of a local variable of a task."""

    alive = weakref.WeakSet()

    def hold(function):
        big = Big()
        alive.add(big)
        function()

    def fail():
        raise ValueError("inner")

    def task():
        try:
            hold(fail)
        except ValueError as error:
            big = Big()
            alive.add(big)
            raise LookupError("outer") from error

    try:
        task()
    except LookupError as caught:
        error = caught
    assert len(alive) == 2
    tracebacks.forget_locals(error)
    gc.collect()
    assert len(alive) == 0
    text = tracebacks.text_of(error)
    assert 'raise ValueError("inner")' in text and 'raise LookupError("outer")' in text


def test_a_generator_that_has_seen_an_error_goes_on():
    """Its frame is in the error's history, and not over."""
    seen = []

    def watch():
        try:
            raise ValueError
        except ValueError as error:
            seen.append(error)
        yield 1
        yield 2

    values = watch()
    next(values)
    try:
        raise LookupError from seen[0]
    except LookupError as error:
        tracebacks.forget_locals(error)
    assert next(values) == 2


@override_settings(ADMINS=["a@example.com"])
def test_a_mail_to_admins_shows_the_traceback(rows, quick, mailoutbox):
    handler = AdminEmailHandler(include_html=True)
    handler.setLevel(logging.ERROR)
    LOG.addHandler(handler)
    try:
        tasks.reject.enqueue()
        run()
    finally:
        LOG.removeHandler(handler)
    [mail] = mailoutbox
    assert "is dead after attempt 1" in mail.subject and "in reject" in mail.body


def test_a_crash_has_no_traceback(log):
    signals.task_died.emit(**DEAD, error="worker lost in mid-task")
    assert [one.exc_info for one in log.records] == [None]


def test_the_line_of_a_dead_task_ends_with_its_error(log):
    """Errors have full stops of their own, or none."""
    signals.task_died.emit(**DEAD, error="It broke.")
    assert log.messages[0].endswith("in the admin: It broke.")


def test_text_of_an_error_forges_no_log_line_and_any_file_takes_it(log):
    error = ValueError("x\n2026-01-01 00:00:00 ERROR 1 forged\r\x1b[31mred \ud800\x00")
    signals.task_died.emit(**DEAD, error="x", exception=error)
    [record] = log.records
    lines = logging.Formatter("%(message)s").format(record).encode().decode().splitlines()
    assert lines[1:] == [
        "    ValueError: x",
        "    2026-01-01 00:00:00 ERROR 1 forged",
        "    \\x1b[31mred \\ud800\\x00",
    ]


# ---- the broker's password


@pytest.mark.parametrize(
    "url",
    [
        "amqp://shop:hunter2/x@rabbit:5672/",
        "amqp://shop:77/hunter2@rabbit:5672/",  # a port, and a path with the rest of the password
        "amqp://shop:77?hunter2@rabbit/",
        "amqp://shop:hunter2#x@rabbit:5672/",
        "amqp://shop:77#hunter2",
        "amqp://shop:x@one,two:hunter2/",
        "amqp://shop:hunter2@one,,two/",
        "amqp://shop:hunter2[x@rabbit:5672/",
        "amqp://shop:hunter2]x@rabbit:5672/",
        "amqp://shop:x@rabbit:hunter2/",
        "hunter2",
    ],
)
def test_a_broker_url_that_cannot_be_read_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match="must look like amqp://user:password@host") as caught:
        parse({"broker_url": url})
    error = caught.value
    assert "hunter2" not in str(error) and error.__context__ is None
    assert "hunter2" not in repr(Config(broker_url=url))
    assert Config(broker_url=url).broker_address == "amqp://..."


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://shop:hunter2%2F@rabbit/a%2Fb?heartbeat=5", "amqp://rabbit:5672/a%2Fb"),
        ("amqps://shop:hunter2@[::1]/", "amqps://::1:5671/"),
        ("amqp://shop:hunter2@x@rabbit:1/", "amqp://rabbit:1/"),
        ("amqp://", "amqp://localhost:5672"),
        ("amqp://shop:hunter2@one,two:1/v", "amqp://one:5672,two:1/v"),
        ("amqps://shop:a,hunter2@one,two/", "amqps://one:5671,two:5671/"),
        ("", "none"),
    ],
)
def test_the_address_of_the_broker_has_neither_user_nor_password(url, address):
    assert parse({"broker_url": url}).broker_address == address


# ---- no broker, said by whoever cannot reach it


@pytest.fixture
def link(log):
    """A connection as a worker has it, to an URL."""
    failures.news.forget_all()
    return lambda url: Link(Config(broker_url=url), "Worker")


def fail_to_open(link):
    try:
        with quiet.ours():
            link.open().close()
    except Exception as error:
        return link.failed(error)


def server(**parts):
    url = urlsplit(helpers.url_of("AMQP"))
    parts = {"user": url.username, "password": url.password, "port": url.port, "path": "/", **parts}
    return "amqp://{user}:{password}@127.0.0.1:{port}{path}".format(**parts)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"password": "hunter2"}, "it refuses the user name or the password. Check both in"),
        (
            {"path": "/not-there"},
            "its virtual host is not there, or this user may not use it. Check",
        ),
        ({"port": 1}, "nothing listens there. Check that RabbitMQ runs, and host and port in"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_broker_url_is_one_line_in_words(link, log, parts, says):
    fail_to_open(link(server(**parts)))
    [record] = [one for one in log.records if one.levelno >= logging.WARNING]
    assert f": {says}" in record.getMessage() and "TXTASKS['broker_url']" in record.getMessage()
    assert "hunter2" not in log.text and "Traceback" not in log.text


def test_a_server_that_takes_connections_and_never_answers_is_told_in_words(link, log):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fail_to_open(link(server(port=silent.getsockname()[1])))
    [record] = [one for one in log.records if one.levelno >= logging.WARNING]
    assert ": it does not answer. Check host and port in" in record.getMessage()
    assert "Timeout" not in log.text and "AddressFamily" not in log.text


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(-2, "unknown"), "no such host name is known. Check the host in"),
        (TimeoutError("timed out"), "it does not answer. Check host and port in"),
        (IncompatibleProtocolError("x"), "what answers there does not speak AMQP"),
        (SSLError(1, "CERTIFICATE_VERIFY_FAILED"), "TLS failed. Check certificates"),
        (SSLError(1, "CERTIFICATE_VERIFY_FAILED"), "CERTIFICATE_VERIFY_FAILED"),
        (
            ConnectionClosedByBroker(320, "CONNECTION_FORCED"),
            "it has closed the connection (320 CONNECTION_FORCED)",
        ),
        (StreamLostError("reset by peer"), "the connection was cut (reset by peer)"),
        (ValueError("cannot read hunter2/x"), "ValueError: cannot read ***"),
        (ValueError("cannot read hunter2%2Fx"), "ValueError: cannot read ***"),
    ],
    ids=str,
)
def test_each_failure_of_the_broker_has_words(error, says):
    config = Config(broker_url="amqp://shop:hunter2%2Fx@rabbit/")
    text = failures.in_words(error, config)
    assert says in text and "hunter2" not in text


def test_it_is_never_tried_again_at_once_what_was_never_connected(link):
    nowhere = link(server(port=1))
    pauses = [fail_to_open(nowhere) for _ in range(3)]
    assert pauses[0] >= 0.5 and pauses[2] >= 2


def test_the_same_failure_of_all_connections_is_one_warning(link, log):
    """And the end of it is one line, too."""
    url = server(port=1)
    for one in [link(url), link(url), link(url)]:
        for _ in range(3):
            fail_to_open(one)
    levels = [one.levelname for one in log.records]
    assert sorted(levels) == ["DEBUG"] * 8 + ["WARNING"]


def test_a_first_connection_is_no_news_and_the_end_of_an_outage_is(link, log):
    worker = link(server())
    worker.ready(None)
    worker._ready_at = -10.0  # long ago
    assert worker.failed(ConnectionResetError("reset by peer")) == 0
    worker.ready(None)
    assert [(one.levelname, one.getMessage().split(":")[1][:20]) for one in log.records] == [
        ("DEBUG", " connected to Rabbit"),
        ("WARNING", " no connection to Ra"),
        ("INFO", " connected to Rabbit"),
    ]
    assert "ConnectionResetError: reset by peer. Next try now" in log.text


def test_a_worker_says_where_its_broker_is_and_nothing_that_is_not_so(rows, broker, log):
    tasks.note.enqueue()
    run()
    shown = [one.getMessage() for one in log.records if one.levelno >= logging.INFO]
    assert (
        "broker in the settings: amqp://127.0.0.1:" in shown[0] and "not connected" not in log.text
    )
    assert not any("connected to RabbitMQ" in line for line in shown)


def test_the_logger_of_pika_is_left_to_the_project(log, caplog):
    """What it logs about a connection of ours is not shown, and about any other it is."""
    failures.news.forget_all()
    caplog.set_level(logging.DEBUG, logger="root")
    assert logging.getLogger("pika").level == logging.NOTSET and logging.getLogger("pika").propagate

    def said_by_pika():
        return [one for one in caplog.records if one.name.startswith("pika")]

    consumer = HintConsumer(Config(broker_url=server(port=1)), "default", ["default"], print)
    consumer.start()
    helpers.wait_until(lambda: "nothing listens there" in caplog.text)
    consumer.stop()
    assert not said_by_pika()
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(server(port=1)))
    assert said_by_pika()


# ---- workers and cleaners


def test_a_worker_that_never_reached_its_database_says_so(rows, quick, log, monkeypatch):
    """Also in the line of its end: somebody may stop it while it waits for its database, or its broker."""
    inbox = HintInbox()
    stop = Shutdown(1, inbox.wake)
    stop.request()
    nobody = helpers.subscription(names=["x"])
    assert Worker(get_config(), nobody, threads=1, inbox=inbox, stop=stop).run() is Exit.DONE
    assert "Worker (not registered yet) stopped. Tasks started: 0." in log.messages
    assert not any("None" in one for one in log.messages)


@pytest.mark.once
@pytest.mark.parametrize(
    ("counts", "level"),
    [
        ({"scheduled": 1, "pruned": 0}, logging.DEBUG),
        ({"scheduled": 1, "pruned": 2}, logging.INFO),
        ({"pruned": 2}, logging.INFO),
    ],
)
def test_ticks_alone_write_no_line_at_info(counts, level, caplog):
    """A schedule of every second would write 86,400 lines a day."""
    caplog.set_level(logging.DEBUG, "django_txtasks")
    cleaner = runcleaner.Command()
    cleaner.as_json = False
    cleaner._tell("default", Counter(counts))
    assert [record.levelno for record in caplog.records] == [level]


def test_a_cleaner_logs_its_first_and_its_last_line_and_what_it_does(rows, processes):
    # without checks: on SQLite they warn of the probe's atomic tasks
    cleaner = processes.start("runcleaner", "--interval=0.2", "--skip-checks")
    helpers.wait_until(lambda: "Cleaner of 'default' started" in processes.log_of(cleaner))
    cleaner.terminate()
    assert cleaner.wait(30) == 0
    first, last = processes.log_of(cleaner).splitlines()
    assert re.fullmatch(
        r"[\d-]+ [\d:,]+ INFO \d+ Cleaner of 'default' started: looks at workers every 1.0 s, "
        r"at tasks every 0.2 s; broker in the settings: none.",
        first,
    )
    assert re.fullmatch(r"[\d-]+ [\d:,]+ INFO \d+ Cleaner of 'default' stopped.", last)
