"""What README.md and docs/ tell is done: every Python block is executed in a real project.

How a fenced block is played depends on its language:

* ``python`` whose first line is ``# path/of/a/file.py`` is written to that file of the project,
  or appended to it if the line goes on with ``, at the end``. After settings, ``migrate`` and
  ``check`` must pass.
* other ``python`` runs as in a shell: the shop's names are there, but for the README, which imports them. What it
  prints must be what the comments behind its ``print(…)`` say.
* ``sql`` runs on the project's database.
* ``console``: each line after ``$ `` runs in a shell in the project's directory.
* ``sh``, ``text``, ``ini``, ``json``, ``html``, ``mermaid`` and what is ``{in braces}`` are for people only.

The tutorial begins in an empty directory and is played from top to bottom. Elsewhere there is a
shop, and files are written before anything is run. The addresses of servers are replaced by those
that the tests use; waits are shortened; everything else is as printed.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import dataclasses
import importlib.util
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from urllib.parse import urlsplit

import helpers
import psycopg
import pymysql
import pytest
from django.core.management import get_commands, load_command_class
from django.dispatch import Signal

from django_txtasks import checks, signals
from django_txtasks.backends import backend
from django_txtasks.conf import Config, DeadNotices
from django_txtasks.features.lanes.rules import parse_rules
from django_txtasks.hints.broker.topology import hint_queue
from django_txtasks.options import OF_TASK, OF_USING

pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOR_PEOPLE = {
    "sh",
    "text",
    "ini",
    "json",
    "html",
    "js",  # test_worker_protocol
    "ruby",
    "mermaid",
    "postgresql",
}  # the last by test_upgrade and test_worker_protocol
PLAYED = {"python", "sql", "console"}
PRINTED_BROKER = "amqp://guest:guest@localhost:5672/"
ON_POSTGRES = {"hints.md"}  # its SQL is PostgreSQL's

FENCE = re.compile(r"^```(?P<language>\S*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (?P<path>[\w/]+\.py)(?P<append>, at the end)?\n")
EXPECTED = re.compile(r"^\s*print\(.*\)  # (.*)$", re.MULTILINE)
PATIENCE = 250  # seconds for one program: a machine may be busy with much else
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)

SHOP = {
    "shop/models.py": """
from django.db import models


class Order(models.Model):
    customer = models.CharField(max_length=100)


class Receipt(models.Model):
    order = models.ForeignKey(Order, models.CASCADE, db_constraint=False)
""",
    "shop/tasks.py": """
from django_txtasks import task
from shop.models import Receipt


@task(atomic=True)
def send_receipt(order_id):
    Receipt.objects.create(order_id=order_id)
""",
    "shop/carrier.py": """
class Busy(Exception):
    pass


class UnknownAddress(Exception):
    pass


def book(customer, *, key):
    return f"parcel of {customer} {key}"


def cancel(*, key):
    pass


def price_list():
    return []
""",
    "shop/celery.py": """
sent = []


class app:
    @staticmethod
    def send_task(name, *, args, task_id):
        sent.append((name, args, task_id))
""",
}
SHOP_SETTINGS = """
INSTALLED_APPS += ["shop"]
DATABASES["default"]["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}
"""
INSTALLED = 'INSTALLED_APPS += ["django_txtasks"]'

# The only things that are not as printed.
FOOTER = """
import os
from for_tests import use_servers_of_the_tests

use_servers_of_the_tests(globals())
"""
FOR_TESTS = '''
"""Has a printed project use the servers that the tests have, and wait less."""
import json
import os


def use_servers_of_the_tests(settings):
    database = settings["DATABASES"]["default"]
    kind = database["ENGINE"].rpartition(".")[2]
    if kind == "sqlite3":
        if "timeout" in database["OPTIONS"]:
            assert database["OPTIONS"]["timeout"] == 5
        database["OPTIONS"]["timeout"] = 4.5
    else:
        database.update(json.loads(os.environ["SERVERS_OF_THE_TESTS"])[kind])
    txtasks = settings.setdefault("TXTASKS", {})
    txtasks.update(lease=15, heartbeat_interval=0.5, poll_interval=0.2, grace=1, clean_interval=1)
    if txtasks.get("broker_url"):
        txtasks["queue_prefix"] = os.environ["PREFIX_OF_THE_TESTS"]
'''
PRELUDE = """
from django.db import transaction
from django_txtasks import *
from shop.models import *
from shop.tasks import *
"""
# One process for the blocks of a page, and for commands, each as `manage.py` runs it. Each block has its own
# names, and its output is kept apart. A worker that a command forks ends here, too, without a result.
STEPS = """
import contextlib, importlib, io, json, os, sys
import django
from django.core.management import execute_from_command_line
django.setup()
process, said = os.getpid(), []
for place, step in json.load(sys.stdin):
    output = io.StringIO() if isinstance(step, str) else sys.stderr
    with contextlib.redirect_stdout(output):
        if isinstance(step, str):
            exec(compile(step, place, "exec"), {"__name__": place})
        else:
            importlib.invalidate_caches()
            sys.argv = ["manage.py", *step]
            execute_from_command_line(sys.argv)
    if os.getpid() != process:
        sys.exit()
    said.append(output.getvalue() if isinstance(step, str) else "")
json.dump(said, sys.stdout)
"""
UP_TO_DATE = [["makemigrations", "shop", "-v0"], ["migrate", "-v0"]]


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block, and where it stands."""

    language: str
    text: str
    place: str

    @property
    def prelude(self) -> str:
        """Return the code that a page's blocks assume; the README's blocks are complete."""
        return "" if self.place.startswith("README") else PRELUDE

    @property
    def file(self) -> re.Match[str] | None:
        return FILE.match(self.text) if self.language == "python" else None


class Project:
    """A Django project in a directory of its own, and all processes that were started in it."""

    def __init__(self, directory: Path, name: str) -> None:
        self.directory, self.name = directory, name
        (directory / "for_tests.py").write_text(FOR_TESTS)
        self.prefix = f"docs-{uuid.uuid4().hex[:8]}"
        self.environment = {
            **{key: text for key, text in os.environ.items() if not key.startswith("TXTASKS_")},
            "DJANGO_SETTINGS_MODULE": "mysite.settings",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "PREFIX_OF_THE_TESTS": self.prefix,
            "SERVERS_OF_THE_TESTS": json_of_servers(name),
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(directory), os.environ.get("PYTHONPATH")])
            ),
            "PYTHONWARNINGS": "default",
        }

    def play(self, block: Block) -> None:
        """Do what the block says."""
        if block.file:
            self.write(block)
        elif block.language in ("python", "sql"):
            self.run_blocks(block)
        elif block.language == "console":
            for command in COMMAND.findall(block.text):
                self.run(["bash", "-c", command], block.place)

    def write(self, block: Block) -> None:
        """Write or append a file; settings must work at once."""
        path = self.directory / block.file["path"]
        old = path.read_text() if block.file["append"] else ""
        text = self.as_tested(block.text)
        if path.name == "settings.py":
            path.write_text(f"{old.replace(FOOTER, '')}\n{text}{FOOTER}")
        else:
            path.write_text(f"{old}\n{text}")
        if path.name == "settings.py" and (self.directory / "shop/tasks.py").exists():
            self.commands(*UP_TO_DATE, ["check", "--database=default"], place=block.place)

    def run_sql(self, text: str, place: str) -> str:
        """Run a statement; return its first row as Python prints it."""
        return self.run_steps([(place, show_first_row(text))])[0]

    def commands(self, *commands: list[str], place: str = "") -> None:
        """Run several of Django's commands in one process."""
        self.run_steps([(place, command) for command in commands])

    def run_blocks(self, *found: Block, then: Sequence[list[str]] = ()) -> None:
        """Run blocks of Python and SQL, and then commands, in one process."""
        said = self.run_steps([*map(self.step, found), *(("", command) for command in then)])
        for block, output in zip(found, said, strict=False):
            if block.language == "python":
                assert output.splitlines() == EXPECTED.findall(block.text), block.place

    def step(self, block: Block) -> tuple[str, str]:
        """Return the place and the code of a block."""
        if block.language == "sql":
            return block.place, show_first_row(block.text)
        return block.place, block.prelude + self.as_tested(block.text)

    def run_steps(self, steps: Sequence[tuple[str, str | list[str]]]) -> list[str]:
        """Run code and commands in one process; return what each code has printed."""
        place = " ".join(dict.fromkeys(place for place, _ in steps))
        return json.loads(self.run([sys.executable, "-c", STEPS], place, json.dumps(steps)))

    def manage(self, *command: str, place: str = "") -> str:
        return self.run([sys.executable, "manage.py", *command], place)

    def run(self, command: list[str], place: str, told: str = "") -> str:
        """Run a program to its end with this input; processes that it leaves in the background continue.

        Returns:
            Its output.
        """
        log = self.directory / "output.log"
        with log.open("wb") as output:
            done = subprocess.run(
                command,
                check=False,
                cwd=self.directory,
                env=self.environment,
                input=told.encode(),
                stdout=output if command[0] == "bash" else subprocess.PIPE,
                stderr=subprocess.STDOUT if command[0] == "bash" else subprocess.PIPE,
                timeout=PATIENCE,
            )
        said = log.read_text() + (done.stderr or b"").decode() + (done.stdout or b"").decode()
        assert done.returncode == 0, f"{place}: {command[-1]}\n{said}"
        return (done.stdout or b"").decode()

    def as_tested(self, text: str) -> str:
        """Return a block with the addresses of the tests' servers."""
        text = text.replace(PRINTED_BROKER, helpers.url_of("AMQP"))
        text = text.replace('"till-orders"', f'"{self.prefix}.till"')
        return text.replace('"txtasks.default"', f'"{self.prefix}.default"')

    def end(self) -> None:
        """End what still runs here, and nothing else; remove the queues of RabbitMQ."""
        mark = f"PREFIX_OF_THE_TESTS={self.prefix}".encode()
        helpers.wait_until(lambda: not signal_processes(mark), 20, "the project's processes to end")
        queues = [f"{self.prefix}.{queue}" for queue in ("default", "mail", "till")]
        helpers.delete_queues(helpers.url_of("AMQP"), queues)


def show_first_row(sql: str) -> str:
    """Return code that runs a statement and prints its first row."""
    execute = f"cursor = connection.cursor(); cursor.execute({sql!r}); print(*cursor.fetchone())"
    return f"from django.db import connection\n{execute}"


def signal_processes(mark: bytes) -> list[int]:
    """Ask every process that carries the mark to stop, and return which there are."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended, or belongs to somebody else
            if mark in (process / "environ").read_bytes():
                found.append(int(process.name))
                os.kill(int(process.name), signal.SIGTERM)
    return found


def json_of_servers(database: str) -> str:
    """Return what DATABASES says about the tests' PostgreSQL and MariaDB, as JSON."""
    urls = {"postgresql": "POSTGRES", "mysql": "MARIADB"}
    found = {}
    for kind, server in urls.items():
        parts = urlsplit(helpers.url_of(server))
        found[kind] = {
            "NAME": database,
            "HOST": parts.hostname,
            "PORT": str(parts.port),
            "USER": parts.username,
            "PASSWORD": parts.password or "",
        }
    return json.dumps(found)


@contextmanager
def databases(name: str) -> Iterator[None]:
    """A database of this name on each server."""
    postgres = helpers.url_of("POSTGRES")
    parts = urlsplit(helpers.url_of("MARIADB"))
    mariadb = {"host": parts.hostname, "port": parts.port, "user": parts.username}
    patience = "-c statement_timeout=60s"  # whoever keeps a database from being dropped is an error
    with (
        psycopg.connect(postgres, autocommit=True, options=patience) as one,
        pymysql.connect(**mariadb, password=parts.password or "", read_timeout=60) as other,
    ):
        one.execute(f"CREATE DATABASE {name}")
        other.cursor().execute(f"CREATE DATABASE {name}")
        try:
            yield
        finally:
            one.execute(f"DROP DATABASE {name} WITH (FORCE)")
            other.cursor().execute(f"DROP DATABASE {name}")


@pytest.fixture
def project(tmp_path):
    """An empty directory, with servers around it."""
    name = f"txtasks_docs_{uuid.uuid4().hex[:8]}"
    with databases(name):
        project = Project(tmp_path, name)
        try:
            yield project
        finally:
            project.end()


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            found["language"],
            found["text"],
            f"{page.name}:{text[: found.start()].count(chr(10)) + 1}",
        )
        for found in FENCE.finditer(text)
    ]


@pytest.fixture(scope="session")
def empty_shop(tmp_path_factory):
    """A shop without this package, as guides assume it; each test has a copy."""
    directory = tmp_path_factory.mktemp("shop")
    project = Project(directory, "none")
    project.run(["django-admin", "startproject", "mysite", str(directory)], "the shop")
    project.manage("startapp", "shop")
    for path, text in SHOP.items():
        (directory / path).write_text(text)
    return directory


@pytest.fixture(scope="session")
def stocked_shop(tmp_path_factory, empty_shop):
    """The shop with this package, and with all tables in its SQLite file."""
    directory = tmp_path_factory.mktemp("stocked") / "shop"
    shutil.copytree(empty_shop, directory)
    add_to_settings(directory, SHOP_SETTINGS + INSTALLED)
    Project(directory, "none").commands(*UP_TO_DATE)
    return directory


def add_to_settings(directory: Path, text: str) -> None:
    path = directory / "mysite/settings.py"
    path.write_text(path.read_text() + text + FOOTER)


@pytest.fixture
def shop(project, empty_shop, stocked_shop):
    """A project with a shop, and this package unless the page says how: ``shop(page)``."""

    def of(page: Path) -> Project:
        if not any(INSTALLED in block.text for block in blocks(page)):
            shutil.copytree(stocked_shop, project.directory, dirs_exist_ok=True)
        else:
            shutil.copytree(empty_shop, project.directory, dirs_exist_ok=True)
            add_to_settings(project.directory, SHOP_SETTINGS)
        if page.name in ON_POSTGRES:
            engine = '\nDATABASES["default"] = {"ENGINE": "django.db.backends.postgresql"}\n'
            add_to_settings(project.directory, engine)
            project.commands(*UP_TO_DATE)
        return project

    return of


# ---- the blocks


def test_the_tutorial_works_from_top_to_bottom(project):
    for block in blocks(ROOT / "docs/tutorial.md"):
        project.play(block)


def played(page: Path) -> list[Block]:
    """Return the blocks of a guide that do something, in order."""
    return [block for block in blocks(page) if block.language in PLAYED]


GUIDES = [page for page in PAGES if page.name != "tutorial.md" and played(page)]


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_every_block_of_a_guide_works(page, shop):
    project, found = shop(page), played(page)
    for block in found:
        if block.file:
            project.write(block)
    if any(block.file and block.file["path"] == "shop/models.py" for block in found):
        project.commands(*UP_TO_DATE)
    dead = "from django_txtasks.models import Task; assert not Task.objects.filter(status='dead')"
    project.run_blocks(
        *(block for block in found if not block.file),
        then=[*UP_TO_DATE, ["runworkers", "--batch"], ["shell", "-v0", "-c", dead]],
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_is_left_out_by_mistake(page):
    text = page.read_text()
    found = blocks(page)
    assert text.count("```") == 2 * len(found), "a fence that the test does not see"
    for block in found:
        known = block.language in FOR_PEOPLE | PLAYED or block.language.startswith("{")
        assert known, f"{block.place}: what is {block.language!r}?"
        if block.language in FOR_PEOPLE:
            assert "import " not in block.text, f"{block.place}: is this Python?"


def test_the_row_that_the_raw_protocol_writes_runs(shop):
    page = ROOT / "docs/reference/hints.md"
    project = shop(page)
    insert, _ = [block for block in blocks(page) if block.language == "sql"]
    task_id = project.run_sql(insert.text, insert.place).strip()
    ran = f"from django_txtasks.models import *; assert FinishedTask.objects.get(pk='{task_id}').args == [1]"
    project.commands(["runworkers", "--batch"], ["shell", "-v0", "-c", ran])


def test_what_the_guide_tells_about_tests_passes_as_tests(shop):
    page = ROOT / "docs/how-to/testing.md"
    project = shop(page)
    settings = project.directory / "mysite/settings.py"
    settings.write_text(
        settings.read_text().replace(
            FOOTER, f'\nDATABASES["default"]["TEST"] = {{"NAME": "test.sqlite3"}}\n{FOOTER}'
        )
    )
    imports = """
from django.db import transaction
from django_txtasks import enqueue_task
from shop.models import Order, Receipt
from shop.tasks import send_receipt
"""
    code = [block.text for block in blocks(page) if "TestCase" in block.text]
    (project.directory / "shop/tests.py").write_text("\n".join([imports, *code]))
    assert "Found 4 test(s)" in project.manage("test", "shop")


RECIPES = ROOT / "docs/how-to/recipes.md"
TESTS_OF_RECIPES = """
from datetime import datetime, timedelta
from types import SimpleNamespace
from zoneinfo import ZoneInfo

from django.core.management import call_command
from django.test import Client, TestCase, TransactionTestCase

from django_txtasks.models import Schedule
from django_txtasks.testing import run_due_tasks, worker
from shop import beat, celery
from shop.models import Order
from shop.tasks import nightly_report, send_to_celery


class ViewsTest(TransactionTestCase):
    def test_the_browser_that_started_a_task_gets_its_result_and_no_other(self):
        Order.objects.create(customer="Ada")
        browser = Client()
        self.assertEqual(browser.get("/count").status_code, 404)
        self.assertEqual(browser.post("/count/start").status_code, 202)
        self.assertEqual(browser.get("/count").json(), {"state": "running"})
        with worker() as running:
            running.wait_until_idle()
        self.assertEqual(browser.get("/count").json(), {"state": "done", "count": 1})
        self.assertEqual(Client().get("/count").status_code, 404)

    def test_the_browser_that_started_an_import_sees_how_far_it_is(self):
        browser = Client()
        self.assertContains(browser.post("/import/start"), "/import/progress")
        waits = {"state": "pending", "share": None, "note": ""}
        self.assertEqual(browser.get("/import/progress").json(), waits)
        with worker() as running:
            running.wait_until_idle()
        self.assertEqual(browser.get("/import/progress").json()["state"], "succeeded")
        self.assertEqual(Order.objects.count(), 2)


class TasksTest(TestCase):
    def test_the_report_of_a_tick_is_that_of_the_day_before(self):
        call_command("txtasks_schedules", "sync", verbosity=0)
        (ran,) = run_due_tasks(until=timedelta(days=1))
        self.assertEqual(ran.task_name, "shop.tasks.nightly_report")
        today = datetime.now(ZoneInfo("Europe/Vienna")).date()
        self.assertIn(ran.result, [str(today), str(today - timedelta(days=1))])
        nightly_report.enqueue()
        (ran,) = run_due_tasks()
        self.assertEqual(ran.status, "succeeded")

    def test_the_message_for_celery_has_the_id_of_the_task(self):
        handle = send_to_celery.enqueue("pack", [1])
        run_due_tasks()
        self.assertEqual(celery.sent, [("pack", [1], str(handle.id))])

    def test_rows_of_beat_become_schedules(self):
        common = dict(task="shop.tasks.remind", queue=None, args="[1]", kwargs="{}", enabled=True)
        at = SimpleNamespace(minute="0", hour="3", day_of_month="*", month_of_year="*",
                             day_of_week="mon-fri", timezone="Europe/Vienna")
        hours = SimpleNamespace(period="hours", every=2)
        for name, crontab, interval in [("cron", at, None), ("grid", None, hours), ("sun", None, None)]:
            row = SimpleNamespace(name=name, crontab=crontab, interval=interval, **common)
            self.assertEqual(beat.copy(row), name != "sun")
        cron, grid = Schedule.objects.order_by("name")
        self.assertEqual((cron.cron, cron.tz, cron.args), ("0 3 * * mon-fri", "Europe/Vienna", [1]))
        self.assertEqual((grid.cron, grid.every, grid.tz), ("", 7200, "UTC"))
        ran = run_due_tasks(until=timedelta(hours=2), reraise=False)
        self.assertIn("shop.tasks.remind", [one.task_name for one in ran])
"""


def test_the_recipes_do_what_they_say(shop):
    project = shop(RECIPES)
    html, *more = [block.text for block in blocks(RECIPES) if block.language == "html"]
    assert not more
    template = project.directory / "shop/templates/shop/progress.html"
    template.parent.mkdir(parents=True)
    template.write_text(html)
    assert "Found 6 test(s)" in output_of_tests(project, RECIPES, TESTS_OF_RECIPES)


def output_of_tests(project: Project, page: Path, tests: str) -> str:
    """Write the files of a page and these tests into the project, and run the tests on SQLite.

    Returns:
        The output.
    """
    for block in blocks(page):
        if block.file:
            project.write(block)
    (project.directory / "shop/test_page.py").write_text(tests)
    settings = project.directory / "mysite/settings.py"
    settings.write_text(
        settings.read_text().replace(
            FOOTER, f'\nDATABASES["default"]["TEST"] = {{"NAME": "test.sqlite3"}}\n{FOOTER}'
        )
    )
    return project.manage("test", "shop")


EVIDENCE = ROOT / "docs/how-to/evidence.md"
TESTS_OF_EVIDENCE = """
import hashlib
import hmac
import json
import re
import tempfile
from datetime import timedelta
from pathlib import Path

from django.core import mail
from django.test import Client, TestCase

from django_txtasks.models import FinishedTask, Task
from django_txtasks.testing import run_due_tasks
from shop import bank
from shop.models import Order, Receipt
from shop.tasks import approve, import_prices, pack, pay

DAY = timedelta(days=1)


def result_of(handle):
    return FinishedTask.objects.get(pk=handle.id).result


class LinkTest(TestCase):
    def links(self):
        run_due_tasks()
        (sent,) = mail.outbox
        return re.findall("https://shop.example.com(.*)", sent.body)

    def test_the_button_behind_the_link_approves(self):
        handle = approve.enqueue(1)
        yes, _ = self.links()
        self.assertContains(Client().get(yes), "<button")
        self.assertEqual(run_due_tasks(), [])
        self.assertContains(Client().post(yes), "Thank you")
        run_due_tasks()
        self.assertEqual(result_of(handle), "yes")

    def test_the_second_click_is_told_that_it_does_not_count(self):
        handle = approve.enqueue(1)
        yes, no = self.links()
        Client().post(no)
        for link in (yes, no):
            self.assertContains(Client().post(link), "already answered", status_code=410)
        run_due_tasks()
        self.assertEqual(result_of(handle), "no")
        self.assertContains(Client().post(yes), "already answered", status_code=410)

    def test_a_changed_link_is_unknown(self):
        handle = approve.enqueue(1)
        yes, no = self.links()
        swapped = f"{yes.rpartition(':')[0]}:{no.rpartition(':')[2]}"
        for link in (yes.replace(":", "x:", 1), f"{yes[:-2]}/", swapped):
            self.assertEqual(Client().post(link).status_code, 404)
        self.assertEqual(run_due_tasks(), [])

    def test_the_link_expires_and_the_task_goes_on_without_an_answer(self):
        handle = approve.enqueue(1)
        yes, _ = self.links()
        run_due_tasks(until=4 * DAY)
        self.assertEqual(result_of(handle), "no answer")
        self.assertContains(Client().post(yes), "too late", status_code=410)


class WebhookTest(TestCase):
    def setUp(self):
        bank.requests.clear()

    def call(self, signature=None, **event):
        body = event.get("body") or json.dumps(event)
        if signature is None:
            signature = hmac.new(bank.SECRET, body.encode(), hashlib.sha256).hexdigest()
        return Client(enforce_csrf_checks=True).post(
            "/bank", body, content_type="application/json", headers={"X-Signature": signature}
        )

    def test_the_call_of_the_bank_ends_the_wait_and_its_replay_changes_nothing(self):
        handle = pay.enqueue(1)
        run_due_tasks()
        ((order_id, _, reference),) = bank.requests
        self.assertEqual(order_id, 1)
        self.assertContains(self.call(reference=reference, status="paid"), "noted")
        self.assertContains(self.call(reference=reference, status="failed"), "known already")
        run_due_tasks()
        self.assertContains(self.call(reference=reference, status="failed"), "known already")
        self.assertEqual(result_of(handle), "paid")
        self.assertEqual(len(bank.requests), 1)

    def test_what_did_not_come_from_the_bank_is_refused(self):
        handle = pay.enqueue(1)
        run_due_tasks()
        ((_, _, reference),) = bank.requests
        for signature in ("", "0" * 64, "ä"):
            self.assertEqual(self.call(signature, reference=reference, status="paid").status_code, 403)
        self.assertEqual(self.call(reference=f"x{reference}", status="paid").status_code, 404)
        self.assertEqual(self.call(reference=7, status="paid").status_code, 404)
        for body in ("no JSON", "[]", '{"status": "paid"}'):
            self.assertEqual(self.call(body=body).status_code, 400)
        self.assertEqual(Client().get("/bank").status_code, 405)
        self.assertEqual(run_due_tasks(), [])

    def test_a_call_that_never_comes_and_one_that_comes_too_late(self):
        handle = pay.enqueue(1)
        run_due_tasks(until=DAY)
        self.assertEqual(result_of(handle), "expired")
        ((_, _, reference),) = bank.requests
        self.assertContains(self.call(reference=reference, status="paid"), "known already")


class LookTest(TestCase):
    def test_a_file_is_imported_when_it_is_there(self):
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "prices.csv"
            handle = import_prices.enqueue(str(path))
            run_due_tasks(until=timedelta(minutes=5))
            self.assertGreaterEqual(Task.objects.get().snoozes, 5)
            path.write_text("bread 3")
            run_due_tasks(until=timedelta(minutes=7))
            self.assertEqual(result_of(handle), "bread 3")

    def test_a_row_is_waited_for_in_the_same_way(self):
        order = Order.objects.create(customer="Ada")
        handle = pack.enqueue(order.pk)
        run_due_tasks(until=timedelta(minutes=2))
        self.assertEqual(handle.status(), "pending")
        Receipt.objects.create(order=order)
        run_due_tasks(until=timedelta(minutes=4))
        self.assertEqual(result_of(handle), "packed")

    def test_after_a_day_of_looks_the_task_is_dead(self):
        handle = import_prices.enqueue("/nowhere")
        Task.objects.update(snoozes=24 * 60 - 1)
        run_due_tasks(until=timedelta(minutes=5), reraise=False)
        self.assertEqual(handle.status(), "dead")
"""


def test_the_recipes_of_evidence_do_what_they_say(shop):
    project = shop(EVIDENCE)
    assert "Found 10 test(s)" in output_of_tests(project, EVIDENCE, TESTS_OF_EVIDENCE)


# ---- what is named


def documented(page: str, row: str) -> dict[str, str]:
    """Return the first two cells of the table rows that begin so."""
    text = (ROOT / "docs/reference" / page).read_text()
    return dict(re.findall(rf"^\| `({row})` \| ([^|]+) \|", text, re.MULTILINE))


def test_every_setting_is_documented_with_its_default():
    said = documented("settings.md", r"\w+")
    real = {
        field.name: field.default
        if field.default_factory is dataclasses.MISSING
        else field.default_factory()
        for field in dataclasses.fields(Config)
    }
    assert {name: default(name, text) for name, text in said.items()} == real


def default(name: str, text: str) -> object:
    """Return the value that a cell of the table means."""
    if text.startswith("`"):
        value = ast.literal_eval(text.strip("`"))
        if name == "lanes":
            return parse_rules(value)
        if name in ("discard_dead_after", "hand_over", "database_budget"):
            return value
        of_their_own = {list: tuple, dict: lambda keys: DeadNotices(**keys)}
        return of_their_own.get(type(value), lambda as_it_is: as_it_is)(value)
    number, unit = text.split()
    units = {"s": "seconds", "h": "hours", "days": "days"}
    return timedelta(**{units[unit]: float(number)})


@pytest.mark.parametrize(
    ("command", "page"),
    [
        ("runworkers", "reference/commands"),
        ("runcleaner", "reference/commands"),
        ("runintake", "reference/commands"),
        ("rundrain", "reference/commands"),
        ("txtasks_schedules", "reference/commands"),
        ("txtasks_load", "reference/commands"),
        ("txtasks_status", "reference/commands"),
        ("txtasks_verify", "how-to/verify"),
        ("txtasks_audit", "how-to/verify"),
    ],
)
def test_every_option_of_a_command_is_documented(command, page):
    text = (ROOT / f"docs/{page}.md").read_text()
    section = text.split(f"## {command}\n")[1].split("\n## ")[0]
    said = set(re.findall(r"^\| `(--[\w-]+)", section, re.MULTILINE))
    assert said == options(command)


def options(command: str) -> set[str]:
    """Return the options that are this command's own."""
    parser = load_command_class("django_txtasks", command).create_parser("manage.py", command)
    of_django = load_command_class("django.core", "check").create_parser("manage.py", "check")
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    flags = {flag for action in shown for flag in action.option_strings}
    common = {flag for action in of_django._actions for flag in action.option_strings}
    own = flags - (common - {"--database"}) - {"--skip-checks"}
    return {flag for flag in own if flag.startswith("--")}


DEPLOYED = {
    "compose/compose.yaml",
    "systemd/txtasks-workers.service",
    "kubernetes/txtasks.yaml",
    "kubernetes/keda.yaml",
    "kubernetes/hpa.yaml",
    "prometheus/alerts.yaml",
    "prometheus/scrape.yaml",
}
OF_GRAFANA = {"grafana/txtasks.json"}  # test_prometheus.py


@pytest.mark.parametrize("path", sorted(DEPLOYED))
def test_what_is_deployed_starts_commands_with_options_that_they_have(path):
    text = (ROOT / "deploy" / path).read_text()
    found = re.findall(r"manage\.py,? (\w+)([^\n\]]*)", text)
    assert found
    for command, arguments in found:
        app = get_commands()[command]
        parser = load_command_class(app, command).create_parser("manage.py", command)
        parser.parse_args(arguments.replace(",", " ").split())


def test_systemd_starts_workers_again_as_long_as_tables_are_missing():
    """Five starts in 10 s are systemd's own limit, after which it gives up."""
    file = "deploy/systemd/txtasks-workers.service"
    unit = configparser.ConfigParser()
    unit.read(ROOT / file)
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert (unit["Service"]["Restart"], unit["Service"]["RestartSec"]) == ("always", "5")
    page = (ROOT / "docs/how-to/deployment.md").read_text()
    assert f"```{{literalinclude}} ../../{file}\n" in page  # no copy, which could differ


@pytest.mark.parametrize("service", ["web", "workers"])
def test_the_services_of_compose_wait_for_the_tables(service):
    text = (ROOT / "deploy/compose/compose.yaml").read_text()
    waits = re.search(r"^x-after-migrate: &after-migrate\n((?:  .+\n)+)", text, re.MULTILINE)
    assert waits and "migrate: {condition: service_completed_successfully}" in waits[1]
    block = re.search(rf"^  {service}:\n((?:    .+\n)+)", text, re.MULTILINE)
    assert block and "    depends_on: *after-migrate\n" in block[1]


def test_everything_to_deploy_is_tested():
    files = {path for path in (ROOT / "deploy").rglob("*") if path.is_file()}
    assert {str(path.relative_to(ROOT / "deploy")) for path in files} == DEPLOYED | OF_GRAFANA


def test_every_check_is_documented():
    files = [
        checks.__file__,
        backend.__file__,
        *sorted((Path(checks.__file__).parent / "contrib").glob("*/checks.py")),
    ]
    code = "".join(Path(file).read_text() for file in files)
    real = re.findall(r'"(txtasks\.[EW]\d+)"', code)
    assert set(documented("checks.md", r"txtasks\.[EW]\d+")) == set(real)


def test_every_signal_is_documented():
    real = {name for name, event in vars(signals).items() if isinstance(event, signals.LogSignal)}
    text = (ROOT / "docs/reference/signals.md").read_text()
    table = text.split("| Signal | Sent when |\n")[1].split("\n\n")[0]
    said = [
        name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    assert sorted(said) == sorted(real)


def test_every_option_of_a_task_is_documented_with_its_default():
    real = {name: repr(option.default).replace("'", '"') for name, option in OF_TASK.items()}
    page = (ROOT / "docs/reference/options.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| .+ \| (yes|no) \|$", page, re.MULTILINE)
    assert {name: default for name, default, _ in rows} == real
    only_once = re.findall(r"^\| `(\w+)` \| [^|]+ \|$", page, re.MULTILINE)
    assert {name for name, _, using in rows if using == "yes"} | set(only_once) == set(OF_USING)


def test_what_is_called_public_exists_and_the_pages_import_nothing_else():
    page = (ROOT / "docs/reference/public.md").read_text()
    for name in re.findall(r"`(\w+)`", page.split("\n## Signals\n")[1].split("\n## ")[0]):
        assert isinstance(getattr(signals, name), Signal), name
    public = {}
    for module, what in re.findall(r"^\| `(django_txtasks[\w.]*)` \| (.+) \|$", page, re.MULTILINE):
        public[module] = import_module(module)
        named = re.findall(r"`([A-Z]\w*[a-z]|task)`", what)
        assert all(hasattr(public[module], name) for name in named), module
    for block in itertools.chain.from_iterable(map(blocks, PAGES)):
        for module in re.findall(
            r"^\s*from (django_txtasks[\w.]*) import", block.text, re.MULTILINE
        ):
            assert module in public, f"{block.place} imports {module}"


def test_each_name_of_the_api_page_can_be_imported_from_its_module():
    page = (ROOT / "docs/reference/api.md").read_text()
    names = re.findall(
        r"^\.\. auto(?!module)\w+:: (django_txtasks[\w.]*)\.(\w+)$", page, re.MULTILINE
    )
    assert len(names) > 60
    for module, name in names:
        assert hasattr(import_module(module), name), f"{module}.{name}"


def test_what_the_page_on_upgrades_says_of_moved_modules_is_true():
    page = (ROOT / "docs/how-to/upgrades.md").read_text()
    rows = re.findall(
        r"^\| (`django_txtasks\..+) \| (.*`django_txtasks\..+) \|$", page, re.MULTILINE
    )
    assert len(rows) > 10
    for name in re.findall(r"`(django_txtasks\.[\w.]+)`", " ".join(now for _, now in rows)):
        import_module(name)


FEATURES_OF_README = re.findall(
    r"^\* \*\*(\[.+?\))\*\*:", (ROOT / "README.md").read_text(), re.MULTILINE
)


def test_the_readme_is_short_and_names_eight_features():
    assert len((ROOT / "README.md").read_text().split()) <= 1300
    assert len(FEATURES_OF_README) == 8


def test_the_comparison_calls_no_feature_of_the_readme_missing():
    page = (ROOT / "docs/explanation/comparison.md").read_text()
    has = page.split("| Feature | Other names for it |\n|---|---|\n")[1].split("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in has.splitlines()]
    assert [name.replace("(../", "(docs/") for name, _ in rows] == FEATURES_OF_README
    words = [word for _, others in rows for word in others.split(", ")]
    words += [name for cell, _ in rows for name in re.findall(r"\[(.+?)\]", cell)]
    peers = page.split("\n|---|---|---|---|---|\n")[1].split("\n\n")[0]
    lacks = [row.split("|")[-2] for row in peers.splitlines()]
    assert len(lacks) > 10
    lacks += page.split("\n## When to take something else\n")[1].split("\n\n")[1].split("\n* ")
    for text in lacks:
        found = [word for word in words if re.search(rf"\b{word}", text, re.IGNORECASE)]
        assert not found, f"this exists: {found} in {text!r}"


def test_every_row_of_what_happens_when_names_a_test_that_is_there():
    page = ROOT / "docs/explanation/guarantees.md"
    rows = page.read_text().split("\n|---|---|---|\n")[1].splitlines()
    assert len(rows) > 30
    for row in rows:
        said = row.split("|")[-2]
        shown = re.findall(r"\[`(test_\w+)`\]\((\.\./\.\./tests/test_\w+\.py)\)", said)
        assert shown and said.count("](") == len(shown), f"no test shows it: {row}"
        for name, path in shown:
            code = (page.parent / path).read_text()
            assert f"\ndef {name}(" in code, f"{name} is not in {path}: {row}"


# ---- for the forge and for assistants


def test_llms_txt_has_a_line_for_every_page():
    spec = importlib.util.spec_from_file_location("llms", ROOT / "docs/llms.py")
    llms = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(llms)
    lines = llms.llms_txt(ROOT / "docs").splitlines()
    said = {}
    for line in lines:
        if line.startswith("- "):
            title, link, summary = re.fullmatch(r"- \[(.+?)\]\((.+?)\): (.+)", line).groups()
            said[re.sub(r"^_sources/|\.md\.txt$|\.html$", "", link)] = title, summary
    pages = {str(page.relative_to(ROOT / "docs").with_suffix("")) for page in PAGES[1:]}
    assert set(said) == pages - {"index"}
    assert all(len(summary) > 10 for _, summary in said.values())
    assert "](" not in "".join(summary for _, summary in said.values())


def test_the_forge_runs_the_environments_of_tox():
    listed = (ROOT / "tox.ini").read_text().split("env_list =\n")[1].split("\nskip")[0].split("\n")
    wanted = set()
    for line in map(str.strip, listed):
        pythons = re.fullmatch(r"py\{([\d, ]+)\}(-\w+)", line)
        wanted |= {f"py{one}{pythons[2]}" for one in pythons[1].split(", ")} if pythons else {line}
    jobs = (ROOT / ".github/workflows/ci.yml").read_text()
    assert set(re.findall(r"\{ env: ([\w-]+),", jobs)) == wanted


@pytest.mark.parametrize(
    "command", ["txtasks_status --json", "txtasks_audit", "txtasks_explain ID"]
)
def test_the_issue_template_asks_for_commands_that_are_there(command):
    assert f"python manage.py {command}`" in (ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text()
    name, *arguments = command.replace("ID", str(uuid.uuid4())).split()
    load_command_class("django_txtasks", name).create_parser("manage.py", name).parse_args(
        arguments
    )


# ---- links


@pytest.mark.parametrize(
    "page",
    [*PAGES, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))],
    ids=lambda page: page.name,
)
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\[[^\]]+\]\(([^)]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.is_file(), f"{page.name} links {target}"
        if anchor:
            assert anchor in anchors(there), f"{page.name} links {target}"


LABEL = re.compile(r"\]\[([^\]]+)\]")
ADDRESS = re.compile(r"^\[([^\]]+)\]: \S+$", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_label_of_a_link_has_its_address_on_a_line_of_its_own(page):
    text = re.sub(r"`[^`]*`", "", FENCE.sub("", page.read_text()))
    assert set(LABEL.findall(text)) <= set(ADDRESS.findall(text))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_name_of_hint_queues_is_the_documented_one():
    assert hint_queue(Config(), "default", "default") == "txtasks.default"
