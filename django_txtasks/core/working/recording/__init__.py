"""Outcomes of attempts on their way into the database."""
