"""The cleaner: finds lost workers, recovers their claims, and keeps the tables tidy. Several may run at once.

* ``failure_detector``, ``suspicion``: which workers are lost
* ``cleaner``: the loop
* ``rescue``: recovery of the claims of lost workers
* ``ticker``, ``clock_steps``: tasks of schedules
* ``passes``, ``upkeep``: a pass over all tasks, step by step; ``renotifier`` and ``removal`` do two of the
  steps
* ``record``: the cleaner's own row
"""

from django_txtasks.cleaner.cleaner import Cleaner

__all__ = ["Cleaner"]
