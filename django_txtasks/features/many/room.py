"""Claims for functions of many tasks: a full call for each free slot, if enough tasks are due."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django_txtasks.core.declaring import registry
from django_txtasks.core.declaring.registry import Declaration
from django_txtasks.core.rows.attempts import Attempt
from django_txtasks.core.rows.turn import Capacity
from django_txtasks.core.working.running.portions import Divided, Portion, Portions
from django_txtasks.fast.prefetch import CLAIM_BYTES, CLAIM_TASKS


class ManyClaims(Portions):
    """Decides how many tasks of a function of many tasks a turn claims. Only the loop uses it.

    A turn claims ahead either short tasks, or tasks of one such function, because the statement of a claim has one
    number for both. The tasks of the last claim decide about the next one.

    Args:
        names: of the task functions that the worker runs.
    """

    def __init__(self, names: Iterable[str]) -> None:
        found = [(name, registry.find(name)) for name in names]
        self._of_name = {name: one for name, one in found if one is not None and one.many}
        self._next: Declaration | None = None
        self._most = CLAIM_TASKS

    @property
    def are_calls(self) -> bool:
        """True if the next turn claims ahead for such a function."""
        return self._next is not None

    def widened(self, capacity: Capacity) -> Capacity:
        """Return the capacity of the next turn: a full call for each free slot, if such a function is next."""
        function = self._next
        if function is None or function.many is None or not capacity.dedicated:
            return capacity
        ahead = min(capacity.dedicated * (function.many - 1), self._most)
        return capacity._replace(prefetch=ahead, short_names=frozenset(function.names))

    def learn(self, claimed: Sequence[Attempt], short: frozenset[str]) -> None:
        """Choose what the turn after one with these claims claims ahead.

        Args:
            short: names of the short tasks. They are next if such functions have had their turn.
        """
        if not (self._of_name and claimed):
            return
        before, self._next = self._next, None
        found = [one for one in claimed if one.task_name in self._of_name]
        together = [one for one in found if _may_share_a_call(one)]
        others = short - self._of_name.keys()  # a call of one task may count as short
        has_others = len(together) < len(found) or any(one.task_name in others for one in claimed)
        if together and not (before is not None and has_others):
            self._next = self._of_name[together[-1].task_name]
            size = sum([len(one.args) for one in together])
            self._most = max(1, min(CLAIM_TASKS, CLAIM_BYTES * len(together) // size))

    def of(self, claimed: Sequence[Attempt], divided: Divided) -> Iterator[Portion]:
        """Yield the portions.

        Args:
            divided: divides the attempts that no call gets together with others.
        """
        if self._of_name.keys().isdisjoint([one.task_name for one in claimed]):
            yield from [Portion(run, False) for run in divided(claimed)]
            return
        for part in self.parts(claimed):
            if part.is_call:
                yield part
            else:
                yield from (Portion(run, False) for run in divided(part.attempts))

    def parts(self, claimed: Sequence[Attempt]) -> list[Portion]:
        """Return the attempts of each call, and all others, in the order of their first attempts."""
        parts: list[Portion] = []
        filling: dict[tuple[str, float | None] | None, Portion] = {}
        for attempt in claimed:
            key, most = self._call_of(attempt)
            part = filling.get(key)
            if part is None or len(part.attempts) == most:
                part = filling[key] = Portion([], key is not None)
                parts.append(part)
            part.attempts.append(attempt)
        return parts

    def _call_of(self, attempt: Attempt) -> tuple[tuple[str, float | None] | None, int | None]:
        """Return the key of the calls that may have this attempt, and their size; None = no such call."""
        function = self._of_name.get(attempt.task_name)
        if function is None or not _may_share_a_call(attempt):
            return None, None
        return (function.name, attempt.timeout), function.many


def _may_share_a_call(attempt: Attempt) -> bool:
    """Return False at the last attempt, and after a crash: a fault of another task could make this one dead."""
    return attempt.may_share and attempt.failures < attempt.max_attempts - 1
