"""Helpers for tests of the hand-over: one drain in a thread of this process."""

import threading
from contextlib import contextmanager

from django.db import connections


def new_drain(queue="events", *, until_idle=False, alias="default"):
    """Return a drain of this queue."""
    from django_txtasks.conf import get_config
    from django_txtasks.features.hand_over.drain import Drain
    from django_txtasks.features.hand_over.targets import target_of
    from django_txtasks.processes.shutdown import Shutdown

    config = get_config()
    stop = Shutdown(10, lambda: None)
    return Drain(config, alias, queue, target_of(config, queue), stop=stop, until_idle=until_idle)


def hand_over(queue="events"):
    """Hand over all that is due. Return the drain."""
    drain = new_drain(queue, until_idle=True)
    errors = []
    thread = threading.Thread(target=_run, args=[drain, errors], daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    if errors:
        raise errors[0]
    return drain


@contextmanager
def handing_over(queue="events", *, alias="default", set_up=lambda drain: None):
    """A drain that runs meanwhile; ``set_up`` changes it before it begins."""
    drain, errors = new_drain(queue, alias=alias), []
    set_up(drain)
    thread = threading.Thread(target=_run, args=[drain, errors], daemon=True)
    thread.start()
    try:
        yield drain
    finally:
        drain._stop.request()
        drain.inbox.wake()
        thread.join(60)
        assert not thread.is_alive()
        if errors:
            raise errors[0]


def _run(drain, errors):
    try:
        drain.run()
    except BaseException as error:
        errors.append(error)
    finally:
        connections.close_all()
