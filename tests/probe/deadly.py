"""Functions that end their process, or have it replaced, and neighbours that do no harm."""

import ctypes
import os
import signal
import time

from django_txtasks import task

KEPT: list = []
"""What no attempt gives back."""
MEGABYTES = 300
ENDS = {
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "all": lambda: [os.kill(pid, signal.SIGKILL) for pid in (os.getppid(), os.getpid())],
    "segmentation fault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(0),
    "memory": lambda: KEPT.append(b"x" * (MEGABYTES << 20)),
}


@task(idempotent=True, max_crashes=50)
def poison(end="killed"):
    ENDS[end]()


@task(idempotent=True, max_crashes=50)
def neighbour(seconds):
    time.sleep(seconds)


@task(idempotent=True, max_crashes=50)
async def poison_of_loop():
    os.kill(os.getpid(), signal.SIGKILL)


@task(idempotent=True, timeout=0.2, max_attempts=1)
def stick():
    """Wait in C code, where no exception comes."""
    ctypes.PyDLL(None).sleep(0)  # keeps no other thread from running
    ctypes.CDLL(None).sleep(60)
