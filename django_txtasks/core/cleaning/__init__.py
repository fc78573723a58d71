"""The cleaner: finds lost workers, recovers their claims, and keeps the tables tidy. Several may run at once.

* ``failure_detector``, ``seen_beats``, ``second_sign``, ``suspicion``: which workers are lost
* ``cleaner``: the loop
* ``rescue``: recovery of the claims of lost workers
* ``passes``: a pass over all tasks, in small pieces
* ``upkeep``, ``renotifier``, ``old_rows``, ``removal``: the steps of a pass
* ``parts``: the steps and turns that features add
* ``record``: the cleaner's own row
"""

from django_txtasks.core.cleaning.cleaner import Cleaner

__all__ = ["Cleaner"]
