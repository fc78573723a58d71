"""Queues that are handed over."""
