"""Public path of ``features.steps``."""
