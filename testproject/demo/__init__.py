"""The demo, started by ``manage.py demo``."""
