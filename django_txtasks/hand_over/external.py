"""Public path of ``features.hand_over.external``."""

from django_txtasks.features.hand_over.external import ExternalTask

__all__ = ["ExternalTask"]
