"""A look for all tasks of a worker that were asked to stop. A list of 2,500 ids would take four times as long."""

from __future__ import annotations

import uuid

from django_txtasks.lifecycle.attempts import Attempt
from django_txtasks.results.cancelling import Key
from django_txtasks.stacks.answers import stops_and_questions
from django_txtasks.worker.looks.cancelling import CancelLook


class CancelLookByWorker(CancelLook):
    """Asks for all claims of the worker, once a second while one of them runs for longer than that."""

    def _asked(self, worker: uuid.UUID, long: list[Attempt]) -> tuple[set[Key], set[Key], set[Key]]:
        asked, questions = stops_and_questions(self._alias, worker, None)
        return asked, asked, questions
