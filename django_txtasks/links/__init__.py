"""Public path of ``features.links``."""
