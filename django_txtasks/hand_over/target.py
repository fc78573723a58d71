"""Public path of ``features.hand_over.target``."""

from django_txtasks.features.hand_over.target import Answers, Target

__all__ = ["Answers", "Target"]
