"""The loops of a process that cleans: ``runcleaner``, and the child that ``runworkers`` keeps."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence

from django.db import connections

from django_txtasks import hints, signals
from django_txtasks.conf import Config
from django_txtasks.core.cleaning import Cleaner
from django_txtasks.core.cleaning.renotifier import Notify
from django_txtasks.core.enqueueing.commit_hints import notify_now
from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.core.rows import cleaners
from django_txtasks.management.console import signals_in_background, stop_signals
from django_txtasks.processes import signs
from django_txtasks.processes.orders import obey
from django_txtasks.processes.probes import Liveness, LivenessOfAll
from django_txtasks.processes.shortage import news
from django_txtasks.processes.shutdown import Shutdown

STOP_TIMEOUT_SECONDS = 3.0
"""Longest time for a piece of work to end after the process was told to stop. A piece that is cut off by the end
of the process is rolled back.
"""
DEAF_SECONDS = 1.0
"""Longest time until a signal is noticed. Python's handlers run in the main thread, and a signal does not wake
it if it arrives as that thread begins to wait, or in another thread.
"""

Report = Callable[[str, "Counter[str]"], None]


def clean(config: Config, aliases: Sequence[str], pipe: int | None) -> None:
    """Clean in this process, until a signal, or an order through the pipe of its supervisor."""
    loops = Cleaning(config, aliases)
    if pipe is not None:
        livenesses = list(loops.livenesses.values())
        signs.vouch(LivenessOfAll(livenesses).state)
        signs.repeat(lambda: news(is_short=any(one.lacks_session for one in livenesses)))
        obey(pipe, loops.stop)
    with stop_signals(loops.stop.request), signals_in_background(own_process=True):
        loops.run()


def report_to_log(alias: str, counts: Counter[str]) -> None:
    """Log the counts of a turn, if it has done anything."""
    if any(counts.values()):
        # a schedule of every second would log a line each second, and its tasks log their own
        level = logging.DEBUG if set(+counts) == {"scheduled"} else None
        done = in_words(+counts)
        signals.cleaned.emit(level=level, database=alias, done=done, counts=dict(counts))


def in_words(counts: Counter[str]) -> str:
    """Return counts as one line for people."""
    return ", ".join(f"{name} {number}" for name, number in counts.items())


def notify_by(config: Config, alias: str, *, dry: bool = False) -> Notify | None:
    """Return the function that sends hints; None if hints are off.

    Args:
        dry: the function sends nothing.
    """
    if not hints.can_notify(config, connections[alias].vendor):
        return None
    return lambda tasks: None if dry else notify_now(config, alias, tasks)


class Cleaning:
    """Cleans each database in a thread of its own, so that a slow or missing one delays no other.

    An error in one thread ends the process; its supervisor restarts all of it.

    Args:
        report: called with a database and the counts of each turn.

    Attributes:
        stop: takes the requests to stop.
        livenesses: the signs of life of each thread. Its cleaner is ready if a pass has ended lately.
    """

    def __init__(
        self, config: Config, aliases: Sequence[str], report: Report = report_to_log
    ) -> None:
        self._config, self._report = config, report
        self._over = WakeUp()
        self._wake_ups = {alias: WakeUp() for alias in aliases}
        self._broken: list[BaseException] = []
        self.stop = Shutdown(0.0, self._wake)
        self.livenesses = {alias: _liveness(config) for alias in aliases}

    def run(self, turned: Callable[[], None] = lambda: None) -> None:
        """Clean until told to stop.

        Args:
            turned: called at least once a second.
        """
        threads = [
            threading.Thread(
                target=self._guard, args=[alias], name=f"txtasks-cleaner-{alias}", daemon=True
            )
            for alias in self._wake_ups
        ]
        for thread in threads:
            thread.start()
        while not (self.stop.asked or self._broken):
            turned()
            self._over.wait(DEAF_SECONDS)
        self.stop.request()
        end = time.monotonic() + STOP_TIMEOUT_SECONDS
        for thread in threads:  # a thread whose database does not answer is left behind
            thread.join(max(0.0, end - time.monotonic()))
        if self._broken:
            raise self._broken[0]

    def _wake(self) -> None:
        for wake_up in (self._over, *self._wake_ups.values()):
            wake_up.wake()

    def _guard(self, alias: str) -> None:
        try:
            self._clean(alias)
        except BaseException as error:
            self._broken.append(error)
            self._over.wake()

    def _clean(self, alias: str) -> None:
        """Clean one database until told to stop. A last will wakes the cleaner."""
        config, wake_up, wills = self._config, self._wake_ups[alias], None
        if config.broker_url is not None:
            from django_txtasks.hints.broker.will import LastWillConsumer  # imports pika

            wills = LastWillConsumer(config, alias, wake_up.wake)
            wills.start()
        cleaner = Cleaner(
            config,
            alias,
            notify=notify_by(config, alias),
            wills=wills,
            liveness=self.livenesses[alias],
        )

        def wait(seconds: float) -> bool:
            wake_up.wait(seconds)
            return self.stop.asked

        signals.cleaner_started.emit(
            database=alias,
            beat=config.heartbeat_interval.total_seconds(),
            interval=config.clean_interval.total_seconds(),
            broker=config.broker_address,
        )
        self.livenesses[alias].turned()  # from now on it may wait for the database
        signs.show_life()
        try:
            cleaner.run(wait, lambda counts: self._report(alias, counts))
        finally:
            connections.close_all()
        signals.cleaner_stopped.emit(database=alias)
        if wills is not None:
            wills.stop()


def _liveness(config: Config) -> Liveness:
    patience = cleaners.MAX_SILENT_INTERVALS * config.clean_interval + config.lease
    return Liveness(patience, unready="no pass has ended for three intervals; the log says why")
