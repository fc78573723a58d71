"""Counts of ended attempts: processes append rows, a cleaner adds them up. Readers are in ``stats``."""
