"""Many senders, many workers, and servers that go away: each committed task ran, exactly once.

``TXTASKS_TEST_LOAD=10000 pytest tests/test_load.py`` is the long form.
"""

import os
import time
from collections import Counter

import helpers
import pytest
import services
from probe.models import Run

pytestmark = pytest.mark.usefixtures("rows")

TASKS = int(os.environ.get("TXTASKS_TEST_LOAD", "800"))


def start(processes, call, env=None):
    """Start a sender: it calls ``load.<call>``."""
    return processes.start("shell", "-c", f"import load; load.{call}", env=env)


def keys_of(writer):
    """Return the keys by the answer to their COMMIT."""
    found = {"committed": set(), "refused": set(), "unknown": set()}
    for line in writer.read_text().splitlines():
        kind, key = line.split()
        found[kind].add(key)
    return found


def test_each_committed_task_ran_exactly_once(processes, broker, txtasks, tmp_path):
    """From 4 processes, by 2 workers of 4 threads; one transaction in ten is rolled back."""
    writer = tmp_path / "ledger"
    processes.start("runworkers", "--processes=2", "--threads=4", "--verbosity=0")
    calls = [f"send({str(writer)!r}, 's{number}', {TASKS // 4})" for number in range(4)]
    for sender in [start(processes, call) for call in calls]:
        assert sender.wait(600) == 0, processes.log_of(sender)
    keys = keys_of(writer)
    helpers.wait_until(lambda: helpers.counts()["finished"] >= len(keys["committed"]), 600)
    runs = Counter(Run.objects.values_list("key", flat=True))
    assert set(runs) == keys["committed"]
    assert set(runs.values()) == {1}
    assert (
        helpers.counts()["pending"] == helpers.counts()["claimed"] == helpers.counts()["dead"] == 0
    )


class Outage:
    """A PostgreSQL and a RabbitMQ of one's own, and what runs on them."""

    def __init__(self, postgres, rabbitmq, processes, tmp_path):
        self.postgres, self.rabbitmq, self.processes = postgres, rabbitmq, processes
        self.writer, self.enough = tmp_path / "ledger", tmp_path / "enough"
        self.env = {
            "TXTASKS_DATABASE_URL": postgres.url,
            "TXTASKS_BROKER_URL": rabbitmq.url,
            "TXTASKS_IN_TEST_DATABASE": "postgres",
            "TXTASKS_SETTINGS": '{"heartbeat_interval": 0.2, "lease": 3, "clean_interval": 1, "retry_base": 0.2}',
        }
        self.run("migrate", "--run-syncdb", "--verbosity=0")

    def run(self, *arguments):
        process = self.processes.start(*arguments, env=self.env)
        assert process.wait(helpers.PATIENCE) == 0, self.processes.log_of(process)

    def query(self, sql):
        import psycopg

        with psycopg.connect(self.postgres.url) as session:
            return session.execute(sql).fetchall()

    def send(self, prefix):
        call = f"send_until({str(self.enough)!r}, {str(self.writer)!r}, {prefix!r}, 0.02)"
        return start(self.processes, call, self.env)


@pytest.mark.once
def test_restarts_and_outages_under_load_lose_nothing_and_end_nobody(processes, tmp_path):
    with services.Postgres() as postgres, services.RabbitMQ() as rabbitmq:
        outage = Outage(postgres, rabbitmq, processes, tmp_path)
        workers = processes.start("runworkers", "--processes=2", "--threads=2", env=outage.env)
        cleaner = processes.start("runcleaner", env=outage.env)
        helpers.wait_until(lambda: len(outage.query("SELECT pid FROM txtasks_worker")) == 2)
        pids = outage.query("SELECT pid FROM txtasks_worker ORDER BY pid")
        sending = [outage.send("s0"), outage.send("s1")]
        for server, pause in ((postgres, 0), (rabbitmq, 0), (postgres, 0), (postgres, 9)):
            progress(outage)
            server.stop()
            helpers.wait_until(waited(pause))
            server.start()
        progress(outage)
        outage.enough.touch()
        for sender in sending:
            assert sender.wait(helpers.PATIENCE) == 0, processes.log_of(sender)
        keys = keys_of(outage.writer)
        live = "SELECT count(*) FROM txtasks_task"
        helpers.wait_until(
            lambda: outage.query(live) == [(0,)], 300, lambda: processes.log_of(workers)
        )
        runs = Counter(key for (key,) in outage.query("SELECT key FROM probe_run"))
        assert keys["committed"] <= set(runs) <= keys["committed"] | keys["unknown"]
        assert set(runs.values()) == {1}
        assert outage.query("SELECT pid FROM txtasks_worker ORDER BY pid") == pids
        assert workers.poll() is None
        assert cleaner.poll() is None
        assert "is lost" not in processes.log_of(cleaner)
        assert "is dead" not in processes.log_of(workers) + processes.log_of(cleaner)
        processes.end()


def progress(outage):
    """Wait until the load goes on: some more tasks have run."""
    before = outage.query("SELECT count(*) FROM probe_run")
    helpers.wait_until(lambda: outage.query("SELECT count(*) FROM probe_run") > before)


def waited(seconds):
    """Return True after this many seconds, because an outage has to last."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
