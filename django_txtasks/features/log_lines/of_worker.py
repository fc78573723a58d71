"""The lines that attempts log are kept until they end."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack

from django_txtasks.core.rows.attempts import Ended
from django_txtasks.core.rows.running import AttemptRun
from django_txtasks.core.working.parts import Part, WorkerContext
from django_txtasks.core.working.running.slot_pool import SlotPool
from django_txtasks.features.log_lines.handler import LastLines, kept
from django_txtasks.features.log_lines.options import LogLineConfig


class LogLines(Part):
    """Keeps the last lines of each attempt.

    Args:
        lines: number of lines of one attempt.
    """

    def __init__(self, lines: int) -> None:
        self._lines, self._installed = lines, ExitStack()
        self._handler: LastLines | None = None

    def started(self, slots: SlotPool) -> None:
        """Install the log handler."""
        self._handler = self._installed.enter_context(kept(self._lines))

    def begin(self, run: AttemptRun) -> None:
        """Keep the lines of an attempt from now on."""
        if self._handler is not None:
            self._handler.begin((run.attempt.task_id.int, run.attempt.number))

    def end(self, run: AttemptRun, ended: Ended | None) -> None:
        """Forget its lines."""
        if self._handler is not None:
            self._handler.end((run.attempt.task_id.int, run.attempt.number))

    def stopped(self) -> None:
        """Remove the log handler."""
        self._installed.close()


def parts(context: WorkerContext) -> Iterable[Part]:
    """Return the part for one worker, if the settings keep log lines."""
    lines = context.config.of(LogLineConfig).keep_log
    return [LogLines(lines)] if lines else []
