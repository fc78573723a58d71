"""The collection of orphans, as process 1 of a container has to do it.

A program whose parent has ended becomes a child of process 1. When it ends, it stays as a zombie until process 1
collects it, and counts against the container's limit of processes. But a process whose tasks, receivers or targets
start programs cannot collect all its children, because it would take exit codes that others wait for. So process 1
does nothing else: a child does the work of the command, and process 1 passes signals on to it, and ends with it.

Where a fork is safe, the child is one. Otherwise process 1 becomes this file, which imports nothing of the project
and has no threads, and starts the command again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

PASSED_ON = {
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_AWAITED = {*PASSED_ON, signal.SIGCHLD}
_KILLED = 128
"""Exit code of shells and containers for signal 0; that of another signal is higher by its number."""
_PR_GET_CHILD_SUBREAPER = 37
"""Constant of Linux, from ``linux/prctl.h``."""


def work_in_a_child(*, owns_process: bool) -> None:
    """Return in the process that does the work: a child of this one, if orphans become children of this one.

    Args:
        owns_process: False = do nothing, because the command was called by code whose process this is.
    """
    if not (owns_process and _gets_orphans()):
        return
    from django.db import connections
    from django.utils.autoreload import get_child_arguments

    from django_txtasks.processes.forking import can_fork, fork

    _await_signals()
    connections.close_all()  # a fork must not share them
    if not can_fork():
        os.execv(sys.executable, [sys.executable, "-I", __file__, *get_child_arguments()])  # noqa: S606 -- our own file
    child = fork()
    if child is not None:
        os._exit(_collect(child.pid))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)


def _gets_orphans() -> bool:
    """Return True if this is process 1, or if it has asked the system for orphans (Linux: a child subreaper)."""
    if os.getpid() == 1:
        return True
    if sys.platform != "linux":
        return False
    flag = 0
    with contextlib.suppress(ImportError, AttributeError, OSError):  # a Python without ctypes
        import ctypes

        answer = ctypes.c_int()
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
        flag = answer.value
    return bool(flag)


def _await_signals() -> None:
    """Keep signals until ``_collect`` asks for them. Process 1 would lose those without a handler."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)


def _collect(child: int) -> int:
    """Pass signals on to the child, and collect everything that ends, until the child has ended.

    Returns:
        The exit code for this process.
    """
    while True:
        number = signal.sigwait(_AWAITED)
        if number != signal.SIGCHLD:
            os.kill(child, number)
            continue
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
                return code if code >= 0 else _KILLED - code


if __name__ == "__main__":
    _await_signals()
    command = sys.argv[1:]
    sys.exit(_collect(os.posix_spawn(command[0], command, os.environ, setsigmask=())))
