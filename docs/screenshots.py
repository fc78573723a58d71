"""Takes the pictures of the admin that the documentation shows.

    python docs/screenshots.py [directory]

It needs chromium, on the PATH or named by CHROMIUM. The pages are those of the example project on a
database of SQLite that is gone afterwards, with tasks that were really enqueued, run and killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCES = ("django_txtasks", "testproject")
QUICK = {
    "retry_base": 0.01,
    "retry_ceiling": 0.01,
    "lease": 4,
    "heartbeat_interval": 0.3,
    "grace": 1,
}
HEIGHTS = {"tasks": 1020, "dead-task": 1500, "workers": 560}


class SignedIn:
    """Middleware: every visitor is the one user there is."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        from django.contrib.auth import get_user_model

        request.user = get_user_model().objects.get()
        return self.get_response(request)


def main(directory: str = str(HERE / "images")) -> None:
    """Set the scene, serve it, and take the pictures."""
    chromium = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if chromium is None:
        sys.exit("There is no chromium. Install it, or name one: CHROMIUM=/path/to/it")
    with tempfile.TemporaryDirectory(prefix="shop-") as room:
        _set_up(Path(room))
        with _scene() as pages, _server() as address:
            for name, page in pages.items():
                _take(chromium, f"{address}{page}", Path(directory) / f"{name}.png", HEIGHTS[name])


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
    )
    import django
    from django.conf import settings

    settings.MIDDLEWARE.append("screenshots.SignedIn")
    django.setup()


@contextmanager
def _scene() -> Iterator[dict[str, str]]:
    """Tasks of all kinds and workers that run; gives the pages, by name."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.db import transaction
    from orders.models import Order
    from orders.tasks import charge_card, print_receipt, send_receipt

    from django_txtasks.lifecycle import operators
    from django_txtasks.models import Status, Task

    call_command("migrate", verbosity=0)
    get_user_model().objects.create_superuser("ada", "ada@example.com", "secret")
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
        yield {
            "tasks": "/admin/txtasks/task/",
            "dead-task": f"/admin/txtasks/task/{dead.pk}/change/",
            "workers": "/admin/txtasks/worker/",
        }
    finally:
        workers.send_signal(signal.SIGTERM)
        workers.wait(30)


@contextmanager
def _server() -> Iterator[str]:
    """The site, in a thread; gives its address."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
    from django.core.wsgi import get_wsgi_application

    class Silent(WSGIRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadedWSGIServer(("127.0.0.1", 0), Silent)
    server.set_app(StaticFilesHandler(get_wsgi_application()))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _take(chromium: str, url: str, picture: Path, height: int) -> None:
    picture.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as profile:
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            f"--window-size=1560,{height}",
            f"--screenshot={picture}",
        ]
        subprocess.run([chromium, *options, url], check=True, timeout=120, capture_output=True)  # noqa: S603
    print(picture)


def _wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            sys.exit("The workers of the scene did not start.")
        time.sleep(0.1)


if __name__ == "__main__":
    main(*sys.argv[1:])
