"""Stacks of running tasks."""
