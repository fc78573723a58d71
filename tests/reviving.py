"""A person who revives the tasks of a cause in a browser: for the browser tests and ``benchmarks/causes.py``."""

from __future__ import annotations

import re
import time
from typing import Any

import helpers

GLANCE = "/admin/txtasks/overview/"
FINISHED = "/admin/txtasks/finishedtask/"


class Reviver:
    """A person with a page of a browser.

    Attributes:
        clicks: number of clicks so far.
    """

    def __init__(self, page: Any, address: str) -> None:
        self.page, self._address = page, address
        self.clicks = 0

    def find(self) -> str:
        """Open At a glance, follow the first cause, and return the sentence with its numbers."""
        self.page.goto(self._address + GLANCE)
        self._click(
            self.page.locator(".txg-problems").get_by_role("link", name="Look at this cause").first
        )
        self.page.wait_for_url(re.compile("cause="))
        text = str(self.page.get_by_text("Tasks of this cause:").inner_text())
        return text.partition(".")[0]

    def revive_all(self) -> str:
        """Let a task revive all tasks of the cause; return its id, on its page."""
        self._click(self.page.locator('button[form="txtasks-all"][value="revive"]'))
        self._click(self.page.get_by_role("button", name="Revive: all, by a task"))
        self.page.wait_for_url(re.compile("/change/"))
        assert self.page.get_by_text("This task does it").is_visible()
        return str(self.page.url).split("/")[-3]

    def ask_to_stop(self) -> None:
        """On the page of the task: ask it to stop, once it runs."""
        where = self.page.url
        button = self.page.get_by_role("button", name="Ask to stop")
        helpers.wait_until(lambda: self._has(where, button))
        self._click(button)
        self._click(self.page.locator('input[type="submit"][value="Ask to stop"]'))
        assert self.page.get_by_text("1 task asked to stop.").is_visible()

    def outcome(self, task_id: str) -> str:
        """Wait until history has the task, and return the text of its page."""
        where = f"{self._address}{FINISHED}{task_id}/change/"
        helpers.wait_until(lambda: self.page.goto(where).url == where)
        return str(self.page.locator("#content").inner_text())

    def _has(self, where: str, button: Any) -> bool:
        if self.page.goto(where).ok and button.count():
            return True
        time.sleep(0.05)
        return False

    def _click(self, control: Any) -> None:
        self.clicks += 1
        control.click()
        self.page.wait_for_load_state()
