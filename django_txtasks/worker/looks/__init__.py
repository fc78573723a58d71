"""Looks of the worker's loop besides claiming: cancels, batches, progress, what comes next."""
