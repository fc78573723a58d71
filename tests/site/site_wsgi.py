"""The application of gunicorn and uWSGI. It enqueues while it is loaded, before they fork their processes."""

from site_pages import wsgi  # sets Django up

# isort: split
from django.db import connections
from shop import tasks

__all__ = ["wsgi"]

tasks.whose.enqueue()
# a session that is open at the fork would be used by several processes at once
connections.close_all()
