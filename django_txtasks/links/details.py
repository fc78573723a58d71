"""Public path of ``features.links.details``."""

from django_txtasks.features.links.details import TaskDetails, TaskDetailsQuerySet

__all__ = ["TaskDetails", "TaskDetailsQuerySet"]
