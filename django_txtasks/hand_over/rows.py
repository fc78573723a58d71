"""Public path of ``features.hand_over.rows``."""

from django_txtasks.features.hand_over.rows import Row

__all__ = ["Row"]
