"""A backend whose sessions raise an error at their close, as often as a test says."""
