"""The user's project as the processes of a storm see it. Pure: settings in, settings out."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import django

from django_txtasks.conf import Config
from django_txtasks.features.schedules.rules import tick_of_id

VARIABLE = "TXTASKS_VERIFY"
QUEUE = "default"
LANE, AT_MOST = "txtasks verify", 2
"""The lane of a storm, and the number of its tasks that may run at once."""
SCHEDULE = "txtasks verify"
WAIT = "answer"
"""Name of the value that tasks wait for."""
_DUMMY = {"ENGINE": "django.db.backends.dummy"}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The facts that a child process needs; there is no password among them.

    Attributes:
        settings: name of the user's settings module.
        alias: the entry of DATABASES that points to ``database``.
        prefix: prefix of RabbitMQ's queue names.
        broker: True to use the user's broker.
        proxy: port of the broker's proxy on localhost; None = direct connection.
        journals: directory of the journals.
        async_tasks: slots of a worker with an event loop beside the others; 0 = no such worker.
        txtasks: keys of TXTASKS that differ from the user's, durations in seconds.
    """

    settings: str
    alias: str
    database: str
    prefix: str
    broker: bool
    proxy: int | None
    journals: str
    async_tasks: int = 0
    txtasks: dict[str, float] = field(default_factory=dict)

    @classmethod
    def here(cls) -> Scene:
        """Return the scene of this process, which belongs to a storm."""
        return cls(**json.loads(os.environ[VARIABLE]))

    def environment(self) -> dict[str, str]:
        """Return the environment of a child process, with the same path and other settings."""
        path = [os.path.abspath(entry) for entry in sys.path]  # '' is the current directory
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "django_txtasks.contrib.verify.settings",
            "PYTHONFAULTHANDLER": "1",  # SIGABRT shows where it hangs
            "PYTHONPATH": os.pathsep.join(path),
            VARIABLE: json.dumps(dataclasses.asdict(self)),
        }


def key_of(task_id: uuid.UUID, args: Sequence[Any]) -> str:
    """Return the key of a task: its argument, or that of the schedule or the batch that enqueued it."""
    tick = tick_of_id(task_id)
    if tick is not None:
        return key_of_tick(int(tick.timestamp()))
    return str(args[0]["name"] if isinstance(args[0], dict) else args[0])


def key_of_tick(second: int) -> str:
    """Return the key of the task of a tick, by its time in seconds since 1970."""
    return f"tick-{second}"


def times(config: Config, lease: float | None) -> dict[str, float]:
    """Return the durations of a storm: the user's, but with short retries and a history.

    Args:
        lease: seconds; beats and clean intervals follow. None = the user's.
    """
    base = min(1.0, config.retry_base.total_seconds())
    changed = {
        "retry_base": base,
        "retry_ceiling": max(base, min(5.0, config.retry_ceiling.total_seconds())),
        "keep_finished": 7 * 86400.0,
    }
    if lease is not None:
        changed["lease"] = lease
        changed["heartbeat_interval"] = min(config.heartbeat_interval.total_seconds(), lease / 10)
        changed["clean_interval"] = min(config.clean_interval.total_seconds(), lease)
    return changed


def scratch_settings(user: dict[str, Any], scene: Scene) -> dict[str, Any]:
    """Return the user's settings, changed so that the user's systems are not written to or notified.

    Other databases become dummies, so a query to them fails. Logs go to stderr, mails and dead notices
    nowhere: a storm of lost workers must not wake anybody.
    """
    return {
        **user,
        "ADMINS": [],
        "DATABASES": _databases(user["DATABASES"], scene),
        "DATABASE_ROUTERS": ["django_txtasks.contrib.verify.router.ScratchRouter"],
        "DEBUG": False,  # DEBUG would keep every statement
        "INSTALLED_APPS": [*user["INSTALLED_APPS"], "django_txtasks.contrib.verify"],
        "LOGGING": {},
        "MANAGERS": [],
        # the tables of users and of questions stay away from the scratch database
        "SILENCED_SYSTEM_CHECKS": [*user.get("SILENCED_SYSTEM_CHECKS", []), "txtasks.E050"],
        "TXTASKS": _txtasks(user.get("TXTASKS", {}), scene),
        **_mails_nowhere(user),
    }


def _mails_nowhere(user: dict[str, Any]) -> dict[str, Any]:
    """Return the setting that drops mails. Django 6.1 has a new one, and refuses the old one beside it."""
    dummy = "django.core.mail.backends.dummy.EmailBackend"
    has_old = any(name.startswith("EMAIL_") for name in user)
    if django.VERSION >= (6, 1) and ("MAILERS" in user or not has_old):
        return {
            "MAILERS": {name: {"BACKEND": dummy} for name in {*user.get("MAILERS", {}), "default"}}
        }
    return {"EMAIL_BACKEND": dummy}


def _databases(user: dict[str, Any], scene: Scene) -> dict[str, Any]:
    entry = {**user[scene.alias], "NAME": scene.database}
    if entry["ENGINE"].endswith("sqlite3") and "lease" in scene.txtasks:
        options = entry.get("OPTIONS", {})  # check E010: a lease is at least three timeouts
        timeout = min(float(options.get("timeout", 5)), scene.txtasks["lease"] / 3)
        entry["OPTIONS"] = {**options, "timeout": timeout}
    return {**dict.fromkeys(user, _DUMMY), scene.alias: entry}


def _txtasks(user: dict[str, Any], scene: Scene) -> dict[str, Any]:
    broker = user.get("broker_url") if scene.broker else None
    queues = dict.fromkeys([*user.get("queues", []), QUEUE])
    return {
        **user,
        **scene.txtasks,
        "broker_url": through_proxy(broker, scene.proxy) if broker else None,
        "dead_notices": {},
        "lanes": {**user.get("lanes", {}), LANE: {"at_most": AT_MOST}},
        "queue_prefix": scene.prefix,
        "queues": list(queues),
    }


def through_proxy(url: str, port: int | None) -> str:
    """Return the broker's URL with the proxy's address."""
    if port is None:
        return url
    parts = urlsplit(url)
    login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return parts._replace(netloc=f"{login}127.0.0.1:{port}").geturl()
