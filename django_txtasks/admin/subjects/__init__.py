"""Business objects in the admin: their tasks on their pages, and the objects on the pages of tasks.

* ``section``: ``ShowsTasks``, a base class for a page of yours
* ``about``: the objects that a task is about
"""

from django_txtasks.admin.subjects.section import ShowsTasks

__all__ = ["ShowsTasks"]
