"""Unique keys: due tasks with the same key are merged into one run."""
