"""Signs of life for the system that runs the process: a file that is touched, and two HTTP addresses."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from django_txtasks.core.ground.surroundings import SignsOfLife
from django_txtasks.processes.probe_server import Page, ProbeServer

TOUCH_SECONDS = 1.0
"""Seconds between two touches of the file."""
TURN_TIMEOUT = timedelta(seconds=180)
"""Time without a round of the loop after which a new process is needed. libpq takes up to 130 s to connect to an
absent database.
"""

REFUSAL_TIMEOUT = timedelta(minutes=10)
"""Time of refused writes after which a new process is needed, because it may have other credentials."""


ANSWER_SECONDS = 10.0
"""Seconds after a write for which the database counts as present. An idle worker writes every few seconds."""


class Liveness(SignsOfLife):
    """Signs of life of a loop: its last round, its last write, and since when the database refuses its writes.

    Args:
        lease: the loop is ready if it wrote within this time.
        file: a path to touch while the loop turns. It must be writable.
        unready: answer if the loop is not ready.

    Attributes:
        lacks_session: True if the database has given no session for the last turn.

    Raises:
        OSError: the file cannot be written.
    """

    def __init__(
        self,
        lease: timedelta,
        file: str | None = None,
        unready: str = "no beat was written for a lease",
    ) -> None:
        self.unready = unready
        self._lease, self._file = lease.total_seconds(), None if file is None else Path(file)
        self._turned, self._wrote = time.monotonic(), float("-inf")
        self._has_begun = self.lacks_session = False
        self._touched = float("-inf")
        self._refused_since: float | None = None
        if self._file is not None:
            self._file.touch()

    def turned(self) -> None:
        """Note a round of the loop, whatever the state of database and broker."""
        self._turned, self._has_begun = time.monotonic(), True
        if (
            self._file is not None
            and self._turned >= self._touched + TOUCH_SECONDS
            and self.is_live()
        ):
            self._touched = self._turned
            try:
                self._file.touch()
            except OSError:
                # A full disk must not end a worker; the file grows old, which is a sign, too.
                return

    def wrote(self) -> None:
        """Note a write. A worker has committed a turn with its beat; a cleaner has ended a pass."""
        self._wrote = time.monotonic()
        self._refused_since, self.lacks_session = None, False

    def ended(self, *, refused: bool, connected: bool = True) -> None:
        """Note the end of a turn.

        Args:
            refused: the database has answered, and refused the write. An absent database is waited for.
            connected: False if the database has given no session.
        """
        self.lacks_session = not connected
        if not refused:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = time.monotonic()

    def is_live(self) -> bool:
        """Return False if only a new process helps: the loop hangs, or has been refused for long."""
        since = self._refused_since
        limit = REFUSAL_TIMEOUT.total_seconds()
        return self.turns and (since is None or time.monotonic() < since + limit)

    @property
    def turns(self) -> bool:
        """True if the last round of the loop is not too long ago."""
        limit = max(self._lease * 2, TURN_TIMEOUT.total_seconds())
        return time.monotonic() < self._turned + limit

    def state(self) -> bool | None:
        """Return True if the loop turns, False if it hangs, None before its first round."""
        return self.turns if self._has_begun else None

    def is_ready(self) -> bool:
        """Return True if the database has a recent write of the loop. RabbitMQ does not matter."""
        return time.monotonic() < self._wrote + self._lease

    def is_answered(self) -> bool:
        """Return True if the database has taken a write in the last ``ANSWER_SECONDS``."""
        return time.monotonic() < self._wrote + ANSWER_SECONDS


class LivenessOfAll:
    """Several loops of one process. Each answer must hold for all of them.

    Args:
        file: a path that ``turned`` touches while all loops turn.
    """

    def __init__(self, livenesses: Sequence[Liveness], file: str | None = None) -> None:
        self._all, self._own = livenesses, Liveness(timedelta(0), file)
        self.unready = livenesses[0].unready

    def turned(self) -> None:
        """Note a round of the thread that watches the loops."""
        if self.is_live():
            self._own.turned()

    def is_live(self) -> bool:
        """Return True if all loops turn."""
        return all(liveness.is_live() for liveness in self._all)

    def state(self) -> bool | None:
        """Return False if a loop hangs, else None before the first round of each, else True."""
        states = [liveness.state() for liveness in self._all]
        return False if False in states else None if None in states else True

    def is_ready(self) -> bool:
        """Return True if all loops are ready."""
        return all(liveness.is_ready() for liveness in self._all)


class Probes(ProbeServer):
    """``/live`` and ``/ready`` over HTTP: 200 or 503.

    Args:
        liveness: gives the answers.
        port: 0 = a free port.
        address: empty = all interfaces. Kubernetes asks the pod's own address, where loopback does not answer.
        pages: further answers by path; see ``ProbeServer``.

    Raises:
        OSError: the address or the port cannot be used.
        RuntimeError: no thread can be started.
    """

    def __init__(
        self,
        liveness: Liveness | LivenessOfAll,
        port: int,
        address: str = "",
        pages: Mapping[str, Page] | None = None,
    ) -> None:
        self._answers = {
            "/live": (
                liveness.is_live,
                "the loop does not turn, or the database has refused its beat for long",
            ),
            "/ready": (liveness.is_ready, liveness.unready),
        }
        self._paths = [*self._answers, *(pages or {})]
        super().__init__(address, port, self._say, pages)

    def _say(self, path: str) -> tuple[int, str]:
        if path not in self._answers:
            return 404, f"ask {' or '.join(self._paths)}"
        holds, trouble = self._answers[path]
        return (200, "ok") if holds() else (503, trouble)
