"""A drain with Redis as Celery's broker: Redis takes messages, has no room for them, or says nothing."""

import os
import signal

import handing
import helpers
import pytest
from django.db import transaction

pytest.importorskip("celery", reason="celery is not installed")
redis = pytest.importorskip("redis", reason="redis is not installed")
import celery_site  # noqa: E402
from probe import on_celery  # noqa: E402
from servers import Redis  # noqa: E402

from django_txtasks.models import Task  # noqa: E402

pytestmark = pytest.mark.once
app, run = on_celery.app, on_celery.run


@pytest.fixture(scope="module")
def server():
    with Redis() as server:
        yield server


@pytest.fixture
def client(server, rows, txtasks):
    """This process as a site whose broker is Redis; gives a client of Redis."""
    txtasks(**celery_site.SETTINGS)
    celery_site.point(
        app,
        {"task_default_queue": "q", "broker_url": server.url, "broker_transport_options": {}},
    )
    with redis.Redis(port=server.port) as client:
        client.flushdb()
        yield client
    celery_site.let_go(app)


def send(*keys):
    with transaction.atomic():
        for key in keys:
            run.delay(key)


def test_redis_takes_the_messages(client):
    send("a", "b", "c")
    assert handing.hand_over("celery").handed == client.llen("q") == 3


def test_a_redis_without_room_makes_no_row_dead(client):
    client.config_set("maxmemory", "1")
    try:
        send("a")
        assert handing.hand_over("celery").handed == 0
    finally:
        client.config_set("maxmemory", "0")
    left = Task.objects.get()
    assert left.status == "pending" and "maxmemory" in left.errors[-1]["message"]
    Task.objects.update(run_after=left.enqueued_at)
    assert handing.hand_over("celery").handed == 1


def test_a_silent_redis_is_away_and_holds_no_drain(client, server, monkeypatch):
    monkeypatch.setattr("django_txtasks.contrib.celery.target.CONFIRM_SECONDS", 0.5)
    (pid,) = server.home.pids
    send("a")
    with handing.handing_over("celery") as drain:
        helpers.wait_until(lambda: drain.handed == 1)
        os.kill(pid, signal.SIGSTOP)
        try:
            send("b")
            helpers.wait_until(lambda: drain._away_count)
            assert "Timeout" in drain._unheard
            assert Task.objects.get().status == "pending"
        finally:
            os.kill(pid, signal.SIGCONT)
        helpers.wait_until(lambda: not Task.objects.exists())
