"""Unique keys: requests that wait are merged."""
