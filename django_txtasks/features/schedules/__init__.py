"""Schedules: ``@periodic``, its rules, the ticks of a schedule, and their status."""
