"""Admin pages: lists of tasks, finished tasks, workers and their settings, and the actions of a person.

Nothing here writes a task. Each action calls ``operations.operators``, which locks the row and checks its
state.

* ``overview``: the page *At a glance*, whose parts ``glance`` puts into words and links
* ``lists``, ``processes``, ``queues``, ``lanes``, ``schedules``, ``batches``: the models
* ``base``, ``pages``, ``one_task``: base classes of the pages, and the page of one task
* ``actions``: revive, discard, hold, resume, cancel, run now
* ``filters``, ``columns``, ``fields``: filters of the lists, JSON columns, and columns of one attribute
* ``subjects``: business objects on the pages of tasks, and tasks on the pages of business objects
* ``shown``: formatting of foreign values; ``links``: addresses of pages
"""

from django_txtasks.admin import batches, lanes, lists, overview, processes, queues, schedules

__all__ = ["batches", "lanes", "lists", "overview", "processes", "queues", "schedules"]
