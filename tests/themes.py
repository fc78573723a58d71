"""Take pictures of the admin in a theme, and print what does not fit into the page.

    python tests/themes.py stock|unfold|jazzmin|grappelli [directory [page …]]

It needs an environment with the theme and a Django that the theme supports, with ``--group browser``. Each page is
taken in windows of four widths, light and dark. Ends with 1 if a page is wider than its window, if a control of
*At a glance* is out of reach, or if the browser reports an error.

Without a directory it needs no browser and takes no pictures: it prints which parts are missing in the pages, as
``test_themes.py`` does for each theme.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import browsing

THEMES = {
    "stock": [],
    "unfold": ["unfold"],
    "jazzmin": ["jazzmin"],
    "grappelli": ["grappelli"],
}
WINDOWS = {
    "tablet": {"width": 1200, "height": 900},
    "small": {"width": 1280, "height": 800},
    "laptop": {"width": 1400, "height": 900},
    "phone": {"width": 390, "height": 844},
}
SCHEMES = ("light", "dark")
AT_A_GLANCE = 'href="/admin/txtasks/overview/"'
PARTS = {
    "index": [AT_A_GLANCE],
    "glance": [
        'id="txtasks-glance"', "txtasks/glance.css", "txtasks/live.js", 'id="txg-problems"', 'id="txg-hour"',
        'id="txg-queues"', 'id="txg-causes"', 'id="txg-running"', 'id="txg-workers"', 'id="txg-functions"',
        'id="txg-lanes"', 'id="txg-schedules"', 'name="pause" value="default"', 'name="resume" value="mail"',
    ],
    "tasks": [
        AT_A_GLANCE, "txtasks/admin.css", "orders.tasks.charge_card", "txtasks-badge", "retrying (3)", 'name="q"',
    ],
    "cause": [AT_A_GLANCE, "Tasks of this cause: 41 dead", 'form="txtasks-all" name="action" value="revive"'],
    "task": [
        "txtasks/admin.css", 'name="action" value="revive"', 'name="action" value="discard"', "Enqueue again",
        "the provider answered nothing", "90117", "all tasks of this cause",
    ],
    "workers": [AT_A_GLANCE, "web-1", "txtasks-alive", "icon-no.svg", "A cross under"],
    "question": ["41 tasks are chosen.", "orders.tasks.send_receipt", 'name="confirmed" value="yes"', "No, take"],
}  # fmt: skip
"""Main parts of each page."""


def main(theme: str, directory: str = "", *pages: str) -> int:
    """Take the pictures, or look for the parts of the pages; return the exit status."""
    with tempfile.TemporaryDirectory(prefix="theme-") as room:
        _set_up(theme, Path(room))
        import scene

        scene.fill()
        every = scene.pages()
        found = _visit(theme, Path(directory), every, pages) if directory else _missing(every)
        complaints = [f"{name}: {complaint}" for name, complaint in found]
    print(*complaints, sep="\n")
    return int(bool(complaints))


def _set_up(theme: str, room: Path) -> None:
    """Prepare the example project with the theme, on a database of its own."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "testproject"))
    os.environ.update(
        DJANGO_SETTINGS_MODULE="settings",
        DJANGO_ALLOW_ASYNC_UNSAFE="true",
        TXTASKS_DATABASE_URL=f"sqlite:///{room}/shop.sqlite3?timeout=5",
    )
    import django
    from django.conf import settings

    settings.INSTALLED_APPS[:0] = THEMES[theme]
    settings.MIDDLEWARE.append("browsing.SignedIn")
    django.setup()
    from django.contrib import admin
    from django.contrib.auth.models import User
    from django.core.management import call_command
    from django.urls import include, path

    if theme == "grappelli":
        grappelli = path("grappelli/", include("grappelli.urls"))
        settings.ROOT_URLCONF = (grappelli, path("admin/", admin.site.urls))
    call_command("migrate", verbosity=0)
    User.objects.create_superuser("ada", "ada@example.com", "secret")


def _missing(pages: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the parts that are missing in pages, with the page's name."""
    from django.contrib.auth.models import User
    from django.test import Client

    from django_txtasks.models import Worker

    Worker.objects.filter(host="web-2").update(listening=False)  # a cross, which has an explanation
    client = Client()
    client.force_login(User.objects.get())
    for name, path in {"index": "/admin/", **pages}.items():
        answer = client.get(path)
        if answer.status_code != 200:
            yield name, f"the answer is {answer.status_code}"
        yield from ((name, part) for part in PARTS[name] if part not in answer.content.decode())
    every = {"action": "revive", "index": "0", "select_across": "1", "_selected_action": "0" * 32}
    asked = client.post(pages["cause"], every).content.decode()
    yield from (("question", part) for part in PARTS["question"] if part not in asked)


def _visit(theme: str, directory: Path, pages: dict[str, str], chosen: Any) -> Any:
    """Take each picture; yield complaints with the picture's name."""
    import scene

    directory.mkdir(parents=True, exist_ok=True)
    with browsing.server() as address, browsing.browser() as chromium:
        for window, size in WINDOWS.items():
            for scheme in SCHEMES:
                page = chromium.new_page(viewport=size, color_scheme=scheme)
                found = browsing.complaints_of(page)
                for name in chosen or pages:
                    scene.beat()
                    page.goto(address + pages[name])
                    page.wait_for_function("document.fonts.status === 'loaded'")
                    picture = f"{theme}-{name}-{window}-{scheme}"
                    page.screenshot(path=directory / f"{picture}.png", full_page=True)
                    if browsing.is_too_wide(page):
                        found.append("the page is wider than its window")
                    found += [
                        control
                        for part in page.locator("#txtasks-glance").all()
                        for control in part.evaluate(browsing.UNREACHABLE)
                    ]
                    yield from ((picture, complaint) for complaint in found)
                    found.clear()
                page.close()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
