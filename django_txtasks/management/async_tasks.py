"""``runworkers --async-tasks``: which process runs which task functions."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.management.base import CommandError

from django_txtasks import signals
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.wording import counted
from django_txtasks.core.rows.turn import Kind, Subscription
from django_txtasks.management.probing import positive
from django_txtasks.processes import signs
from django_txtasks.processes.child import Role

MOST = 10_000
NO_NAME = ""
"""No task has this name. It stands for an empty list, which is no SQL."""


def async_tasks(text: str) -> int:
    """Parse ``--async-tasks``."""
    number = positive(text)
    if number > MOST:
        raise ArgumentTypeError(f"{text!r} is more than {MOST}")
    return number


class Split(NamedTuple):
    """The chosen task functions, by the kind of their process.

    Attributes:
        slots: number of tasks at a time on the event loop; 0 = all functions run in threads.
        leaves_last_chances: True = last chances after a crash run in processes of their own.
    """

    sync_names: tuple[str, ...]
    async_names: tuple[str, ...]
    slots: int
    processes: int
    leaves_last_chances: bool = False

    @property
    def has_loop(self) -> bool:
        """True if async functions have a process of their own."""
        return bool(self.slots and self.async_names)

    def subscription(self, alias: str, queues: Sequence[str], role: Role) -> Subscription:
        """Return the rows that a process of this role may claim."""
        kind, names = self._kind_of(role), self.names
        if role is Role.LOOP:
            names = self.async_names
        elif self.has_loop and kind is Kind.BESIDE:
            names = self.sync_names or (NO_NAME,)
        return Subscription(alias, tuple(queues), names, kind)

    def _kind_of(self, role: Role) -> Kind:
        if role is Role.WORKER:
            return Kind.BESIDE if self.leaves_last_chances and signs.are_heard() else Kind.EVERY
        return Kind.LOOP if role is Role.LOOP else Kind.ALONE

    @property
    def names(self) -> tuple[str, ...]:
        """All chosen task functions."""
        return tuple(sorted([*self.sync_names, *self.async_names]))

    def tells_of_names(self, role: Role) -> bool:
        """Return True if a process of this role says which names no worker declares."""
        return role is (Role.WORKER if self.processes else Role.LOOP)

    def roles(self) -> list[Role]:
        """Return the roles of the processes for one database."""
        return [Role.WORKER] * self.processes + [Role.LOOP] * self.has_loop

    def import_modules(self) -> None:
        """Import what the event loop needs, so that its process shares it with this one."""
        if self.has_loop:
            import django_txtasks.features.async_loop.driver  # noqa: F401

    def tell(self) -> None:
        """Log once what happens to async functions, if that is not what the options ask for."""
        if self.slots and not self.async_names:
            signals.no_async_functions.emit()
        elif self.async_names and not self.slots:
            count = len(self.async_names)
            functions = f"{counted(count, 'task function')} {'is' if count == 1 else 'are'}"
            signals.async_in_threads.emit(functions=functions)
        if self.has_loop and (fragile := _fragile(self.async_names)):
            signals.async_not_run_again.emit(
                count=counted(len(fragile), "async task function"), names=", ".join(fragile[:5])
            )


def split(task_names: Sequence[str], options: dict[str, Any], *, has_parent: bool) -> Split:
    """Divide the chosen functions.

    Args:
        has_parent: this process is a supervisor or has one.

    Raises:
        CommandError: the options contradict each other.
    """
    found = {name: registry.find(name) for name in task_names}
    asyncs = tuple(name for name, one in found.items() if one is not None and one.is_async)
    syncs = tuple(name for name in task_names if name not in asyncs)
    slots, processes = options["async_tasks"], options["processes"]
    for option in ("batch", "max_tasks"):
        if slots and options[option]:
            raise CommandError(
                f"--{option.replace('_', '-')} ends a process when it has no work, although the process of the "
                "other kind may still enqueue some. Async tasks then run in threads: drop --async-tasks."
            )
    if not processes and not slots:
        raise CommandError("--processes 0 starts no process. Give --async-tasks, or at least 1.")
    if not processes and not asyncs:
        raise CommandError(
            "--processes 0 leaves the event loop alone, but no chosen function is async."
        )
    if slots and not has_parent:
        raise CommandError(
            "--async-tasks needs a process of its own, which only the command line starts. Async tasks then run "
            "in threads: drop --async-tasks."
        )
    is_finite = bool(options["batch"] or options["max_tasks"])
    return Split(syncs, asyncs, slots, processes, has_parent and not is_finite)


def _fragile(names: Sequence[str]) -> list[str]:
    """Return the functions whose running attempts are dead after the end of their process."""
    found = [one.name for name in names if (one := registry.get(name)).on_crash == "dead"]
    return list(dict.fromkeys(found))
