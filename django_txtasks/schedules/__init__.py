"""Schedules: ``@periodic``, the ticks of a schedule, and their status. Their rules are ``rules.schedules``."""
