"""Notices about dead tasks."""
