"""Sending of hints from a thread of its own; used by the broker and by the hints of the database."""
