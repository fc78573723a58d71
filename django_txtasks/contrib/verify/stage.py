"""One verification from beginning to end: scratch resources, storm, account, removal."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from django_txtasks.conf import Config, DeadNotices
from django_txtasks.contrib.verify.account import judge
from django_txtasks.contrib.verify.evidence import collect
from django_txtasks.contrib.verify.faults import HINT_QUEUES
from django_txtasks.contrib.verify.project import Scene, times
from django_txtasks.contrib.verify.proxy import Proxy
from django_txtasks.contrib.verify.scratch import ALIAS, Scratch
from django_txtasks.contrib.verify.storm import Log, Options, Storm, StormFailed
from django_txtasks.contrib.verify.verdict import Verdict
from django_txtasks.hints.broker import topology, upkeep
from django_txtasks.insight import audit, deaths

Say = Callable[[str], None]

DONE_BY_THE_STORM = {"no_cleaner", deaths.NAME}
"""Names of findings that a storm always causes: its cleaners have been stopped, and it has killed workers."""


@dataclasses.dataclass
class Stage:
    """The surroundings of a storm; all of it is removed after ``open_stage``'s block.

    Attributes:
        config: the user's, with the names and times of the storm.
        keep: True to keep the journals and logs, because a check has failed.
    """

    config: Config
    scene: Scene
    scratch: Scratch
    directory: Path
    proxy: Proxy | None
    keep: bool = False

    def play(self, options: Options, say: Say) -> tuple[Verdict, Log]:
        """Run the storm; return the verdict and the log."""
        storm = Storm(
            self.config, self.scene, self.scratch, self.directory, options=options, proxy=self.proxy
        )
        try:
            log = storm.run(say)
        except StormFailed:
            self.keep = True
            raise
        evidence = collect(self.scratch, self.directory)
        evidence.kills, evidence.surprises = storm.crew.kills, storm.crew.surprises
        evidence.overruns = log.overruns
        evidence.sessions = self._sessions_left()
        evidence.audit = self._audit()
        return judge(evidence), log

    def clean_up(self, say: Say) -> None:
        """Remove the journals and logs, unless people need them."""
        if self.keep:
            say(f"Journals and logs are kept in {self.directory}.")
        else:
            shutil.rmtree(self.directory)

    def _sessions_left(self, patience: float = 10.0) -> int:
        """Return the number of sessions left; a server may need a moment to notice that a client is gone."""
        end = time.monotonic() + patience
        while (left := len(self.scratch.sessions())) and time.monotonic() < end:
            time.sleep(0.1)
        return left

    def _audit(self) -> list[str]:
        self.scratch.query("SELECT 1")  # waits for the server
        found = audit.audit(ALIAS, self.config)
        problems = [one for one in found if one.is_problem and one.name not in DONE_BY_THE_STORM]
        return [f"{one.title}: {one.shown_count}" for one in problems]


@contextmanager
def open_stage(
    config: Config,
    alias: str,
    *,
    lease: float | None,
    broker: bool,
    say: Say,
    async_tasks: int = 0,
) -> Iterator[Stage]:
    """Create a scratch database and a directory for journals; remove them and the queues at the end.

    Args:
        config: the user's.
        lease: seconds; None = the user's.
        broker: True to use the user's RabbitMQ, if there is one.
        async_tasks: see ``Scene``.

    Raises:
        ScratchRefused: the user may not create a database on the server. Nothing is left behind.
    """
    token = uuid.uuid4().hex[:12]
    changed = times(config, lease)
    ours = _config_of_stage(config, token, changed, broker=broker)
    with ExitStack() as stack:
        scratch = stack.enter_context(Scratch(alias, token))
        say(f"Scratch database: {scratch.name} ({scratch.version}).")
        proxy = _proxy(ours, stack)
        if ours.broker_url is not None:
            say(f"RabbitMQ queues: {ours.queue_prefix}.*, at {ours.broker_address}.")
            stack.callback(_remove_queues, ours, alias, say)
        directory = Path(tempfile.mkdtemp(prefix="txtasks-verify-"))
        scene = Scene(
            settings=settings.SETTINGS_MODULE,
            alias=alias,
            database=scratch.name,
            prefix=ours.queue_prefix,
            broker=ours.broker_url is not None,
            proxy=proxy.port if proxy else None,
            journals=str(directory),
            async_tasks=async_tasks,
            txtasks=changed,
        )
        stage = Stage(ours, scene, scratch, directory, proxy)
        stack.callback(stage.clean_up, say)
        yield stage


def _config_of_stage(
    config: Config, token: str, changed: Mapping[str, float], *, broker: bool
) -> Config:
    """Return the user's settings, pointed at the stage."""
    durations: Any = {name: timedelta(seconds=value) for name, value in changed.items()}
    return dataclasses.replace(
        config,
        queue_prefix=f"txtasks-verify-{token}",
        broker_url=config.broker_url if broker else None,
        dead_notices=DeadNotices(),
        **durations,
    )


def _proxy(config: Config, stack: ExitStack) -> Proxy | None:
    """Start a proxy for a broker without TLS; a TLS certificate would not match this machine."""
    parts = urlsplit((config.broker_urls or [""])[0])
    if parts.scheme != "amqp":
        return None
    return stack.enter_context(Proxy(parts.hostname or "localhost", parts.port or 5672))


def _remove_queues(config: Config, alias: str, say: Say) -> None:
    """Remove all queues except for last wills; these expire a minute after their workers."""
    hints = [topology.hint_queue(config, alias, queue) for queue in HINT_QUEUES]
    for queue in (*hints, topology.lost_queue(config, alias)):
        if not upkeep.delete(config, queue):
            say(f"RabbitMQ is unreachable: remove the queue {queue} yourself.")
