"""Fixtures: a clean real database, a broker of one's own queue prefix, and worker processes."""

from __future__ import annotations

import gc
import os
import signal
import sys
import uuid
from pathlib import Path

import helpers
import pytest
from django.db import connection, connections
from django.test.utils import setup_databases, teardown_databases

pytest.register_assert_rewrite("model")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the tests in the background makes them ignore Ctrl-C, and so all that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


STARTS_PROCESSES = {"chromium", "processes", "project", "shop", "rabbitmq_with_tls"}


def pytest_collection_modifyitems(config, items):
    """Begin with the slow tests, so that the workers of pytest-xdist end at the same time.

    Leave out what is about an accelerator or a guard that ``TXTASKS_TEST_WITHOUT`` leaves out.
    """
    from django_txtasks import assembly

    without = set(os.environ.get("TXTASKS_TEST_WITHOUT", "").split(","))
    known = {one.name for one in (*assembly.ACCELERATORS, *assembly.GUARDS)}
    about = {one: {mark.args[0] for mark in one.iter_markers("about")} for one in items}
    if unknown := set().union(*about.values()) - known - without - {"guarded"}:
        raise pytest.UsageError(f"no accelerator or guard has these names: {sorted(unknown)}")
    if left := [one for one, names in about.items() if names & without]:
        config.hook.pytest_deselected(items=left)
        items[:] = [one for one in items if one not in left]
    items.sort(key=lambda item: STARTS_PROCESSES.isdisjoint(item.fixturenames))  # stable


def pytest_collection_finish():
    """Keep Python's collector from the thousands of collected tests, which each full collection would visit."""
    gc.freeze()


@pytest.fixture
def rows(django_db_setup, django_db_blocker):
    """The test database, seen by threads and other processes, empty before and after."""
    from django_txtasks.features.notices.brake import brakes
    from django_txtasks.hints import sender

    brakes.clear()
    with django_db_blocker.unblock():
        helpers.empty_tables()
        yield
        sender.close_all()  # its session would keep the test database
        if not helpers.forget_session():
            connection.close()
        helpers.empty_tables()
        connections.close_all()


@pytest.fixture(autouse=True)
def no_celery_apps(request, monkeypatch):
    """Only tests of Celery have an app of Celery: Django's checks would find it in all tests of this process."""
    checks = sys.modules.get("django_txtasks.contrib.celery.checks")
    if checks is not None and "test_celery" not in request.module.__name__:
        monkeypatch.setattr(checks, "_apps", set())


@pytest.fixture(autouse=True)
def unhurried_counts(monkeypatch):
    """Give the counts of an overview any time: on a busy machine a statement takes longer than 0.25 s.

    The overview would then show "0+", as it should, where the test expects a number.
    """
    monkeypatch.setattr("django_txtasks.overview.counting.STATEMENT_SECONDS", 60.0)


@pytest.fixture
def txtasks(settings):
    """Change keys of TXTASKS: ``txtasks(lease=3)``."""

    def change(**keys):
        settings.TXTASKS = {**settings.TXTASKS, **keys}

    return change


@pytest.fixture
def quick(txtasks):
    """Retries without delay, and times that fit a test."""
    txtasks(retry_base=0.001, retry_ceiling=0.001, poll_interval=0.05)


@pytest.fixture
def broker(txtasks):
    """The real RabbitMQ, with queues of this test alone; gives the broker's URL."""
    from django_txtasks.hints.broker import publisher

    url, prefix = helpers.url_of("AMQP"), f"test-{uuid.uuid4().hex[:8]}"
    txtasks(broker_url=url, queue_prefix=prefix)
    yield url
    publisher.close_all()
    queues = ("default", "mail", "@async.default", "@async.mail", "@lost")
    names = [f"{name}{of}" for name in queues for of in ("", "@second")]
    helpers.delete_queues(url, [f"{prefix}.{name}" for name in names])


@pytest.fixture
def processes(rows, settings):
    """Start ``manage.py`` commands on the test's database; none outlives the test."""
    started = helpers.Processes(lambda: settings.TXTASKS)
    yield started
    started.end()
    started.directory.cleanup()


@pytest.fixture
def person(rows, client):
    """A staff user without permissions; tests add some."""
    from django.contrib.admin.models import LogEntry
    from django.contrib.auth.models import Permission, User

    user = User.objects.create_user("ann", is_staff=True)
    client.force_login(user)

    def may(*names):
        user.user_permissions.set(
            Permission.objects.filter(content_type__app_label="txtasks", codename__in=names)
        )

    yield may
    LogEntry.objects.all().delete()
    user.delete()


@pytest.fixture
def second_database(rows):
    """Another, empty database on the same server, as the alias ``second``; see ``helpers.second_alias``."""
    name = f"{connection.settings_dict['NAME']}_second"
    if connection.vendor != "sqlite":
        helpers.execute(f"CREATE DATABASE {name}")
    try:
        with helpers.second_alias(NAME=name) as env:
            yield env
    finally:
        if connection.vendor == "postgresql":
            helpers.execute(f"DROP DATABASE {name} WITH (FORCE)")
        elif connection.vendor == "mysql":
            helpers.execute(f"DROP DATABASE {name}")
        else:
            for end in ("", "-wal", "-shm"):
                Path(name + end).unlink(missing_ok=True)


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment,
    django_db_blocker,
    tmp_path_factory,
):
    """The test database, made for every run: most tests here take ``rows`` instead of a mark.

    Its name is used once, so that runs beside each other may share a server.
    """
    name = f"test_{uuid.uuid4().hex[:12]}"
    if connection.vendor == "sqlite":  # a file, which worker processes and threads share
        name = str(tmp_path_factory.mktemp("db") / f"{name}.sqlite3")
    connection.settings_dict["TEST"]["NAME"] = name
    with django_db_blocker.unblock():
        old = setup_databases(verbosity=0, interactive=False)
    yield
    with django_db_blocker.unblock():
        connections.close_all()  # a test may have put another wrapper in place of the one that ``old`` closes
        teardown_databases(old, verbosity=0)


@pytest.fixture
def told():
    """The facts of the events about schedules."""
    from django_txtasks import signals

    found = []

    def note(signal, **facts):
        found.append((signal, facts))

    events = [one for name, one in vars(signals).items() if name.startswith("schedule")]
    for one in events:
        one.connect(note)
    yield found
    for one in events:
        one.disconnect(note)


@pytest.fixture
def operated():
    """The facts of the signal of whole calls of operations."""
    from django_txtasks import signals

    found = []

    def note(**facts):
        found.append(facts)

    signals.tasks_operated.connect(note)
    yield found
    signals.tasks_operated.disconnect(note)


@pytest.fixture
def releases(monkeypatch):
    """Releases of a site's code: ``releases.deploy("@task\\ndef pack(order): …")``."""
    from releases import Releases

    from django_txtasks.core.declaring import registry
    from django_txtasks.features.events import api as events
    from django_txtasks.features.schedules import periodic as scheduling

    monkeypatch.setattr(registry, "_declarations", dict(registry._declarations))
    monkeypatch.setattr(registry, "_packages", set(registry._packages))
    monkeypatch.setattr(scheduling, "_declared", {})
    monkeypatch.setattr(events, "_subscribers", {})
    return Releases()


@pytest.fixture
def code(monkeypatch):
    """Nothing is declared; ``code(note, every=5)`` declares."""
    from probe import tasks

    from django_txtasks import periodic
    from django_txtasks.features.schedules import periodic as scheduling

    monkeypatch.setattr(scheduling, "_declared", {})

    def declare(*cron, function=None, **options):
        return periodic(*cron, **options)(function or tasks.note)

    return declare


@pytest.fixture
def target(txtasks):
    """The function ``relay.send`` as the target of queue "events"."""
    from probe import relay

    relay.reset()
    txtasks(
        queues=["default", "events"],
        hand_over={"events": "probe.relay.send"},
        poll_interval=0.05,
    )
    yield
    relay.reset()


@pytest.fixture
def quick_target(target, monkeypatch):
    """The fixture ``target``, with short pauses after a failure."""
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr("django_txtasks.features.hand_over.drain.REST_SECONDS", 0.01)
