"""Takes the pictures of the admin that the documentation shows.

    python docs/screenshots.py [directory]

It needs ``--group browser``, and django-unfold for one picture; ``tests/browsing.py`` finds a Chromium. The
pages are those of the example project on a database of SQLite that is gone afterwards. *At a glance* and the
cause show the rows of ``tests/scene.py``; the other pages show tasks that were really enqueued, run and killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "tests"))
SOURCES = ("django_txtasks", "testproject")
QUICK = {
    "retry_base": 0.01,
    "retry_ceiling": 0.01,
    "lease": 4,
    "heartbeat_interval": 0.3,
    "grace": 1,
}
LAPTOP, PHONE = 1560, 390  # pixels
SIZES = {
    "glance": (1200, 1130),
    "glance-phone": (PHONE, 1130),
    "cause": (LAPTOP, 820),
    "cause-phone": (PHONE, 1000),
    "tasks": (LAPTOP, 1020),
    "dead-task": (LAPTOP, 1500),
    "workers": (LAPTOP, 560),
    "inbox": (820, 950),
    "question": (820, 690),
}
UNFOLD_HEIGHT = 1030
DARK = ("glance-phone", "cause-phone")
COLOURS = 256
"""Number of colours of a picture: more of them make its file larger, and nothing clearer."""


def main(directory: str = str(HERE / "images")) -> None:
    """Set the scenes, serve them, and take the pictures."""
    import browsing

    with tempfile.TemporaryDirectory(prefix="shop-") as room:
        _set_up(Path(room))
        with browsing.server() as address, browsing.browser() as chromium:
            for scene in (_bad_evening, _working_day, _approvals):
                with scene() as pages:
                    for name, page in pages.items():
                        _take(chromium, f"{address}{page}", Path(directory) / f"{name}.png")
    if find_spec("unfold"):
        _take_with_unfold(Path(directory) / "glance-unfold.png")


def _set_up(room: Path) -> None:
    """Work on a copy: tracebacks show where the code is, and that is nobody's business."""
    for source in SOURCES:
        shutil.copytree(HERE.parent / source, room / source)
    places = [str(room), str(room / "testproject")]
    sys.path[:0] = places
    os.environ.update(
        DJANGO_SETTINGS_MODULE="settings",
        TXTASKS_DATABASE_URL=f"sqlite:///{room}/shop.sqlite3?timeout=1.3",
        TXTASKS_SETTINGS=json.dumps(QUICK),
        PYTHONPATH=os.pathsep.join(places),
        DJANGO_ALLOW_ASYNC_UNSAFE="true",  # Playwright keeps an event loop in this thread
    )
    import django
    from django.conf import settings

    settings.MIDDLEWARE.append("browsing.SignedIn")
    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser("ada", "ada@example.com", "secret")


@contextmanager
def _bad_evening() -> Iterator[dict[str, str]]:
    """Problems of all kinds; gives *At a glance* and the tasks of a cause, for a laptop and for a phone."""
    import scene

    from django_txtasks import models

    scene.fill(times=20)
    pages = scene.pages()
    glance, cause = pages["glance"], pages["cause"]
    yield {"glance": glance, "glance-phone": glance, "cause": cause, "cause-phone": cause}
    for table in (
        models.Task, models.Worker, models.Cleaner, models.PausedQueue, models.Lane,
        models.Schedule, models.Stat,
    ):  # fmt: skip
        table.objects.all().delete()


@contextmanager
def _working_day() -> Iterator[dict[str, str]]:
    """Tasks of all kinds and workers that run; gives the pages, by name."""
    from django.core.management import call_command
    from django.db import transaction
    from orders.models import Order
    from orders.tasks import charge_card, print_receipt, send_receipt

    from django_txtasks.models import Status, Task
    from django_txtasks.operations import operators
    from django_txtasks.overview import overview

    with transaction.atomic():
        orders = [Order.objects.create(customer=name) for name in ("Ada", "Bob", "Cleo", "Dan")]
        for order in orders:
            send_receipt.enqueue(order.pk)
        for number in ("4000 0000 0000 0002", "4000 0000 0000 0069"):
            charge_card.enqueue(number)
    while Task.objects.in_state(Status.DEAD).count() < 2:  # --batch ends while a retry waits
        call_command("runworkers", batch=True, verbosity=0)
    held = print_receipt.enqueue(orders[0].pk)
    operators.hold("default", [held.id])
    for hours, order in enumerate(orders, start=1):
        send_receipt.using(run_after=timedelta(hours=hours)).enqueue(order.pk)
    for order in orders[:3]:
        print_receipt.enqueue(order.pk, 600)
    command = [sys.executable, "-m", "django", "runworkers", "--processes=2", "--verbosity=0"]
    workers = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 -- our own command
    try:
        _wait_until(lambda: Task.objects.in_state(Status.CLAIMED).count() == 3)
        dead = Task.objects.in_state(Status.DEAD).earliest("enqueued_at")
        overview(max_age=0)  # the filters show its numbers
        yield {
            "tasks": "/admin/txtasks/task/",
            "dead-task": f"/admin/txtasks/task/{dead.pk}/change/",
            "workers": "/admin/txtasks/worker/",
        }
    finally:
        workers.send_signal(signal.SIGTERM)
        workers.wait(30)


@contextmanager
def _approvals() -> Iterator[dict[str, str]]:
    """Orders that wait for people; gives the list of questions, and a question with buttons."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from django_txtasks.contrib import people
    from django_txtasks.contrib.people.models import Question

    call_command("approvals", orders=14, verbosity=0)
    call_command("runworkers", batch=True, verbosity=0)
    bob = get_user_model().objects.get(username="bob")
    reader = get_user_model().objects.earliest("pk")
    first, second, third = Question.objects.filter(closed_at=None).order_by("due_at", "pk")[1:4]
    people.take(first, bob)
    people.take(second, reader)
    people.give_back(second, reader, note="Above her limit: please ask Ms Brown first")
    people.take(third, reader)
    _wait_until(lambda: people.counts(reader)[people.Box.OVERDUE] > 0)
    yield {"inbox": "/inbox/?box=all", "question": f"/inbox/{second.pk}/"}


def _take_with_unfold(picture: Path) -> None:
    """Take *At a glance* in this theme, in a process whose settings have it."""
    from PIL import Image

    with tempfile.TemporaryDirectory(prefix="unfold-") as room:
        script = HERE.parent / "tests" / "themes.py"
        subprocess.run(  # noqa: S603 -- our own command
            [sys.executable, str(script), "unfold", room, "glance"], check=True
        )
        with Image.open(Path(room) / "unfold-glance-laptop-light.png") as taken:
            part = taken.crop((0, 0, taken.width, UNFOLD_HEIGHT))
            part.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
                picture, optimize=True
            )
    print(picture)


def _take(chromium: Any, url: str, picture: Path) -> None:
    from PIL import Image

    width, height = SIZES[picture.stem]
    scheme = "dark" if picture.stem in DARK else "light"
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    page.goto(url)
    picture.parent.mkdir(exist_ok=True)
    page.screenshot(path=picture)
    page.close()
    with Image.open(picture) as taken:
        taken.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
            picture, optimize=True
        )
    print(picture)


def _wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            sys.exit("The workers of the scene did not start.")
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
