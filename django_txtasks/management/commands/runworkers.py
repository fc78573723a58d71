"""manage.py runworkers"""

from __future__ import annotations

import contextlib
import difflib
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from django.core.management.base import CommandError
from django.db import Error, connections
from django.utils.autoreload import get_child_arguments

from django_txtasks import checks, hints, signals
from django_txtasks.conf import Config, get_config
from django_txtasks.core.declaring import registry
from django_txtasks.core.ground import seams
from django_txtasks.core.ground.wording import in_english
from django_txtasks.core.rows.turn import Kind, Subscription
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.running.drivers import CALLS
from django_txtasks.core.working.running.portions import PORTIONS
from django_txtasks.core.working.worker import Exit, Worker
from django_txtasks.database import sessions
from django_txtasks.features import bulk
from django_txtasks.features.reports import names
from django_txtasks.management.async_tasks import Split, async_tasks, split
from django_txtasks.management.console import (
    CHECKS,
    OwnCommand,
    end_process,
    served,
    show_log,
    signals_in_background,
    stop_signals,
    switch,
)
from django_txtasks.management.probing import liveness_at, loop_options, positive, probes_at
from django_txtasks.management.processes import (
    AUTO,
    for_each_database,
    limits_of,
    processes,
    threads,
    within,
)
from django_txtasks.processes import signs
from django_txtasks.processes.child import Assignment, Forked, Role
from django_txtasks.processes.last_chances import NEWS, LastChanceProcesses
from django_txtasks.processes.orders import end_soon, obey, pipe_of_parent, pipe_of_supervisor
from django_txtasks.processes.orphans import work_in_a_child
from django_txtasks.processes.patience import Patience
from django_txtasks.processes.probes import Liveness
from django_txtasks.processes.recycling import EXIT_CODE, RecyclePolicy
from django_txtasks.processes.scaling import Limits, ProcessScaler
from django_txtasks.processes.shortage import news
from django_txtasks.processes.shutdown import Shutdown
from django_txtasks.processes.supervisor import Supervisor

OWN_NAMES = (bulk.NAME, "django_txtasks.notices.")
"""Task functions of the package, which make no project."""
LAST_LINES_SECONDS = 0.5
"""Longest time for the last log lines and hints after tasks were given back; these may already run elsewhere."""


class Command(OwnCommand):
    """Keeps workers and a cleaner running.

    Exit codes: 0 stopped as told; 1 tasks were cut short, or the command could not start.
    A child process that is recycled ends with 75; its supervisor does not.
    """

    requires_system_checks = CHECKS
    _called_from_command_line: bool  # Django sets it; without it no supervisor
    help = "Runs tasks, and a cleaner beside them, until it is stopped by SIGTERM or Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        _options_of_a_worker(parser)
        _options_of_its_end(parser)
        loop_options(parser, "Run the tasks")
        parser.add_argument("--child-of-database", metavar="ALIAS", help=SUPPRESS)
        parser.add_argument("--child-role", default=Role.WORKER.value, help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        work_in_a_child(owns_process=self._called_from_command_line)
        config = get_config()
        show_log(options["verbosity"], as_json=options["log_json"])
        queues = _queues(config, options["queue"], options["exclude_queue"])
        task_names = _task_names(options["task"], options["exclude_task"])
        pipe = pipe_of_supervisor()
        only = options["child_of_database"]
        aliases = served([only] if only else options["databases"])
        supervises = self._called_from_command_line and pipe is None
        if options["processes"] == AUTO:
            chosen = for_each_database(config, aliases, options["threads"]) if supervises else 1
            options["processes"] = chosen
        has_parent = supervises or pipe is not None
        limits = limits_of(options, has_parent=has_parent)
        parts = split(task_names, options, has_parent=has_parent)
        _refuse_contradictions(aliases, options, parts, limits)
        work = Assignment((), aliases, Role(options["child_role"]), options["max_tasks"])
        if supervises:
            scalers = _scalers(aliases, limits, queues, options, parts)
            child = self._supervise(config, aliases, options, parts, scalers)
            if child is None:
                return
            work, pipe = child.assignment, child.pipe
        if _has_done_other_work(config, work, pipe):
            return
        subscription = parts.subscription(_only(work.aliases), queues, work.role)
        inbox = HintInbox()
        stop = Shutdown(config.grace.total_seconds(), inbox.wake)
        if pipe is not None:
            obey(pipe, stop)
        with (
            # before the first connection, because a signal may arrive at any time
            stop_signals(stop.request),
            signals_in_background(own_process=self._called_from_command_line),
        ):
            self._work(config, subscription, inbox, stop, _options_of(work, options, parts))

    def _work(
        self,
        config: Config,
        subscription: Subscription,
        inbox: HintInbox,
        stop: Shutdown,
        options: dict[str, Any],
    ) -> None:
        """Run one worker in this process."""
        liveness = _liveness(config, options["liveness_file"])
        probes = probes_at(options["probe_port"], options["probe_address"], liveness)
        listeners = _listen(config, subscription, inbox)
        worker = Worker(
            config,
            subscription,
            threads=options["threads"],
            async_tasks=options["async_tasks"] if subscription.is_loop else 0,
            inbox=inbox,
            stop=stop,
            until_idle=options["batch"],
            max_tasks=options["max_tasks"],
            recycling=RecyclePolicy(options["max_tasks_per_process"], options["max_rss"]),
            last_will=listeners[-1] if config.broker_url is not None else None,
            liveness=liveness,
            tell_of_last_chance=(lambda: signs.tell(NEWS)) if signs.are_heard() else None,
        )
        signs.repeat(lambda: news(is_short=worker.lacks_session, answers=liveness.is_answered()))
        _begin(liveness)
        _say_what_nobody_declares(subscription, options["known_names"])
        exited = worker.run()
        if exited in (Exit.CUT_SHORT, Exit.STUCK):
            self._cut_short(exited)
        for listener in listeners:
            listener.stop()
        if probes is not None:
            probes.close()
        if exited is Exit.RECYCLE and self._called_from_command_line:
            # a thread that a task left behind must not keep the process alive
            end_process(EXIT_CODE)
        if stop.asked and self._called_from_command_line:
            end_soon(0)

    def _cut_short(self, exited: Exit) -> None:
        """End at once. The running tasks belong to other workers by now, and threads cannot be ended."""
        if self._called_from_command_line:
            end_process(1 if exited is Exit.CUT_SHORT else EXIT_CODE, seconds=LAST_LINES_SECONDS)
        raise CommandError("Tasks were cut short.")

    def _supervise(
        self,
        config: Config,
        aliases: list[str],
        options: dict[str, Any],
        parts: Split,
        scalers: Sequence[ProcessScaler],
    ) -> Forked | None:
        """Run this command in child processes, ``--processes`` for each database, until they have ended.

        No worker serves two databases, so that a backlog or an outage of one does not delay the other. The cleaner
        has a thread for each.

        Returns:
            In a forked child: its assignment. In this process: None.
        """
        finite = bool(options["batch"] or options["max_tasks"])
        assignments = [one for alias in aliases for one in _workers(alias, options, parts)]
        if not (finite or options["no_cleaner"]):
            assignments.append(_cleaner(aliases))
        supervisor = Supervisor(
            assignments,
            finite=finite,
            reload=options["reload"],
            may_fork=True,
            parent=pipe_of_parent(),
            when_started=parts.tell,
            scalers=scalers,
            patience=Patience.of(config, reloads=options["reload"]),
            last_chances=_last_chances(aliases, options, parts),
        )
        if not options["reload"]:
            _import_for_children(config, aliases, parts)
        connections.close_all()  # this thread's; a fork must not share them
        try:
            with (
                signals_in_background(own_process=True, by_one_thread=False),
                stop_signals(supervisor.stop.request),
            ):
                if code := supervisor.run():
                    sys.exit(code)
        except Forked as child:
            return child
        return None


def _options_of(work: Assignment, options: dict[str, Any], parts: Split) -> dict[str, Any]:
    """Return the options for the worker of this process. Probes describe the other worker of the command."""
    known = parts.names if parts.tells_of_names(work.role) else ()
    own = {**options, "max_tasks": work.max_tasks, "known_names": known}
    if work.role is not Role.LAST_CHANCE:
        return own
    others = ("probe_port", "liveness_file", "max_tasks_per_process", "max_rss")
    return {**own, **dict.fromkeys(others), "probe_address": "", "threads": 1, "batch": True}


def _has_done_other_work(config: Config, work: Assignment, pipe: int | None) -> bool:
    """Return False at once if this process runs tasks; else do its work until it is told to stop."""
    if work.role is Role.CLEANER:
        from django_txtasks.management.cleaning import clean

        clean(config, work.aliases, pipe)
        return True
    if work.role is Role.WATCHER:
        from django_txtasks.management.watching import watch_for_supervisor

        watch_for_supervisor(_only(work.aliases), pipe)
        return True
    return False


def _refuse_contradictions(
    aliases: list[str], options: dict[str, Any], parts: Split, limits: Limits | None
) -> None:
    """Raise CommandError for options that contradict each other, or that this project cannot serve."""
    if options["max_tasks"] and (options["max_tasks_per_process"] or options["max_rss"]):
        raise CommandError(
            "--max-tasks ends a process for good; --max-tasks-per-process and --max-rss replace it. "
            "Use one or the other."
        )
    for alias in aliases:
        if trouble := checks.pool_is_too_small(alias, options["threads"]):
            raise CommandError(f"{trouble} Or give runworkers fewer --threads.")
    of_each = len(parts.roles()) + (limits.most - limits.least if limits else 0)
    count, is_child = of_each * len(aliases), options["child_of_database"]
    if not is_child and count > 1 and (options["liveness_file"] or options["probe_port"]):
        raise CommandError(
            "--liveness-file and --probe-port describe one worker process, but this command would start "
            f"{'up to ' if limits else ''}{count}. Start one command for each process."
        )
    if all(name.startswith(OWN_NAMES) for name in registry.names()):
        raise CommandError(
            "No task function is declared: add @task to a function in an installed app's tasks.py."
        )


def _import_for_children(config: Config, aliases: Sequence[str], parts: Split) -> None:
    """Import the modules that each child would import for its first task, so that the children share them."""
    seams.import_all()
    _ = CALLS.whole, PORTIONS.whole
    hints.import_modules(config, aliases)
    parts.import_modules()
    for alias in aliases:
        connections[alias].ops.compiler("SQLCompiler")


def _only(aliases: Sequence[str]) -> str:
    if len(aliases) > 1:
        raise CommandError(
            f"One process serves one database, but these are {', '.join(map(repr, aliases))}: "
            "call runworkers once for each."
        )
    return "".join(aliases)


def _listen(config: Config, subscription: Subscription, inbox: HintInbox) -> tuple[Any, ...]:
    """Start the source of hints, and with RabbitMQ the last will; return them in this order."""
    has_hints = subscription.kind is not Kind.ALONE
    inbox.source = source = hints.source(config, subscription, inbox.deliver) if has_hints else None
    listeners = [] if source is None else [source]
    if config.broker_url is not None:
        from django_txtasks.hints.broker.will import LastWillConnection  # imports pika

        listeners.append(LastWillConnection(config, subscription.alias, inbox.wake))
    for one in listeners:
        one.start()
    return tuple(listeners)


def _cleaner(aliases: Sequence[str]) -> Assignment:
    """Return the assignment of the cleaner of all these databases."""
    from django_txtasks.management import cleaning  # noqa: F401 -- before the fork, to share it

    command = [*get_child_arguments(), "--skip-checks", f"--child-role={Role.CLEANER.value}"]
    return Assignment(command, aliases, Role.CLEANER)


def _last_chances(
    aliases: Sequence[str], options: dict[str, Any], parts: Split
) -> list[LastChanceProcesses]:
    """Return what starts the processes that run last chances after a crash."""
    role, command = Role.LAST_CHANCE, [*get_child_arguments(), "--skip-checks"]
    own = {one: [f"--child-of-database={one}", f"--child-role={role.value}"] for one in aliases}
    return [
        LastChanceProcesses(Assignment([*command, *own[one]], [one], role), options["threads"])
        for one in aliases
        if parts.leaves_last_chances
    ]


def _scalers(
    aliases: Sequence[str],
    limits: Limits | None,
    queues: Sequence[str],
    options: dict[str, Any],
    parts: Split,
) -> list[ProcessScaler]:
    return [_scaler(one, limits, queues, options, parts) for one in aliases if limits]


def _scaler(
    alias: str, limits: Limits, queues: Sequence[str], options: dict[str, Any], parts: Split
) -> ProcessScaler:
    """Return what changes the number of worker processes of one database."""
    worker = _workers(alias, options, parts)[0]
    command = [*worker.command[:-1], f"--child-role={Role.WATCHER.value}"]
    watcher = Assignment(command, [alias], Role.WATCHER)
    return ProcessScaler(limits, worker, watcher, queues=queues, threads=options["threads"])


def _workers(alias: str, options: dict[str, Any], parts: Split) -> list[Assignment]:
    """Return the assignments of the workers of one database."""
    command = [*get_child_arguments(), "--skip-checks", f"--child-of-database={alias}"]
    count, most = options["processes"], options["max_tasks"]
    if not most:
        return [
            Assignment([*command, f"--child-role={role.value}"], [alias], role)
            for role in parts.roles()
        ]
    share, rest = divmod(most, count)
    shares = [share + (number < rest) for number in range(count)]
    return [
        Assignment([*command, f"--max-tasks={one}"], [alias], max_tasks=one)
        for one in shares
        if one
    ]


def _liveness(config: Config, file: str | None) -> Liveness:
    """Return the signs of life of a worker, which its supervisor hears, too."""
    liveness = liveness_at(file, lambda: Liveness(config.lease, file))
    signs.vouch(liveness.state)
    return liveness


def _begin(liveness: Liveness) -> None:
    """Tell the supervisor at once that the loop turns. From now on, it may wait for the database."""
    liveness.turned()
    signs.show_life()


def _say_what_nobody_declares(subscription: Subscription, known: Sequence[str]) -> None:
    """Log names of waiting tasks that are not known; do nothing if no name is, or without the database."""
    if not known:
        return
    sessions.leave_pool(subscription.alias)
    with contextlib.suppress(Error):
        found = names.undeclared(subscription.alias, subscription.queues, known)
        if found:
            with in_english():
                signals.names_undeclared.emit(names=names.listed(found))


def _queues(config: Config, wanted: list[str] | None, excluded: list[str]) -> list[str]:
    for name in [*(wanted or []), *excluded]:
        if name not in config.queues:
            known = ", ".join(map(repr, config.queues))
            raise CommandError(f"Queue {name!r} is unknown: TXTASKS['queues'] has {known}.")
    for name in wanted or ():
        if name in config.hand_over:
            raise CommandError(
                f"Queue {name!r} is in TXTASKS['hand_over']: its tasks are for another system. Serve it by "
                f"manage.py rundrain --queue {name}."
            )
        if name in config.external_queues:
            raise CommandError(
                f"Queue {name!r} is in TXTASKS['external_queues']: only workers in other languages serve it. "
                "Start those, or take it out of that setting."
            )
    ours = config.queues_of_workers
    if not ours:
        raise CommandError(
            "All queues are in TXTASKS['hand_over'] or TXTASKS['external_queues'], so there is none for workers. "
            "Add one to TXTASKS['queues']."
        )
    queues = [name for name in wanted or ours if name not in excluded]
    if not queues:
        raise CommandError("--exclude-queue leaves no queue to serve.")
    return list(dict.fromkeys(queues))


def _task_names(wanted: list[str] | None, excluded: list[str]) -> tuple[str, ...]:
    """Return the declared names that match the patterns."""
    declared = registry.names()
    for pattern in [*(wanted or []), *excluded]:
        if not _is_any(declared, [pattern]):
            near = difflib.get_close_matches(pattern, declared, n=3, cutoff=0.4)
            raise CommandError(
                f"No task function is named {pattern!r}. The nearest are: {', '.join(near) or 'none'}."
            )
    chosen = [name for name in declared if wanted is None or _is_any(_names_of(name), wanted)]
    names_left = tuple(name for name in chosen if not _is_any(_names_of(name), excluded))
    if not names_left:
        raise CommandError("--exclude-task leaves no task function to run.")
    return names_left


def _names_of(name: str) -> tuple[str, ...]:
    """Return all names of the function: an option that gives one of them means the function."""
    return registry.get(name).names


def _is_any(task_names: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in task_names for pattern in patterns)


def _options_of_a_worker(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--queue",
        action="append",
        metavar="Q",
        help="Serve this queue (may be repeated). Default: all.",
    )
    parser.add_argument(
        "--exclude-queue",
        action="append",
        default=[],
        metavar="Q",
        help="Serve all queues but this one.",
    )
    parser.add_argument(
        "--task",
        action="append",
        metavar="NAME",
        help="Run this task function, or all that match a pattern such as shop.* (may be repeated). Default: all.",
    )
    parser.add_argument(
        "--exclude-task",
        action="append",
        default=[],
        metavar="NAME",
        help="Run all task functions except this one, or all that match a pattern.",
    )
    parser.add_argument(
        "--threads",
        type=threads,
        default=checks.DEFAULT_THREADS,
        metavar="N",
        help=f"Tasks at a time per process ({checks.DEFAULT_THREADS}).",
    )
    parser.add_argument(
        "--processes",
        type=processes,
        default=1,
        metavar="N",
        help="Worker processes for each database (1); auto = one for each CPU that this process may use; "
        "1..8 = as many as the load needs, within these limits.",
    )
    parser.add_argument(
        "--within",
        type=within,
        metavar="SECONDS",
        help="With a range of --processes: time within which a task should start (30).",
    )

    parser.add_argument(
        "--async-tasks",
        type=async_tasks,
        default=0,
        metavar="N",
        help="Run async task functions on one event loop, N at a time, in one more process for each database. "
        "Default: each takes a thread.",
    )


def _options_of_its_end(parser: ArgumentParser) -> None:
    switch(parser, "--batch", "End when nothing is due.")
    parser.add_argument(
        "--max-tasks",
        type=positive,
        metavar="N",
        help="End after N tasks of each database, over all its processes.",
    )
    parser.add_argument(
        "--max-tasks-per-process",
        type=positive,
        metavar="N",
        help="Replace a process after N tasks; running tasks end first.",
    )
    parser.add_argument(
        "--max-rss",
        type=positive,
        metavar="MB",
        help="Replace a process that uses more memory; running tasks end first.",
    )
    switch(parser, "--reload", "Restart when code changes. For development.")
    switch(
        parser,
        "--no-cleaner",
        "Start no cleaner beside the workers, because runcleaner runs elsewhere.",
    )
