"""Runs a worker of the core in this process, until nothing is due, or until it is killed."""

import sys
import time

import django

if __name__ == "__main__":
    django.setup()

from core_shop import functions  # noqa: F401 -- declares them

from django_txtasks.core.declaring import registry
from django_txtasks.core.ground.config import get_config
from django_txtasks.core.rows.turn import Subscription
from django_txtasks.core.working.hint_inbox import HintInbox
from django_txtasks.core.working.worker import Worker


class NoStop:
    """No request to stop comes."""

    asked = now = forced = False
    why, deadline = "", float("inf")


def run(*, threads=2, until_idle=True):
    """Run a worker of all functions. Return how it has ended."""
    names = tuple(registry.names())
    worker = Worker(
        get_config(),
        Subscription("default", ("default",), names),
        threads=threads,
        inbox=HintInbox(),
        stop=NoStop(),
        until_idle=until_idle,
    )
    return worker.run()


if __name__ == "__main__":
    run(until_idle=False)
    time.sleep(float(sys.argv[1]))
