"""Public path of ``features.hand_over``."""
