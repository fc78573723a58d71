"""Celery with an outbox: its class ``Celery`` replaces Celery's own.

Inside a transaction of the tasks' database, ``send_task()`` writes a row, which a drain hands over after the
commit. Elsewhere it sends as ever. So no call of ``delay()`` or ``apply_async()`` changes, also none of another
package.

* ``app``: the class ``Celery``. ``task``: the class of its tasks.
* ``outgoing``: what Celery would publish. ``messages``: the same as JSON, in a row. ``rows``: the row of a call.
* ``target``: the rows of a queue become messages again. ``amqp`` sends them by py-amqp, ``kombu`` by other
  transports.
* ``checks``: settings of Celery with which the outbox cannot work.

This module is imported before Django has loaded its apps, as ``celery.py`` of a project is.
"""

from __future__ import annotations

from django_txtasks.contrib.celery.app import Celery

__all__ = ["Celery"]
