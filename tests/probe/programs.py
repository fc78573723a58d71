"""Task functions that start programs, and leave them."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

from django_txtasks import TaskContext, task

BEGUN = 'echo $$ > "$0.new"; mv "$0.new" "$0"; '
"""Writes the program's id into the file that is its name, all at once."""
STAYS = f"{BEGUN}exec sleep 600"
STUBBORN = f"trap '' TERM; {BEGUN}while :; do sleep 1; done"
DOUBLE_FORK = 'sh -c "$1" "$0" & exit'
LAST_STANDARD = 2
"""Number of standard error."""
NAMES = {"plain", "stubborn", "grandchild", "own_group", "fork"}
"""The programs that end with their process; beside them is ``own_session``."""


def start_all(directory: Path) -> None:
    """Start one program of each kind. Each writes its process id into a file of its name."""
    files = {name: str(directory / name) for name in (*NAMES, "own_session")}
    subprocess.Popen(["sh", "-c", STAYS, files["plain"]])
    subprocess.Popen(["sh", "-c", STUBBORN, files["stubborn"]])
    subprocess.run(["sh", "-c", DOUBLE_FORK, files["grandchild"], STAYS], check=True)
    subprocess.Popen(["sh", "-c", STAYS, files["own_session"]], start_new_session=True)
    os.posix_spawn("/bin/sh", ["sh", "-c", STAYS, files["own_group"]], os.environ, setpgroup=0)
    multiprocessing.get_context("fork").Process(target=_fork, args=[files["fork"]]).start()


def _fork(file: str) -> None:
    """Stay, with the handlers of signals and the sockets of the worker."""
    Path(f"{file}.new").write_text(f"{os.getpid()}\n")
    Path(f"{file}.new").rename(file)
    while True:
        time.sleep(600)


@task(idempotent=True, takes_context=True, max_crashes=10)
def start_programs(ctx: TaskContext, directory, seconds):
    """Start programs in the first attempt, and wait for another one."""
    if ctx.attempt == 1:
        start_all(Path(directory))
        subprocess.run([sys.executable, "-c", f"import time; time.sleep({seconds})"], check=True)


@task(idempotent=True, takes_context=True, max_crashes=10)
async def start_programs_async(ctx: TaskContext, directory):
    if ctx.attempt == 1:
        start_all(Path(directory))
        time.sleep(600)


@task
def tell_exit_code(file, code):
    """Write the exit code of a program that has left an orphan behind."""
    write_exit_code(file, code)


def write_exit_code(file, code):
    left = subprocess.run(["sh", "-c", f"(sleep 0.1 &); exit {code}"], check=False)
    Path(file).write_text(f"{left.returncode} {os.getpid()}")


def take(rows):
    """Take rows as a target of ``rundrain``; start a program for each."""
    for row in rows:
        write_exit_code(*row.args)


@task
def tell_inherited(file):
    """Write what a program would inherit that is started without ``close_fds``, as by ``os.system``."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the listing
            if number > LAST_STANDARD and os.get_inheritable(number):
                found.append(os.readlink(f"/proc/self/fd/{number}"))
    Path(file).write_text(f"{found}\n")
