"""The admin's pages: tasks, finished tasks and workers to look at, and a person's arrows to take.

Nothing here writes a task: each action calls ``lifecycle.operators``, which checks under a lock what
state the row is in.

* ``lists``, ``cleaners``, ``queues``, ``lanes``, ``schedules``, ``batches``: the models' pages
* ``pages``: what they have in common
* ``actions``: revive, discard, hold, resume, cancel, run now
* ``filters``, ``columns``: what is asked of the database
* ``shown``: how foreign values look on a page
"""

from django_txtasks.admin import batches, cleaners, lanes, lists, queues, schedules

__all__ = ["batches", "cleaners", "lanes", "lists", "queues", "schedules"]
