"""The demo's stage and what is played on it; ``manage.py demo`` is its door."""
