"""A backend whose sessions are closed with an error, so many times as a test says."""
