"""The demo in a process of its own, as a person starts it: without any server, and with servers."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from contextlib import suppress
from pathlib import Path

import helpers
import pytest
from demo import promises
from demo.stage import Stage
from django.core.management import CommandError
from orders.management.commands.demo import Command, _url

pytestmark = pytest.mark.once

MANAGE = Path(__file__).parents[1] / "testproject" / "manage.py"
SERVERS = ["--postgres", "--broker"]
ALL_KEPT = re.compile(r"^5 of 5 promises kept in \d+ s$", re.MULTILINE)


class Demo:
    """Starts the demo; knows whatever it started by a mark that processes inherit."""

    def __init__(self, room: Path) -> None:
        self.room, self.mark = room, f"TXTASKS_MARK={uuid.uuid4()}"

    def start(self, *options: str, **streams: int) -> subprocess.Popen[bytes]:
        """Start ``manage.py demo``; its options say which of the tests' servers it uses."""
        name, value = self.mark.split("=")
        environment = {
            **os.environ,
            name: value,
            "DJANGO_SETTINGS_MODULE": "settings",
            "TMPDIR": str(self.room),
            "TXTASKS_DATABASE_URL": helpers.url_of("POSTGRES"),
            "TXTASKS_BROKER_URL": helpers.url_of("AMQP"),
        }
        return subprocess.Popen(
            [sys.executable, MANAGE, "demo", *options],
            env=environment,
            start_new_session=True,
            **streams,
        )

    def left_behind(self) -> list[str]:
        """Return command lines of processes and names of files that should be gone."""
        return [*self._processes(), *(path.name for path in self.room.iterdir())]

    def _processes(self) -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended, or belongs to somebody else
                if self.mark.encode() in (process / "environ").read_bytes():
                    found.append((process / "cmdline").read_bytes().decode().replace("\0", " "))
        return found


@pytest.fixture
def demo(tmp_path):
    return Demo(tmp_path)


def test_the_demo_keeps_its_promises_and_leaves_nothing_behind(demo):
    with demo.start(*SERVERS, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        output = process.stdout.read().decode()
    assert ALL_KEPT.search(output), output
    assert [line[:7] for line in output.splitlines()[1:6]] == [f"{n}  kept" for n in "12345"]
    assert process.returncode == 0
    assert demo.left_behind() == []


def test_with_a_terminal_the_demo_serves_the_admin_until_ctrl_c(demo):
    """Without servers, and after it has kept its promises there, too."""
    screen, terminal = pty.openpty()
    with demo.start(stdin=terminal, stdout=terminal) as process:
        os.close(terminal)
        output = read_until(screen, "Ctrl-C ends")
        assert ALL_KEPT.search(output.replace("\r", "")), output
        address = re.search(r"http://[\d.:]+", output)[0]
        page = fetch(f"{address}/admin/login/")
        sheet = re.search(r'href="(/static/[^"]+\.css)"', page)[1]
        assert fetch(address + sheet)
        process.send_signal(signal.SIGINT)
        assert process.wait(helpers.PATIENCE) == 0
    os.close(screen)
    assert demo.left_behind() == []


def test_a_demo_that_is_interrupted_twice_leaves_nothing_behind(demo):
    with demo.start(*SERVERS, stdout=subprocess.PIPE) as process:
        assert any(line.startswith(b"2  kept") for line in process.stdout)
        time.sleep(1)  # into the third promise: a task is running
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert process.wait(helpers.PATIENCE) == 130
    helpers.wait_until(lambda: not demo.left_behind(), 5, what="nothing left behind")


def test_a_broken_promise_is_named_with_what_was_found_and_the_log(monkeypatch, tmp_path):
    def it_always_rains():
        raise promises.Broken("the sun was out")

    stage = Stage(tmp_path / "demo.log")
    stage.log.write_text("a line of a worker\n")
    monkeypatch.setattr(stage, "start", lambda *command: None)
    monkeypatch.setattr(promises, "PROMISES", [lambda: "said and done", it_always_rains])
    monkeypatch.setenv("TXTASKS_BROKER_URL", "")
    output = io.StringIO()
    assert Command(stdout=output)._play(stage) is False
    assert output.getvalue().splitlines()[1:-1] == [
        "1  kept    said and done",
        "2  BROKEN  it always rains: the sun was out",
        "The end of the processes' log:",
        "a line of a worker",
    ]
    assert output.getvalue().splitlines()[-1].startswith("1 of 2 promises kept in ")


def test_an_option_without_its_server_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv("TXTASKS_DATABASE_URL", raising=False)
    with pytest.raises(CommandError, match=r"TXTASKS_DATABASE_URL.* tox run -e demo -- --postgres"):
        _url("TXTASKS_DATABASE_URL", "--postgres")


def read_until(screen: int, text: str) -> str:
    """Read a terminal until a text has come; what came if it ends before."""
    output = b""
    with suppress(OSError):  # how Linux tells that nobody writes any more
        while text.encode() not in output:
            output += os.read(screen, 4096)
    return output.decode()


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - the demo's own server
        return answer.read().decode()
