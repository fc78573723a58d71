"""Announcements of the life of workers and of dead tasks."""
