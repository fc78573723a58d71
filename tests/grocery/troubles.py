"""What happens to the grocery in a month: deploys, kills, freezes, outages."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import Error, connection
from servers import Server
from storm import Restart

from django_txtasks.models import Worker
from grocery import shop
from grocery.shop import Shop

DAYS = 30
LAST_PART = 0.3
"""Part of a day."""
FROZEN_SECONDS = 6
"""Twice the lease."""
PAUSED_SECONDS = 4
NIGHT = 0.5
"""Part of a day for which RabbitMQ is away."""
TERMINATE = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


def ask(question: Callable[[], Any]) -> Any:
    """Return the answer of the database; None while it is away."""
    try:
        return question()
    except Error:
        connection.close()
        return None


def works(supervisor: int) -> object:
    """Return True if a process below this one is at work."""
    pids = list(shop.descendants(supervisor))
    return ask(lambda: Worker.objects.filter(lost=False, pid__in=pids).exists())


class Troubles:
    """Faults, each in a thread of its own, because some take long.

    Attributes:
        times: number of each fault that has happened.
    """

    def __init__(
        self, of: Shop, postgres: Server, rabbitmq: Server, day: float, chance: random.Random
    ) -> None:
        self._shop, self._chance = of, chance
        self._restarts = {
            "restart PostgreSQL": Restart(postgres),
            "restart RabbitMQ": Restart(rabbitmq),
            "a night without RabbitMQ": Restart(rabbitmq, day * NIGHT),
        }
        self._release, self._broker = threading.Lock(), threading.Lock()
        self._threads: list[threading.Thread] = []
        self.times = Counter[str]()

    @property
    def per_month(self) -> dict[Callable[[], None], int]:
        """Return the number of each fault in 30 days."""
        return {
            self.deploy: 14,
            self.kill_a_child: 30,
            self.kill_a_supervisor: 4,
            self.kill_a_web_process: 6,
            self.freeze_a_process: 10,
            self.restart_postgresql: 3,
            self.restart_rabbitmq: 2,
            self.night_without_rabbitmq: 3,
            self.terminate_sessions: 4,
            self.pause_a_queue: 4,
        }

    def calendar(self, days: int, day: float) -> list[tuple[float, Callable[[], None]]]:
        """Return faults with their times in seconds, at least one of each, but none at the end."""
        found, seconds = [], days * day - LAST_PART * day
        for fault, number in self.per_month.items():
            count = max(1, round(number * days / DAYS))
            found += [
                ((place + self._chance.random()) / count * seconds, fault) for place in range(count)
            ]
        return sorted(found, key=lambda one: one[0])

    def begin(self, fault: Callable[[], None]) -> None:
        """Have it happen."""
        thread = threading.Thread(target=self._happen, args=[fault])
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Return when all have happened and each server is there."""
        for thread in self._threads:
            thread.join()

    def _happen(self, fault: Callable[[], None]) -> None:
        name = fault.__name__.replace("_", " ")
        try:
            fault()
        except Exception as error:
            self._shop.complaints.append(f"{name}: {error!r}")
            raise
        finally:
            connection.close()
        self.times[name] += 1

    # -- releases and processes ---------------------------------------------------------------------------

    def deploy(self) -> None:
        """Replace all processes by those of the next release.

        One web process is replaced before the workers, and one after them, as the page on upgrades asks.
        """
        with self._release:
            self._shop.release += 1
            self._shop.say(f"deploy release {self._shop.release}")
            self._shop.manage("txtasks_preflight")
            self._shop.manage("migrate", "--run-syncdb", "-v0")
            together = works if self._shop.release % 2 else None
            self._shop.replace("web")
            for role in shop.WORKERS:
                self._shop.replace(role, together)
            for role in ("cleaner", "more web"):
                self._shop.replace(role)
            self._shop.say(f"release {self._shop.release} is deployed")

    def kill_a_child(self) -> None:
        """Kill any process below a command that runs tasks."""
        if victim := self._any_child():
            self._shop.say(f"kill {victim}")
            self._signal(victim, signal.SIGKILL)

    def kill_a_supervisor(self) -> None:
        """Kill a command that runs tasks, and start it again."""
        role = self._chance.choice(list(shop.WORKERS))
        self._shop.say(f"kill the supervisor of {role}")
        self._shop.kill(role)

    def kill_a_web_process(self) -> None:
        """Kill a web process in the middle of whatever it does, and start another."""
        role = self._chance.choice(shop.WEB)
        self._shop.say(f"kill {role}")
        self._shop.kill(role)

    def freeze_a_process(self) -> None:
        """Stop any process below a command that runs tasks, and let it go on when it counts as lost."""
        if victim := self._any_child():
            self._shop.say(f"freeze {victim}")
            self._signal(victim, signal.SIGSTOP)
            time.sleep(FROZEN_SECONDS)
            self._signal(victim, signal.SIGCONT)

    def _any_child(self) -> int:
        """Return any process below the commands, most times one that runs tasks; 0 = there is none."""
        every = self._shop.offspring()
        workers = ask(lambda: set(Worker.objects.values_list("pid", flat=True))) or set()
        at_work = [one for one in every if one in workers]
        return self._chance.choice([*every, *at_work * 4] or [0])

    def _signal(self, pid: int, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    # -- servers ------------------------------------------------------------------------------------------

    def restart_postgresql(self) -> None:
        """Stop PostgreSQL, which ends all sessions, and start it again."""
        self._restart("restart PostgreSQL")

    def restart_rabbitmq(self) -> None:
        """Stop RabbitMQ, and start it again."""
        with self._broker:
            self._restart("restart RabbitMQ")

    def night_without_rabbitmq(self) -> None:
        """Stop RabbitMQ for half a day."""
        with self._broker:
            self._restart("a night without RabbitMQ")

    def _restart(self, name: str) -> None:
        self._shop.say(name)
        self._restarts[name](0.0)
        self._restarts[name].wait()
        self._shop.say(f"{name}: it is there again")

    def terminate_sessions(self) -> None:
        """End all sessions of the database."""
        while (found := ask(lambda: self._execute(TERMINATE))) is None:
            time.sleep(0.2)
        self._shop.say(f"terminate {len(found)} sessions")

    def pause_a_queue(self) -> None:
        """Pause a queue for some seconds."""
        self._shop.say("pause the queue mail")
        self._shop.manage("txtasks_queue", "pause", "mail", "--reason", "a test")
        time.sleep(PAUSED_SECONDS)
        self._shop.manage("txtasks_queue", "resume", "mail")

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()
