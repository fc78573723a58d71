"""Notices what was overlooked or has crashed. Any number of cleaners at once is harmless.

* ``failure_detector``: which workers are lost
* ``cleaner``: the loop, and what it does about them
* ``upkeep``: the steps of a pass over tasks; ``renotifier`` and ``removal`` are two of them
* ``record``: its own row
"""

from django_txtasks.cleaner.cleaner import Cleaner

__all__ = ["Cleaner"]
