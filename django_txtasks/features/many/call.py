"""One call of a function with many tasks: a slot makes it, and the loop collects the outcome of each task."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextvars import Context, copy_context
from functools import partial
from typing import Any, NamedTuple

from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.seams import AROUND
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended
from django_txtasks.core.rows.running import AttemptRun
from django_txtasks.core.working.parts import DatabaseCall
from django_txtasks.core.working.running.attempt_context import context_of_attempt
from django_txtasks.core.working.running.limits import TimeLimit
from django_txtasks.core.working.running.runner import Runner, arguments_of, make_call
from django_txtasks.core.working.running.slot_threads import CallOf
from django_txtasks.core.working.running.verdicts import buried, details_of, failed
from django_txtasks.exceptions import TimedOut, meant
from django_txtasks.features.many.items import (
    Item,
    Mark,
    end,
    open_transactions,
    outcome_of,
    refuse_value,
    set_outcome,
    tell_late_error,
)
from django_txtasks.signals import attempt_starting, tracebacks
from django_txtasks.signals.logs import current


class AttemptEnd(NamedTuple):
    """The end of one attempt of a call, with its time by ``time.monotonic()`` and its error."""

    ended: Ended
    at: float
    error: BaseException | None = None


class _Begun(NamedTuple):
    """One attempt of a call. The parts of the worker have a context of their own for each."""

    run: AttemptRun
    context: Context


def calls_of(runner: Runner) -> CallOf:
    """Return what makes a call of several attempts."""
    return partial(ManyCall, runner)


class ManyCall:
    """A call with several attempts, each of which ends on its own, before or after the others.

    Args:
        limit: the time limit of the call.

    Attributes:
        left: the items that the loop has not collected. Only the loop uses it.
    """

    def __init__(self, runner: Runner, attempts: Sequence[Attempt], limit: TimeLimit) -> None:
        self._runner, self.limit = runner, limit
        self._first, around = attempts[0], open_transactions()
        item = partial(Item, None, alias=runner.alias, requests=runner.requests, around=around)
        self._items: list[Item[Any]] = [
            item(one, ended=partial(self._outcome, one)) for one in attempts
        ]
        self._begun: dict[int, _Begun] = {}
        self.left = self._items
        self._since = time.monotonic()

    # -- the loop ---------------------------------------------------------------------------------

    @property
    def attempts_left(self) -> list[Attempt]:
        """The attempts that the loop has not collected."""
        return [item._attempt for item in self.left]

    def collect(self) -> list[tuple[Ended, float]]:
        """Return the outcomes since the last call, each with an equal part of the time since the one before."""
        outcomes: list[AttemptEnd | None] = [outcome_of(item) for item in self.left]
        new = [one for one in outcomes if one is not None]
        if not new:
            return []
        pairs = zip(self.left, outcomes, strict=True)
        self.left = [item for item, outcome in pairs if outcome is None]
        until = max(one.at for one in new)
        seconds = max(0.0, until - self._since) / len(new)
        self._since = until
        return [(one.ended, seconds) for one in new]

    # -- the slot ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Call the function. Never raises: each error is in the outcomes, and each item has one at the end."""
        try:
            context, forks = context_of_attempt(), AROUND.whole.forks_of_process()
            context.run(self._run)
            if AROUND.whole.forks_of_process() != forks:  # as in ``Runner.run``
                AROUND.whole.end_child()
        except BaseException as error:
            # Otherwise the thread would end, and the rows stay claimed for ever.
            self._bury(error)
        # The items refer to this call: otherwise their values would stay until the garbage collector runs.
        self._items = []

    def _run(self) -> None:
        current.set({**self._first.facts, "tasks": len(self._items)})
        mark = Mark()
        try:
            self._call()
        except BaseException as error:
            if type(error) is TimedOut:  # it was raised from outside, so it has no text
                error = self.limit.error().with_traceback(error.__traceback__)
            mark = Mark(error=error)
        self._end(mark)
        self._clean_up(mark.error)

    def _call(self) -> None:
        self._runner.parts.starting([item._attempt for item in self._items])
        AROUND.whole.before_attempt(self._runner.note_session_of)
        items = [item for item in self._items if self._begins(item)]
        if attempt_starting.receivers:
            AROUND.whole.note_states()
        if not items:
            return
        AROUND.whole.have_session(self._runner.alias, wanted=False)
        function = registry.get(self._first.task_name).function
        with self.limit:
            value = AROUND.whole.call_in_this_process(partial(function, items))
        refuse_value(self._first.task_name, value)

    def _begins(self, item: Item[Any]) -> bool:
        """Give an item its value. Return False if its row does not fit: then it has an outcome."""
        runner = self._runner
        run, context = runner.run_of(item._attempt), copy_context()
        self._begun[item.task_id.int] = _Begun(run, context)
        try:
            context.run(runner.parts.begin, run)
            attempt = run.attempt
            declaration = registry.get(attempt.task_name)
            if attempt_starting.receivers:
                attempt_starting.send(sender=None, **attempt.facts)
            args, kwargs = arguments_of(declaration, run, runner.requests)
            item.value = _value(*args, **kwargs)
        except BaseException as error:
            end(item, Mark(error=error))
            return False
        return True

    def _outcome(self, attempt: Attempt, mark: Mark) -> AttemptEnd:
        """Return the outcome for the mark of an attempt."""
        begun = self._begun.get(attempt.task_id.int)
        if begun is not None:
            attempt = begun.run.attempt
        ended = Ended(attempt=attempt, arrow=Arrow.FINISH, result=mark.result)
        error = None if mark.error is None else meant(mark.error)
        if error is not None:
            ended = failed(attempt, error, self._runner.config)
        if ended.error and "log" not in ended.error:
            ended = ended._replace(error={**ended.error, **details_of(self._first)})
        context = None if begun is None else begun.context
        return AttemptEnd(ended._replace(context=context), time.monotonic(), error)

    def _end(self, mark: Mark) -> None:
        """Give the items that have no outcome this one; log an error that is no item's."""
        left = [item for item in self._items if outcome_of(item) is None]
        if mark.error is not None and not left:
            tell_late_error(self._first.task_name, len(self._items), mark.error)
        for item in left:
            end(item, mark)

    def _bury(self, error: BaseException) -> None:
        for item in self._items:
            outcome = AttemptEnd(buried(item._attempt, error), time.monotonic())
            set_outcome(item, outcome)
        tracebacks.forget_locals(error)

    def _clean_up(self, error: BaseException | None) -> None:
        """Leave nothing of the call in this thread, as after an attempt.

        Args:
            error: raised by the function.
        """
        outcomes: list[AttemptEnd] = [outcome_of(item) for item in self._items]
        calls = [call for one in outcomes for call in self._end_parts(one)]
        ends = [one.ended for one in outcomes]
        errors = _errors_of(ends, error)
        # A Retry or Snooze is no failure.
        AROUND.whole.after_attempt(
            failed=any(one.error and one.exception is not None for one in ends), errors=errors
        )
        # Not before the function is over: a generator of it that has seen an error may continue.
        for one in errors:
            tracebacks.forget_locals(one)
        for call in calls:
            make_call(call)

    def _end_parts(self, one: AttemptEnd) -> list[DatabaseCall]:
        """Let the parts of the worker end an attempt. Return the calls that they want to make."""
        parts, attempt = self._runner.parts, one.ended.attempt
        begun = self._begun.get(attempt.task_id.int)
        run, context = begun or (self._runner.run_of(attempt), copy_context())
        calls = [] if one.error is None else context.run(parts.raised, run, one.error)
        context.run(parts.end, run, one.ended)
        return calls


def _errors_of(ends: Sequence[Ended], error: BaseException | None) -> list[BaseException]:
    """Return the errors of a function and of its attempts. Attempts often share one, which is there once."""
    found = [error, *(one.exception for one in ends)]
    return list({id(one): one for one in found if one is not None}.values())


def _value(value: Any, /) -> Any:
    return value
