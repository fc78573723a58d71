"""Real Celery workers for tests, and this process as the site that sends to them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
import zlib
from contextlib import contextmanager
from pathlib import Path

import helpers
import pika
from django.db import connection

HERE = Path(__file__).parent
READY = " ready."


class CelerySite:
    """One broker, one queue and one result backend, for the app ``probe.on_celery``.

    Args:
        broker: "rabbitmq" or "filesystem".
        directory: for the results, the log of the worker, and the messages of the broker "filesystem".
    """

    def __init__(self, broker, directory):
        self.broker, self.directory = broker, directory
        self.queue = f"test-celery-{uuid.uuid4().hex[:8]}"
        for name in ("results", "messages", "processed"):
            (directory / name).mkdir()
        self.configuration = {
            "task_default_queue": self.queue,
            "result_backend": f"file://{directory}/results",
            "broker_connection_retry_on_startup": True,
            "worker_enable_remote_control": False,  # its queue is one for each machine
        }
        if broker == "rabbitmq":
            self.configuration["broker_url"] = helpers.url_of("AMQP").replace("amqp:", "pyamqp:")
        else:
            self.configuration["broker_url"] = "filesystem://"
            self.configuration["broker_transport_options"] = {
                "data_folder_in": f"{directory}/messages",
                "data_folder_out": f"{directory}/messages",
                "control_folder": f"{directory}/processed",
                "polling_interval": 0.05,
            }
        self.worker = None

    def start_worker(self, app="probe.on_celery", *, cwd=None, env=None):
        """Start ``celery worker`` on the test's database, or in a project, and wait until it takes tasks."""
        log = self.directory / "worker.log"
        with log.open("ab") as output:
            self.worker = subprocess.Popen(
                [
                    sys.executable, "-m", "celery", "-A", app, "worker", "--pool=threads",
                    "--concurrency=4", "--loglevel=INFO", "--without-gossip", "--without-mingle",
                    "--without-heartbeat", f"--hostname={self.queue}@%h",
                ],
                env=env or self.environment(), cwd=cwd, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        helpers.wait_until(
            lambda: READY in log.read_text() or self.worker.poll() is not None,
            what=log.read_text,
        )
        assert self.worker.poll() is None, log.read_text()

    def environment(self):
        """Return the environment of a process that belongs to the site."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "settings_for_tests",
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "testproject")]),
            "TXTASKS_IN_TEST_DATABASE": str(connection.settings_dict["NAME"]),
            "TXTASKS_SETTINGS": json.dumps(SETTINGS),
            "TXTASKS_TEST_CELERY": json.dumps(self.configuration),
        }

    def end(self):
        """End the worker, and remove the queues."""
        if self.worker is not None:
            self.worker.kill()
            self.worker.wait()
            print((self.directory / "worker.log").read_text())
        if self.broker == "rabbitmq":
            helpers.delete_queues(helpers.url_of("AMQP"), [self.queue])


@contextmanager
def here(broker, directory):
    """This process as a site, without a worker, and with a queue or a directory of its own as broker."""
    from probe.on_celery import app

    found = CelerySite(broker, directory)
    point(app, found.configuration)
    try:
        yield found
    finally:
        point(app, found.configuration)  # which a test may have changed
        found.end()


SETTINGS = {
    "queues": ["default", "mail", "celery"],
    "hand_over": {"celery": "probe.on_celery.app"},
}


def point(app, configuration):
    """Give an app of this process another broker and result backend."""
    let_go(app)
    for name in ("amqp", "control", "events", "_template"):
        app.__dict__.pop(name, None)
    app._backend_cache, app._local = None, threading.local()
    app.conf.update(configuration)


def let_go(app):
    """Let go of an app's connections. (``app.close()`` would hide it from ``shared_task``, too.)"""
    app._pool = None


def messages_in(queue):
    """Return how many messages wait in a queue of RabbitMQ."""
    with pika.BlockingConnection(pika.URLParameters(helpers.url_of("AMQP"))) as amqp:
        return amqp.channel().queue_declare(queue, durable=True, passive=True).method.message_count


def uncompressed(body):
    """Return a body that was compressed with gzip."""
    return zlib.decompress(body)


def declare(queue):
    """Declare a queue as Celery does."""
    with pika.BlockingConnection(pika.URLParameters(helpers.url_of("AMQP"))) as amqp:
        amqp.channel().queue_declare(queue, durable=True)
