"""Notices about tasks that die."""
