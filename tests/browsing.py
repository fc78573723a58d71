"""A real Chromium, and a server of the site that it visits: for browser tests and for pictures.

The program is the one that ``TXTASKS_TEST_CHROMIUM`` names, or one that is installed, or else it is fetched as the
servers of the tests are: Debian's packages, unpacked into a cache. Playwright drives it, and downloads nothing.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import programs
from programs import Program, Wanted

WANTED = Wanted(
    command="chromium",
    package="chromium-headless-shell",
    pattern="usr/lib/chromium/chromium*",
)
OTHER_COMMANDS = ("google-chrome", "chromium-headless-shell")
OPTIONS = [
    "--no-sandbox",  # root has none
    "--disable-gpu",
    "--disable-dev-shm-usage",  # containers have little shared memory
    # No request leaves the machine: no updates, no synchronisation.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
]
MOST_SECONDS = 60
"""Longest time of one step in the browser. A busy machine may need ten."""
UNREACHABLE = """
    part => [...part.querySelectorAll("a, button, input")].filter(one => {
        const place = one.getBoundingClientRect(), box = one.closest(".txg-box")?.getBoundingClientRect();
        const end = Math.min(innerWidth, box?.right ?? innerWidth);
        return place.width > 1 && (place.left < 0 || place.right > end + 1);
    }).map(one => one.outerHTML.slice(0, 200))
"""
"""Controls in a part of a page that lie outside the window or outside their box: a script for ``evaluate``."""


FOCUSED = """
    (one => one.getAttribute("aria-label") ?? (one.labels?.[0] ?? one).textContent.trim().replace(/:$/, ""))(
        document.activeElement)
"""
"""The name of the control that has the focus: a script for ``evaluate``."""


class SignedIn:
    """Middleware: every visitor is the first user, with all permissions."""

    def __init__(self, get_response: Callable[[Any], Any]) -> None:
        self.get_response = get_response

    def __call__(self, request: Any) -> Any:
        from django.contrib.auth.models import User

        request.user = User.objects.earliest("pk")
        return self.get_response(request)


@contextmanager
def browser() -> Iterator[Any]:
    """Give a Chromium without a window.

    Raises:
        programs.Unavailable: there is none, and none could be fetched.
    """
    from playwright.sync_api import sync_playwright

    program = find()
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=program.path,
            args=OPTIONS,
            env={**os.environ, **_environment(program)},
            timeout=1000 * MOST_SECONDS,
        )
        yield chromium
        chromium.close()


def complaints_of(page: Any) -> list[str]:
    """Return a list that gets the page's errors and warnings, such as those of a Content-Security-Policy."""
    complaints: list[str] = []

    def note(message: Any) -> None:
        is_ours = message.location["url"].startswith(
            ("http://127.0.0.1", "http://localhost", "data:")
        )
        if message.type in ("error", "warning") and (is_ours or not message.location["url"]):
            complaints.append(f"{message.text} {message.location['url']}")

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(error.stack or str(error)))
    page.route("**/favicon.ico", lambda route: route.fulfill(status=204))
    return complaints


def press(page: Any, name: str) -> None:
    """Go to a control with the tabulator key, as a person without a mouse does, and press it with Enter."""
    go_to(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def go_to(page: Any, name: str) -> None:
    """Press the tabulator key until a control with this label or text has the focus."""
    for _ in range(300):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED) == name:
            return
    raise AssertionError(f"The tabulator key does not reach {name!r}.")


def is_too_wide(page: Any) -> bool:
    """Return True if the page scrolls sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def find() -> Program:
    """Return Chromium or Chrome, fetched if need be."""
    if named := os.environ.get("TXTASKS_TEST_CHROMIUM"):
        return Program(Path(named))
    for path in filter(None, map(shutil.which, OTHER_COMMANDS)):
        if not os.environ.get("TXTASKS_FORCE_DEBS"):
            return Program(Path(path))
    return programs.find(WANTED)


def _environment(program: Program) -> dict[str, str]:
    """Return what an unpacked Chromium needs: its libraries, and fonts if the machine has none."""
    if program.root == Path("/"):
        return {}
    environment = program.environment()
    if (fonts := program.root / "etc/fonts/fonts.conf").exists():
        environment |= {"FONTCONFIG_FILE": str(fonts)}
        environment |= {"XDG_DATA_HOME": f"{program.root}/usr/share"}  # with the directory of fonts
    return environment


@contextmanager
def server() -> Iterator[str]:
    """Serve the site of Django's settings, with its static files, in threads; give its address."""
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.servers.basehttp import ThreadedWSGIServer, WSGIRequestHandler
    from django.core.wsgi import get_wsgi_application

    class Silent(WSGIRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    serving = ThreadedWSGIServer(("127.0.0.1", 0), Silent)
    serving.daemon_threads = False  # requests end before the test's rows are deleted
    serving.set_app(StaticFilesHandler(get_wsgi_application()))
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}"
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()
