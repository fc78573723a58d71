"""Public path of ``features.steps.waits``."""

from django_txtasks.features.steps.waits import begin, end, give_up

__all__ = ["begin", "end", "give_up"]
