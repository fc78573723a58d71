"""The process of ``rundrain``: a thread for each queue of each database, and its row among the workers.

Nothing depends on that row: it shows people who serves a queue.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence

from django.db import DatabaseError, InterfaceError, connections

from django_txtasks import hints, signals
from django_txtasks.conf import Config
from django_txtasks.core.declaring.registry import ASYNC_QUEUE
from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.core.rows import workers
from django_txtasks.core.rows.turn import Subscription
from django_txtasks.core.working.registration import release_of
from django_txtasks.database import sessions
from django_txtasks.features.figures.appending import WRITE_IDLE_SECONDS, append_cost
from django_txtasks.features.hand_over.drain import Drain
from django_txtasks.features.hand_over.targets import target_of
from django_txtasks.features.progress.notes import Progress, checked
from django_txtasks.features.progress.rows import write_progress
from django_txtasks.processes.probes import Liveness
from django_txtasks.processes.shutdown import Shutdown

DEAF_SECONDS = 1.0
"""Longest time until a signal is noticed; see ``management.cleaning``."""
LAST_PASS_SECONDS = 20.0
"""Longest time for the passes to end after the process was told to stop. A longer one is rolled back."""
LEAVE_SECONDS = 2.0


class DrainProcess:
    """Hands over the rows of these queues of these databases.

    Args:
        until_idle: see ``Drain``.

    Attributes:
        stop: takes the requests to stop.
        drains: one for each database and queue.

    Raises:
        ConfigError: a queue has no target that can be used.
    """

    def __init__(
        self,
        config: Config,
        aliases: Sequence[str],
        queues: Sequence[str],
        *,
        until_idle: bool = False,
    ) -> None:
        self._config, self._over = config, WakeUp()
        self.stop = Shutdown(LAST_PASS_SECONDS, self._wake)
        self.drains = [
            Drain(
                config,
                alias,
                queue,
                target_of(config, queue),
                stop=self.stop,
                until_idle=until_idle,
            )
            for alias in aliases
            for queue in queues
        ]
        self._presences = [Presence(config, alias, queues, self.drains) for alias in aliases]
        self._broken: list[BaseException] = []

    @property
    def livenesses(self) -> list[Liveness]:
        """The signs of life of each thread."""
        return [drain.liveness for drain in self.drains]

    @property
    def left(self) -> list[str]:
        """The queues whose due rows are left although the drain has ended by itself, each with the reason."""
        return [f"{one.queue} ({one.alias}): {one.left}" for one in self.drains if one.left]

    def run(self, turned: Callable[[], None] = lambda: None) -> None:
        """Hand over until told to stop, or until each drain has ended by itself.

        Args:
            turned: called at least once a second.

        Raises:
            BaseException: an error of a thread that is no error of the database or the target.
        """
        for presence in self._presences:
            presence.start()
        threads = [self._thread(drain) for drain in self.drains]
        for thread in threads:
            thread.start()
        while any(map(threading.Thread.is_alive, threads)) and not self.stop.now:
            if self._broken and not self.stop.asked:
                self.stop.request(why="a drain has failed")  # the others end their passes
            turned()
            self._over.wait(DEAF_SECONDS)
        for presence in self._presences:
            presence.end()
        if self._broken:
            raise self._broken[0]

    def _thread(self, drain: Drain) -> threading.Thread:
        name = f"txtasks-drain-{drain.alias}-{drain.queue}"
        return threading.Thread(target=self._guard, args=[drain], name=name, daemon=True)

    def _guard(self, drain: Drain) -> None:
        source = hints.source(
            self._config, _OfDrain(drain.alias, (drain.queue,), _AnyName()), drain.inbox.deliver
        )
        drain.inbox.source = source
        try:
            if source is not None:
                source.start()
            drain.run()
        except BaseException as error:
            self._broken.append(error)
        finally:
            if source is not None:
                source.stop()
            self._over.wake()

    def _wake(self) -> None:
        self._over.wake()
        for drain in self.drains:
            drain.inbox.wake()


class Presence:
    """The row of this process among the workers of a database, in a thread that beats."""

    def __init__(
        self, config: Config, alias: str, queues: Sequence[str], drains: Sequence[Drain]
    ) -> None:
        self._config, self._alias, self._queues = config, alias, sorted(queues)
        self._drains = [one for one in drains if one.alias == alias]
        self._worker: uuid.UUID | None = None
        self._told_away: dict[str, Progress] = {}
        self._cost_at = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="txtasks-drain-beats", daemon=True)

    def start(self) -> None:
        """Start to beat."""
        self._thread.start()

    def end(self) -> None:
        """Remove the row."""
        self._stopping.set()
        self._thread.join(LEAVE_SECONDS)

    def _run(self) -> None:
        pause = self._config.heartbeat_interval.total_seconds()
        has_ended = False
        while not has_ended:
            try:
                self._beat()
            except (DatabaseError, InterfaceError):  # the drains tell it
                sessions.close(connections[self._alias])
            has_ended = self._stopping.wait(pause)
        self._leave()

    def _beat(self) -> None:
        sessions.leave_pool(self._alias)
        hears = [drain.inbox.connected for drain in self._drains]
        listening = None if None in hears else all(hears)
        if self._worker is None or not self._has_beaten(self._worker, listening):
            self._worker = workers.register(
                self._alias,
                queues=self._queues,
                threads=0,
                listening=listening,
                lease=self._config.lease,
                task_names=[workers.DRAIN_MARK],
                release=release_of(self._config),
            )
            signals.drain_started.emit(
                worker=self._worker, queues=", ".join(self._queues), database=self._alias
            )
            self._told_away = {}
        self._tell_away(self._worker)
        self._tell_cost()

    def _tell_away(self, worker: uuid.UUID) -> None:
        """Write into the row which targets cannot be reached, after each change."""
        away = {
            f"{workers.AWAY}{one.queue}": checked(0, note=one.away)
            for one in self._drains
            if one.away
        }
        if away != self._told_away:
            write_progress(self._alias, worker, away)
            self._told_away = away

    def _tell_cost(self) -> None:
        now = time.monotonic()
        if self._config.stats and now >= self._cost_at:
            append_cost(self._alias)
            self._cost_at = now + WRITE_IDLE_SECONDS

    def _has_beaten(self, worker: uuid.UUID, listening: bool | None) -> bool:
        """Beat. Return False if the worker was declared lost."""
        return workers.beat(self._alias, worker, running=0, listening=listening) is not None

    def _leave(self) -> None:
        handed = sum(drain.handed for drain in self._drains)
        self._cost_at = 0.0
        try:
            if self._worker is not None:
                self._tell_cost()
                workers.unregister(self._alias, self._worker)
        except (DatabaseError, InterfaceError):
            pass  # a cleaner removes the row after the lease
        finally:
            connections.close_all()
        signals.drain_stopped.emit(worker=self._worker, database=self._alias, count=handed)


class _AnyName(tuple[str, ...]):
    """The names of all tasks: a drain hands over a row of any name."""

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        return True


class _OfDrain(Subscription):
    """The subscription of a drain to the hints of its queues: of sync and of async functions."""

    @property
    def hint_queues(self) -> list[str]:
        """The names of the queues whose hints it takes."""
        return [*self.queues, *(f"{ASYNC_QUEUE}{one}" for one in self.queues)]
