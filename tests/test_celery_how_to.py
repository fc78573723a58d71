"""The steps of docs/how-to/celery.md, done in their order to a Django site with a real Celery worker."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import helpers
import pytest

pytest.importorskip("celery", reason="celery is not installed")
import celery_site
from celery.result import AsyncResult
from probe import on_celery

pytestmark = pytest.mark.once
PAGE = Path(__file__).parents[1] / "docs/how-to/celery.md"
STEP = re.compile(r"^## (\d)\. |^```\{code-block\} (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A heading, or a block that test_docs.py leaves to this test."""
FILE = re.compile(r"# (\S+\.py)(, at the end)?\n")
BEFORE = """
import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings")
app = Celery("mysite")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
"""
TASKS = """
from celery import shared_task


@shared_task
def send(order):
    return f"sent {order}"
"""
SETTINGS = """
import json, os

SECRET_KEY = "of one test"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": "db.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}
for name, value in json.loads(os.environ["CELERY_OF_THE_TEST"]).items():
    globals()[f"CELERY_{name.upper()}"] = value
"""
SENDS = """
from django.db import transaction
from django_txtasks.models import FinishedTask, Task
from shop.tasks import send

with transaction.atomic():
    send.delay("gone")
    transaction.set_rollback(True)
with transaction.atomic():
    result = send.delay("kept")
assert Task.objects.count() == 1
"""
ASKS = """
assert not Task.objects.exists()
print(result.id)
"""
RUN = """
import sys
import django
from django.core.management import execute_from_command_line
django.setup()
def manage(*arguments):
    execute_from_command_line(["manage.py", *arguments])
"""


def steps():
    """Return the blocks of each step of the page, as (language, text)."""
    found, number = {}, 0
    for step, language, text in STEP.findall(PAGE.read_text()):
        if step:
            number = int(step)
            found[number] = []
        elif number:
            found[number].append((language, text))
    return found


def write_files(directory, *numbers):
    """Write the files of these steps into the site."""
    for number in numbers:
        for language, text in steps()[number]:
            if language == "python":
                path, append = FILE.match(text).groups()
                file = directory / path
                file.write_text(f"{file.read_text() if append else ''}\n{text}")


def commands(*numbers):
    """Return Python code that runs the commands of these steps."""
    lines = [
        line.removeprefix("$ python manage.py ").split()
        for number in numbers
        for language, text in steps()[number]
        if language == "console"
        for line in text.splitlines()
    ]
    return "".join(f"manage(*{line!r})\n" for line in lines)


@pytest.fixture
def directory(tmp_path):
    """A site that has Celery, and nothing of this package."""
    for name, text in {
        "mysite/__init__.py": "from mysite.celery import app as celery_app\n",
        "mysite/celery.py": BEFORE,
        "mysite/settings.py": SETTINGS,
        "shop/__init__.py": "",
        "shop/tasks.py": TASKS,
    }.items():
        file = tmp_path / "site" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "site"


def environment(directory, broker):
    return {
        **{key: text for key, text in os.environ.items() if not key.startswith("TXTASKS_")},
        "DJANGO_SETTINGS_MODULE": "mysite.settings",
        "CELERY_OF_THE_TEST": json.dumps(broker.configuration),
        "PYTHONPATH": str(directory),
    }


@pytest.mark.parametrize("kind", ["rabbitmq", "filesystem"])
def test_the_steps_of_the_page_move_a_site(kind, directory, tmp_path):
    broker = celery_site.CelerySite(kind, tmp_path)
    env = environment(directory, broker)
    try:
        write_files(directory, 1, 2, 3)
        program = "".join([RUN, commands(1, 3), SENDS, commands(4), ASKS])
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=directory, env=env, check=False,
            capture_output=True, text=True, timeout=helpers.PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        broker.start_worker(app="mysite.celery", cwd=directory, env=env)
        celery_site.point(on_celery.app, broker.configuration)
        result = AsyncResult(done.stdout.split()[-1], app=on_celery.app)
        assert result.get(helpers.PATIENCE) == "sent kept"
    finally:
        broker.end()


def test_the_page_has_its_steps_in_order():
    assert list(steps()) == [1, 2, 3, 4, 5, 6, 7]
