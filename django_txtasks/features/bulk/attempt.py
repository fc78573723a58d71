"""An attempt of the task ``django_txtasks.bulk``: its progress, its checks for a cancel, and its durable place."""

from __future__ import annotations

import json
import time

from django.utils.translation import gettext as _

from django_txtasks.context import TaskContext
from django_txtasks.core.ground.wording import whole
from django_txtasks.features.steps import rows as steps
from django_txtasks.operations.moved import Moved
from django_txtasks.operations.rows import Place
from django_txtasks.operations.watcher import Watcher

CHECK_SECONDS = 1.0
"""Seconds after which it checks for a cancel between two statements, if no slice begins."""
STEP = "place"


class BulkAttempt(Watcher):
    """Watches the call for the attempt. If the worker dies, the next attempt goes on behind the last slice.

    Args:
        total: the number of chosen tasks; None = unknown.
    """

    def __init__(self, context: TaskContext, total: int | None) -> None:
        self._context, self._total = context, total
        self._checked = time.monotonic()
        kept = steps.take_place(context._alias, context._claim, STEP, _text(None, Moved()))
        place, moved = json.loads(kept)
        self.place = None if place is None else Place.from_json(place)
        self.moved = Moved.from_json(moved)

    def looked(self, rows: int) -> None:
        """Check and show the number of rows, if the last check was a while ago."""
        if time.monotonic() - self._checked >= CHECK_SECONDS:
            self._check(_("%(n)s tasks looked at") % {"n": whole(rows)})

    def may_go_on(self) -> None:
        """Check before each slice."""
        self._check("")

    def done(self, place: Place, moved: Moved) -> None:
        """Keep the place and the counts."""
        self.moved = moved
        steps.move_place(self._context._alias, self._context._claim, STEP, _text(place, moved))

    def _check(self, note: str) -> None:
        self._context.progress(self.moved.changed, self._total, note)
        self._context.check()
        self._checked = time.monotonic()


def _text(place: Place | None, moved: Moved) -> str:
    return json.dumps([None if place is None else place.as_json(), moved.as_json()])
