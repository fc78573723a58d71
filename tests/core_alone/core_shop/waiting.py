"""Waits for a condition, and not for a guessed time."""

import time


def wait_until(condition, seconds=60):
    """Wait for a condition; return what it returns."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return found
