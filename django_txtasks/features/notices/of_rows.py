"""The notices of a death are enqueued with it, in its transaction.

Their values come from the settings, so a cleaner needs no task code.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import connections, transaction

from django_txtasks.core.declaring import specs
from django_txtasks.core.ground.config import CoreConfig
from django_txtasks.core.rows.arrow_parts import ArrowPart
from django_txtasks.core.rows.attempts import Arrow, Attempt, Ended, FollowUps
from django_txtasks.core.rows.enqueueing import NewTask, insert
from django_txtasks.core.rows.follow_ups import follow_up, hook_data
from django_txtasks.features.notices.brake import brakes, digest_delay
from django_txtasks.features.notices.options import NoticeConfig

MAIL = "django_txtasks.notices.mail_dead_notice"
EXCHANGE = "django_txtasks.notices.publish_dead_notice"
DIGEST = "django_txtasks.notices.digest_of_the_dead"


class Notices(ArrowPart):
    """Adds the notices of tasks that die, as many as the brake allows, and then a digest."""

    def follow_ups(
        self, alias: str, ended: Sequence[Ended], config: CoreConfig
    ) -> tuple[list[NewTask], list[NewTask]]:
        config = config.of(NoticeConfig)
        deaths = [one for one in ended if one.arrow is Arrow.BURY and _notices(one.attempt, config)]
        if not deaths:
            return [], []
        singles, pause = brakes[alias].ask(len(deaths))
        notices = [
            _notice(name, hook_data(one), config)
            for one in deaths[:singles]
            for name in _notices(one.attempt, config)
        ]
        if pause is None:
            return notices, []
        enqueued = partial(brakes[alias].digest_enqueued, pause)
        transaction.on_commit(enqueued, using=alias, robust=True)
        delay = digest_delay(pause)
        return notices, [_notice(DIGEST, json.dumps([alias]), config, delay=delay)]


def digest(alias: str, data: dict[str, Any], config: NoticeConfig) -> FollowUps:
    """Enqueue a digest of dead tasks for each kind of notice, in the open transaction."""
    text = json.dumps([data], separators=(",", ":"))
    tasks = [_notice(name, text, config) for name in _ways(config)]
    insert(connections[alias], tasks)
    return [task.hint for task in tasks]


def _notices(attempt: Attempt, config: NoticeConfig) -> list[str]:
    """Return the names of the tasks that report a death. The death of a notice is only logged."""
    ways = _ways(config)
    return [] if attempt.task_name in (*ways, DIGEST) else ways


def _ways(config: NoticeConfig) -> list[str]:
    asked = config.dead_notices
    return [
        name
        for name, wanted in ((MAIL, asked.mail), (EXCHANGE, asked.exchange), (asked.task, True))
        if name and wanted
    ]


def _notice(name: str, args: str, config: NoticeConfig, delay: timedelta | None = None) -> NewTask:
    task_spec = specs.task_spec(name)
    queues = config.queues_of_workers or config.queues
    if task_spec["queue_name"] not in queues:
        task_spec = {**task_spec, "queue_name": queues[0]}
    return follow_up({**task_spec, "run_after": delay}, args=args)


PARTS = (Notices(),)
