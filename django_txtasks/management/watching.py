"""Looks at the load again and again: ``txtasks_load --watch``, and the child that does it for a supervisor."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta

from django.db import DatabaseError, InterfaceError, connections

from django_txtasks.core.ground.wakeup import WakeUp
from django_txtasks.database.errors import text_of
from django_txtasks.insight.load import Look, look
from django_txtasks.management.console import signals_in_background, stop_signals
from django_txtasks.processes import signs
from django_txtasks.processes.orders import obey
from django_txtasks.processes.probes import Liveness
from django_txtasks.processes.shortage import news
from django_txtasks.processes.shutdown import Shutdown
from django_txtasks.signals.outage import Outage

LOOK_SECONDS = 2.0
"""Seconds between two looks of the child of a supervisor."""
STDOUT = 1


class Watch:
    """Looks at the load of one database until it is told to stop.

    Args:
        seconds: time between two looks.
        show: called with each look.
        failed: called if the database cannot be read. The next look tries again.
        pipe: the orders of a supervisor; None = it has no supervisor.

    Attributes:
        stop: takes the requests to stop.
    """

    def __init__(
        self,
        alias: str,
        seconds: float,
        show: Callable[[Look], None],
        failed: Callable[[Exception], None],
        pipe: int | None = None,
    ) -> None:
        self._alias, self._seconds, self._show, self._failed = alias, seconds, show, failed
        self._wake_up = WakeUp()
        self.stop = Shutdown(0.0, self._wake_up.wake)
        self._liveness = Liveness(timedelta(seconds=seconds))
        signs.vouch(self._liveness.state)
        signs.repeat(lambda: news(is_short=self._liveness.lacks_session))
        if pipe is not None:
            obey(pipe, self.stop)

    def run(self) -> None:
        """Look until told to stop."""
        while not self.stop.asked:
            self._liveness.turned()
            signs.show_life()
            try:
                self._show(look(self._alias))
                self._liveness.wrote()
            except (DatabaseError, InterfaceError) as error:
                connected = connections[self._alias].connection is not None
                self._liveness.ended(refused=False, connected=connected)
                self._failed(error)
                connections[self._alias].close()
            self._wake_up.wait(self._seconds)


def watch_for_supervisor(alias: str, pipe: int | None) -> None:
    """Look at the load in this process, and write each look as a line, which the supervisor reads."""
    outage = Outage(alias, lambda: "Watcher of the load")

    def show(found: Look) -> None:
        outage.succeeded()
        write_line(found)

    def failed(error: Exception) -> None:
        outage.failed(text_of(error), LOOK_SECONDS)

    watch = Watch(alias, LOOK_SECONDS, show, failed, pipe)
    with stop_signals(watch.stop.request), signals_in_background(own_process=True):
        watch.run()


def write_line(found: Look) -> None:
    """Write a look as a line of JSON to standard output, which a supervisor may read."""
    line = f"{found.as_json()}\n".encode()
    while line:
        line = line[os.write(STDOUT, line) :]
